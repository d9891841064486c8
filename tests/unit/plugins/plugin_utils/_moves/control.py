# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A source host as an action plugin reaches it, in this process: the module's own code over fake hosts."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.traits import host_traits
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.survey import survey
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import read_json, state_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import Mover
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import order_from
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file_store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest, requests_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet

HOSTS = ("kvm1", "kvm2", "kvm3")


def settings_of(*hosts: str, **of_each: t.Any) -> Settings:
    """Settings of a fleet whose hosts all have these variables."""
    hosts = hosts or HOSTS
    return Settings(
        {"hostvars": {host: {"kvmfleet_transport": "tcp", **of_each} for host in hosts}, "groups": {"all": list(hosts), "kvmfleet_hosts": list(hosts)}}
    )


def task_args(**given: t.Any) -> t.Dict[str, t.Any]:
    """The validated options of a task that gave these."""
    defaults = {option: spec.get("default") for option, spec in live_migrate_spec().items()}
    moves = given.pop("moves", None)
    full_moves = None if moves is None else [{**dict.fromkeys(move_spec()), **move} for move in moves]
    return {**defaults, "moves": full_moves, **given}


def one_request(**given: t.Any) -> MoveRequest:
    (request,) = requests_of(task_args(**given), settings_of(), "kvm1")
    return request


class FakeSource:
    """Stands in for C(SourceHost). Each poll carries one move on to its end; C(kill_watcher) lets it die instead."""

    def __init__(self, fleet: FakeFleet, folder: pathlib.Path, name: str = "kvm1") -> None:
        self.name = name
        self.fleet = fleet
        self.shared = True
        self.deaths = 0
        self.silent_polls = 0
        self.refuse_start: t.Optional[KvmfleetError] = None
        self.phases: t.List[str] = []
        self.orders: t.List[t.Dict[str, t.Any]] = []
        self._folder = folder
        self._waiting: t.List[Mover] = []

    def phase(self, phase: str, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        self.phases.append(phase)
        work = json.loads(json.dumps(work))
        result = self._prepare(work) if phase == "prepare" else self._start(work)
        return t.cast("t.Dict[str, t.Any]", json.loads(json.dumps(result)))

    def poll(self, run_id: str, counter: int, watchers: t.Dict[str, t.Mapping[str, t.Any]]) -> t.Dict[str, t.Dict[str, t.Any]]:
        if self.silent_polls:
            self.silent_polls -= 1
            raise Unreachable(f"{self.name} cannot be reached.")
        if self._waiting:
            self._carry_on(self._waiting.pop(0))
        states = {uuid: read_json(state_path(uuid, str(self._folder))) for uuid in watchers}
        return {uuid: {**state, "alive": self._is_watched(uuid)} for uuid, state in states.items() if state}

    @property
    def watchers(self) -> t.List[str]:
        """The domains that a watcher lives for."""
        return [mover.order.uuid for mover in self._waiting]

    def state_of(self, uuid: str) -> t.Any:
        return read_json(state_path(uuid, str(self._folder)))

    def _prepare(self, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        found = survey(self.fleet.open(LOCAL_URI), work["wanted"], self.fleet.open, lambda path: self.shared, host_traits)
        for domain, wanted in zip(found["domains"], work["wanted"]):
            uuids = [domain["info"]["uuid"]] if domain["found"] else [uuid for uuid in (wanted["uuid"], *wanted["known_uuids"]) if uuid]
            states = [(uuid, self.state_of(uuid)) for uuid in uuids]
            domain["watch"] = next(({"record": state, "alive": self._is_watched(uuid)} for uuid, state in states if state), None)
        return {"survey": found}

    def _start(self, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        refusal = self.refuse_start
        if refusal is not None:
            raise refusal
        watcher = {"pid": 4711, "start_ticks": 1, "run_id": work["run_id"]}
        taken, refused = {}, {}
        for order in map(order_from, work["orders"]):
            self.orders.append({"uuid": order.uuid, "adopt": order.adopt, "flags": order.flags, "parameters": order.parameters, "to": order.destination_uri})
            try:
                ownership = Ownership(order.uuid, str(self._folder))
                if order.adopt:
                    order.record["generation"] = ownership.take_over(order.record["id"], order.record["generation"])
                else:
                    ownership.begin(order.record["id"], order.record["generation"])
            except KvmfleetError as error:
                refused[order.uuid] = error.as_result()
                continue
            journal = Journal(order.record, watcher, str(self._folder))
            journal.write()
            self._waiting.append(Mover(order, journal, ownership, self.fleet.open, self.fleet.clock, self.fleet.clock.sleep))
            taken[order.uuid] = order.record["generation"]
        return {"taken": taken, "refused": refused, "watcher": watcher}

    def _carry_on(self, mover: Mover) -> None:
        if self.deaths:
            self.deaths -= 1
            mover._ownership.release()
            return
        mover.run()

    def _is_watched(self, uuid: str) -> bool:
        return uuid in self.watchers


class Control:
    """A control node with a ledger, a fleet of three and tasks to run against kvm1."""

    def __init__(self, folder: pathlib.Path, **of_each_host: t.Any) -> None:
        self.fleet = FakeFleet(*HOSTS)
        (folder / "run").mkdir(exist_ok=True)
        self.ledger = FileLedger(str(folder / "ledger"))
        self.source = FakeSource(self.fleet, folder / "run")
        self.settings = settings_of(**of_each_host)
        self.shown: t.List[t.Mapping[str, t.Any]] = []
        self.warnings: t.List[str] = []

    def run(self, check: bool = False, **given: t.Any) -> t.List[Job]:
        """Run a task."""
        requests = requests_of(task_args(**given), self.settings, "kvm1")
        context = Context(self.ledger, self.settings, t.cast(t.Any, self.source), LOCAL_URI, "root@control pid 1")
        run = MoveRun(context, 4, self.shown.append)
        try:
            return run.predict(requests) if check else run.execute(requests)
        finally:
            self.warnings = context.warnings

    def records(self) -> t.List[t.Dict[str, t.Any]]:
        return sorted(self.ledger.records(), key=lambda record: str(record["created_at"]))

    def unsettled(self) -> t.List[t.Dict[str, t.Any]]:
        return [record for record in self.records() if record["status"] in s.UNSETTLED]
