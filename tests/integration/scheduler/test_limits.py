# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of moves on real hosts, shared by several control processes: which move waits, for what, and for how long."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.findings import most_at_once
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.stores import audit_lines

Make = t.Callable[..., str]
SMALL = ("--mib", "64", "--dirty-mib", "8", "--rate", "500", "--integrity")
# A guest of which a move takes until it is hurried, and how it is moved.
SLOW = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000", "--integrity")
ENDLESS = {**HELD, "timeout_seconds": 0}


@pytest.fixture
def limited(lab: Lab, control: Desk) -> Desk:
    """Into the third host there goes one move at a time."""
    control.scheduler(3, limits={"moves_in": 1})
    return control


def begin(control: Desk, on: int, to: int, *names: str, **arguments: t.Any) -> Running:
    moves = [{"name": name, "destination": control.lab.host(to)} for name in names]
    return control.begin(on, "live_migrate", {"moves": moves, **arguments})


def waiting(control: Desk, name: str) -> Record:
    """Wait until a guest's move waits for its turn; return what is said of that."""
    return eventually(lambda: next((record.get("turn") for record in control.records() if record["domain"]["name"] == name), None), f"{name} waits")


@pytest.mark.long
def test_two_tasks_at_once_share_the_limit_of_a_destination(lab: Lab, limited: Desk, guest: Make) -> None:
    names = {on: [guest(f"web{on}{number}", *SMALL, on=on) for number in range(2)] for on in (1, 2)}
    tasks = [begin(limited, on, 3, *guests) for on, guests in names.items()]
    done = [task.wait() for task in tasks]
    for one, guests in zip(done, names.values(), strict=True):
        assert one.code == 0, one.text
        assert [record["status"] for record in one.records] == ["completed", "completed"]
        assert all(lab.places(name) == {3: "running"} and lab.check(name)["intact"] for name in guests)
    most = most_at_once(audit_lines(limited.where), limited.records())
    assert most["moves_in", lab.host(3)] == 1
    lines = [line for one in done for line in one.lines if "waits for its turn until" in line]
    assert lines
    assert "kvmfleet_scheduler.limits.moves_in" in lines[0]
    waited = [line["detail"] for one in done for record in one.records for line in record["history"] if line["status"] == "preparing"]
    assert sum(detail.startswith("It had waited") for detail in waited) >= 2, waited


@pytest.mark.long
def test_moves_that_wait_for_admission_do_not_delay_moves_to_other_hosts(lab: Lab, limited: Desk, guest: Make) -> None:
    """Of the waiting tasks one is killed, one times out, one is aborted, one moves to another host, and the last one is admitted."""
    slow = guest("slow", *SLOW)
    first = begin(limited, 1, 3, slow, **ENDLESS)
    lab.under_way(lab.uuid(slow))
    dead, late, hasty, unwanted, other = (guest(name, *SMALL, on=2) for name in ("dead", "late", "hasty", "unwanted", "other"))

    killed = begin(limited, 2, 3, dead)
    assert f"1 is moving to {lab.host(3)} ({slow})" in waiting(limited, dead)["waits_for"]
    killed.kill()
    second = begin(limited, 2, 3, late)
    waiting(limited, late)
    third = begin(limited, 2, 3, unwanted)
    queued = eventually(lambda: lab.state_file(lab.uuid(unwanted, 2), 2), "its watcher knows of it")
    assert queued["status"] == "queued"

    check_moved(lab, limited.task(2, "live_migrate", {"name": other, "destination": lab.host(1)}), other, 1)

    gave_up = begin(limited, 2, 3, hasty, queue_timeout_seconds=4).wait()
    assert (gave_up.refused(), gave_up.ended()) == ("timeout", ("cancelled", "queue_timeout"))
    assert "It waited 4 s for its turn, and nothing was started" in gave_up.msg
    assert slow in gave_up.msg
    assert gave_up.record in limited.records()

    aborting = json.dumps({"name": unwanted, "wait_seconds": 300, "ledger": limited.where})
    aborted = Running(limited.popen(["ansible", "-i", limited.inventory, lab.host(2), "-m", "kvmfleet.migration.migration_abort", "-a", aborting])).wait()
    assert aborted.code == 0, aborted.text
    done = third.wait()
    assert (done.refused(), done.ended()) == ("aborted", ("cancelled", "operator"))

    lab.hurry(slow)
    check_moved(lab, first.wait(), slow, 3)
    check_moved(lab, second.wait(), late, 3)
    for name in (dead, hasty, unwanted):
        assert lab.places(name) == {2: "running"}
        assert lab.check(name)["intact"]
    assert most_at_once(audit_lines(limited.where), limited.records())["moves_in", lab.host(3)] == 1
