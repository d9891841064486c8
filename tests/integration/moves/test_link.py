# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves that share a slow cable: who is sent, who waits, and what becomes of those that wait when something dies."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]
CABLE_MIB = 32
FULL = ("--mib", "192", "--dirty-mib", "96", "--rate", "0")
# It takes the cable for so long that tasks can be run about those that wait behind it.
LONG = ("--mib", "512", "--dirty-mib", "448", "--rate", "0")
# It writes 14 MiB/s.
BUSY = ("--mib", "192", "--dirty-mib", "64", "--rate", "3584")
WAITS = "waits for the link"
NO_LIMIT = 2**40


@pytest.fixture
def cable(lab: Lab) -> t.Iterator[None]:
    """A cable of the first host that carries 32 MiB/s."""
    lab("slow", lab.host(1), "--mbit", str(CABLE_MIB * 8 * 1024 * 1024 // 10**6))
    yield
    lab("heal", lab.host(1))


def kept_bandwidth(lab: Lab, name: str, number: int = 1) -> int:
    """Return what libvirt keeps for the next migration of that domain, in MiB/s."""
    return int(lab.virsh(number, "migrate-getspeed", name))


def waiting(lab: Lab, name: str) -> dict[str, t.Any]:
    """Return the state file of a move, as soon as its job waits for the link."""
    uuid = lab.uuid(name)

    def is_waiting() -> dict[str, t.Any] | None:
        state = lab.state_file(uuid)
        return state if state and state.get("waits_for") == WAITS else None

    return eventually(is_waiting, f"the job of {name} waits for the link")


def by_name(records: list[Record]) -> dict[str, Record]:
    return {record["domain"]["name"]: record for record in records}


@pytest.mark.usefixtures("cable")
def test_busy_and_full_guests_share_a_slow_cable(lab: Lab, control: Control, guest: Make) -> None:
    full = [guest(f"full{number}", *FULL) for number in range(3)]
    busy = [guest(f"busy{number}", *BUSY) for number in range(2)]
    done = control.moves([(name, 2) for name in (*full, *busy)])
    assert done.code == 0, done.text
    assert {record["status"] for record in done.records} == {"completed"}
    assert all(record["connection"]["is_shared"] for record in done.records)
    for name in (*full, *busy):
        assert lab.places(name) == {2: "running"}
        assert kept_bandwidth(lab, name, 2) > NO_LIMIT, "the destination keeps no share"
    assert WAITS in done.text


@pytest.mark.long
@pytest.mark.usefixtures("cable")
def test_an_aborted_move_that_waits_gives_the_domain_its_bandwidth_back(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("long", *LONG), *(guest(f"full{number}", *FULL) for number in range(2))]
    lab.virsh(1, "migrate-setspeed", names[1], "777")
    running = control.begin_moves([(name, 2) for name in names])
    waiting(lab, names[1])
    aborted = control.task(1, "migration_abort", {"name": names[1]})
    assert aborted.code == 0, aborted.text
    done = running.wait()
    statuses = {name: record["status"] for name, record in by_name(done.records).items()}
    assert statuses == {names[0]: "completed", names[1]: "cancelled", names[2]: "completed"}
    assert (lab.places(names[1]), kept_bandwidth(lab, names[1])) == ({1: "running"}, 777)


@pytest.mark.long
@pytest.mark.usefixtures("cable")
def test_a_killed_watcher_starves_no_job(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("long", *LONG), guest("full0", *FULL)]
    running = control.begin_moves([(name, 2) for name in names])
    state = waiting(lab, names[1])
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    done = running.wait()
    assert done.code == 0, done.text
    assert {record["status"] for record in done.records} == {"completed"}
    for name in names:
        assert lab.places(name) == {2: "running"}


@pytest.mark.long
@pytest.mark.usefixtures("cable")
def test_jobs_of_a_dead_control_node_share_the_link_to_their_end(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("long", *LONG), guest("full0", *FULL)]
    running = control.begin_moves([(name, 2) for name in names])
    waiting(lab, names[1])
    running.kill_with_workers()
    for name in names:
        eventually(lambda name=name: lab.places(name) == {2: "running"} or None, f"{name} runs on the second host")  # type: ignore[misc]
    settled = control.moves([(name, 2) for name in names])
    assert settled.code == 0, settled.text
    assert {record["status"] for record in control.records()} == {"completed"}


@pytest.mark.long
@pytest.mark.usefixtures("cable")
def test_the_job_that_waited_under_a_dead_watcher_gets_its_cap_when_it_is_followed_alone(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("long", *LONG), guest("full0", *FULL)]
    running = control.begin_moves([(name, 2) for name in names])
    state = waiting(lab, names[1])
    running.kill_with_workers()
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    done = control.moves([(names[1], 2)], parallel=1)
    assert done.code == 0, done.text
    assert (done.record["status"], lab.places(names[1])) == ("completed", {2: "running"})
    assert control.moves([(names[0], 2)]).code == 0


@pytest.mark.long
@pytest.mark.usefixtures("cable")
def test_a_forced_move_no_longer_waits(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("long", *LONG), *(guest(f"full{number}", *FULL) for number in range(2))]
    running = control.begin_moves([(name, 2) for name in names])
    waiting(lab, names[2])
    forced = control.task(1, "migration_force_complete", {"name": names[2]})
    assert forced.code == 0, forced.text
    done = running.wait()
    assert {record["status"] for record in done.records} == {"completed"}
    assert "force: bandwidth" in [one["act"] for one in by_name(done.records)[names[2]]["acts"]]


@pytest.mark.long
@pytest.mark.usefixtures("cable")
def test_copied_disks_never_wait(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("full0", *FULL), guest("disk0", "--mib", "64", "--storage", "local"), guest("full1", *FULL)]
    moves = [{"name": name, "destination": lab.host(2), **({"copy_storage": "auto"} if name == "disk0" else {})} for name in names]
    done = control.task(1, "live_migrate", {"moves": moves})
    assert done.code == 0, done.text
    assert {record["status"] for record in done.records} == {"completed"}
    assert "bandwidth" not in by_name(done.records)["disk0"]["connection"]["parameters"]
