# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A source host as an action plugin reaches it, in this process: the module's own code over fake hosts."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec, scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey import describe_host, survey_hosts
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import read_state_file
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Absent, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import (
    Survey,
    SurveyQuestion,
    Watcher,
    read_start_order,
    read_survey,
    read_watcher,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, read_json, state_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.calls import ArrivalEvents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import Mover
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView, RecentMoves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import ShowRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest, read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.scheduler_check import answer_check, read_check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import PolledState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, with_receipt
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet

HOSTS = ("kvm1", "kvm2", "kvm3")
PLATFORM = {"arch": "x86_64", "virt_type": "kvm", "emulator": "/usr/bin/qemu", "machines": ["q35", "pc-q35-7.2", "pc-q35-8.0"], "max_vcpus": 64, "cpu": None}


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
    (request,) = read_requests(task_args(**given), settings_of(), "kvm1")
    return request


def _describe(host: t.Any) -> HostFacts:
    return gather_facts(host)[0]


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
        # How many times the connection is lost: after a start was carried out, and in the surveys that follow it.
        self.lost_answers = 0
        self.repeats_start = False
        # How many orders do not arrive.
        self.lost_orders = 0
        self.silent_surveys = 0
        self.phases: t.List[str] = []
        # What differs from what the fake hosts say: facts by host; needs and policies by domain UUID.
        self.facts: t.Dict[str, t.Dict[str, t.Any]] = {}
        self.needs: t.Dict[str, t.Dict[str, t.Any]] = {}
        self.policies: t.Dict[str, t.Dict[str, t.Any]] = {}
        # Whether QEMU was upgraded since the domains were started.
        self.qemu_replaced = False
        self.after_prepare: t.Callable[[], None] = lambda: None
        self.orders: t.List[t.Dict[str, t.Any]] = []
        # Until when an order may arrive, and what of this the orders had.
        self.until = BootMoment("boot-1", 300.0)
        self.given_until: t.List[t.Union[BootMoment, Absent]] = []
        # Domains whose watcher lives on whatever becomes of their move: it has others.
        self.watched: t.Set[str] = set()
        self._folder = folder
        self._waiting: t.List[Mover] = []

    def run_phase(self, phase: str, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        self.phases.append(phase)
        work = json.loads(json.dumps(work))
        if phase == "start":
            if self.lost_orders:
                self.lost_orders -= 1
                raise Unreachable(f"{self.name} cannot be reached: the connection was closed.")
            result = self._start(work)
            if self.repeats_start:
                # As SSH does with a command whose connection was lost before its answer.
                result = self._start(work)
            if self.lost_answers:
                self.lost_answers -= 1
                raise Unreachable(f"{self.name} cannot be reached: the connection was closed.")
        else:
            if self.silent_surveys and "start" in self.phases:
                self.silent_surveys -= 1
                raise Unreachable(f"{self.name} cannot be reached: the connection is refused.")
            result = self._prepare(work["wanted"] if phase == "prepare" else [work["wanted"]])
            self.after_prepare()
        return t.cast("t.Dict[str, t.Any]", json.loads(json.dumps(result)))

    def prepare_moves(self, questions: t.Sequence[SurveyQuestion], run_id: t.Optional[str] = None) -> Survey:
        return read_survey(self.run_phase("prepare", {"wanted": encode(questions)})["survey"])

    def order_until(self) -> BootMoment:
        return self.until

    def start_watcher(self, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        return self.run_phase("start", work)

    def facts_of(self, host: str) -> t.Dict[str, t.Any]:
        """What a survey sees of a host."""
        uri = LOCAL_URI if host == self.name else f"qemu+tcp://{host}/system"
        return self._differing(host, encode(describe_host(self.fleet.open(uri), _describe)))

    def poll_states(
        self, run_id: str, counter: int, watchers: t.Mapping[str, Watcher], turns: t.Optional[t.Dict[str, t.Dict[str, str]]]
    ) -> t.Dict[str, PolledState]:
        if self.silent_polls:
            self.silent_polls -= 1
            raise Unreachable(f"{self.name} cannot be reached.")
        self._hear(turns or {"given": {}, "ended": {}})
        ready = next((mover for mover in self._waiting if not mover.waits), None)
        if ready:
            self._waiting.remove(ready)
            self._carry_on(ready)
        states = {uuid: read_state_file(uuid, str(self._folder)) for uuid in watchers}
        return {uuid: PolledState(state, t.cast(Watcher, state.watcher), self._is_watched(uuid)) for uuid, state in states.items() if state}

    @property
    def watchers(self) -> t.List[str]:
        """The domains that a watcher lives for."""
        return [mover.order.uuid for mover in self._waiting]

    def lose_watcher(self) -> None:
        """Let the watcher die, with all that it waits for."""
        for mover in self._waiting:
            mover._ownership.release_lock()
        self._waiting.clear()

    def leave_watched_state(self, record: MoveRecord) -> None:
        """Leave the state file of a move whose watcher lives on."""
        Journal(record, Watcher(pid=4711, start_ticks=1, run_id=record.id), str(self._folder)).write_state()
        self.watched.add(record.domain.uuid)

    def state_of(self, uuid: str) -> t.Any:
        return read_json(state_path(uuid, str(self._folder)))

    def _prepare(self, asked: t.List[t.Dict[str, t.Any]]) -> t.Dict[str, t.Any]:
        questions = [decode(SurveyQuestion, question) for question in asked]
        found = encode(survey_hosts(self.fleet.open(LOCAL_URI), questions, self.fleet.open, lambda path: self.shared, _describe))
        found["source"] = self._differing(self.name, found["source"])
        found["destinations"] = {
            uri: self._differing(self.fleet.machine_of(uri).name, seen) if seen["answered"] else seen for uri, seen in found["destinations"].items()
        }
        for domain, wanted in zip(found["domains"], asked):
            uuids = [domain["info"]["uuid"]] if domain["found"] else [uuid for uuid in (wanted["uuid"], *wanted["known_uuids"]) if uuid]
            if domain["found"]:
                domain["qemu_replaced"] = self.qemu_replaced
                domain["request"].update(self.needs.get(uuids[0], {}))
                domain["policy"]["values"].update(self.policies.get(uuids[0], {}))
            states = [(uuid, self.state_of(uuid)) for uuid in uuids]
            domain["watch"] = next(({"record": state, "alive": self._is_watched(uuid)} for uuid, state in states if state), None)
        return {"survey": found, "at": encode(boot_moment())}

    def _differing(self, host: str, seen: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        domains = [{**domain, "request": {**domain["request"], **self.needs.get(domain["uuid"], {})}} for domain in seen["domains"]]
        return {**seen, "platforms": [PLATFORM], "domains": domains, **self.facts.get(host, {})}

    def _start(self, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        refusal = self.refuse_start
        if refusal is not None:
            raise refusal
        watcher = {"pid": 4711, "start_ticks": 1, "run_id": work["run_id"]}
        taken, refused = {}, {}
        for order in map(read_start_order, work["orders"]):
            self.given_until.append(order.begin_until)
            self.orders.append(
                {
                    "uuid": order.uuid,
                    "adopt": order.adopt,
                    "flags": list(order.flags),
                    "parameters": order.parameters,
                    "to": order.destination_uri,
                    "waits": order.waits,
                }
            )
            try:
                ownership = Ownership(order.uuid, str(self._folder))
                if order.adopt:
                    generation = ownership.take_over(str(order.record.id), order.record.generation)
                    order = dataclasses.replace(order, record=dataclasses.replace(order.record, generation=generation))
                else:
                    ownership.begin_record(str(order.record.id), order.record.generation)
            except KvmfleetError as error:
                refused[order.uuid] = error.as_result()
                continue
            journal = Journal(order.record, read_watcher(watcher), str(self._folder))
            journal.write_state()
            self._waiting.append(Mover(order, journal, ownership, self.fleet.open, ArrivalEvents(self.fleet.open), self.fleet.clock, self.fleet.clock.sleep))
            taken[order.uuid] = order.record.generation
        beside = {"session_warning": self.session_warning} if self.session_warning else {}
        return {"taken": taken, "refused": refused, "watcher": watcher, **beside}

    def _hear(self, turns: t.Dict[str, t.Dict[str, str]]) -> None:
        for mover in list(self._waiting):
            key = str(mover.order.record.id)
            if mover.waits and key in turns["given"]:
                mover.admit_move(turns["given"][key])
            elif mover.waits and key in turns["ended"]:
                self._waiting.remove(mover)
                mover.cancel_move(s.REASON_QUEUE_TIMEOUT, turns["ended"][key])

    def _carry_on(self, mover: Mover) -> None:
        if self.deaths:
            self.deaths -= 1
            mover._ownership.release_lock()
            return
        mover.run()

    def _is_watched(self, uuid: str) -> bool:
        return uuid in self.watchers or uuid in self.watched


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
        self.shown: t.List[MoveRecord] = []
        self.show: ShowRecord = lambda record, waits_for: self.shown.append(record)
        self.warnings: t.List[str] = []

    def say(self, host: str, **facts: t.Any) -> None:
        """Let a host have gathered its own facts just now; these are what differs from what is seen of it from the source."""
        seen = self.source.facts_of(host)
        self.variables(host)["ansible_facts"] = {"kvmfleet_host": with_receipt({**seen, **facts})}

    def variables(self, host: str) -> t.Dict[str, t.Any]:
        """The inventory variables of a host, to be changed."""
        return t.cast("t.Dict[str, t.Any]", self.settings._hostvars[host])

    def run(self, check: bool = False, **given: t.Any) -> t.List[MoveJob]:
        """Run a task."""
        requests = read_requests(task_args(**given), self.settings, self.source.name)
        context = RunContext(self.ledger, self.settings, t.cast(t.Any, self.source), LOCAL_URI, "root@control pid 1")
        run = MoveRun(context, 4, self.show)
        try:
            return run.predict_moves(requests) if check else run.run_moves(requests)
        finally:
            self.warnings = context.warnings

    def check(self, ledger: bool = True, **given: t.Any) -> t.Dict[str, t.Any]:
        """Run C(scheduler_check)."""
        args = {option: spec.get("default") for option, spec in scheduler_check_spec().items()}
        question = read_check({**args, **given}, self.settings, self.source.name)
        known = self.ledger if ledger else None
        view = FleetView(
            known, self.settings, question.source, Survey(HostFacts(), {}, ()), question.move.uris, RecentMoves(known), overrides=question.scheduler
        )
        view.check_settings(question.move.uris)
        view.survey = read_survey(self.source.run_phase("survey", {"wanted": encode(question.survey_question())})["survey"])
        return answer_check(question, view)

    def records(self) -> t.List[MoveRecord]:
        return sorted(self.ledger.list_records(), key=lambda record: record.created_at)

    def unsettled(self) -> t.List[MoveRecord]:
        return [record for record in self.records() if record.is_unsettled]
