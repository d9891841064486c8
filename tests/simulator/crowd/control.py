# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control process: it runs tasks one after the other, each of which opens the ledger anew as a task of Ansible's does."""

from __future__ import annotations

import random
import time
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.source import SimulatedSource
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.timed import Seconds, Timed
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import World

PARALLEL = 4


@dataclass
class Log:
    """What a process believes to have done.

    :arg ended: id of each record that its tasks returned, with the record's last status.
    :arg errors: how many moves failed, by error code and the beginning of the message.
    :arg task_seconds: how long each task took.
    """

    ended: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    task_seconds: list[float] = field(default_factory=list)
    seconds: Seconds = field(default_factory=dict)


def settings_of(world: World) -> Settings:
    """Return the inventory: all hosts with the same variables."""
    hosts = [world.size.host(number) for number in range(world.size.hosts)]
    variables: t.Any = {"kvmfleet_transport": "tcp", "kvmfleet_scheduler": {"limits": world.size.limits}}
    return Settings({"hostvars": dict.fromkeys(hosts, variables), "groups": {"all": hosts, "kvmfleet_hosts": hosts}})


class Control:
    """:arg number: of the process. Its own are the guests that are on every so many hosts at the beginning.

    :arg etcd: the variable C(kvmfleet_etcd).
    """

    def __init__(self, world: World, number: int, location: str, etcd: t.Any) -> None:
        self._world = world
        self._number = number
        self._location = location
        self._etcd = etcd
        self._chance = random.Random(number)
        self._settings = settings_of(world)
        self._own = [guest for guest in range(world.size.guests) if world.owner(guest) == number]
        self.log = Log()

    def run(self) -> Log:
        """Run all tasks."""
        for _task in range(self._world.size.tasks):
            begin = time.monotonic()
            self._task()
            self.log.task_seconds.append(time.monotonic() - begin)
        return self.log

    def _task(self) -> None:
        host, moves = self._chosen()
        begin = time.monotonic()
        ledger = open_ledger(self._location, self._etcd)
        self.log.seconds.setdefault("opening the ledger", []).append(time.monotonic() - begin)
        source = SimulatedSource(self._world, host)
        timed, there = t.cast(t.Any, Timed(ledger, self.log.seconds)), t.cast(t.Any, source)
        context = RunContext(timed, self._settings, there, "qemu:///system", f"control process {self._number}")
        requests = read_requests(_arguments(moves), self._settings, source.name)
        for job in MoveRun(context, PARALLEL, lambda record, waits_for: None).run_moves(requests):
            self._note(job)

    def _note(self, job: MoveJob) -> None:
        records = [encode(job.record)] if job.record else job.error.result.get("migrations", []) if job.error else []
        self.log.ended |= {record["id"]: record["status"] for record in records}
        if job.error:
            self.log.errors[f"{job.error.error_code}: {_kind(job.error.message)}"] += 1

    def _chosen(self) -> tuple[int, list[dict[str, t.Any]]]:
        """Return a host with guests of ours, and where some of them are to go."""
        size = self._world.size
        host = self._world.place(self._chance.choice(self._own))
        here = [guest for guest in self._own if self._world.place(guest) == host]
        guests = self._chance.sample(here, min(len(here), size.moves))
        return host, [{"uuid": f.uuid_of(size.guest(guest)), "destination": size.host(self._destination(host))} for guest in guests]

    def _destination(self, source: int) -> int:
        size = self._world.size
        among = size.popular if self._chance.random() < 0.5 else size.hosts
        found = self._chance.randrange(among - 1)
        return found + (found >= source)


def _arguments(moves: list[dict[str, t.Any]]) -> t.Any:
    defaults = {option: spec.get("default") for option, spec in live_migrate_spec().items()}
    return {**defaults, "parallel": PARALLEL, "moves": [{**dict.fromkeys(move_spec()), **move} for move in moves]}


def _kind(message: str) -> str:
    """Return what a sentence is about without its names and numbers."""
    for kind in ("short of memory", "for its turn", "could not be reached", "held by", "was held", "was lost"):
        if kind in message:
            return kind
    return message
