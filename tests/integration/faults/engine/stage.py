# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet on which one scenario is played: its guests, tasks, moments, small disks and clocks, and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError

from ...support.control import Record
from ...support.door import Door
from ...support.fleet import Lab, eventually
from ...support.site import HOSTS, Site
from . import disks, ledgers
from .actions import Actions
from .clocks import Clock
from .moments import PROBE, Arrival, Moments
from .phrases import CONTROL, Action
from .tasks import Run, begin
from .text import Scenario, Task

LEDGER_MIB = 4
_DONE_TO_A_DISK = ("fill", "make room in", "write-protect", "allow writing")
_WRAPPER = """#!/bin/sh
export PYTHONPATH='{probe}' KVMFLEET_MOMENTS='{moments}' PYTHONDONTWRITEBYTECODE=1 {clock}
exec /usr/bin/python3 "$@"
"""


class Stage:
    """Use it as a context: afterwards the fleet is as it was before."""

    numbers = HOSTS

    def __init__(self, lab: Lab, folder: pathlib.Path, scenario: Scenario) -> None:
        self.lab = lab
        self.scenario = scenario
        self.site = Site(lab, folder)
        self.moments = Moments(folder / "moments", self.site.hooks, self.state_at_home)
        self.uuids: dict[str, str] = {}
        self.clocks: dict[t.Any, Clock] = {}
        self._doors: dict[int, Door] = {}
        self._crowds: dict[int, contextlib.ExitStack] = {}
        self._folder = folder
        self._runs: dict[str, Run] = {}
        self._ledger_disk: disks.LedgerDisk | None = None
        self._etcd: ledgers.Etcd | None = None
        self._set_back: set[str] = set()
        self._is_repaired = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stage:
        with contextlib.ExitStack() as stack:
            stack.callback(self._tear_down)
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *dummy: object) -> None:
        self._stack.close()

    # Setting up

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        actions = self._all_actions()
        if self.scenario.ledger == ledgers.ETCD:
            self._etcd = stack.enter_context(ledgers.etcd(self.lab, self._folder))
            self.site.where = self._etcd.where
        elif self.scenario.ledger_mib or any(action.what == "ledger" and action.verb in _DONE_TO_A_DISK for action in actions):
            self._ledger_disk = stack.enter_context(disks.small_ledger(self.site.path, self.scenario.ledger_mib or LEDGER_MIB))
        for number in {action.on for action in actions if action.what == "images" and action.on}:
            disks.own_images(self.lab, number)
        for number in {action.on for action in actions if action.verb == "crowd" and action.on}:
            self._doors[number] = Door(self.site, number)
            stack.enter_context(self._doors[number].narrow())
        for name in {action.options["on"] for action in actions if action.verb == "clock"}:
            self.clocks[name] = Clock(self._folder / f"clock-{name}")
        self._interpret()
        for name, wish in self.scenario.guests.items():
            self._make_guest(name, wish)
        if self.scenario.protect:
            self.site.protect()

    def _all_actions(self) -> list[Action]:
        return [action for step in self.scenario.steps for action in step.actions]

    def _interpret(self) -> None:
        """Let Ansible and every Python that it starts on hosts look for armed moments, and go by clocks that can be set."""
        environment = {"PYTHONPATH": f"{PROBE}:{self.site.environment.get('PYTHONPATH', '')}", "KVMFLEET_MOMENTS": str(self._folder / "moments")}
        self.site.environment.update(environment, **(self.clocks[CONTROL].environment if CONTROL in self.clocks else {}))
        for number in HOSTS:
            clock = " ".join(f"{key}='{value}'" for key, value in self.clocks[number].environment.items()) if number in self.clocks else ""
            wrapper = self._folder / f"python-{number}"
            wrapper.write_text(_WRAPPER.format(probe=PROBE, moments=self._folder / "moments", clock=clock))
            wrapper.chmod(0o755)
            self.site.variable(number, "ansible_python_interpreter", str(wrapper))

    def _make_guest(self, name: str, wish: t.Mapping[str, t.Any]) -> None:
        # It is known before it is made: a guest that was made in part is removed too.
        self.uuids[name] = ""
        self.lab.make_guest(name, {"mib": 32, **wish})
        self.uuids[name] = self.lab.uuid(name, wish["host"])

    # What the steps do

    def crowd(self, number: int) -> None:
        """Keep a login on its way at the SSH server of a host."""
        self._crowds[number] = contextlib.ExitStack()
        self._crowds[number].enter_context(self._doors[number].occupied())
        self._stack.push(self._crowds[number])

    def clear(self, number: int) -> None:
        """End that login."""
        self._crowds[number].close()

    def begin(self, name: str, task: Task, source: int | None = None) -> Run:
        """Begin a task on the host that its text names, else where its guest was made."""
        guest = task.own.get("guest") or next(iter(task.own.get("guests") or ()), None)
        home = task.own.get("from") or source or (self.home(guest) if guest else 1)
        if task.kind == "settle":
            task = self._about_its_record(task)
        self._runs[name] = begin(self.site, name, task, self._folder / f"{name.replace(' ', '-')}.log", home)
        return self._runs[name]

    def _about_its_record(self, task: Task) -> Task:
        """Name the record that a host remembers as the last one of a guest."""
        uuid, number = self.uuids[task.own["guest"]], task.own["on"]
        found = [record for record in (self.lab.state_file(uuid, number), self.site.evacuation_note(uuid, number)) if record]
        assert found, f"host {number} remembers no move of {task.own['guest']}"
        return dataclasses.replace(task, own={**task.own, "id": max(found, key=lambda record: record["generation"])["id"]})

    def run(self, name: str | None) -> Run:
        """Return a task by its name; without one, that which was begun last."""
        return self._runs[name] if name else self.runs()[-1]

    def runs(self) -> list[Run]:
        """Return all tasks, of each name the last."""
        return list(self._runs.values())

    def do(self, actions: t.Iterable[Action], guest: str = "", there: t.Sequence[Arrival] = ()) -> None:
        """Let these things happen, one after the other."""
        doing = Actions(self, guest or next(iter(self.scenario.guests)), there)
        for action in actions:
            doing.do(action)

    @property
    def ledger_disk(self) -> disks.LedgerDisk:
        """The ledger's file system; only scenarios that do something to it have one."""
        assert self._ledger_disk is not None
        return self._ledger_disk

    @property
    def etcd(self) -> ledgers.Etcd:
        """What keeps the ledger, where the text says C(ledger: etcd)."""
        assert self._etcd is not None
        return self._etcd

    @property
    def store(self) -> ledgers.Store:
        """What keeps the ledger."""
        return self._etcd or ledgers.Folder(self.site.path, self._ledger_disk)

    def set_back(self, as_new: bool) -> None:
        """Put the ledger back to its backup: it may not know what tasks have returned before."""
        self._set_back = {str(record["id"]) for run in self.runs() for record in run.records}
        self.store.restore(as_new)

    def was_set_back_after(self, record_id: str) -> bool:
        """Whether the ledger was set back after a task had returned that record: it may have none of it, or what a person has said of it."""
        return record_id in self._set_back

    # What there is

    def home(self, guest: str) -> int:
        """Return the host that a guest was made on."""
        return int(self.scenario.guests[guest]["host"])

    def state_at_home(self, guest: str) -> str:
        """Return a guest's state on the host that it was made on, with its reason, e.g. C(paused (migrating)); nothing where it is not known there."""
        host = self.home(guest)
        return self.lab.virsh(host, "domstate", guest, "--reason").strip() if host in self.lab.places(guest) else ""

    def hosts_on(self) -> list[int]:
        """Return the hosts whose libvirtd answers."""
        rows = self.lab.rows()
        return [number for number in HOSTS if rows[self.lab.host(number)]["libvirtd"]]

    def number_of(self, node: str) -> int | None:
        """Return the host of that name; None for the control node."""
        return next((number for number in HOSTS if self.lab.host(number) == node), None)

    def watched(self, guest: str) -> tuple[int, Record]:
        """Return the host where a guest's move is watched, and its state file."""

        def found() -> tuple[int, Record] | None:
            states = [(number, self.lab.state_file(self.uuids[guest], number)) for number in self.hosts_on()]
            return next(((number, state) for number, state in states if state), None)

        return eventually(found, f"somebody watches {guest}")

    def watchers(self) -> list[str]:
        """Return the watchers that still run, by host and process."""
        return [f"{number}: {pid}" for number in self.hosts_on() for pid in self._watchers_on(number)]

    def _watchers_on(self, number: int) -> list[str]:
        """A watcher is a process that has a lock under /run/kvmfleet open."""
        script = 'for one in /proc/[0-9]*; do ls -l $one/fd 2>/dev/null | grep -q "/run/kvmfleet/.*[.]lock" && echo ${one#/proc/}; done; true'
        return self.lab.on(number, "sh", "-c", script).split()

    def spare_watchers_on(self, number: int) -> list[str]:
        """Return the processes that write to the log of a run, as watchers do, and have no lock."""
        script = 'for one in /proc/[0-9]*; do readlink $one/fd/2 2>/dev/null | grep -q "^/run/kvmfleet/.*[.]log$" && echo ${one#/proc/}; done; true'
        return sorted(set(self.lab.on(number, "sh", "-c", script).split()) - set(self._watchers_on(number)))

    def told_guests(self) -> set[str]:
        """Return the guests of which the text says where they are at the end."""
        wholes = [self.scenario.expect, *(self.scenario.expect.get("either") or ())]
        return {name for whole in wholes for name in whole.get("guests") or ()}

    def story(self) -> str:
        """Return all that helps to understand what has happened."""
        try:
            records = [_told(record) for record in self.site.records()]
        except KvmfleetError as error:
            records = [str(error)]
        places = [f"{name}: {self.lab.places(name)}" for name in self.scenario.guests]
        printed = [f"--- {run.name} (exit code {run.code})\n{run.summary}" for run in self.runs()]
        return "\n".join([*records, *places, *printed])

    # The end

    def repair(self) -> None:
        """Undo every fault, but leave hosts that are off as they are: somebody has decided on them."""
        self.moments.release_all()
        for clock in self.clocks.values():
            clock.jump(0)
        self.store.mend()
        for number in HOSTS:
            self.do([Action("heal", number=number)])
        rows = self.lab.rows()
        for number in [one for one in HOSTS if rows[self.lab.host(one)]["power"] == "on"]:
            self.lab.on(number, "sh", "-c", f"kill -CONT $(cat /run/libvirtd.pid); {disks.MEND_RUN}")
            self.lab("libvirtd", self.lab.host(number), "start")
        self._is_repaired = True

    def _tear_down(self) -> None:
        for run in self.runs():
            run.kill_all()
        self.moments.release_all()
        for number in HOSTS:
            # What hangs on a host, and what it keeps in its memory, is of no use to the next scenario.
            if not self._is_repaired:
                self.do([Action("heal", number=number)])
            self.lab("poweroff", self.lab.host(number))
        self.site.close(self.uuids)


def _told(record: Record) -> str:
    lines = "\n".join(f"    {line['at']} {line['status']} ({line['by']}) {line['detail']}" for line in record["history"])
    return f"{record['domain']['name']} {record['status']} ({record['reason']}) {record['source']['host']} to {record['destination']['host']}:\n{lines}"
