# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which moves left a host together, when their jobs started, and what the page knows about their link."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection, HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report, ReportData, Scope, build_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.moves import describe_move
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rates import GAP_SECONDS, SourceRates, group_rates
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import as_html
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body, moment
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.test_rendering import DATA

TOOK_MS = 30_000


def moved(name: str, at: float, source: str = "kvm1", link_mib: int | None = None) -> MoveRecord:
    """Return a record whose job started 50 ms before that second of the night, and ran for 30 s."""
    record = nights.ended(nights.running(nights.begun(name, source, "kvm9", at), at), at, TOOK_MS, 20)
    return dataclasses.replace(record, connection=Connection(link_mib=link_mib) if link_mib else Connection())


def rates_of(*records: MoveRecord) -> tuple[SourceRates, ...]:
    return group_rates([describe_move(record) for record in records])


def without(record: MoveRecord, *statuses: str) -> MoveRecord:
    return dataclasses.replace(record, history=tuple(line for line in record.history if line.status not in statuses))


def test_moves_of_a_host_that_follow_each_other_are_one_drain() -> None:
    (drain,) = rates_of(moved("a", 10), moved("b", 10.5), moved("c", 42))
    assert drain == SourceRates("kvm1", moment(9.95), moment(71.95), None, ((0, 0), (1, 500), (2, 32_000)))


@pytest.mark.parametrize(("pause", "drains"), [(GAP_SECONDS, 1), (GAP_SECONDS + 1, 2)])
def test_a_pause_separates_two_drains_of_a_host(pause: int, drains: int) -> None:
    assert len(rates_of(moved("a", 10), moved("b", 10 + TOOK_MS / 1000 + pause))) == drains


def test_a_short_move_inside_a_long_one_does_not_end_the_drain() -> None:
    long = dataclasses.replace(moved("a", 10), result=dataclasses.replace(moved("a", 10).result, elapsed_ms=300_000))
    assert [len(drain.moves) for drain in rates_of(long, moved("b", 20), moved("c", 300))] == [3]


def test_drains_of_several_hosts_are_apart_and_in_the_order_of_their_start() -> None:
    found = rates_of(moved("a", 20, "kvm2"), moved("b", 10, "kvm1"), moved("c", 15, "kvm1"))
    assert [(drain.source, drain.moves) for drain in found] == [("kvm1", ((1, 0), (2, 5000))), ("kvm2", ((0, 0),))]


def test_the_known_rate_of_the_link_is_the_largest_of_the_drain() -> None:
    assert rates_of(moved("a", 10), moved("b", 11, link_mib=64), moved("c", 12, link_mib=60))[0].link_mib == 64


def test_records_without_samples_are_in_no_drain() -> None:
    assert rates_of(dataclasses.replace(moved("a", 10), samples=()), nights.begun("b", "kvm1", "kvm2", 10)) == ()


@pytest.mark.parametrize(("missing", "start"), [((), 9.95), (("migrate",), 10), (("migrate", s.RUNNING), 9.9)])
def test_the_start_of_a_job_is_the_migrate_call_or_what_older_records_have_instead(missing: tuple[str, ...], start: float) -> None:
    assert rates_of(without(moved("a", 10), *missing))[0].from_at == moment(start)


def test_a_history_without_a_start_or_with_a_damaged_time_leaves_the_move_out() -> None:
    assert rates_of(without(moved("a", 10), "migrate", s.RUNNING, s.PREPARING)) == ()
    for at in ("yesterday", "", "9999-12-31T23:59:59Z"):
        damaged = dataclasses.replace(moved("a", 10), history=(HistoryLine(at, "migrate"),))
        assert rates_of(damaged) == ()


def test_a_time_without_a_zone_is_utc() -> None:
    naive = dataclasses.replace(moved("a", 10), history=(HistoryLine(moment(10).rstrip("Z"), "migrate"),))
    assert rates_of(naive)[0].from_at == moment(10)


def test_of_very_many_drains_those_with_the_most_moves_are_named() -> None:
    records = [moved(f"g{number}", 1000 * number) for number in range(5)] + [moved("more", 3005)]
    found = group_rates([describe_move(record) for record in records], most=2)
    assert [(drain.from_at, len(drain.moves)) for drain in found] == [(moment(-0.05), 1), (moment(2999.95), 2)]


def test_the_page_has_the_drains_and_grows_by_no_more_than_their_indexes() -> None:
    report = build_document(ReportData(records=[moved("a", 10, link_mib=64), moved("b", 11, link_mib=64)]), Scope(), nights.MADE_AT)
    page = dict(DATA.findall(as_html(report)))
    rates = json.loads(page["report"])["rates"]
    assert rates == [{"source": "kvm1", "from_at": moment(9.95), "until_at": moment(40.95), "link_mib": 64, "moves": [[0, 0], [1, 1000]]}]
    assert "rates" not in report.as_json()


def test_the_link_of_a_move_is_in_the_report(report: Body) -> None:
    found = {move["domain"]["name"]: move["link_mib"] for move in report["moves"]}
    assert (found["db1"], found["db2"], found["gpu1"]) == (nights.LINK_MIB, None, None)
    assert decode(Report, report).moves[0].link_mib in (nights.LINK_MIB, None)


def test_the_night_has_a_drain_of_each_host(report: Body) -> None:
    drains = group_rates(decode(Report, report).moves)
    assert {drain.source for drain in drains} == {"kvm1", "kvm2", "kvm3"}
    assert max(drains, key=lambda drain: len(drain.moves)).link_mib in (nights.LINK_MIB, None)
