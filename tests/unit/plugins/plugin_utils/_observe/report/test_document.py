# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report says, against what the ledger has."""

from __future__ import annotations

import collections
import dataclasses
import json

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, DefinitionChange, PredictedMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.modules import report as report_module
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import (
    Report,
    ReportData,
    Scope,
    build_document,
    gather_records,
    summary_text,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.formats import kinds_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.moves import count_outcomes, describe_move
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import as_html
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.conftest import report_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body


def test_a_report_has_every_record_with_its_figures(ledger: Ledger, report: Body) -> None:
    records = {record.id: record for record in ledger.list_records()}
    assert sorted(records) == sorted(move["id"] for move in report["moves"])
    for move in report["moves"]:
        record = records[move["id"]]
        written = encode(record)
        assert {key: move[key] for key in written["result"]} == written["result"]
        assert move["samples"] == written["samples"]
        assert [line["status"] for line in move["history"]] == [line.status for line in record.history]
        assert (move["status"], move["domain"], move["source"]) == (record.status, written["domain"], record.source.host)


def test_counts_of_a_report_match_the_ledger(ledger: Ledger, report: Body) -> None:
    statuses = collections.Counter(record.status for record in ledger.list_records())
    counts = report["counts"]
    assert counts["records"] == statuses.total() == counts["live_migrations"] + counts["cold_migrations"] + counts["evacuations"]
    assert (counts["completed"], counts["evacuated"], counts["refused"]) == (statuses["completed"], statuses["done"], statuses["conflict"])
    assert (counts["failed"], counts["cancelled"], counts["uncertain"]) == (statuses["failed"], statuses["cancelled"], statuses["error"])
    assert counts["under_way"] == statuses["running"] == 1
    assert counts["forced"] == 2
    assert counts["bytes"] == sum(record.result.bytes or 0 for record in ledger.list_records())


def test_cold_moves_are_counted_and_named(empty: Ledger) -> None:
    for name, kind in (("web1", s.LIVE_MIGRATION), ("db1", s.COLD_MIGRATION), ("db2", s.COLD_MIGRATION), ("old1", s.EVACUATION)):
        nights.keep(empty, nights.begun(name, "kvm1", "kvm2", 0, kind=kind))
    counts = report_of(empty)["counts"]
    assert (counts["records"], counts["live_migrations"], counts["cold_migrations"], counts["evacuations"]) == (4, 1, 2, 1)
    assert kinds_text(counts) == "1 live migration, 2 cold migrations and 1 evacuation"
    assert kinds_text({**counts, "live_migrations": 0}) == "2 cold migrations and 1 evacuation"
    assert kinds_text(count_outcomes([])) == "0 moves"
    # The page names them.
    assert '"kinds":"1 live migration, 2 cold migrations and 1 evacuation"' in as_html(decode(Report, report_of(empty)))


def test_the_documentation_shows_every_count() -> None:
    assert list(yaml.safe_load(report_module.RETURN)["counts"]["sample"]) == list(count_outcomes([]))


def test_downtime_statistics_match_the_completed_moves(ledger: Ledger, report: Body) -> None:
    lived = sorted(record.result.downtime_ms or 0 for record in ledger.list_records() if record.status == "completed" and record.type == "live-migration")
    downtimes = report["downtimes"]
    assert downtimes["count"] == len(lived) == sum(one[mode] for one in downtimes["ranges"] for mode in ("pre-copy", "post-copy", "paused"))
    assert (downtimes["least_ms"], downtimes["most_ms"]) == (lived[0], lived[-1])
    assert sum(1 for one in lived if one <= downtimes["median_ms"]) >= len(lived) / 2
    assert downtimes["median_ms"] in lived
    assert downtimes["p95_ms"] in lived
    assert sum(one["post-copy"] for one in downtimes["ranges"]) == 4
    assert [one["from_ms"] for one in downtimes["ranges"][1:]] == [one["below_ms"] for one in downtimes["ranges"][:-1]]


def test_times_of_a_move_come_from_its_history(report: Body) -> None:
    moves = {move["domain"]["name"]: move for move in report["moves"]}
    db1 = moves["db1"]
    assert (db1["created_at"], db1["started_at"], db1["ended_at"]) == (nights.moment(60), nights.moment(60.9), nights.moment(289))
    assert moves["report1"]["ended_at"] is None
    assert moves["gpu1"]["started_at"] is None
    assert moves["search1"]["ended_at"] == nights.moment(905)
    assert moves["gpu1"]["why"] == "kvm5 cannot accept domain gpu1: Its device 0000:41:00.0 (vfio) cannot leave the host."
    assert moves["erp1"]["forced_detail"] == "The destination was booked by force. Bypassed: It is in maintenance (new disks)."
    assert moves["shop1"]["evidence"] == [nights.evidence("kvm6", 895)]


def test_the_names_that_differ_at_the_destination_are_in_the_report(empty: Ledger) -> None:
    change = DefinitionChange("devices[1]/interface[1]/source[1]/@bridge", "br0", "br7", ("live", "persistent"))
    nights.keep(empty, nights.begun("web1", "kvm1", "kvm2", 10).rewrite([change]))
    (move,) = report_of(empty)["moves"]
    assert move["rewritten"] == [{"path": change.path, "before": "br0", "after": "br7"}]


def test_a_report_has_only_records_of_its_scope(ledger: Ledger) -> None:
    of_host = report_of(ledger, Scope(host="kvm6"))
    assert {move["domain"]["name"] for move in of_host["moves"]} == {"shop1", "shop2", "search1"}
    of_domain = report_of(ledger, Scope(domain="db1"))
    assert [move["domain"]["name"] for move in of_domain["moves"]] == ["db1"]
    late = report_of(ledger, Scope(since=nights.moment(890)))
    assert {move["type"] for move in late["moves"]} == {"evacuation", "live-migration"}
    assert {move["id"] for move in late["moves"]} == {record.id for record in ledger.list_records() if record.updated_at >= nights.moment(890)}
    named = report_of(ledger, Scope(ids=[of_domain["moves"][0]["id"]] * 2))
    assert named["moves"] == of_domain["moves"]


def test_an_invalid_scope_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidArgument, match="not a time"):
        Scope(since="yesterday").check()
    with pytest.raises(InvalidArgument, match="ids is given together with host"):
        Scope(ids=[], host="kvm1").check()
    with pytest.raises(NotFound):
        gather_records(ledger, Scope(ids=["55555555-0000-4000-8000-000000000009"]))


def test_an_empty_or_missing_ledger_gives_an_empty_report(empty: Ledger) -> None:
    for found in (gather_records(empty, Scope()), gather_records(None, Scope()), ReportData()):
        document = build_document(found, Scope(), nights.MADE_AT)
        assert document.counts["records"] == 0
        assert encode(document.downtimes) == {"count": 0, **dict.fromkeys(("median_ms", "p95_ms", "p99_ms", "least_ms", "most_ms")), "ranges": []}
        assert summary_text(document) == "No move is recorded here."


def test_the_summary_names_every_outcome(report: Body) -> None:
    counts = report["counts"]
    rest = "2 evacuated, 1 under way, 2 refused, 1 cancelled, 1 failed, 1 uncertain. Uncertain moves need a person's decision."
    assert summary_text(decode(Report, report)) == f"{counts['records']} moves: {counts['completed']} completed, {rest}"


def test_no_definition_reaches_a_report(empty: Ledger) -> None:
    nights.arrived(empty, "web1", "kvm1", "kvm2", 0, 1000, 10)
    document = empty.find_domains("web1")[0]
    secret = "<graphics passwd='hunter2'/>"
    empty.put_domain(domain_entry({**document.body, "protected": {"state": "running", "definition": secret}}), document.version)
    record = nights.begun("web2", "kvm1", "kvm2", 10)
    request = {**record.request, "definition": secret}
    nights.keep(empty, dataclasses.replace(record, request=request, before=Before(extra={"definition": secret})))
    assert "hunter2" not in json.dumps(report_of(empty))


def test_values_of_another_form_in_a_record_do_not_break_a_report(empty: Ledger) -> None:
    record = encode(nights.begun("web1", "kvm1", "kvm2", 0))
    record["policy"] = {"timeout_seconds": 7, "strange": {"value": ["a"]}}
    record["samples"] = [{"allowed_downtime_ms": 30, "remaining_bytes": "many", "elapsed_ms": True}]
    record["evidence"] = [{"kind": {"a": 1}}]
    record["request"]["memory_mib"] = ["x"]
    nights.keep(empty, decode(MoveRecord, record))
    (move,) = report_of(empty)["moves"]
    assert move["policy"] == {"timeout_seconds": {"value": 7, "source": None}, "strange": {"value": "['a']", "source": None}}
    assert move["samples"][0]["remaining_bytes"] is move["samples"][0]["elapsed_ms"] is None
    assert move["evidence"] == [{"kind": "{'a': 1}"}]


def test_a_move_of_a_drain_has_its_prediction_and_others_have_none(ledger: Ledger) -> None:
    move = next(iter(ledger.list_records()))
    predicted = dataclasses.replace(move, predicted=PredictedMove(4.2, 3.0, 5.9, 60, 1024))
    keys = ("predicted_ms", "predicted_low_ms", "predicted_high_ms")
    assert [vars(describe_move(predicted))[key] for key in keys] == [4200, 3000, 5900]
    assert [vars(describe_move(move))[key] for key in keys] == [None, None, None]
