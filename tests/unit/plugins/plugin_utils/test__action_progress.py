# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import NO_PROGRESS, Sample, Turn
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import ProgressLines, progress_line
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock

MIB = 1024**2


def moving(percent: int = 62, status: str = "running", rate_mib: int = 900, dirty_mib: int = 200, **result: t.Any) -> MoveRecord:
    record = new_record("live-migration", DomainRef("u", "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "x")
    progress = dataclasses.replace(
        record.progress,
        memory_total_bytes=1024 * MIB,
        memory_remaining_bytes=350 * MIB,
        percent=percent,
        bandwidth_bytes=rate_mib * MIB,
        dirty_rate_bytes=dirty_mib * MIB,
    )
    samples = (Sample(allowed_downtime_ms=95),)
    return dataclasses.replace(record, status=status, progress=progress, samples=samples, result=dataclasses.replace(record.result, **result))


def test_a_progress_line_has_hosts_progress_rates_and_eta() -> None:
    assert progress_line(moving()) == "kvm1 -> kvm2  web1  running  62 %  350 MiB left  900 MiB/s  dirty 200 MiB/s  pause <= 95 ms  eta 0 s"


@pytest.mark.parametrize(("rate", "dirty", "eta"), [(100, 65, "eta 10 s"), (100, 90, "eta unknown"), (100, 300, "eta unknown"), (0, 0, "eta unknown")])
def test_the_eta_is_unknown_if_the_move_does_not_converge(rate: int, dirty: int, eta: str) -> None:
    assert progress_line(moving(rate_mib=rate, dirty_mib=dirty)).endswith(eta)


@pytest.mark.parametrize(("elapsed_ms", "eta"), [(0, "eta unknown"), (900, "eta unknown"), (2100, "eta 350 s")])
def test_the_eta_is_unknown_until_the_rate_has_settled(elapsed_ms: int, eta: str) -> None:
    """The rate counts what was sent since the job began: nothing but its setup at first."""
    record = dataclasses.replace(moving(rate_mib=1, dirty_mib=0), samples=(Sample(elapsed_ms=elapsed_ms, allowed_downtime_ms=95),))
    assert progress_line(record).endswith(eta)


def test_the_last_line_has_duration_and_downtime() -> None:
    assert progress_line(moving(status="completed", elapsed_ms=1834, downtime_ms=96)) == "kvm1 -> kvm2  web1  completed  1.8 s  paused 96 ms"


def test_a_line_has_the_reason_of_its_status() -> None:
    assert progress_line(dataclasses.replace(moving(status="cancelled"), reason="timeout")) == "kvm1 -> kvm2  web1  cancelled  (timeout)"


def test_a_job_without_figures_has_a_short_line() -> None:
    record = moving()
    without = dataclasses.replace(record, progress=dataclasses.replace(record.progress, memory_total_bytes=0))
    assert progress_line(without) == "kvm1 -> kvm2  web1  running"


def test_a_move_that_is_being_settled_names_the_host_it_waits_for() -> None:
    waits_for = "is being settled: no answer from the destination kvm2"
    assert progress_line(moving(), waits_for) == "kvm1 -> kvm2  web1  running  is being settled: no answer from the destination kvm2"


class Shown:
    def __init__(self) -> None:
        self.lines: t.List[str] = []
        self.clock = FakeClock()
        self._progress = ProgressLines(self.lines.append, self.clock)

    def new(self, record: MoveRecord, record_id: str = "r1", after: float = 0.0, waits_for: t.Optional[str] = None) -> int:
        """See the record after so many seconds, and return how many lines that gave."""
        self.clock.sleep(after)
        before = len(self.lines)
        self._progress.show_record(dataclasses.replace(record, id=record_id), waits_for)
        return len(self.lines) - before


def test_lines_are_shown_at_each_phase_each_tenth_and_every_ten_seconds() -> None:
    shown = Shown()
    assert shown.new(moving(0, "queued")) == 1
    assert shown.new(moving(0, "running")) == 1
    assert [shown.new(moving(percent), after=1) for percent in (5, 9, 10, 19, 20, 41)] == [0, 0, 1, 0, 1, 1]
    assert [shown.new(moving(42), after=4) for _poll in range(3)] == [0, 0, 1]
    assert shown.new(moving(42, "completed")) == 1


def test_queued_and_ended_moves_are_shown_once() -> None:
    shown = Shown()
    assert [shown.new(moving(0, "queued"), after=15) for _poll in range(3)] == [1, 0, 0]
    assert [shown.new(moving(100, "completed"), after=15) for _poll in range(3)] == [1, 0, 0]


def test_each_move_has_its_own_lines() -> None:
    shown = Shown()
    assert [shown.new(moving(), record_id) for record_id in ("r1", "r2", "r1", "r2")] == [1, 1, 0, 0]


def test_a_domain_without_a_name_is_shown_by_its_uuid() -> None:
    nameless = dataclasses.replace(moving(), domain=DomainRef("5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", None))
    assert "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11" in progress_line(nameless)


def waiting(seconds: int = 0, until: t.Optional[str] = "2026-11-21T03:10:00.000Z") -> MoveRecord:
    at = "2026-11-21T03:00:00.000Z"
    return moving(0, "queued").note_turn(Turn({}, at, until, at, f"1 is moving to kvm2 (web{seconds}); the limit is 1"))


def test_a_move_that_waits_for_admission_names_the_limit_and_its_deadline() -> None:
    assert progress_line(waiting()) == (
        "kvm1 -> kvm2  web1  queued  waits for its turn until 2026-11-21T03:10:00.000Z: 1 is moving to kvm2 (web0); the limit is 1"
    )
    assert progress_line(waiting(until=None)).endswith("queued  waits for its turn: 1 is moving to kvm2 (web0); the limit is 1")


def test_a_move_that_waits_for_admission_is_shown_at_once_and_every_half_minute() -> None:
    shown = Shown()
    assert shown.new(moving(0, "queued")) == 1
    assert shown.new(waiting(1), after=1) == 1
    assert [shown.new(waiting(second), after=1) for second in range(29)] == [0] * 29
    assert shown.new(waiting(31), after=2) == 1
    assert shown.new(moving(0, "preparing"), after=1) == 1


def test_waiting_for_an_answer_of_a_host_is_shown_at_once_and_repeated() -> None:
    shown = Shown()
    shown.new(moving())
    why = "is being settled: no answer from the destination kvm2"
    assert [shown.new(moving(), after=seconds, waits_for=why) for seconds in (1, 1, 10)] == [1, 0, 1]


def left(record: MoveRecord, mib: int) -> MoveRecord:
    return dataclasses.replace(record, progress=dataclasses.replace(record.progress, memory_remaining_bytes=mib * MIB))


def test_lines_of_several_moves_have_the_eta_of_all_that_are_left() -> None:
    shown = Shown()
    shown.new(dataclasses.replace(moving(0, "queued"), progress=NO_PROGRESS, request={"memory_mib": 500}), "r1")
    assert shown.lines[-1].endswith("queued")
    shown.new(left(moving(10, rate_mib=100, dirty_mib=0), 300), "r2")
    assert shown.lines[-1].endswith("eta 3 s  2 moves left: eta 9 s")
    shown.new(left(moving(10, rate_mib=100, dirty_mib=0), 700), "r3")
    assert shown.lines[-1].endswith("eta 7 s  3 moves left: eta 8 s")
    shown.new(left(moving(50, rate_mib=20, dirty_mib=0), 250), "r2")
    assert shown.lines[-1].endswith("eta 12 s  3 moves left: eta 13 s")
    shown.new(left(moving(60, rate_mib=5, dirty_mib=0), 240), "r2")
    assert shown.lines[-1].endswith("eta 15 s  3 moves left: eta 15 s"), "it shares the link, and gets the rate of the others when they have ended"
    shown.new(moving(100, "completed"), "r2")
    shown.new(moving(100, "completed"), "r3")
    assert shown.lines[-1].endswith("completed")
