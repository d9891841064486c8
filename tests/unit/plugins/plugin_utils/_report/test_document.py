# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report says, against what the ledger has."""

from __future__ import annotations

import collections
import json

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Body, Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.document import document_of, summary_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.gather import Found, Scope, gather
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._report.conftest import report_of


def test_every_record_is_in_it_with_its_own_figures(ledger: Ledger, report: Body) -> None:
    records = {record["id"]: record for record in ledger.records()}
    assert sorted(records) == sorted(move["id"] for move in report["moves"])
    for move in report["moves"]:
        record = records[move["id"]]
        assert {key: move[key] for key in record["result"]} == record["result"]
        assert move["samples"] == record["samples"]
        assert [line["status"] for line in move["history"]] == [line["status"] for line in record["history"]]
        assert (move["status"], move["domain"], move["source"]) == (record["status"], record["domain"], record["source"]["host"])


def test_counts_add_up(ledger: Ledger, report: Body) -> None:
    statuses = collections.Counter(record["status"] for record in ledger.records())
    counts = report["counts"]
    assert counts["records"] == statuses.total() == counts["live_migrations"] + counts["evacuations"]
    assert (counts["completed"], counts["evacuated"], counts["refused"]) == (statuses["completed"], statuses["done"], statuses["conflict"])
    assert (counts["failed"], counts["cancelled"], counts["uncertain"]) == (statuses["failed"], statuses["cancelled"], statuses["error"])
    assert counts["under_way"] == statuses["running"] == 1
    assert counts["forced"] == 2
    assert counts["bytes"] == sum(record["result"]["bytes"] or 0 for record in ledger.records())


def test_downtimes_are_those_that_were_lived(ledger: Ledger, report: Body) -> None:
    lived = sorted(record["result"]["downtime_ms"] for record in ledger.records() if record["status"] == "completed" and record["type"] == "live-migration")
    downtimes = report["downtimes"]
    assert downtimes["count"] == len(lived) == sum(one[mode] for one in downtimes["ranges"] for mode in ("pre-copy", "post-copy", "paused"))
    assert (downtimes["least_ms"], downtimes["most_ms"]) == (lived[0], lived[-1])
    assert sum(1 for one in lived if one <= downtimes["median_ms"]) >= len(lived) / 2
    assert downtimes["median_ms"] in lived
    assert downtimes["p95_ms"] in lived
    assert sum(one["post-copy"] for one in downtimes["ranges"]) == 4
    assert [one["from_ms"] for one in downtimes["ranges"][1:]] == [one["below_ms"] for one in downtimes["ranges"][:-1]]


def test_times_come_from_the_history(report: Body) -> None:
    moves = {move["domain"]["name"]: move for move in report["moves"]}
    db1 = moves["db1"]
    assert (db1["created_at"], db1["started_at"], db1["ended_at"]) == (nights.moment(60), nights.moment(60.9), nights.moment(289))
    assert moves["report1"]["ended_at"] is None
    assert moves["gpu1"]["started_at"] is None
    assert moves["search1"]["ended_at"] == nights.moment(905)
    assert moves["gpu1"]["why"] == "kvm5 may not take domain gpu1: Its device 0000:41:00.0 (vfio) cannot leave the host."
    assert moves["erp1"]["forced_detail"] == "The destination was booked by force. Bypassed: It is in maintenance (new disks)."
    assert moves["shop1"]["evidence"] == [nights.evidence("kvm6", 895)]


def test_a_report_is_about_what_was_asked_for(ledger: Ledger) -> None:
    of_host = report_of(ledger, Scope(host="kvm6"))
    assert {move["domain"]["name"] for move in of_host["moves"]} == {"shop1", "shop2", "search1"}
    of_domain = report_of(ledger, Scope(domain="db1"))
    assert [move["domain"]["name"] for move in of_domain["moves"]] == ["db1"]
    late = report_of(ledger, Scope(since=nights.moment(890)))
    assert {move["type"] for move in late["moves"]} == {"evacuation", "live-migration"}
    assert {move["id"] for move in late["moves"]} == {record["id"] for record in ledger.records() if record["updated_at"] >= nights.moment(890)}
    named = report_of(ledger, Scope(ids=[of_domain["moves"][0]["id"]] * 2))
    assert named["moves"] == of_domain["moves"]


def test_what_cannot_be_asked_for(ledger: Ledger) -> None:
    with pytest.raises(InvalidArgument, match="no time"):
        Scope(since="yesterday").check()
    with pytest.raises(InvalidArgument, match="ids is given together with host"):
        Scope(ids=[], host="kvm1").check()
    with pytest.raises(NotFound):
        gather(ledger, Scope(ids=["55555555-0000-4000-8000-000000000009"]))


def test_nothing_is_a_report_too(empty: Ledger) -> None:
    for found in (gather(empty, Scope()), gather(None, Scope()), Found()):
        document = document_of(found, Scope(), nights.MADE_AT)
        assert document["counts"]["records"] == 0
        assert document["downtimes"] == {"count": 0, **dict.fromkeys(("median_ms", "p95_ms", "p99_ms", "least_ms", "most_ms")), "ranges": []}
        assert summary_of(document) == "No move is recorded here."


def test_the_summary_names_every_outcome(report: Body) -> None:
    counts = report["counts"]
    rest = "2 evacuated, 1 under way, 2 refused, 1 cancelled, 1 failed, 1 uncertain. What is uncertain needs a person."
    assert summary_of(report) == f"{counts['records']} moves: {counts['completed']} completed, {rest}"


def test_no_definition_reaches_a_report(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    document = empty.find_domains("web1")[0]
    secret = "<graphics passwd='hunter2'/>"
    empty.put_domain({**document.body, "protected": {"state": "running", "definition": secret}}, document.version)
    record = nights.begun("web2", "kvm1", "kvm2", 10)
    record["request"]["definition"], record["before"] = secret, {"definition": secret}
    nights.keep(empty, record)
    assert "hunter2" not in json.dumps(report_of(empty))


def test_what_a_hand_has_written_into_a_record_breaks_nothing(empty: Ledger) -> None:
    record = nights.begun("web1", "kvm1", "kvm2", 0)
    record["policy"] = {"timeout_seconds": 7, "strange": {"value": ["a"]}}
    record["samples"] = [{"allowed_downtime_ms": 30, "remaining_bytes": "many", "elapsed_ms": True}]
    record["evidence"] = [{"kind": {"a": 1}}]
    record["request"]["memory_mib"] = ["x"]
    nights.keep(empty, record)
    (move,) = report_of(empty)["moves"]
    assert move["policy"] == {"timeout_seconds": {"value": 7, "source": None}, "strange": {"value": "['a']", "source": None}}
    assert move["samples"][0]["remaining_bytes"] is move["samples"][0]["elapsed_ms"] is None
    assert move["evidence"] == [{"kind": "{'a': 1}"}]
