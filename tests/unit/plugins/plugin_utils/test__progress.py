# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._progress import ProgressLines, line_of
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock

MIB = 1024**2


def moving(percent: int = 62, status: str = "running", rate_mib: int = 900, dirty_mib: int = 200, **result: t.Any) -> schema.Record:
    record = schema.new_record("live-migration", {"uuid": "u", "name": "web1"}, schema.place("kvm1"), schema.place("kvm2"), {}, "x")
    record["status"] = status
    record["progress"].update(
        memory_total_bytes=1024 * MIB, memory_remaining_bytes=350 * MIB, percent=percent, bandwidth_bytes=rate_mib * MIB, dirty_rate_bytes=dirty_mib * MIB
    )
    record["samples"] = [{"allowed_downtime_ms": 95}]
    record["result"].update(result)
    return record


def test_a_line_has_all_that_an_operator_asks_for() -> None:
    assert line_of(moving()) == "kvm1 -> kvm2  web1  running  62 %  350 MiB left  900 MiB/s  dirty 200 MiB/s  pause <= 95 ms  eta 0 s"


@pytest.mark.parametrize(("rate", "dirty", "eta"), [(100, 65, "eta 10 s"), (100, 90, "eta unknown"), (100, 300, "eta unknown"), (0, 0, "eta unknown")])
def test_how_long_it_takes_is_said_only_where_it_can_be_known(rate: int, dirty: int, eta: str) -> None:
    assert line_of(moving(rate_mib=rate, dirty_mib=dirty)).endswith(eta)


def test_the_end_has_its_duration_and_pause() -> None:
    assert line_of(moving(status="completed", elapsed_ms=1834, downtime_ms=96)) == "kvm1 -> kvm2  web1  completed  1.8 s  paused 96 ms"


def test_a_reason_is_said() -> None:
    assert line_of({**moving(status="cancelled"), "reason": "timeout"}) == "kvm1 -> kvm2  web1  cancelled  (timeout)"


def test_a_job_without_figures_yet() -> None:
    record = moving()
    record["progress"]["memory_total_bytes"] = 0
    assert line_of(record) == "kvm1 -> kvm2  web1  running"


def test_a_move_that_is_being_settled_says_who_is_waited_for() -> None:
    waiting = {**moving(), "waits_for": "is being settled: no answer from the destination kvm2"}
    assert line_of(waiting) == "kvm1 -> kvm2  web1  running  is being settled: no answer from the destination kvm2"


class Shown:
    def __init__(self) -> None:
        self.lines: t.List[str] = []
        self.clock = FakeClock()
        self._progress = ProgressLines(self.lines.append, self.clock)

    def new(self, record: schema.Record, record_id: str = "r1", after: float = 0.0) -> int:
        """See the record after so many seconds, and return how many lines that gave."""
        self.clock.sleep(after)
        before = len(self.lines)
        self._progress.see({**record, "id": record_id})
        return len(self.lines) - before


def test_lines_come_on_a_change_of_phase_at_each_tenth_and_every_ten_seconds() -> None:
    shown = Shown()
    assert shown.new(moving(0, "queued")) == 1
    assert shown.new(moving(0, "running")) == 1
    assert [shown.new(moving(percent), after=1) for percent in (5, 9, 10, 19, 20, 41)] == [0, 0, 1, 0, 1, 1]
    assert [shown.new(moving(42), after=4) for _poll in range(3)] == [0, 0, 1]
    assert shown.new(moving(42, "completed")) == 1


def test_what_waits_or_has_ended_is_not_repeated() -> None:
    shown = Shown()
    assert [shown.new(moving(0, "queued"), after=15) for _poll in range(3)] == [1, 0, 0]
    assert [shown.new(moving(100, "completed"), after=15) for _poll in range(3)] == [1, 0, 0]


def test_each_move_has_lines_of_its_own() -> None:
    shown = Shown()
    assert [shown.new(moving(), record_id) for record_id in ("r1", "r2", "r1", "r2")] == [1, 1, 0, 0]


def test_a_domain_without_a_name_is_shown_by_its_uuid() -> None:
    nameless = {**moving(), "domain": {"uuid": "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", "name": None}}
    assert "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11" in line_of(nameless)


def waiting(seconds: int = 0, until: t.Optional[str] = "2026-11-21T03:10:00.000Z") -> schema.Record:
    return {**moving(0, "queued"), "turn": {"until": until, "waits_for": f"1 is moving to kvm2 (web{seconds}); the limit is 1"}}


def test_one_that_waits_for_its_turn_says_what_for_and_until_when() -> None:
    assert line_of(waiting()) == ("kvm1 -> kvm2  web1  queued  waits for its turn until 2026-11-21T03:10:00.000Z: 1 is moving to kvm2 (web0); the limit is 1")
    assert line_of(waiting(until=None)).endswith("queued  waits for its turn: 1 is moving to kvm2 (web0); the limit is 1")


def test_one_that_waits_is_heard_of_at_once_and_then_every_half_minute() -> None:
    shown = Shown()
    assert shown.new(moving(0, "queued")) == 1
    assert shown.new(waiting(1), after=1) == 1
    assert [shown.new(waiting(second), after=1) for second in range(29)] == [0] * 29
    assert shown.new(waiting(31), after=2) == 1
    assert shown.new(moving(0, "preparing"), after=1) == 1


def test_whoever_waits_for_a_host_to_answer_hears_so_at_once_and_again() -> None:
    shown = Shown()
    shown.new(moving())
    waiting = {**moving(), "waits_for": "is being settled: no answer from the destination kvm2"}
    assert [shown.new(waiting, after=1), shown.new(waiting, after=1), shown.new(waiting, after=10)] == [1, 0, 1]
