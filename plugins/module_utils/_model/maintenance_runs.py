# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A maintenance run: hosts that are drained, maintained and recovered one batch after the other, as one document of the ledger."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .clock import BootMoment
from .codec import ABSENT, Absent, JsonObject, ShapeError

RUNNING = "running"
PAUSED = "paused"
STOPPED = "stopped"
FINISHED = "finished"
RUN_STATES = (RUNNING, PAUSED, STOPPED, FINISHED)
# Such a run binds its hosts: they cannot be in another one.
OPEN_STATES = frozenset({RUNNING, PAUSED})

WAITING = "waiting"
IN_PROGRESS = "in progress"
DONE = "done"
NOTHING_TO_DO = "nothing to do"
FAILED = "failed"
HOST_STATUSES = (WAITING, IN_PROGRESS, DONE, NOTHING_TO_DO, FAILED)

# The steps of a host, in order.
CHECK = "check"
BEFORE_DRAIN = "before_drain"
DRAIN = "drain"
MAINTAIN = "maintain"
REBOOT = "reboot"
VERIFY = "verify"
RECOVER = "recover"
STEPS = (CHECK, BEFORE_DRAIN, DRAIN, MAINTAIN, REBOOT, VERIFY, RECOVER)
# The steps of a drill.
CUT = "cut"
EVACUATE = "evacuate"
SWITCH_ON = "switch_on"
DRILL_STEPS = (CHECK, CUT, EVACUATE, SWITCH_ON, RECOVER)
ALL_STEPS = tuple(dict.fromkeys((*STEPS, *DRILL_STEPS)))

# What evacuates the host in a drill: the drill itself, or the automatic reaction of the fleet, which the drill waits for.
REACTIONS = (REACTION_RUN, REACTION_WAIT) = ("run", "wait")

PAUSE = "pause"
RESUME = "resume"
STOP = "stop"
REQUESTS = (PAUSE, RESUME, STOP)


@dataclass(frozen=True)
class RunOptions:
    """The limits of a run, which its first process has set.

    :arg max_unavailable: how many of its hosts may be out of service at the same time, hosts that failed in it included.
    :arg max_failures: how many hosts may fail before no further host is begun.
    :arg canary: whether the first host is maintained alone, and the run waits after it.
    :arg canary_minutes: how long it waits then; null for until a person resumes it.
    :arg until: the end of the window: no host is begun that is not predicted to be back by then; null for none.
    :arg expected_seconds: how long one host takes, according to the person; null if this is not known.
    """

    max_unavailable: int
    max_failures: int
    canary: bool
    canary_minutes: t.Optional[int]
    until: t.Optional[str]
    expected_seconds: t.Optional[int]
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class RunHolder:
    """The process that carries out a run. See L(is_same_process).

    :arg by: user, control node and process, for people.
    :arg node: the name of the control node; C(boot_id) and C(pid_namespace) state which start of it, and which container on it.
    :arg pid: of C(ansible-playbook), C(started) is the start time of that process, so that a later process of the same number is another one.
    """

    by: str
    node: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    since: str
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def process(self) -> t.Tuple[str, str, int, int]:
        """What identifies the process. A control node may be renamed while it runs: its name counts only where its boot is unknown."""
        return self.boot_id or self.node, self.pid_namespace, self.pid, self.started

    def is_same_process(self, other: t.Optional[RunHolder]) -> bool:
        """Whether this is the same process."""
        return other is not None and self.process == other.process


@dataclass(frozen=True)
class RunRequest:
    """What a person has requested of a run, until its process has seen it.

    :arg request: C(pause), C(resume) or C(stop).
    """

    request: str
    by: str
    at: str
    reason: t.Optional[str]
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an unknown request."""
        if self.request not in REQUESTS:
            raise ShapeError("request", f"one of {', '.join(REQUESTS)}", self.request)


@dataclass(frozen=True)
class HostStep:
    """One step of one host.

    :arg ended_at: null while the step has not ended, and for one that was interrupted or failed.
    :arg boot_id: of the host right before the step reboots it.
    :arg fenced_at: when its fence agent began to switch the host off and on in this step.
    :arg starts_guests: whether the host had a domain that libvirt starts at its next boot, when C(boot_id) was recorded; absent if that is not known.
    :arg placed: UUIDs of the domains that were on this host alone according to the ledger, when C(boot_id) was recorded. None of them ran there.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    step: str
    began_at: str
    ended_at: t.Optional[str]
    boot_id: t.Union[str, Absent] = ABSENT
    fenced_at: t.Union[str, Absent] = ABSENT
    starts_guests: t.Union[bool, Absent] = ABSENT
    placed: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an unknown step."""
        if self.step not in ALL_STEPS:
            raise ShapeError("step", f"one of {', '.join(ALL_STEPS)}", self.step)


@dataclass(frozen=True)
class HostProgress:
    """One host of a run.

    :arg host: its inventory name.
    :arg steps: that were begun, in order; a step that was repeated is there once, with the times of the last time.
    :arg error: why it failed, or why it was not begun; null if there is nothing to say.
    :arg keep_maintenance: whether the host was in maintenance before for another reason, and stays so.
    :arg predicted_seconds: how long its drain and the way back are predicted to take.
    :arg began: when its first step began, on the clock of the control node; C(seconds) is how long it took, if one process saw all of it without a pause.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    host: str
    status: str
    steps: t.Tuple[HostStep, ...]
    error: t.Optional[str]
    keep_maintenance: t.Union[bool, Absent] = ABSENT
    predicted_seconds: t.Union[int, Absent] = ABSENT
    began: t.Union[BootMoment, Absent] = ABSENT
    seconds: t.Union[int, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an unknown status."""
        if self.status not in HOST_STATUSES:
            raise ShapeError("status", f"one of {', '.join(HOST_STATUSES)}", self.status)

    @property
    def last_step(self) -> t.Optional[HostStep]:
        """The step that was begun last."""
        return self.steps[-1] if self.steps else None

    @property
    def is_down(self) -> bool:
        """Whether the host is out of service: its drain was begun, or its power is cut in a drill, and it was not recovered."""
        names = {step.step for step in self.steps}
        return bool(names & {DRAIN, CUT}) and self.status not in (DONE, NOTHING_TO_DO)


@dataclass(frozen=True)
class RunEvent:
    """A line of the history of a run.

    :arg event: C(started), C(resumed), C(step), C(host_done), C(host_failed), C(pause_requested), C(paused), ...
    :arg host: which host it is about; null for the whole run.
    """

    at: str
    event: str
    by: str
    host: t.Optional[str]
    detail: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DrilledGuest:
    """A guest that ran on the host of a drill when its power was cut.

    :arg record: the ID of the record by which it was started elsewhere; null if there is none, as before the verdict.
    :arg destination: the host that started it; null likewise.
    :arg seconds: from the cut until it was seen in its wanted state there; null likewise.
    :arg stages: the seconds of its stages, by name.
    :arg problem: why it is a reason against the drill; null if it is none.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    uuid: str
    name: str
    record: t.Optional[str]
    destination: t.Optional[str]
    seconds: t.Optional[float]
    stages: t.Mapping[str, float]
    problem: t.Optional[str]
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Drill:
    """What makes a run a drill: the power of its one host is cut on purpose, and its guests have to run elsewhere in time.

    :arg limit_seconds: how long after the cut each guest has to run elsewhere.
    :arg deadline_seconds: how long after the cut the drill stops waiting for guests, and switches the host on again.
    :arg reaction: C(run) or C(wait).
    :arg accept_lost: names of guests that may stay off until the host returns.
    :arg cut_at: when the fence agent was about to be called; null before. C(cut) is the same on the clock of the control node.
    :arg problems: what went wrong before the verdict.
    :arg passed: the verdict; null before.
    :arg median_seconds: of the guests that were started elsewhere; null before, and if there is none. C(longest_seconds) likewise.
    :arg reasons: why it was not passed.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    limit_seconds: int
    deadline_seconds: int
    reaction: str
    guests: t.Tuple[DrilledGuest, ...]
    accept_lost: t.Tuple[str, ...]
    cut_at: t.Optional[str]
    problems: t.Tuple[str, ...]
    passed: t.Optional[bool]
    median_seconds: t.Optional[float]
    longest_seconds: t.Optional[float]
    reasons: t.Tuple[str, ...]
    cut: t.Union[BootMoment, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an unknown reaction."""
        if self.reaction not in REACTIONS:
            raise ShapeError("reaction", f"one of {', '.join(REACTIONS)}", self.reaction)


@dataclass(frozen=True)
class MaintenanceRun:
    """The document of a run.

    :arg id: a UUID, the key of the document.
    :arg state: C(running), C(paused), C(stopped) or C(finished).
    :arg term: how many processes have held the run; a process of an earlier term is refused.
    :arg holder: the process that carries it out; null if it was given up.
    :arg request: of a person, that the holder has not seen yet; null for none.
    :arg reason: why it is paused or stopped; null if it is neither.
    :arg is_stopping: whether no further host is begun.
    :arg canary_ended: when the canary was done, by the clock of the control node.
    :arg canary_passed: whether the hosts after the canary may begin.
    :arg drill: what makes it a drill; absent for any other run.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    id: str
    state: str
    hosts: t.Tuple[HostProgress, ...]
    options: RunOptions
    term: int
    holder: t.Optional[RunHolder]
    request: t.Optional[RunRequest]
    reason: t.Optional[str]
    created_at: str
    created_by: str
    updated_at: str
    history: t.Tuple[RunEvent, ...]
    schema: t.Union[int, Absent] = ABSENT
    is_stopping: t.Union[bool, Absent] = ABSENT
    canary_ended: t.Union[BootMoment, Absent] = ABSENT
    canary_passed: t.Union[bool, Absent] = ABSENT
    drill: t.Union[Drill, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an unknown state, and for a host that is listed twice, or none."""
        if self.state not in RUN_STATES:
            raise ShapeError("state", f"one of {', '.join(RUN_STATES)}", self.state)
        if not self.hosts or len(set(self.host_names)) < len(self.hosts):
            raise ShapeError("hosts", "one or more different hosts")
        if self.drill and len(self.hosts) > 1:
            raise ShapeError("hosts", "one host, as the run is a drill")

    @property
    def noun(self) -> str:
        """What a person calls such a run."""
        return "drill" if self.drill else "maintenance run"

    @property
    def variable(self) -> str:
        """The variable of its playbook that names the run to continue."""
        return "drill_run" if self.drill else "rolling_maintenance_run"

    @property
    def step_order(self) -> t.Tuple[str, ...]:
        """The steps of its hosts, in order."""
        return DRILL_STEPS if self.drill else STEPS

    @property
    def is_open(self) -> bool:
        """Whether the run binds its hosts."""
        return self.state in OPEN_STATES

    @property
    def host_names(self) -> t.Tuple[str, ...]:
        """The inventory names of the hosts, in order."""
        return tuple(one.host for one in self.hosts)

    def find_host(self, host: str) -> t.Optional[HostProgress]:
        """Return the progress of a host; None if the run does not have it."""
        return next((one for one in self.hosts if one.host == host), None)

    def replace_host(self, progress: HostProgress) -> MaintenanceRun:
        """Return the run with that progress of one host."""
        return dataclasses.replace(self, hosts=tuple(progress if one.host == progress.host else one for one in self.hosts))

    def hosts_with(self, *statuses: str) -> t.Tuple[HostProgress, ...]:
        """Return the hosts that have one of these statuses, in order."""
        return tuple(one for one in self.hosts if one.status in statuses)
