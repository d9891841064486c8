# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host may be rebooted: the ledger forbids, and only a drain permits."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Body, Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.gather import Scope
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._report.conftest import report_of

SAFE = {"kvm1": {"safe_to_reboot": True, "blockers": []}}


def host_in(document: Body, name: str) -> Body:
    """Return that host of a report."""
    return next(host for host in document["hosts"] if host["name"] == name)


def test_hosts_are_those_of_the_ledger_and_of_the_moves(ledger: Ledger, report: Body) -> None:
    assert [host["name"] for host in report["hosts"]] == [f"kvm{number}" for number in range(1, 7)]
    records = list(ledger.records())
    for host in report["hosts"]:
        name = host["name"]
        assert host["left"] == sum(1 for one in records if one["source"]["host"] == name and one["status"] in (s.COMPLETED, s.DONE))
        assert host["arrived"] == sum(1 for one in records if one["destination"]["host"] == name and one["status"] in (s.COMPLETED, s.DONE))
    kvm6 = host_in(report, "kvm6")
    assert (kvm6["state"], kvm6["reason"]) == ("fenced", "It was off, and is evacuated")


def test_what_a_drain_said_is_believed(report: Body) -> None:
    kvm1, kvm2 = host_in(report, "kvm1"), host_in(report, "kvm2")
    assert (kvm1["safe_to_reboot"], kvm1["judged_by"], kvm1["reasons"]) == (True, "drain", [])
    assert kvm2["safe_to_reboot"] is False
    assert kvm2["reasons"][:3] == nights.DRAINS["kvm2"]["blockers"]


def test_the_ledger_forbids_where_something_may_run(ledger: Ledger) -> None:
    kvm4 = host_in(report_of(ledger), "kvm4")
    assert kvm4["safe_to_reboot"] is False
    assert kvm4["judged_by"] == "ledger"
    assert kvm4["reasons"][-1].startswith(f"By the ledger {kvm4['arrived']} domains may run here: ")
    assert kvm4["reasons"][-1].endswith(f" and {kvm4['arrived'] - 6} more.")


def test_the_ledger_never_permits(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    kvm1 = host_in(report_of(empty), "kvm1")
    assert kvm1["safe_to_reboot"] is None
    assert host_in(report_of(empty, drains=SAFE), "kvm1")["safe_to_reboot"] is True


def test_an_unsettled_record_overrules_a_drain(empty: Ledger) -> None:
    record = nights.begun("web1", "kvm2", "kvm1", 0)
    nights.keep(empty, record, nights.running(record, 1))
    kvm1 = host_in(report_of(empty, drains=SAFE), "kvm1")
    assert kvm1["safe_to_reboot"] is False
    assert kvm1["reasons"] == ["web1 has an unsettled record, its status is 'running'."]


def test_a_record_that_the_drain_has_named_is_named_once(empty: Ledger) -> None:
    record = nights.begun("web1", "kvm1", "kvm2", 0)
    nights.keep(empty, record, nights.running(record, 1))
    told = {"kvm1": {"safe_to_reboot": False, "blockers": [f"Record {record['id']} of web1 is unsettled (running)."]}}
    assert len(host_in(report_of(empty, drains=told), "kvm1")["reasons"]) == 1


def test_a_host_that_was_drained_without_a_move_is_there_unless_the_report_is_about_another(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm2", "kvm3", 0, 1000, 10)
    assert [host["name"] for host in report_of(empty, drains=SAFE)["hosts"]] == ["kvm1", "kvm2", "kvm3"]
    assert [host["name"] for host in report_of(empty, Scope(host="kvm2"), SAFE)["hosts"]] == ["kvm2", "kvm3"]


def test_a_domain_that_is_off_forbids_nothing(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm2", "kvm1", 0, 1000, 10)
    document = empty.find_domains("web1")[0]
    empty.put_domain({**document.body, "protected": {"state": "shut off"}}, document.version)
    assert host_in(report_of(empty), "kvm1")["safe_to_reboot"] is None
