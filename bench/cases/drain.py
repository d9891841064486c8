# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drain of idle guests: the whole C(ansible-playbook) process beside the bare tool, and beside a playbook that loops over it."""

from __future__ import annotations

import datetime
import json

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record

from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Seconds, Series, in_turn, seconds_of, seconds_of_command

WINDOW = 4
GUEST_MIB = 128
# So many guests go back at once, outside the clock.
AT_ONCE = 8
LIMIT_SECONDS = 600

_VIRSH = "virsh migrate --live --p2p --persistent --undefinesource"
_DRAIN, _XARGS, _LOOP = "kvmfleet.migration.drain", f"xargs -P {WINDOW} virsh migrate", "a loop over command: virsh migrate"


def run(effort: Effort) -> Section:
    """Drain a host of twelve guests, and of forty, in turn with C(xargs); of twelve also with the loop of a plain playbook."""
    section = Section("Drain of a host")
    few, many = effort.size(12, 3), effort.size(40, 0)
    with fleet("d", 2) as control:
        drained = _Drained(control)
        drained.grow(few)
        taken = in_turn({_DRAIN: drained.by_the_collection, _XARGS: drained.by_xargs, _LOOP: drained.by_a_loop}, effort.rounds)
        section.figures += [_beside(few, taken, _XARGS, 1.0), _beside(few, taken, _LOOP, 0.3), _moves(few, drained.moves, taken), drained.bare(taken)]
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
        "The remaining time is the start of Ansible, the facts of both hosts, the tasks that cordon, plan and show the plan, the survey of both hosts, the "
        "reservations and the start of the watcher: a module is packed, sent, unpacked and compiled for each step, 0.3 to 0.4 s. The moves take as long "
        "as with the bare tool: both use nine tenths of the two cores, with a QEMU that starts, one that receives and one that ends for each guest. The "
        "goals cannot be reached if hosts and control node share so few cores: the start of Ansible and the moves alone exceed each of them. To reach "
        "them, moves would have to leave cores idle, as between real hosts, where a window slot that is free at the arrival allows more moves at once."
    )
    return section


def _beside(guests: int, taken: dict[str, Series], other: str, goal: float) -> Figure:
    ours, theirs = taken[_DRAIN], taken[other]
    return Figure(f"{guests} guests, window {WINDOW}: `{_DRAIN}` beside {other}", ours.told(), theirs.told(), ours.median / theirs.median, goal)


def _moves(guests: int, moves: list[Seconds], taken: dict[str, Series]) -> Figure:
    ours, theirs = Series(tuple(moves)), taken[_XARGS]
    return Figure(f"of that, {guests} guests: from the first move's start to the last one's end", ours.told(), theirs.told(), ours.median / theirs.median)


class _Drained:
    """The first of two hosts, drained again and again: each way of it is timed with all guests there."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lab = control.lab
        self._guests: list[str] = []
        self.moves: list[Seconds] = []

    def grow(self, guests: int) -> None:
        """Have so many guests on the first host, and no drain of fewer in C(moves)."""
        self.moves = []
        new = [f"g{number:02}" for number in range(len(self._guests), guests)]
        for name in new:
            self._lab("guest", name, "--host", self._lab.host(1), "--mib", str(GUEST_MIB))
        self._guests += new

    def by_the_collection(self) -> Seconds:
        """Drain it by the playbook."""
        settings = {"target": self._lab.host(1), "drain_host_parallel": WINDOW, "kvmfleet_ledger": str(self._control.path)}
        seconds = self._playbook(_DRAIN, "-e", json.dumps(settings))
        self.moves.append(_span(self._control.records()[-len(self._guests) :]))
        self._give_back()
        self._control.task(1, "host", {"state": "enabled"})
        return seconds

    def by_xargs(self) -> Seconds:
        """Drain it by the bare tool, on the host itself."""
        seconds = seconds_of(lambda: self._migrate(1, 2, WINDOW))
        self._give_back()
        return seconds

    def by_a_loop(self) -> Seconds:
        """Drain it by a playbook that moves one guest after the other."""
        moves = {"ansible.builtin.command": f"{_VIRSH} {{{{ item }}}} qemu+tcp://{self._lab.host(2)}/system", "loop": self._guests}
        playbook = self._control.folder / "loop.yml"
        playbook.write_text(json.dumps([{"hosts": self._lab.host(1), "gather_facts": False, "tasks": [moves]}]), encoding="utf-8")
        seconds = self._playbook(str(playbook))
        self._give_back()
        return seconds

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

    def _give_back(self) -> None:
        """Have every guest on the first host again; one that did not leave it fails the benchmark."""
        self._migrate(2, 1, AT_ONCE)


def _span(records: list[Record]) -> Seconds:
    """Return the seconds from the first record's start to the last one's end."""
    begun, ended = (min(_at(record, "preparing") for record in records), max(_at(record, "completed") for record in records))
    return (ended - begun).total_seconds()


def _at(record: Record, status: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(next(line["at"] for line in record["history"] if line["status"] == status))
