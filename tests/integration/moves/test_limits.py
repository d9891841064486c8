# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of a move that hold whoever watches, and the guest that goes on running on its source."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]
# What a busy machine may add: a poll, an abort, two readings of both hosts.
LATE_MS = 60_000


def check_timed_out(lab: Lab, record: Record, seconds: int) -> None:
    """A guest that could not converge is where it was, and its job ended when it had to."""
    assert (record["status"], record["reason"]) == ("cancelled", "timeout")
    assert "abort: timeout" in [act["act"] for act in record["acts"]]
    assert seconds * 1000 <= record["result"]["elapsed_ms"] <= seconds * 1000 + LATE_MS
    name = record["domain"]["name"]
    assert lab.places(name) == {1: "running"}
    assert not lab.has_job(name)


def test_a_move_that_never_converges_is_aborted_at_its_timeout(lab: Lab, control: Control, endless: str) -> None:
    before = lab.check(endless)["increments"]
    done = control.move(endless, timeout_seconds=6, **HELD)
    assert done.refused() == "timeout"
    assert "auto_converge" in done.msg
    check_timed_out(lab, done.record, 6)
    assert control.only_record() == done.record
    # The ramp was compressed to half of the time, so the whole pause was allowed long before the end.
    assert done.record["samples"][-1]["allowed_downtime_ms"] == 500
    assert 0 < int(lab.virsh(1, "migrate-getmaxdowntime", endless)) <= 500
    after = lab.check(endless)
    assert after["intact"]
    assert after["increments"] > before


@pytest.mark.long
def test_after_a_timeout_the_same_task_is_a_new_move(lab: Lab, control: Control, endless: str) -> None:
    first = control.move(endless, timeout_seconds=2, **HELD)
    assert first.refused() == "timeout"
    second = control.move(endless)
    assert second.ended() == ("completed", None), second.text
    assert second.record["id"] != first.record["id"]
    assert second.record["generation"] > first.record["generation"]
    assert lab.places(endless) == {2: "running"}
    assert [record["status"] for record in control.records()] == ["cancelled", "completed"]


@pytest.mark.long
def test_auto_converge_slows_the_guest_down(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("throttled", "--mib", "64", "--dirty-mib", "24", "--rate", "24000")
    done = control.move(name, timeout_seconds=16, bandwidth_mib=12, auto_converge=True)
    assert max(sample["throttle_percent"] for sample in done.record["samples"]) >= 20
    assert done.record["policy"]["auto_converge"] == {"value": True, "source": "task"}
    assert lab.places(name) in ({1: "running"}, {2: "running"})
