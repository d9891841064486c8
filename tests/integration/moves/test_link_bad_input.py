# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(parallel: auto) where the link is not what it was told to be, changes, or is shared: every move ends, and nothing is much slower than one at a time."""

from __future__ import annotations

import contextlib
import datetime
import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]
# Makes the cable of a host carry so many MiB/s in each direction.
Cable = t.Callable[[int, int], None]

CABLE_MIB = 16
BUSY_MIB, FULL_MIB = 24, 40
# It writes 2 MiB/s; the others are filled once, and rest.
BUSY = ("--mib", "96", "--dirty-mib", str(BUSY_MIB), "--rate", "512", "--integrity")
FULL = ("--mib", "96", "--dirty-mib", str(FULL_MIB), "--rate", "0", "--integrity")
# One move at a time needs about twice the time of the bytes, and some seconds for each guest on a busy machine.
FACTOR, SECONDS_A_GUEST = 3, 12


@pytest.fixture
def cable(lab: Lab) -> t.Iterator[Cable]:
    slowed: set[int] = set()

    def slow(number: int, mib: int) -> None:
        slowed.add(number)
        lab("slow", lab.host(number), "--mbit", str(mib * 8 * 1024**2 // 10**6))

    yield slow
    for number in slowed:
        lab("heal", lab.host(number))


def begin(control: Control, names: t.Sequence[str], on: int = 1, **options: t.Any) -> Running:
    moves = [{"name": name, "destination": control.lab.host(2)} for name in names]
    return control.begin(on, "live_migrate", {"moves": moves, **options})


def at(record: Record, status: str) -> float:
    text = next(line["at"] for line in record["history"] if line["status"] == status)
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def check_all_moved(lab: Lab, done: Outcome, names: t.Sequence[str], mib: int, rate_mib: float) -> None:
    """Every guest runs at its destination with all of its memory, in a time that fits the bytes; the records are as ever."""
    assert (done.code, done.changed) == (0, True), done.text
    assert [(record["domain"]["name"], record["status"]) for record in done.records] == [(name, "completed") for name in names]
    seconds = max(at(record, "completed") for record in done.records) - min(at(record, "preparing") for record in done.records)
    assert seconds <= FACTOR * mib / rate_mib + SECONDS_A_GUEST * len(names), (seconds, done.text)
    for name in names:
        assert lab.places(name) == {2: "running"}
        assert lab.check(name)["intact"], name
    for record in done.records:
        # A share of the link is not a cap of the task.
        assert record["connection"]["bandwidth_mib"] == 0
        assert "bandwidth" not in record["connection"]["parameters"]


def mixed_host(guest: Make) -> list[str]:
    """A busy guest, and three that are filled and rest."""
    return [guest("busy", *BUSY), *(guest(f"full{number}", *FULL) for number in range(3))]


# A cable that two hosts share, slow enough for both to be on their way when it is counted.
SHARED_MIB, SECONDS_TO_TELL = CABLE_MIB // 2, 120
MIXED_MIB = BUSY_MIB + 3 * FULL_MIB


@pytest.mark.long
@pytest.mark.parametrize("link_mib", [CABLE_MIB // 10 + 1, CABLE_MIB * 10], ids=["too-low", "too-high"])
def test_a_link_speed_that_is_ten_times_wrong_does_not_hold_the_moves_up(lab: Lab, control: Control, guest: Make, cable: Cable, link_mib: int) -> None:
    names = mixed_host(guest)
    cable(1, CABLE_MIB)
    check_all_moved(lab, begin(control, names, link_mib=link_mib).wait(), names, MIXED_MIB, CABLE_MIB)


@pytest.mark.long
def test_a_rate_that_drops_to_a_tenth_slows_the_moves_and_ends_none(lab: Lab, control: Control, guest: Make, cable: Cable) -> None:
    names = [guest("busy", *BUSY), guest("full", *FULL)]
    cable(1, 10 * CABLE_MIB // 4)
    running = begin(control, names, link_mib=10 * CABLE_MIB // 4)
    lab.under_way(lab.uuid(names[0]))
    cable(1, CABLE_MIB // 4)
    check_all_moved(lab, running.wait(), names, BUSY_MIB + FULL_MIB, CABLE_MIB / 4)


@pytest.mark.long
def test_a_destination_that_is_slower_than_the_link_limits_the_moves(lab: Lab, control: Control, guest: Make, cable: Cable) -> None:
    names = mixed_host(guest)
    cable(2, CABLE_MIB)
    check_all_moved(lab, begin(control, names, link_mib=4 * CABLE_MIB).wait(), names, MIXED_MIB, CABLE_MIB)


def sources_told(lab: Lab, number: int) -> list[int]:
    """Return the numbers of sources that control nodes have told the watchers on a host."""
    found = []
    for path in lab.path(number, "/run/kvmfleet").glob("*.turns"):
        with contextlib.suppress(FileNotFoundError):
            found += json.loads(path.read_text()).get("sources", {}).values()
    return found


@pytest.mark.long
@pytest.mark.parametrize("link_mib", [SHARED_MIB, 2], ids=["true", "too-low"])
def test_two_hosts_share_the_cable_of_their_destination(lab: Lab, control: Control, guest: Make, cable: Cable, link_mib: int) -> None:
    here, there = [guest(f"here{number}", *FULL) for number in range(2)], [guest(f"there{number}", *FULL, on=3) for number in range(2)]
    cable(2, SHARED_MIB)
    first, second = begin(control, here, link_mib=link_mib), begin(control, there, on=3, link_mib=link_mib)
    told = eventually(lambda: sources_told(lab, 1) or sources_told(lab, 3), "a host is told that it is not alone", SECONDS_TO_TELL)
    assert told == [2]
    for running, names in ((first, here), (second, there)):
        check_all_moved(lab, running.wait(), names, 4 * FULL_MIB, SHARED_MIB)


@pytest.mark.long
def test_a_dead_control_node_leaves_no_move_without_a_share(lab: Lab, control: Control, guest: Make, cable: Cable) -> None:
    """Jobs that exist end; what had not begun is cancelled, and moves when the task is run again."""
    here, there = [guest(f"here{number}", *FULL) for number in range(2)], [guest(f"there{number}", *FULL, on=3) for number in range(2)]
    cable(2, SHARED_MIB)
    first, second = begin(control, here, link_mib=SHARED_MIB), begin(control, there, on=3, link_mib=SHARED_MIB)
    lab.under_way(lab.uuid(there[0], 3), 3)
    second.kill_with_workers()
    check_all_moved(lab, first.wait(), here, 4 * FULL_MIB, SHARED_MIB)
    eventually(lambda: lab.places(there[0]) == {2: "running"} or None, "the move whose control node is dead ends")
    again = begin(control, there, on=3).wait()
    assert again.code == 0, again.text
    assert [lab.places(name) for name in there] == [{2: "running"}] * 2
