# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(maintenance_run) runs on the control node alone. The decisions are in C(plugin_utils/_maintenance)."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils import _argspec as spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, maintenance_run_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, ShapeError, SignedInt, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun, RunOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import FENCED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import VARIABLE, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_levels import PowerReply, query_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import fence_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.power_cycle import switch_on
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import check_own_ledger, find_entry_by_name, list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import to_plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import find_missing_records, remembered_by_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import begin, texts, transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.begin import RunLimits, RunStart
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.canary_alarm import run_alarm
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.decisions import Admission, ResumePoint, admit_hosts, canary_wait_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drills import make_drill
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.fence_decision import (
    FENCE,
    FINISH,
    WAIT,
    KnownGuests,
    check_fence,
    check_guests_at_boot,
    check_reboot,
    decide_fence,
    list_placed,
    read_moves,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import identify_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.interventions import choose_run, intervene, is_left, leave_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.runs import change_held_run, change_run, list_open_runs, read_now
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import Now, heed_request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import find_run_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, read_reported_domains

_REQUESTS = {spec.RUN_PAUSED: m.PAUSE, spec.RUN_RESUMED: m.RESUME, spec.RUN_STOPPED: m.STOP}
_NEEDED = {
    spec.RUN_CHECKED: ("hosts",),
    spec.RUN_STARTED: ("hosts",),
    spec.RUN_NEXT: ("hosts",),
    spec.RUN_STEP: ("host", "step"),
    spec.RUN_FENCED: ("host",),
    spec.RUN_DONE: ("host",),
    spec.RUN_FAILED: ("host", "error"),
}


@dataclass(frozen=True)
class _DrillOptions:
    """What makes a new run a drill; C(guests) are the names of the guests on its host, by UUID."""

    limit_seconds: SignedInt
    deadline_seconds: SignedInt
    reaction: str
    accept_lost: tuple[str, ...]
    guests: t.Mapping[str, str]


@dataclass(frozen=True)
class _RunTask:
    """The options of C(maintenance_run)."""

    ledger: t.Optional[str]
    state: str
    run: t.Optional[str]
    reason: t.Optional[str]
    process_is_gone: bool
    hosts: tuple[str, ...]
    lost_hosts: tuple[str, ...]
    planned: JsonObject
    max_unavailable: SignedInt
    max_failures: SignedInt
    canary: bool
    canary_minutes: t.Optional[SignedInt]
    canary_alarm: t.Optional[str]
    until: t.Optional[str]
    expected_minutes: t.Optional[SignedInt]
    host: t.Optional[str]
    step: t.Optional[str]
    boot_id: t.Optional[str]
    error: t.Optional[str]
    drill: t.Optional[_DrillOptions]

    def check_needed(self) -> None:
        """Raise L(InvalidArgument) for a state without what it needs."""
        missing = [name for name in _NEEDED.get(self.state, ()) if not getattr(self, name)]
        if missing:
            raise InvalidArgument(f"state is {self.state}, and {missing[0]} is not given.", "Nothing was changed.")


def _read_options(args: Result) -> _RunTask:
    """Return the options of the task. Raises L(InvalidArgument) for an invalid value in a dictionary."""
    try:
        return decode(_RunTask, to_plain(args))
    except ShapeError as error:
        raise InvalidArgument(f"An option of maintenance_run is not valid: {error}.", "Nothing was changed.") from error


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "maintenance_run"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return maintenance_run_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Show or change a maintenance run."""
        task = _read_options(args)
        task.check_needed()
        if task.state == spec.RUN_CHECKED:
            self.warn_of_mistyped_options(task_vars)
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)
        creates = task.state == spec.RUN_STARTED and not self._task.check_mode
        ledger = open_if_any(*location, create=creates, allow_new=functools.partial(_check_unprotected, task.hosts, settings))
        if ledger:
            self.attach_notifier(ledger, settings, target_host, location)
        work = _RunWork(task, ledger, settings, describe_actor(task_vars), bool(self._task.check_mode))
        result = work.act()
        return {**result, "warnings": ledger.problems} if ledger and ledger.problems else result


def _check_unprotected(hosts: t.Sequence[str], settings: Settings) -> None:
    """Raise L(Conflict) if a host was protected according to its facts: then an empty ledger would hide that the right one is missing."""
    for host in hosts:
        known = decode(HostFacts, {"ledger_id": (settings.facts(host) or {}).get("ledger_id")})
        check_own_ledger(host, known.ledger_id, None)


class _RunWork:
    """One task with its ledger; None if there is none."""

    def __init__(self, task: _RunTask, ledger: t.Optional[Ledger], settings: Settings, by: str, check_mode: bool) -> None:
        self._task = task
        self._ledger = ledger
        self._settings = settings
        self._by = by
        self._check_mode = check_mode
        self._at = utc_now()
        # The process that holds a run is ansible-playbook, and not its worker.
        self._holder = identify_process(find_run_process(), by, self._at)

    def act(self) -> Result:
        """Carry out the task."""
        state = self._task.state
        if state == spec.RUN_SHOWN:
            return self._show()
        if state in _REQUESTS:
            return self._request(_REQUESTS[state])
        if state in (spec.RUN_CHECKED, spec.RUN_STARTED):
            return self._begin(writes=state == spec.RUN_STARTED and not self._check_mode)
        if self._check_mode:
            # Nothing was begun: every host proceeds from its first step.
            return {"changed": False, "admitted": {host: _point(ResumePoint(m.CHECK)) for host in self._task.hosts}, "deferred": {}, "waits_for": None}
        acts = {
            spec.RUN_NEXT: self._admit,
            spec.RUN_STEP: self._step,
            spec.RUN_FENCED: self._fence,
            spec.RUN_DONE: self._finish_host,
            spec.RUN_FAILED: self._fail_host,
        }
        return acts.get(state, self._leave)()

    # -- for people ------------------------------------------------------------------------------------------------

    def _show(self) -> Result:
        if self._task.run:
            known = runs = [self._known_ledger.read_maintenance_run(self._task.run).maintenance_run]
        else:
            known = [document.maintenance_run for document in self._ledger.list_maintenance_runs()] if self._ledger else []
            runs = [run for run in known if run.is_open]
        return {"changed": False, "runs": [texts.show_run(run) for run in runs], "lines": texts.list_runs(runs, known)}

    def _request(self, request: str) -> Result:
        ledger = self._known_ledger
        before = choose_run(ledger, self._task.run)

        def act(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, None]:
            return intervene(run, request, self._task.reason, is_left(run, self._task.process_is_gone), now), None

        after = act(before, read_now(self._by))[0] if self._check_mode else change_run(ledger, before.id, self._by, act)[0]
        return {**_shown(before, after), "lines": list(texts.list_lines(after))}

    # -- for the role ----------------------------------------------------------------------------------------------

    def _begin(self, writes: bool) -> Result:
        task = self._task
        found = begin.find_run(self._ledger, task.run, task.hosts, self._at, bool(task.drill))
        drill = self._make_drill() if found is None else None
        # The limits of a run that is continued are its own; its window may have ended, and what is begun is finished.
        options = found.options if found else self._read_limits()
        begin.check_continuation(found, self._holder, task.process_is_gone)
        planned = begin.read_planned(task.hosts, t.cast(t.Any, task.planned))
        start = RunStart(found, planned, self._read_limits, self._new_until(found), self._holder, task.process_is_gone, drill)
        run = start.write(self._known_ledger) if writes else found
        return {
            "changed": writes and run != found,
            "run": texts.show_run(run) if run else None,
            "is_continued": found is not None,
            "options": encode(options),
            "unchecked": [host for host in task.hosts if found is None or _needs_check(found, host)],
        }

    def _read_limits(self) -> RunOptions:
        task = self._task
        limits = RunLimits(task.max_unavailable, task.max_failures, task.canary, task.canary_minutes, task.until, task.expected_minutes)
        return begin.read_limits(limits, task.hosts, self._at)

    def _make_drill(self) -> t.Optional[m.Drill]:
        given = self._task.drill
        if given is None:
            return None
        if len(self._task.hosts) != 1:
            raise InvalidArgument(f"A drill has one host, and hosts has {len(self._task.hosts)}.", "Name one. Nothing was changed.")
        return make_drill(given.limit_seconds, given.deadline_seconds, given.reaction, given.accept_lost, given.guests)

    def _new_until(self, found: t.Optional[MaintenanceRun]) -> t.Optional[str]:
        until = begin.read_until(self._task.until)
        return until if found and until != found.options.until else None

    def _admit(self) -> Result:
        task = self._task

        def act(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, Admission]:
            run = transitions.fail_lost_hosts(run, task.lost_hosts, now)
            if task.canary_alarm and canary_wait_text(run, now) and not run.is_stopping:
                problem = run_alarm(task.canary_alarm)
                run = transitions.stop_beginning(run, problem, now) if problem else run
            return admit_hosts(run, task.hosts, now)

        after, admission = change_held_run(self._known_ledger, self._run_id, self._holder, act)
        return {
            "changed": bool(admission.begun),
            "admitted": {host: _point(point) for host, point in admission.begun.items()},
            "deferred": dict(admission.deferred),
            "waits_for": admission.waits_for,
            "summary": texts.summarize_hosts(after),
        }

    def _step(self) -> Result:
        host, step = str(self._task.host), str(self._task.step)
        is_reboot = step == m.REBOOT and bool(self._task.boot_id)
        starts_guests: t.Union[bool, Absent] = ABSENT
        placed: t.Union[tuple[str, ...], Absent] = ABSENT
        if is_reboot:
            entry = find_entry_by_name(self._known_ledger, host).host
            check_reboot(entry, self._reported_guests(host))
            starts_guests, placed = self._starts_guests(host), tuple(sorted(list_placed(self._known_ledger, entry)))

        def act(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, t.Optional[str]]:
            # Requests are heeded between two steps. A step that is begun again is not at such a boundary, and must not end as if it were done.
            if not transitions.is_in_step(run, host, step):
                run = heed_request(run, now)
                if run.state == m.PAUSED:
                    return transitions.end_step(run, host, now), run.reason or "the run is paused"
            return transitions.begin_step(run, host, step, now, self._task.boot_id, starts_guests, placed), None

        after, waits_for = change_held_run(self._known_ledger, self._run_id, self._holder, act)
        progress = after.find_host(host)
        last = progress.last_step if progress else None
        return {
            "changed": waits_for is None,
            "waits_for": waits_for,
            "boot_before": (last.boot_id or None) if last and last.step == step else None,
            "fenced": self._describe_fenced(host),
        }

    def _describe_fenced(self, host: str) -> t.Optional[str]:
        found = next((entry for entry in list_entries(self._ledger) if entry.name == host and entry.state == FENCED), None)
        return f"{host} is fenced in the ledger ({found.reason or 'no reason given'})." if found else None

    def _fence(self) -> Result:
        """Switch a host without guests off and on by its fence agent. The run says so before it happens."""
        host = str(self._task.host)
        config = parse_fencing(self._settings.of(host, VARIABLE), host)
        if config is None or not config.levels:
            raise InvalidArgument(f"{host} is not fenced: it has no {VARIABLE} with an agent.", "Switch it off and on by hand, and continue the run.")
        entry = find_entry_by_name(self._known_ledger, host).host
        moves, placed = read_moves(self._known_ledger, self._held_run, host), list_placed(self._known_ledger, entry)
        own = decode(HostFacts, self._settings.facts(host) or {}).remembered or None
        lost = find_missing_records(self._known_ledger, remembered_by_fleet(self._settings, host, own))
        guests = KnownGuests(self._active_guests(host), moves, placed, lost)
        before = query_host(config)

        def act(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, str]:
            step = check_fence(run, entry, guests)
            what = decide_fence(step, bool(before.devices_in(PowerState.OFF)), self._task.boot_id)
            if what == FENCE:
                check_guests_at_boot(step, entry, self._task.boot_id)
            return (transitions.begin_fence(run, host, now) if what == FENCE else run), what

        _after, what = change_held_run(self._known_ledger, self._run_id, self._holder, act)
        if what == FENCE:
            fence_host(config, entry.host_id, self._by, PowerReply(before.replies[0][1], before.at))
        if what != WAIT:
            switch_on(config, before if what == FINISH else None)
        return {"changed": what != WAIT}

    def _reported_guests(self, host: str) -> t.Optional[list[str]]:
        """Return the guests that the host has reported last; None if it has not.

        A role queries it right before. That may be a minute ago if another host of the batch answers slowly.
        """
        domains = read_reported_domains(self._settings.facts(host))
        return None if domains is None else [domain.name for domain in domains if domain.active]

    def _active_guests(self, host: str) -> list[str]:
        return [domain.name for domain in self._read_domains(host) or () if domain.active]

    def _starts_guests(self, host: str) -> t.Union[bool, Absent]:
        domains = self._read_domains(host)
        return ABSENT if domains is None else any(not domain.active and domain.autostart is not False for domain in domains)

    def _read_domains(self, host: str) -> t.Optional[tuple[DomainFacts, ...]]:
        """Return the domains that the host has reported within the last minute; None if it has not."""
        return read_reported_domains(self._settings.fresh_facts(host))

    def _finish_host(self) -> Result:
        host = str(self._task.host)
        after, _none = change_held_run(self._known_ledger, self._run_id, self._holder, lambda run, now: (transitions.complete_host(run, host, now), None))
        return {"changed": True, "summary": texts.summarize_hosts(after)}

    def _fail_host(self) -> Result:
        host, error = str(self._task.host), str(self._task.error)
        after, _none = change_held_run(self._known_ledger, self._run_id, self._holder, lambda run, now: (transitions.fail_host(run, host, error, now), None))
        return {"changed": True, "summary": texts.summarize_hosts(after)}

    def _leave(self) -> Result:
        after, _none = change_held_run(self._known_ledger, self._run_id, self._holder, lambda run, now: (leave_run(run, now), None))
        return {
            "changed": True,
            "run": texts.show_run(after),
            "summary": texts.summarize_hosts(after),
            "is_whole": after.state == m.FINISHED,
            "text": texts.end_text(after),
            "lines": list(texts.list_lines(after)),
        }

    @property
    def _known_ledger(self) -> Ledger:
        if self._ledger is None:
            raise NotFound("There is no ledger, so it has no maintenance run.", "Check kvmfleet_ledger. Nothing was changed.")
        return self._ledger

    @property
    def _held_run(self) -> MaintenanceRun:
        return self._known_ledger.read_maintenance_run(self._run_id).maintenance_run

    @property
    def _run_id(self) -> str:
        """The run that this process holds, named or found by its process."""
        if self._task.run:
            return self._task.run
        held = [run for run in list_open_runs(self._known_ledger) if self._holder.is_same_process(run.holder)]
        if not held:
            raise NotFound("This process holds no maintenance run.", "Begin one with state=started. Nothing was changed.")
        return held[-1].id


def _point(point: ResumePoint) -> Result:
    return {"step": point.step, "is_repeated": point.is_repeated}


def _needs_check(run: MaintenanceRun, host: str) -> bool:
    """Whether it has to be checked again that the host can be maintained: it was not begun, or its power is not cut yet, or it failed before its drain.

    One that failed in an open run is not tried again by it, and may be off.
    """
    if run.drill:
        return run.drill.cut_at is None
    progress = run.find_host(host)
    return progress is not None and not progress.is_down and (progress.status == m.WAITING or (progress.status == m.FAILED and not run.is_open))


def _shown(before: MaintenanceRun, after: MaintenanceRun) -> Result:
    return {"changed": before != after, "run": texts.show_run(after)}
