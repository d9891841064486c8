# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A source host as an action plugin reaches it, in this process: the module's own code over fake hosts."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec, scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.survey import describe_host, survey
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.arrivals import ArrivalEvents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import read_json, state_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import Mover
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import order_from
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import received
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.answer import answer
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.arrivals import Arrivals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.question import question_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest, requests_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet

HOSTS = ("kvm1", "kvm2", "kvm3")
PLATFORM = {"arch": "x86_64", "virt_type": "kvm", "emulator": "/usr/bin/qemu", "machines": ["q35", "pc-q35-7.2"], "max_vcpus": 64, "cpu": None}


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


def _describe(host: t.Any) -> t.Dict[str, t.Any]:
    return gather(host)[0]


class FakeSource:
    """Stands in for C(SourceHost). Each poll carries one move on to its end; C(kill_watcher) lets it die instead."""

    def __init__(self, fleet: FakeFleet, folder: pathlib.Path, name: str = "kvm1") -> None:
        self.name = name
        self.seen: t.Optional[t.Dict[str, t.Any]] = None
        self.fleet = fleet
        self.shared = True
        self.deaths = 0
        self.silent_polls = 0
        self.refuse_start: t.Optional[KvmfleetError] = None
        self.session_warning: t.Optional[str] = None
        self.phases: t.List[str] = []
        # What differs from what the fake hosts say: facts by host; needs and policies by domain UUID.
        self.facts: t.Dict[str, t.Dict[str, t.Any]] = {}
        self.needs: t.Dict[str, t.Dict[str, t.Any]] = {}
        self.policies: t.Dict[str, t.Dict[str, t.Any]] = {}
        self.after_prepare: t.Callable[[], None] = lambda: None
        self.orders: t.List[t.Dict[str, t.Any]] = []
        self._folder = folder
        self._waiting: t.List[Mover] = []

    def phase(self, phase: str, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        self.phases.append(phase)
        work = json.loads(json.dumps(work))
        if phase == "start":
            result = self._start(work)
        else:
            result = self._prepare(work["wanted"] if phase == "prepare" else [work["wanted"]])
            self.after_prepare()
        return t.cast("t.Dict[str, t.Any]", json.loads(json.dumps(result)))

    def facts_of(self, host: str) -> t.Dict[str, t.Any]:
        """What a survey sees of a host."""
        uri = LOCAL_URI if host == self.name else f"qemu+tcp://{host}/system"
        return self._differing(host, describe_host(self.fleet.open(uri), _describe))

    def poll(
        self, run_id: str, counter: int, watchers: t.Dict[str, t.Mapping[str, t.Any]], turns: t.Optional[t.Dict[str, t.Dict[str, str]]]
    ) -> t.Dict[str, t.Dict[str, t.Any]]:
        if self.silent_polls:
            self.silent_polls -= 1
            raise Unreachable(f"{self.name} cannot be reached.")
        self._hear(turns or {"given": {}, "ended": {}})
        ready = next((mover for mover in self._waiting if not mover.waits), None)
        if ready:
            self._waiting.remove(ready)
            self._carry_on(ready)
        states = {uuid: read_json(state_path(uuid, str(self._folder))) for uuid in watchers}
        return {uuid: {**state, "alive": self._is_watched(uuid)} for uuid, state in states.items() if state}

    @property
    def watchers(self) -> t.List[str]:
        """The domains that a watcher lives for."""
        return [mover.order.uuid for mover in self._waiting]

    def lose_watcher(self) -> None:
        """Let the watcher die, with all that it waits for."""
        for mover in self._waiting:
            mover._ownership.release()
        self._waiting.clear()

    def state_of(self, uuid: str) -> t.Any:
        return read_json(state_path(uuid, str(self._folder)))

    def _prepare(self, asked: t.List[t.Dict[str, t.Any]]) -> t.Dict[str, t.Any]:
        found = survey(self.fleet.open(LOCAL_URI), asked, self.fleet.open, lambda path: self.shared, _describe)
        found["source"] = self._differing(self.name, found["source"])
        found["destinations"] = {
            uri: self._differing(self.fleet.machine_of(uri).name, seen) if seen["answered"] else seen for uri, seen in found["destinations"].items()
        }
        for domain, wanted in zip(found["domains"], asked):
            uuids = [domain["info"]["uuid"]] if domain["found"] else [uuid for uuid in (wanted["uuid"], *wanted["known_uuids"]) if uuid]
            if domain["found"]:
                domain["request"].update(self.needs.get(uuids[0], {}))
                domain["policy"]["values"].update(self.policies.get(uuids[0], {}))
            states = [(uuid, self.state_of(uuid)) for uuid in uuids]
            domain["watch"] = next(({"record": state, "alive": self._is_watched(uuid)} for uuid, state in states if state), None)
        return {"survey": found}

    def _differing(self, host: str, seen: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        domains = [{**domain, "request": {**domain["request"], **self.needs.get(domain["uuid"], {})}} for domain in seen["domains"]]
        return {**seen, "platforms": [PLATFORM], "domains": domains, **self.facts.get(host, {})}

    def _start(self, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        refusal = self.refuse_start
        if refusal is not None:
            raise refusal
        watcher = {"pid": 4711, "start_ticks": 1, "run_id": work["run_id"]}
        taken, refused = {}, {}
        for order in map(order_from, work["orders"]):
            self.orders.append(
                {
                    "uuid": order.uuid,
                    "adopt": order.adopt,
                    "flags": order.flags,
                    "parameters": order.parameters,
                    "to": order.destination_uri,
                    "waits": order.waits,
                }
            )
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
            self._waiting.append(Mover(order, journal, ownership, self.fleet.open, ArrivalEvents(self.fleet.open), self.fleet.clock, self.fleet.clock.sleep))
            taken[order.uuid] = order.record["generation"]
        beside = {"session_warning": self.session_warning} if self.session_warning else {}
        return {"taken": taken, "refused": refused, "watcher": watcher, **beside}

    def _hear(self, turns: t.Dict[str, t.Dict[str, str]]) -> None:
        for mover in list(self._waiting):
            key = mover.order.record["id"]
            if mover.waits and key in turns["given"]:
                mover.let(turns["given"][key])
            elif mover.waits and key in turns["ended"]:
                self._waiting.remove(mover)
                mover.cancel(s.REASON_QUEUE_TIMEOUT, turns["ended"][key])

    def _carry_on(self, mover: Mover) -> None:
        if self.deaths:
            self.deaths -= 1
            mover._ownership.release()
            return
        mover.run()

    def _is_watched(self, uuid: str) -> bool:
        return uuid in self.watchers


class Control:
    """A control node with a ledger, a fleet of three and tasks to run against the first of its hosts.

    :arg hosts: of the fleet, the source first.
    :arg location: of the ledger; None for one in the folder.
    """

    def __init__(self, folder: pathlib.Path, hosts: t.Sequence[str] = HOSTS, location: t.Optional[str] = None, **of_each_host: t.Any) -> None:
        self.fleet = FakeFleet(*hosts)
        run_folder = folder / f"run-{hosts[0]}"
        run_folder.mkdir(exist_ok=True)
        self.ledger = open_ledger(location or str(folder / "ledger"))
        self.source = FakeSource(self.fleet, run_folder, hosts[0])
        self.settings = settings_of(**of_each_host)
        self.shown: t.List[t.Mapping[str, t.Any]] = []
        self.show: t.Callable[[t.Mapping[str, t.Any]], None] = self.shown.append
        self.warnings: t.List[str] = []

    def say(self, host: str, **facts: t.Any) -> None:
        """Let a host have gathered its own facts just now; these are what differs from what is seen of it from the source."""
        seen = self.source.facts_of(host)
        self.variables(host)["ansible_facts"] = {"kvmfleet_host": received({**seen, **facts})}

    def variables(self, host: str) -> t.Dict[str, t.Any]:
        """The inventory variables of a host, to be changed."""
        return t.cast("t.Dict[str, t.Any]", self.settings._hostvars[host])

    def run(self, check: bool = False, **given: t.Any) -> t.List[Job]:
        """Run a task."""
        requests = requests_of(task_args(**given), self.settings, self.source.name)
        context = Context(self.ledger, self.settings, t.cast(t.Any, self.source), LOCAL_URI, "root@control pid 1")
        run = MoveRun(context, 4, self.show)
        try:
            return run.predict(requests) if check else run.execute(requests)
        finally:
            self.warnings = context.warnings

    def check(self, ledger: bool = True, **given: t.Any) -> t.Dict[str, t.Any]:
        """Run C(scheduler_check)."""
        args = {option: spec.get("default") for option, spec in scheduler_check_spec().items()}
        question = question_of({**args, **given}, self.settings, self.source.name)
        known = self.ledger if ledger else None
        view = FleetView(known, self.settings, question.source, {}, question.move.uris, Arrivals(known), overrides=question.scheduler)
        view.check_settings(question.move.uris)
        view.survey = self.source.phase("survey", {"wanted": question.wanted()})["survey"]
        return answer(question, view)

    def records(self) -> t.List[t.Dict[str, t.Any]]:
        return sorted(self.ledger.records(), key=lambda record: str(record["created_at"]))

    def unsettled(self) -> t.List[t.Dict[str, t.Any]]:
        return [record for record in self.records() if record["status"] in s.UNSETTLED]
