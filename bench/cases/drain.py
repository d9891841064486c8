# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drain of idle guests: the whole C(ansible-playbook) process beside the bare tool, and beside a playbook that loops over it."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record

from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Seconds, Series, in_turn, seconds_of, seconds_of_command

WINDOW = 4
GUEST_MIB = 128
# So many guests go back at once, outside the clock.
AT_ONCE = 8
LIMIT_SECONDS = 600
# Processes that keep both cores of the machine busy.
BUSY = ["stress-ng", "--quiet", "--cpu", "2"]
ROUND_TRIPS = 3

_VIRSH = "virsh migrate --live --p2p --persistent --undefinesource"
_DRAIN, _XARGS, _LOOP = "kvmfleet.migration.drain", f"xargs -P {WINDOW} virsh migrate", "a loop over command: virsh migrate"
_EMPTY = f"an empty play with {ROUND_TRIPS} module round trips"


def run(effort: Effort) -> Section:
    """Drain a host of twelve guests, and of forty, in turn with C(xargs); of twelve also with the loop of a plain playbook."""
    section = Section("Drain of a host")
    few, many = effort.size(12, 3), effort.size(40, 0)
    with fleet("d", 2) as control:
        drained = _Drained(control)
        drained.grow(few)
        ways = {_DRAIN: drained.by_the_collection, _XARGS: drained.by_xargs, _LOOP: drained.by_a_loop, _EMPTY: drained.by_an_empty_play}
        taken = in_turn(ways, effort.rounds)
        section.figures += [_beside(few, taken, _XARGS, 1.5), _beside(few, taken, _LOOP, 0.3), _moves(few, drained.moves, taken), drained.bare(taken)]
        section.figures.append(_added(few, drained, taken, ""))
        drained.forget()
        with _busy_cores():
            taken = in_turn({_DRAIN: drained.by_the_collection, _EMPTY: drained.by_an_empty_play}, effort.rounds)
        section.figures.append(_added(few, drained, taken, f", beside `{' '.join(BUSY)}`"))
        if many:
            drained.grow(many)
            taken = in_turn({_DRAIN: drained.by_the_collection, _XARGS: drained.by_xargs}, effort.rounds)
            section.figures += [_beside(many, taken, _XARGS, 0.6), _moves(many, drained.moves, taken)]
    section.notes.append(
        f"Guests of {GUEST_MIB} MiB that halt, from one host to another over TCP; whole processes, `ansible-playbook` from its start to its end. The "
        "hosts share the cores of the machine with the control node, its Ansible and all QEMUs, so the work of a playbook takes time from the moves."
    )
    section.notes.append(
        f"`{_XARGS}` runs on the source itself: no SSH, no control node, no check of the destination, no record. Moving the guests back and ending the "
        "maintenance of the host are not measured."
    )
    section.notes.append(
        f"What the playbook adds is the whole process without the time from the first move's start to the last one's end. The empty play has "
        f"{ROUND_TRIPS} tasks `ansible.builtin.ping` on the host. Both use pipelining. The goal with 12 guests beside the bare tool was 1.0; it cannot be "
        "reached if hosts and control node share two cores, because the start of Ansible and the moves alone exceed it."
    )
    section.notes.append(
        "The first round of 12 guests is the largest value: the modules of the collection are sent to the hosts and compiled there, once. What the rest "
        "consists of is written in [Speed](decisions.md#speed)."
    )
    return section


def _beside(guests: int, taken: dict[str, Series], other: str, goal: float) -> Figure:
    ours, theirs = taken[_DRAIN], taken[other]
    return Figure(f"{guests} guests, window {WINDOW}: `{_DRAIN}` beside {other}", ours.told(), theirs.told(), ours.median / theirs.median, goal)


def _moves(guests: int, moves: list[Seconds], taken: dict[str, Series]) -> Figure:
    ours, theirs = Series(tuple(moves)), taken[_XARGS]
    return Figure(f"of that, {guests} guests: from the first move's start to the last one's end", ours.told(), theirs.told(), ours.median / theirs.median)


def _added(guests: int, drained: _Drained, taken: dict[str, Series], where: str) -> Figure:
    ours, theirs = Series(tuple(drained.added)), taken[_EMPTY]
    return Figure(
        f"what `{_DRAIN}` of {guests} guests adds to the moves{where}, beside {_EMPTY}", ours.told(), theirs.told(), ours.median / theirs.median, 1.25
    )


@contextlib.contextmanager
def _busy_cores() -> t.Iterator[None]:
    """Keep both cores busy."""
    process = subprocess.Popen(BUSY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


class _Drained:
    """The first of two hosts, drained again and again: each way of it is timed with all guests there."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lab = control.lab
        self._guests: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Forget the drains so far."""
        self.moves: list[Seconds] = []
        self.added: list[Seconds] = []

    def grow(self, guests: int) -> None:
        """Have so many guests on the first host, and no drain of fewer in C(moves)."""
        self.forget()
        new = [f"g{number:02}" for number in range(len(self._guests), guests)]
        for name in new:
            self._lab("guest", name, "--host", self._lab.host(1), "--mib", str(GUEST_MIB))
        self._guests += new

    def by_the_collection(self) -> Seconds:
        """Drain it by the playbook."""
        settings = {"target": self._lab.host(1), "drain_host_parallel": WINDOW, "kvmfleet_ledger": str(self._control.path)}
        seconds = self._playbook(_DRAIN, "-e", json.dumps(settings))
        span = _span(self._control.records()[-len(self._guests) :])
        self.moves.append(span)
        self.added.append(seconds - span)
        self._control.task(1, "host", {"state": "enabled"})
        self._return_guests()
        return seconds

    def by_xargs(self) -> Seconds:
        """Drain it by the bare tool, on the host itself."""
        seconds = seconds_of(lambda: self._migrate(1, 2, WINDOW))
        self._give_back()
        return seconds

    def by_a_loop(self) -> Seconds:
        """Drain it by a playbook that moves one guest after the other."""
        moves = {"ansible.builtin.command": f"{_VIRSH} {{{{ item }}}} qemu+tcp://{self._lab.host(2)}/system", "loop": self._guests}
        seconds = self._tasks([moves])
        self._give_back()
        return seconds

    def by_an_empty_play(self) -> Seconds:
        """Run the tasks of a play that does nothing."""
        return self._tasks([{"ansible.builtin.ping": {}}] * ROUND_TRIPS)

    def _tasks(self, tasks: list[dict[str, t.Any]]) -> Seconds:
        playbook = self._control.folder / "tasks.yml"
        playbook.write_text(json.dumps([{"hosts": self._lab.host(1), "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
        return self._playbook(str(playbook))

    def bare(self, taken: dict[str, Series]) -> Figure:
        """Return what Ansible takes to do nothing."""
        ours, theirs = Series(tuple(self._playbook("--version") for _turn in range(5))), taken[_XARGS]
        what = f"of that, `ansible-playbook --version`, beside {len(self._guests)} guests by {_XARGS}"
        return Figure(what, ours.told(), theirs.told(), ours.median / theirs.median)

    def _playbook(self, playbook: str, *options: str) -> Seconds:
        return seconds_of_command(["ansible-playbook", "-i", self._control.inventory, playbook, *options], self._control.environment)

    def _migrate(self, source: int, destination: int, window: int) -> None:
        names = " ".join(self._guests)
        uri = f"qemu+tcp://{self._lab.host(destination)}/system"
        moving = f"printf '%s\\n' {names} | xargs -P {window} -I NAME {_VIRSH} NAME {uri}"
        done = self._lab.try_("exec", self._lab.host(source), "--", "sh", "-c", moving, timeout=LIMIT_SECONDS)
        if done.returncode:
            raise RuntimeError(f"Not all guests left {self._lab.host(source)}: {done.stdout}{done.stderr}")

    def _return_guests(self) -> None:
        """Move every guest back with the collection: hosts that contradict the ledger would be asked again by the next drain."""
        moves = [{"name": name, "destination": self._lab.host(1)} for name in self._guests]
        done = self._control.task(2, "live_migrate", {"moves": moves, "parallel": AT_ONCE})
        if done.code:
            raise RuntimeError(f"Not all guests left {self._lab.host(2)}: {done.text}")

    def _give_back(self) -> None:
        """Have every guest on the first host again; one that did not leave it fails the benchmark."""
        self._migrate(2, 1, AT_ONCE)


def _span(records: list[Record]) -> Seconds:
    """Return the seconds from the first record's start to the last one's end."""
    begun, ended = (min(_at(record, "preparing") for record in records), max(_at(record, "completed") for record in records))
    return (ended - begun).total_seconds()


def _at(record: Record, status: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(next(line["at"] for line in record["history"] if line["status"] == status))
