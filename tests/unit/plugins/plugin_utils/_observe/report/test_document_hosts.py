# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host may be rebooted: the ledger forbids, and only a drain permits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DiscardDecision
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report import formats
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report, Scope
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.conftest import report_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body

SAFE = {"kvm1": {"safe_to_reboot": True, "blockers": []}}


def host_in(document: Body, name: str) -> Body:
    """Return that host of a report."""
    return next(host for host in document["hosts"] if host["name"] == name)


def test_hosts_are_those_of_the_ledger_and_of_the_moves(ledger: Ledger, report: Body) -> None:
    assert [host["name"] for host in report["hosts"]] == [f"kvm{number}" for number in range(1, 7)]
    records = list(ledger.list_records())
    for host in report["hosts"]:
        name = host["name"]
        assert host["left"] == sum(1 for one in records if one.source.host == name and one.status in (s.COMPLETED, s.DONE))
        assert host["arrived"] == sum(1 for one in records if one.destination.host == name and one.status in (s.COMPLETED, s.DONE))
    kvm6 = host_in(report, "kvm6")
    assert (kvm6["state"], kvm6["reason"]) == ("fenced", "It was off, and is evacuated")


def test_the_verdict_of_a_drain_is_used(report: Body) -> None:
    kvm1, kvm2 = host_in(report, "kvm1"), host_in(report, "kvm2")
    assert (kvm1["safe_to_reboot"], kvm1["judged_by"], kvm1["reasons"]) == (True, "drain", [])
    assert kvm2["safe_to_reboot"] is False
    assert kvm2["reasons"][:3] == nights.DRAINS["kvm2"]["blockers"]


def test_a_host_with_domains_in_the_ledger_is_not_safe_to_reboot(ledger: Ledger) -> None:
    kvm4 = host_in(report_of(ledger), "kvm4")
    assert kvm4["safe_to_reboot"] is False
    assert kvm4["judged_by"] == "ledger"
    assert kvm4["reasons"][-1].startswith(f"According to the ledger, {kvm4['arrived']} domains may run here: ")
    assert kvm4["reasons"][-1].endswith(f" and {kvm4['arrived'] - 6} more.")


def test_the_ledger_alone_never_makes_a_host_safe_to_reboot(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    kvm1 = host_in(report_of(empty), "kvm1")
    assert kvm1["safe_to_reboot"] is None
    assert host_in(report_of(empty, drains=SAFE), "kvm1")["safe_to_reboot"] is True


def test_an_unsettled_record_overrides_the_verdict_of_a_drain(empty: Ledger) -> None:
    record = nights.begun("web1", "kvm2", "kvm1", 0)
    nights.keep(empty, record, nights.running(record, 1))
    kvm1 = host_in(report_of(empty, drains=SAFE), "kvm1")
    assert kvm1["safe_to_reboot"] is False
    assert kvm1["reasons"] == ["web1 has an unsettled record, its status is 'running'."]


DRAINED_AT_100 = {"kvm1": {**SAFE["kvm1"], "plan": {"created_at": nights.moment(100)}}}


def test_a_host_that_is_in_service_again_is_not_safe_to_reboot(empty: Ledger) -> None:
    nights.enter(empty, "kvm1", "maintenance")
    assert host_in(report_of(empty, drains=SAFE), "kvm1")["safe_to_reboot"] is True
    (stored,) = empty.list_hosts()
    empty.put_host(dataclasses.replace(stored.host, state="enabled"), stored.version)
    kvm1 = host_in(report_of(empty, drains=SAFE), "kvm1")
    assert (kvm1["safe_to_reboot"], kvm1["judged_by"]) == (None, "ledger")
    assert kvm1["reasons"][0] == "It was drained, and is in service again: the verdict of its drain is out of date."
    nights.arrived(empty, "web1", "kvm2", "kvm1", 200, 1000, 10)
    assert host_in(report_of(empty, drains=SAFE), "kvm1")["safe_to_reboot"] is False


@pytest.mark.parametrize(("seconds", "is_safe"), [(-700, None), (-500, True)])
def test_a_host_that_was_in_service_after_its_drain_is_not_safe_to_reboot(empty: Ledger, seconds: int, is_safe: bool | None) -> None:
    """It is in maintenance again, since 600 s before the night began: its guests have come back in between."""
    nights.enter(empty, "kvm1", "maintenance")
    kvm1 = host_in(report_of(empty, drains={"kvm1": {**SAFE["kvm1"], "verified_at": nights.moment(seconds)}}), "kvm1")
    assert kvm1["safe_to_reboot"] is is_safe
    assert ("It was drained, and has been in service since: the verdict of its drain is out of date." in kvm1["reasons"]) is (is_safe is None)


def test_a_host_in_service_keeps_what_its_drain_found_against_a_reboot(empty: Ledger) -> None:
    nights.enter(empty, "kvm1")
    told = {"kvm1": {"safe_to_reboot": False, "blockers": ["web1 is running here."]}}
    kvm1 = host_in(report_of(empty, drains=told), "kvm1")
    assert (kvm1["safe_to_reboot"], kvm1["reasons"]) == (False, ["web1 is running here."])


def test_a_guest_that_arrived_after_the_drain_overrides_its_verdict(empty: Ledger) -> None:
    # The guest that left in the drain had arrived before it.
    nights.arrived(empty, "db1", "kvm2", "kvm1", 0, 1000, 10)
    nights.arrived(empty, "db1", "kvm1", "kvm3", 110, 1000, 10)
    assert host_in(report_of(empty, drains=DRAINED_AT_100), "kvm1")["safe_to_reboot"] is True
    nights.arrived(empty, "web1", "kvm2", "kvm1", 200, 1000, 10)
    # Whatever the report is about.
    for scope in (Scope(), Scope(until=nights.moment(150)), Scope(domain="db1")):
        kvm1 = host_in(report_of(empty, scope, DRAINED_AT_100), "kvm1")
        assert (kvm1["safe_to_reboot"], kvm1["reasons"]) == (False, ["web1 has arrived here since the drain."])
    nights.arrived(empty, "web1", "kvm1", "kvm2", 300, 1000, 10)
    assert host_in(report_of(empty, drains=DRAINED_AT_100), "kvm1")["safe_to_reboot"] is True


def test_a_cleanup_after_the_drain_is_no_arrival_of_its_guest(empty: Ledger) -> None:
    # It was started on kvm1, and was off there when kvm1 was drained; the dead host was cleaned up later.
    nights.evacuated(empty, "web1", "kvm6", "kvm1", 50, cleaned=True)
    assert host_in(report_of(empty, drains=DRAINED_AT_100), "kvm1")["safe_to_reboot"] is True
    nights.evacuated(empty, "web2", "kvm6", "kvm1", 150)
    assert host_in(report_of(empty, drains=DRAINED_AT_100), "kvm1")["reasons"] == ["web2 has arrived here since the drain."]


@pytest.mark.parametrize(("act", "seconds", "is_safe"), [("started", 200, False), ("moved", 200, False), ("stopped", 200, True), ("started", 50, True)])
def test_a_guest_that_others_started_on_the_host_after_the_drain_overrides_its_verdict(empty: Ledger, act: str, seconds: int, is_safe: bool) -> None:
    nights.arrived(empty, "web1", "kvm2", "kvm1", 0, 1000, 10)
    document = empty.find_domains("web1")[0]
    (where,) = document.body["possible_hosts"]
    more = {"source": None, "before": None, "state": "running", "reason": "", "generation": 1}
    acts = [{"act": act, "at": nights.moment(seconds), "by": nights.OPERATOR, "host": where, **more}]
    empty.put_domain(domain_entry({**document.body, "foreign_acts": acts}), document.version)
    assert host_in(report_of(empty, drains=DRAINED_AT_100), "kvm1")["safe_to_reboot"] is is_safe


def test_a_record_that_the_drain_named_is_not_repeated(empty: Ledger) -> None:
    record = nights.begun("web1", "kvm1", "kvm2", 0)
    nights.keep(empty, record, nights.running(record, 1))
    told = {"kvm1": {"safe_to_reboot": False, "blockers": [f"Record {record.id} of web1 is unsettled (running)."]}}
    assert len(host_in(report_of(empty, drains=told), "kvm1")["reasons"]) == 1


def test_a_drained_host_without_a_move_is_listed_unless_out_of_scope(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm2", "kvm3", 0, 1000, 10)
    assert [host["name"] for host in report_of(empty, drains=SAFE)["hosts"]] == ["kvm1", "kvm2", "kvm3"]
    assert [host["name"] for host in report_of(empty, Scope(host="kvm2"), SAFE)["hosts"]] == ["kvm2", "kvm3"]


def test_an_inactive_domain_does_not_prevent_a_reboot(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm2", "kvm1", 0, 1000, 10)
    document = empty.find_domains("web1")[0]
    empty.put_domain(domain_entry({**document.body, "protected": {"state": "shut off"}}), document.version)
    assert host_in(report_of(empty), "kvm1")["safe_to_reboot"] is None


def test_a_host_that_could_not_be_fenced_is_named_as_such(empty: Ledger) -> None:
    at = "2026-11-24T03:00:00.000Z"
    entry = host_entry({"name": "kvm1", "host_id": "11111111-0000-4000-8000-000000000001", "fencing": {"state": "fencing_impossible", "since": at}})
    stored = empty.put_host(entry, None)
    assert host_in(report_of(empty), "kvm1")["reason"] == f"fencing_impossible, since {at}"
    empty.put_host(dataclasses.replace(stored.host, reason="New disks"), stored.version)
    assert host_in(report_of(empty), "kvm1")["reason"] == f"New disks; fencing_impossible, since {at}"


def unstarted(ledger: Ledger) -> str:
    """Let the evacuation of kvm6 leave two guests behind, and return the finding."""
    nights.enter(ledger, "kvm6", "fenced")
    nights.evacuated(ledger, "web1", "kvm6", "kvm1", 0)
    record = nights.begun("db1", "kvm6", "kvm1", 0, kind=s.EVACUATION)
    nights.keep(ledger, record, nights.then(record, s.CONFLICT, 1, f"kvm1: It is short of memory. {nights.MARKUP}"))
    # It was protected, and its evacuation has no record.
    body = {"uuid": nights.uuid_of("app1"), "name": "app1", "possible_hosts": [encode(nights.place("kvm6"))], "protected": {"state": "running"}}
    ledger.put_domain(domain_entry(body), None)
    return (
        f"kvm6 is fenced, and app1, db1 run on no host according to the ledger. db1 was not started elsewhere: kvm1: It is short of memory. {nights.MARKUP}."
        " To start what can run elsewhere: kvmfleet.migration.evacuate -e source=kvm6."
        " The rest waits for the return of the host: kvmfleet.migration.recover -e target=kvm6"
    )


def test_guests_that_were_not_started_elsewhere_are_for_a_person(empty: Ledger) -> None:
    assert "attention" not in report_of(empty)
    finding = unstarted(empty)
    document = report_of(empty)
    assert document["attention"] == [finding]
    text = formats.as_markdown(decode(Report, document))
    assert "## Needs a person\n\n- kvm6 is fenced, and app1, db1 run on no host" in text
    assert nights.MARKUP not in text


def test_the_guests_of_a_discarded_host_wait_for_no_return(empty: Ledger) -> None:
    unstarted(empty)
    document = empty.find_host(name="kvm6")
    assert document is not None
    empty.put_host(dataclasses.replace(document.host, discarded=DiscardDecision(reason="It burned")), document.version)
    (finding,) = report_of(empty)["attention"]
    assert finding.startswith("kvm6 will not return, and app1, db1 run on no host according to the ledger.")
    assert finding.endswith("-e source=kvm6. To give up the rest: kvmfleet.migration.host with name=kvm6, domains_lost and a reason")


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        (Scope(host="kvm6"), "app1, db1 run"),
        (Scope(host="kvm1"), None),
        (Scope(domain="app1"), "app1 runs"),
        (Scope(domain="web1"), None),
        (Scope(ids=[nights.uuid_of("db1 kvm6 kvm1 0")]), "db1 runs"),
    ],
)
def test_unstarted_guests_are_those_of_the_scope(empty: Ledger, scope: Scope, names: str | None) -> None:
    unstarted(empty)
    found = report_of(empty, scope).get("attention", [])
    assert [line.partition(" on no host")[0] for line in found] == ([f"kvm6 is fenced, and {names}"] if names else [])


def make_unreadable(ledger: Ledger, name: str, is_newer: bool = False) -> str:
    """Damage the document of a host, or make it one of a later version; return its key."""
    found = ledger.find_host(name)
    assert found is not None
    path = Path(ledger.name, "hosts", f"{found.host.host_key}.json")
    envelope = json.loads(path.read_text())
    envelope["body"]["schema"] = 2
    path.write_text(json.dumps(envelope) if is_newer else "torn")
    return str(found.host.host_key)


def test_a_record_that_was_set_aside_needs_a_person(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm2", "kvm1", 0, 1000, 10)
    (path,) = Path(empty.name, "migrations", "closed").rglob("*.json")
    path.write_text("torn")
    assert list(empty.list_records()) == []
    (text,) = report_of(empty, Scope())["attention"]
    assert text.startswith(f"The record {path.stem} was damaged and set aside, and may have been open: ")
    assert "attention" not in report_of(empty, Scope(host="kvm1"))


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_host_whose_document_cannot_be_read_is_listed_and_needs_a_person(empty: Ledger, is_newer: bool) -> None:
    nights.enter(empty, "kvm1", "maintenance")
    nights.enter(empty, "kvm2")
    nights.arrived(empty, "web1", "kvm2", "kvm1", 0, 1000, 10)
    key = make_unreadable(empty, "kvm1", is_newer)
    for scope in (Scope(), Scope(host="kvm1"), Scope(host=key)):
        document = report_of(empty, scope)
        kvm1 = host_in(document, "kvm1")
        assert (kvm1["state"], kvm1["host_id"]) == ("unknown", key)
        assert ("later version" if is_newer else "damaged") in kvm1["reason"]
        (text,) = document["attention"]
        assert text.startswith(f"The state of the host {key} is not known, so it gets no guests: ")
    assert "attention" not in report_of(empty, Scope(host="kvm2"))


def test_a_damaged_document_of_a_host_without_guests_is_listed_by_its_key(empty: Ledger) -> None:
    nights.enter(empty, "kvm1", "fenced")
    key = make_unreadable(empty, "kvm1")
    for _time in range(2):
        assert [(host["name"], host["state"]) for host in report_of(empty)["hosts"]] == [(key, "unknown")]


def test_a_host_whose_state_is_not_known_loses_the_permission_of_its_drain(empty: Ledger) -> None:
    nights.enter(empty, "kvm1", "maintenance")
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    document, kvm1_ref = empty.find_domains("web1")[0], empty.list_hosts()[0].host.host_ref
    empty.put_domain(dataclasses.replace(document.domain, possible_hosts=(*document.domain.possible_hosts, kvm1_ref)), document.version)
    make_unreadable(empty, "kvm1")
    kvm1 = host_in(report_of(empty, drains=SAFE), "kvm1")
    assert kvm1["safe_to_reboot"] is False
    assert kvm1["reasons"][0] == "It was drained, and its state is not known: it may be in service again."


@pytest.mark.parametrize("scope", [Scope(), Scope(host="kvm1")])
def test_a_host_that_is_drained_has_its_name_from_the_moves_that_left_it(empty: Ledger, scope: Scope) -> None:
    nights.enter(empty, "kvm1", "maintenance")
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    key = make_unreadable(empty, "kvm1")
    document = report_of(empty, scope, SAFE)
    kvm1 = host_in(document, "kvm1")
    assert (kvm1["safe_to_reboot"], kvm1["state"], kvm1["host_id"]) == (None, "unknown", key)
    assert kvm1["reasons"][0] == "It was drained, and its state is not known: it may be in service again."
    assert key not in [host["name"] for host in document["hosts"]]


def test_a_damaged_document_of_an_earlier_host_does_not_hide_the_host_with_its_name(empty: Ledger) -> None:
    nights.enter(empty, "kvm1", "fenced")
    nights.arrived(empty, "web1", "kvm2", "kvm1", 0, 1000, 10)
    key = make_unreadable(empty, "kvm1")
    # The machine was replaced.
    empty.put_host(host_entry({"name": "kvm1", "host_id": nights.uuid_of("new"), "state": "maintenance"}), None)
    document = report_of(empty, drains=SAFE)
    assert (host_in(document, "kvm1")["state"], host_in(document, "kvm1")["safe_to_reboot"]) == ("maintenance", True)
    assert host_in(document, key)["state"] == "unknown"


@pytest.mark.parametrize("scope", [Scope(), Scope(host="kvm1"), Scope(domain="db1")])
def test_a_drained_host_without_an_entry_may_be_that_of_a_damaged_document(empty: Ledger, scope: Scope) -> None:
    nights.enter(empty, "kvm1", "maintenance")
    nights.arrived(empty, "db1", "kvm3", "kvm2", 0, 1000, 10)
    key = make_unreadable(empty, "kvm1")
    kvm1 = host_in(report_of(empty, scope, SAFE), "kvm1")
    assert (kvm1["safe_to_reboot"], kvm1["reasons"][0]) == (None, "It was drained, and its state is not known: it may be in service again.")
    # A document that is known to be of another host says nothing about it.
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    assert key not in [host["name"] for host in report_of(empty, drains={"kvm9": SAFE["kvm1"]})["hosts"]]
    assert host_in(report_of(empty, drains={"kvm9": SAFE["kvm1"]}), "kvm9")["safe_to_reboot"] is True


def test_an_evacuation_that_is_done_while_the_report_reads_is_no_unstarted_guest(empty: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.enter(empty, "kvm6", "fenced")
    nights.enter(empty, "kvm1")
    begun = empty.open_record(nights.begun("web1", "kvm6", "kvm1", 0, kind=s.EVACUATION))
    read_domains = empty.list_domains

    def read_and_finish() -> object:
        found, stored = read_domains(), begun
        for number, status in enumerate((s.PRE_MIGRATING, s.DONE)):
            stored = empty.update_record(stored, nights.then(stored.record, status, 1 + number))
        return found

    monkeypatch.setattr(empty, "list_domains", read_and_finish)
    assert "attention" not in report_of(empty)
