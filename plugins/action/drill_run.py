# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(drill_run) runs on the control node alone. The decisions are in C(plugin_utils/_maintenance/drills.py), the verdict in C(drill_verdict.py)."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils import _argspec as spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, drill_run_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, SignedInt, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, KvmfleetError, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import HostQuery, read_answers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import VARIABLE, FencingConfig, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_levels import HostPower, PowerReply, query_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import fence_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.power_cycle import switch_on
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.source import age_seconds, resolve_source
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.differences import SILENT
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import check_not_granted
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries, read_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.protection import protected_hours
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, read_records, to_plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import with_protect_times
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import drill_verdict, drills, texts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drill_verdict import FleetAfter
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drills import Accepted, FleetBefore, HomelessGuest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import identify_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.runs import change_held_run, list_open_runs, read_now
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import Now
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.timeline import read_timeline
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import find_run_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, read_reported_domains

# From the check of the fleet to the cut, a drill has a few short tasks.
CHECK_MAX_AGE_SECONDS = 300
_LEFT_OFF = "Its boot guard holds its automatic starts. Then run the drill again: it continues."


@dataclass(frozen=True)
class _Work:
    """What the playbook passes.

    :arg check: what C(fleet_check) has returned for the loss of the host.
    :arg boot_id: the boot of the host now; empty if it does not answer.
    :arg asked: what C(host_facts) has returned for each host of the fleet after the return of the host.
    """

    check: Maybe[JsonObject] = ABSENT
    boot_id: Maybe[str] = ABSENT
    asked: Maybe[tuple[HostQuery, ...]] = ABSENT


@dataclass(frozen=True)
class _DrillTask:
    """The options of C(drill_run)."""

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"work": "_work"}

    ledger: t.Optional[str]
    step: str
    host: str
    fleet: tuple[str, ...]
    accept_lost: tuple[str, ...]
    accept_unguarded: bool
    protect_max_hours: SignedInt
    bring_home: bool
    problem: t.Optional[str]
    work: t.Optional[_Work]


class _CheckedLoss(t.NamedTuple):
    """The check of the fleet for the loss of the host, as L(FleetBefore) has it."""

    homeless: Sequence[HomelessGuest]
    unclear: Sequence[str]
    silent: Sequence[str]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "drill_run"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return drill_run_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Do one step of a drill."""
        with readable_results():
            task = decode(_DrillTask, to_plain(args))
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)
        ledger = open_if_any(*location, create=False)
        if ledger is None:
            raise NotFound("There is no ledger, so that no host was ever protected.", "Run kvmfleet.migration.protect first. Nothing was changed.")
        self.attach_notifier(ledger, settings, target_host, location)
        work = _DrillWork(task, ledger, settings, describe_actor(task_vars))
        result = work.act(bool(self._task.check_mode))
        return {**result, "warnings": ledger.problems} if ledger.problems else result


class _DrillWork:
    """One task with its ledger."""

    def __init__(self, task: _DrillTask, ledger: Ledger, settings: Settings, by: str) -> None:
        self._task = task
        self._ledger = ledger
        self._settings = settings
        self._by = by
        self._host = task.host
        # The process that holds a run is ansible-playbook, and not its worker.
        self._holder = identify_process(find_run_process(), by, utc_now())

    def act(self, check_mode: bool) -> Result:
        """Carry out the task."""
        if self._task.step == spec.DRILL_CHECK:
            return self._check()
        if check_mode:
            return {"changed": False}
        acts = {
            spec.DRILL_CUT: self._cut,
            spec.DRILL_PROBLEM: self._note_problem,
            spec.DRILL_WATCH: self._watch,
            spec.DRILL_SWITCH_ON: self._switch_on,
        }
        return acts.get(self._task.step, self._judge)()

    # -- before ----------------------------------------------------------------------------------------------------

    def _check(self) -> Result:
        """Refuse the drill unless the fleet can lose the host. Raises L(Unsafe) with all reasons."""
        task = self._task
        guests = self._read_guests()
        before = self._read_fleet(guests, query_host(self._config) if self._config else None)
        refused = self._list_refusals(before, task.accept_lost)
        if refused:
            raise Unsafe(f"The power of {self._host} is not cut. {' '.join(refused)}", "Nothing was changed.")
        names = sorted(one.name for one in guests or ())
        lines = [
            f"The power of {self._host} would be cut by its fence agents, which report: {before.power}.",
            f"{len(names)} {'guest has' if len(names) == 1 else 'guests have'} to run elsewhere then: {', '.join(names)}.",
            *(f"{one.name} may stay off until the host returns: {one.reason}." for one in before.homeless),
        ]
        return {"changed": False, "guests": {one.uuid: one.name for one in guests or ()}, "lines": lines}

    def _list_refusals(self, before: FleetBefore, accept_lost: Sequence[str]) -> list[str]:
        return drills.list_refusals(self._host, before, Accepted(accept_lost, self._task.accept_unguarded, self._task.protect_max_hours))

    def _read_fleet(self, guests: t.Optional[list[DomainFacts]], power: t.Optional[HostPower]) -> FleetBefore:
        hosts, check = read_hosts(self._ledger), self._read_check()
        entries = with_protect_times(self._ledger, hosts.entries)
        entry = next((one for one in entries if one.name == self._host), None)
        unknown = [dataclasses.replace(one.stand_in, name=one.host_key) for one in hosts.unreadable]
        if entry:
            check_not_granted(resolve_source(entries, self._host).entry)
        return FleetBefore(
            entry=entry,
            others=[*(one for one in entries if one.name != self._host and one.name in self._task.fleet), *unknown],
            guests=None if guests is None else [one.name for one in guests],
            autostarted=sorted(one.name for one in guests or () if one.autostart is not False),
            records=[*self._ledger.list_records(unsettled_only=True), *self._read_tombstones()],
            open_runs=self._describe_open_runs(),
            protected_hours=protected_hours(entry) if entry else None,
            homeless=check.homeless,
            homes=self._find_other_homes(guests or ()) if self._task.bring_home else {},
            unclear=check.unclear,
            silent=check.silent,
            power=str(power) if power else None,
            is_on=power is not None and power.is_on,
        )

    def _find_other_homes(self, guests: Sequence[DomainFacts]) -> dict[str, str]:
        """Return the hosts to which guests of the host move back, where these are others, by the names of the guests."""
        documents = {one.name: self._ledger.read_domain(one.uuid) for one in guests}
        origins = {name: (document.domain.protected or {}).get("origin") for name, document in documents.items() if document}
        return {name: str(origin) for name, origin in sorted(origins.items()) if origin and origin != self._host}

    def _read_check(self) -> _CheckedLoss:
        """Return what the check of the fleet says about the loss of the host."""
        check, fleet = t.cast("dict[str, t.Any]", (self._task.work or _Work()).check or {}), {*self._task.fleet}
        losses = t.cast("list[dict[str, t.Any]]", check.get("losses") or [])
        silent = [finding for finding in check.get("findings") or [] if finding["kind"] == SILENT]
        unjudged = [str(loss["reason"]) for loss in losses if loss["reason"] or not loss["guests"]]
        unlisted = [str(finding["msg"]) for finding in silent if not fleet.intersection(finding["hosts"])]
        return _CheckedLoss(
            homeless=[HomelessGuest(guest["name"], _refusal_text(guest)) for loss in losses for guest in loss["guests"]],
            unclear=[*self._why_unchecked(check), *unjudged, *unlisted],
            silent=sorted({host for finding in silent for host in finding["hosts"]} & fleet),
        )

    def _why_unchecked(self, check: t.Mapping[str, t.Any]) -> list[str]:
        """Return why the check of the fleet does not count, if it does not."""
        if check.get("lost") != [self._host]:
            return ["the fleet was not checked"]
        age = age_seconds(check.get("at"))
        return [] if age is not None and age <= CHECK_MAX_AGE_SECONDS else [f"the fleet was checked at {check.get('at')}, and the drill has waited since then"]

    def _read_tombstones(self) -> list[MoveRecord]:
        records = self._ledger.list_records(types=[s.EVACUATION], statuses=[s.DONE])
        return [record for record in records if record.source.host == self._host]

    def _describe_open_runs(self) -> list[str]:
        own = self._find_run()
        runs = [run for run in list_open_runs(self._ledger) if own is None or run.id != own.id]
        balances = [document.balance_run for document in self._ledger.list_balance_runs() if document.balance_run.is_open]
        return [*(f"The {run.noun} {run.id} over {', '.join(run.host_names)}" for run in runs), *(f"The balance run {run.id}" for run in balances)]

    # -- during ----------------------------------------------------------------------------------------------------

    def _cut(self) -> Result:
        """Cut the power of the host by its fence agent. The run says so before it happens."""
        config, power = self._known_config, query_host(self._known_config)
        boot_now = (self._task.work or _Work()).boot_id or None

        # The change of the run, which only its holder can make, is the last thing before the agent is called.
        def act(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, tuple[str, t.Optional[str]]]:
            progress = run.find_host(self._host)
            step = progress.last_step if progress else None
            if step is None or step.step != spec.DRILL_CUT:
                raise InvalidState(f"The power of {self._host} is not cut: the drill {run.id} is not in that step.", "Nothing was changed.")
            if not self._drill(run).guests:
                raise InvalidState(
                    f"The power of {self._host} is not cut: the drill {run.id} names no guest, so that it was begun without its check.",
                    "End it with kvmfleet.migration.maintenance -e request=stop, and run the whole playbook kvmfleet.migration.drill.",
                )
            what = drills.decide_cut(self._drill(run), power.is_off, step.boot_id or None, boot_now)
            if what == drills.IS_BACK:
                return drills.note_problem(run, self._host, f"{self._host} was switched on again before the drill continued.", now), (what, None)
            if what == drills.GO_ON:
                return run, (what, None)
            host_id, refused = self._require_check(self._drill(run), power)
            if refused:
                return drills.note_problem(run, self._host, f"The power of {self._host} was not cut. {' '.join(refused)}", now), (drills.REFUSED, None)
            return drills.begin_cut(run, self._host, now), (what, host_id)

        after, (what, host_id) = self._change(act)
        if what == drills.CUT:
            fence_host(config, host_id, self._by, PowerReply(power.replies[0][1], power.at))
        return {"changed": what == drills.CUT, "cut_at": self._drill(after).cut_at, "is_cut": what in (drills.CUT, drills.GO_ON)}

    def _require_check(self, drill: Drill, power: HostPower) -> tuple[t.Optional[str], list[str]]:
        """Return the host's own ID, and why its power must not be cut now although its drill has begun: the fleet may have changed since its check."""
        guests = self._read_guests()
        before = self._read_fleet(guests, power)
        changed = {one.uuid: one.name for one in drill.guests}.items() ^ {one.uuid: one.name for one in guests or ()}.items() if guests else ()
        names = ", ".join(sorted({name for _uuid, name in changed}))
        others = [f"Other guests run on {self._host} than were checked: {names} came or left since then."] if changed else []
        return before.entry.host_id if before.entry else None, [*self._list_refusals(before, drill.accept_lost), *others]

    def _note_problem(self) -> Result:
        problem = str(self._task.problem or "A task failed without a message.")
        self._change(lambda run, now: (drills.note_problem(run, self._host, problem, now), None))
        return {"changed": True}

    def _watch(self) -> Result:
        """Return which guests are still waited for; the time for them counts from the cut."""
        drill = self._drill(self._held_run)
        waiting = drills.list_waiting(drill, self._read_evacuations()) if drill.cut_at else []
        is_over = drills.has_waited(drill, read_now(self._by))
        waits_for = f"{', '.join(waiting)} to run elsewhere" if waiting and not is_over else None
        return {"changed": False, "waiting": waiting, "waits_for": waits_for, "cut_at": drill.cut_at}

    def _switch_on(self) -> Result:
        """Switch the host on again if this drill has cut its power."""
        cut_at = self._drill(self._held_run).cut_at
        power = query_host(self._known_config) if cut_at else None
        if power is None or power.is_on:
            return {"changed": False, "cut_at": cut_at}
        switch_on(self._known_config, power, _LEFT_OFF)
        return {"changed": True, "cut_at": cut_at}

    # -- after -----------------------------------------------------------------------------------------------------

    def _judge(self) -> Result:
        """Write the verdict."""
        records = self._read_evacuations()
        timelines = {record.record_id: timeline.stages for record in records if (timeline := read_timeline(record))}
        entry = next((one for one in list_entries(self._ledger) if one.name == self._host), None)
        answers = {self._host: None, **read_answers((self._task.work or _Work()).asked or ())}
        running = {host: _active_guests(facts) for host, facts in answers.items()}
        after = FleetAfter(records, timelines, running, self._task.bring_home, entry.state if entry else None)
        run, _none = self._change(lambda run, now: (drill_verdict.judge_drill(run, after, now), None))
        drill = self._drill(run)
        return {"changed": True, "verdict": t.cast(JsonObject, encode(drill)), "text": drill_verdict.drill_line(run), "lines": list(texts.list_lines(run))}

    # -- what the steps share --------------------------------------------------------------------------------------

    def _change(self, act: t.Callable[[MaintenanceRun, Now], tuple[MaintenanceRun, t.Any]]) -> tuple[MaintenanceRun, t.Any]:
        return change_held_run(self._ledger, self._held_run.id, self._holder, act)

    @property
    def _held_run(self) -> MaintenanceRun:
        run = self._find_run()
        if run is None:
            raise NotFound(f"No drill of {self._host} is open.", "Run the playbook kvmfleet.migration.drill. Nothing was changed.")
        return run

    def _find_run(self) -> t.Optional[MaintenanceRun]:
        return next((run for run in list_open_runs(self._ledger) if run.drill and run.host_names == (self._host,)), None)

    def _drill(self, run: MaintenanceRun) -> Drill:
        if not run.drill:
            raise InvalidState(f"{run.id} is no drill.", "Nothing was changed.")
        return run.drill

    @property
    def _config(self) -> t.Optional[FencingConfig]:
        config = parse_fencing(self._settings.of(self._host, VARIABLE), self._host)
        return config if config and config.devices else None

    @property
    def _known_config(self) -> FencingConfig:
        config = self._config
        if config is None:
            raise InvalidArgument(f"{self._host} has no fence agent in {VARIABLE}.", "Name one. Nothing was changed.")
        return config

    def _read_evacuations(self) -> list[MoveRecord]:
        return [record for record in read_records(self._ledger, "evacuations", Conditions(host=self._host)) if record.source.host == self._host]

    def _read_guests(self) -> t.Optional[list[DomainFacts]]:
        """Return the guests that the host has reported within the last minute."""
        try:
            domains = read_reported_domains(self._settings.fresh_facts(self._host))
            return None if domains is None else [one for one in domains if one.active]
        except KvmfleetError:
            return None


def _active_guests(facts: t.Optional[JsonObject]) -> t.Optional[frozenset[str]]:
    """Return the UUIDs of the guests that run on a host; None if it did not report its guests."""
    domains = read_reported_domains(facts)
    return None if domains is None else frozenset(one.uuid for one in domains if one.active)


def _refusal_text(guest: t.Mapping[str, t.Any]) -> str:
    return "; ".join(f"{', '.join(one['hosts'])}: {str(one['reason']).rstrip('.')}" for one in guest["refused"]) or "no host is left"
