# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several moves of one task: a window that is never wider than asked, and failures that stop nobody else."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]
TWIN = ("--mib", "48", "--dirty-mib", "16")


def at(record: Record, status: str) -> float:
    """Return when a record got that status."""
    text = next(line["at"] for line in record["history"] if line["status"] == status)
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def most_at_once(records: list[Record]) -> int:
    """Return how many guests were on their way in the same moment, at most: from the start of the move until they ran at their destination."""
    steps = [(at(record, "preparing"), 1) for record in records] + [(at(record, "arrived"), -1) for record in records]
    level = most = 0
    for dummy, step in sorted(steps):
        level += step
        most = max(most, level)
    return most


def test_five_guests_move_in_a_window_of_two(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest(f"window{number}", *TWIN) for number in range(5)]
    wanted = [(name, 2 + index % 2) for index, name in enumerate(names)]
    # A survey and -e give the number as text.
    done = control.moves(wanted, parallel="2", bandwidth_mib=32)
    assert (done.code, done.changed) == (0, True), done.text
    assert [record["domain"]["name"] for record in done.records] == names
    assert {record["status"] for record in done.records} == {"completed"}
    for name, to in wanted:
        assert lab.places(name) == {to: "running"}
    assert most_at_once(done.records) == 2
    assert sorted(record["id"] for record in control.records()) == sorted(record["id"] for record in done.records)
    again = control.moves(wanted)
    assert (again.code, again.changed) == (0, False), again.text


@pytest.mark.long
def test_a_domain_that_cannot_be_moved_does_not_stop_the_others(lab: Lab, control: Control, guest: Make) -> None:
    good, off, also_good = guest("good", *TWIN), guest("off", "--off"), guest("also-good", *TWIN)
    done = control.moves([(good, 2), (off, 2), ("nobody", 2), (also_good, 3)])
    assert done.code != 0
    assert done.changed
    assert done.result["error_code"] == "invalid_state"
    assert [(failure["domain"], failure["error_code"]) for failure in done.result["failures"]] == [(off, "invalid_state"), ("nobody", "not_found")]
    assert "2 of 4" in done.msg
    assert [(record["domain"]["name"], record["status"]) for record in done.records] == [(good, "completed"), (also_good, "completed")]
    assert (lab.places(good), lab.places(also_good), lab.places(off)) == ({2: "running"}, {3: "running"}, {1: "shut off"})


@pytest.mark.long
def test_a_move_that_times_out_does_not_stop_the_others(lab: Lab, control: Control, guest: Make, endless: str) -> None:
    good = guest("good", *TWIN)
    moves = [{"name": endless, "destination": lab.host(2), "timeout_seconds": 2, **HELD}, {"name": good, "destination": lab.host(2)}]
    done = control.task(1, "live_migrate", {"moves": moves})
    assert done.code != 0
    assert done.changed
    assert done.result["error_code"] == "timeout"
    assert [(record["status"], record["reason"]) for record in done.records] == [("cancelled", "timeout"), ("completed", None)]
    assert (lab.places(endless), lab.places(good)) == ({1: "running"}, {2: "running"})


@pytest.mark.long
def test_a_domain_named_twice_is_refused_before_anything_moves(lab: Lab, control: Control, guest: Make) -> None:
    name, other = guest("twice"), guest("other")
    for moves in ([(name, 2), (other, 2), (name, 3)],):
        done = control.moves(moves)
        assert done.refused() == "invalid_argument"
        assert "more than once" in done.msg
    by_both = [{"name": name, "destination": lab.host(2)}, {"uuid": lab.uuid(name).upper(), "destination": lab.host(3)}]
    assert control.task(1, "live_migrate", {"moves": by_both}).refused() == "invalid_argument"
    assert control.records() == []
    assert (lab.places(name), lab.places(other)) == ({1: "running"}, {1: "running"})
