# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole tasks under limits, from the option to the record, over fake hosts."""

from __future__ import annotations

import json
import pathlib
import typing as t
import uuid as uuid_module

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control

NAMES = ("a", "b", "c")


def guests(control: Control) -> dict[str, str]:
    """Make a guest of each name; return their UUIDs."""
    uuids = {name: str(uuid_module.uuid4()) for name in NAMES}
    for name, uuid in uuids.items():
        control.fleet.guest(name, uuid)
    return uuids


def limit(control: Control, host: str, **limits: t.Optional[int]) -> None:
    control.variables(host)["kvmfleet_scheduler"] = {"limits": limits}


def begin_foreign_move(control: Control, to: str = "kvm2") -> Stored:
    """A move into a host that another run has begun."""
    source, destination = HostRef("kvm3", None, str(uuid_module.uuid4())), HostRef(to, None, control.fleet.machines[to].host_uuid)
    record = new_record(s.LIVE_MIGRATION, DomainRef(str(uuid_module.uuid4()), "busy"), source, destination, {}, "other", {"memory_mib": 8})
    stored = control.ledger.open_record(record)
    for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING):
        stored = advanced(control, stored, status)
    return stored


def advanced(control: Control, stored: Stored, status: str) -> Stored:
    record = stored.record.advance(status, "other")
    return control.ledger.update_record(stored, record)


def audited_steps(tmp_path: pathlib.Path) -> list[tuple[str, str]]:
    """Return domain and status of each line of the ledger's audit, in order."""
    lines = [json.loads(line) for line in (tmp_path / "ledger" / "audit.jsonl").read_text(encoding="ascii").splitlines()]
    return [(line["domain"]["name"], line["to"]) for line in lines]


@pytest.mark.parametrize(
    ("host", "limits"), [("kvm2", {"moves_in": 1}), ("kvm1", {"moves_out": 1}), ("kvm1", {"moves_total": 1}), ("kvm2", {"moves_total": 1})]
)
def test_a_task_starts_no_more_at_once_than_a_limit_permits(control: Control, tmp_path: pathlib.Path, host: str, limits: dict[str, int]) -> None:
    limit(control, host, **limits)
    jobs = control.run(moves=[{"uuid": uuid, "destination": "kvm2"} for uuid in guests(control).values()])
    assert [(job.error, job.record and job.record.status) for job in jobs] == [(None, s.COMPLETED)] * 3
    began = [name for name, status in audited_steps(tmp_path) if status == s.PREPARING]
    ended = [name for name, status in audited_steps(tmp_path) if status == s.COMPLETED]
    assert began == ended == list(NAMES)
    order = [status for _name, status in audited_steps(tmp_path) if status in (s.PREPARING, s.COMPLETED)]
    assert order == [s.PREPARING, s.COMPLETED] * 3
    assert control.ledger.verify_audit() == []


def test_limits_that_do_not_apply_delay_no_move(control: Control) -> None:
    limit(control, "kvm2", moves_out=0, domains=99)
    limit(control, "kvm3", moves_in=0)
    begin_foreign_move(control)
    jobs = control.run(moves=[{"uuid": uuid, "destination": "kvm2"} for uuid in guests(control).values()])
    assert [job.error for job in jobs] == [None] * 3
    assert not any(order["waits"] for order in control.source.orders)


def test_a_full_destination_delays_only_moves_to_it(control: Control) -> None:
    limit(control, "kvm2", moves_in=1)
    other, uuids = begin_foreign_move(control), guests(control)
    moves = [{"uuid": uuids["a"], "destination": "kvm2"}, {"uuid": uuids["b"], "destination": "kvm3"}]
    seen: list[str] = []

    def show(record: MoveRecord, _waits_for: str | None) -> None:
        seen.append(f"{record.domain.name} {record.status} {record.turn.waits_for if record.turn else ''}".strip())
        if record.domain.name == "b" and record.status == s.COMPLETED:
            advanced(control, other, s.COMPLETED)

    control.show = show
    jobs = control.run(moves=moves)
    assert [job.record and job.record.status for job in jobs] == [s.COMPLETED] * 2
    waiting = "a queued 1 is moving to kvm2 (busy); the limit is 1 (kvmfleet_scheduler.limits.moves_in)"
    assert max(seen.index(waiting), seen.index("b completed")) < seen.index("a completed")
    told = [line.detail for line in t.cast(MoveRecord, jobs[0].record).history if line.status == s.PREPARING]
    assert str(told[0]).startswith("It had waited ")


def test_a_queue_timeout_cancels_the_move_with_its_reason(control: Control) -> None:
    limit(control, "kvm2", moves_in=1)
    begin_foreign_move(control)
    (job,) = control.run(uuid=guests(control)["a"], destination="kvm2", queue_timeout_seconds=1)
    assert isinstance(job.error, e.TimedOut)
    assert not job.moved
    record = t.cast(MoveRecord, job.record)
    assert (record.status, record.reason) == (s.CANCELLED, s.REASON_QUEUE_TIMEOUT)
    assert [line.status for line in record.history] == [s.ACCEPTED, s.SCHEDULED, s.QUEUED, s.CANCELLED]
    assert job.error.message == (
        "Domain a was not moved from kvm1 to kvm2: cancelled (queue_timeout). It waited 1 s for its turn, and nothing was started: "
        "1 is moving to kvm2 (busy); the limit is 1 (kvmfleet_scheduler.limits.moves_in)."
    )
    assert control.records()[-1].status == s.CANCELLED


def test_a_forced_move_does_not_wait_for_admission(control: Control) -> None:
    limit(control, "kvm2", moves_in=0)
    (job,) = control.run(uuid=guests(control)["a"], destination="kvm2", force=True)
    assert (job.error, t.cast(MoveRecord, job.record).status) == (None, s.COMPLETED)


def test_a_destination_with_a_limit_of_zero_is_refused(control: Control) -> None:
    limit(control, "kvm2", moves_in=0)
    (job,) = control.run(uuid=guests(control)["a"], destination="kvm2")
    assert isinstance(job.error, e.Conflict)
    assert "No move to kvm2 is permitted" in job.error.message


def test_a_watcher_that_dies_at_the_admission_is_replaced_and_the_move_cancelled(control: Control) -> None:
    limit(control, "kvm2", moves_in=1)
    other = begin_foreign_move(control)

    def show(record: MoveRecord, _waits_for: str | None) -> None:
        if record.turn and control.source.watchers:
            control.source.lose_watcher()
            advanced(control, other, s.COMPLETED)

    control.show = show
    (job,) = control.run(uuid=guests(control)["a"], destination="kvm2")
    assert [(order["adopt"], order["waits"]) for order in control.source.orders] == [(False, True), (True, False)]
    assert isinstance(job.error, e.Aborted)
    record = t.cast(MoveRecord, job.record)
    assert (record.status, record.reason, record.generation) == (s.CANCELLED, s.REASON_CONTROLLER_LOST, 2)
    assert not control.unsettled()


@pytest.mark.parametrize("seconds", [-1, -3600])
def test_a_negative_queue_timeout_is_refused(control: Control, seconds: int) -> None:
    with pytest.raises(e.InvalidArgument, match="queue_timeout_seconds is -"):
        control.run(uuid=guests(control)["a"], destination="kvm2", queue_timeout_seconds=seconds)
