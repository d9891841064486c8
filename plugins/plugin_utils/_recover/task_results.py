# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the tasks of a recovery exchange: the options and decisions of recover_plan, and the results of all tasks, which the role hands to recover_verify."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .._drain.answers import HostQuery, TaskResult
from .._drain.verify_request import DomainsResult
from .displaced import DisplacedDomain
from .release import GuardState, NotedDomain


@dataclass(frozen=True)
class DomainVerdict:
    """The decision about a domain, with its reason.

    :arg paused: whether a domain that is to be started was paused before.
    """

    uuid: str
    name: t.Optional[str]
    reason: str
    paused: t.Union[bool, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class StartPlan:
    """The decision about each domain that is to be started again.

    :arg forget: domains that are elsewhere now, or that somebody has started since.
    :arg refuse: domains that may be elsewhere.
    :arg stayed_off: domains that ran before the host went down and that nothing starts, with what to do.
    """

    start: tuple[DomainVerdict, ...]
    forget: tuple[DomainVerdict, ...]
    refuse: tuple[DomainVerdict, ...]
    stayed_off: tuple[DomainVerdict, ...]


@dataclass(frozen=True)
class MoveBack:
    """A displaced domain that can move back from the host where it is.

    :arg method: of C(cold_migrate), for a domain that is off; absent for a live move.
    """

    uuid: str
    name: t.Optional[str]
    source: str
    method: t.Union[str, Absent] = ABSENT


@dataclass(frozen=True)
class ReturnPlan:
    """Which domains can move back.

    :arg shares: the moves for C(live_migrate) by source; C(cold_shares) those for C(cold_migrate).
    :arg skipped: domains that cannot.
    """

    moves: tuple[MoveBack, ...]
    shares: Mapping[str, Sequence[JsonObject]]
    skipped: tuple[DomainVerdict, ...]
    cold_shares: t.Union[Mapping[str, Sequence[JsonObject]], Absent] = ABSENT


@dataclass(frozen=True)
class RecoverWork:
    """The results of earlier tasks of the role.

    :arg asked: the results of the loop that gathered facts of hosts.
    :arg state: of the host in the ledger, in check mode as predicted.
    :arg boot_id: its present boot.
    :arg may_ask_again: whether hosts that contradict each other can be asked again.
    :arg noted: the domains that are to be started, by host of the play.
    """

    asked: Maybe[tuple[HostQuery, ...]] = ABSENT
    state: Maybe[str] = ABSENT
    boot_id: Maybe[str] = ABSENT
    may_ask_again: Maybe[bool] = ABSENT
    noted: Maybe[Mapping[str, tuple[NotedDomain, ...]]] = ABSENT


@dataclass(frozen=True)
class RecoverTask:
    """The options of C(recover_plan)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    step: str
    name: t.Optional[str]
    fleet: tuple[str, ...]
    to_start: tuple[NotedDomain, ...]
    start: Json
    accept_silent: tuple[str, ...]
    displaced: tuple[DisplacedDomain, ...]
    options: t.Optional[JsonObject]
    parallel: Json
    ledger: t.Optional[str]
    work: t.Optional[RecoverWork]


def read_task(args: JsonObject) -> RecoverTask:
    """Return the options. Raises L(InvalidArgument) for a list of domains that does not have the expected form."""
    try:
        return decode(RecoverTask, args)
    except ShapeError as error:
        what = f"The options do not have the expected form: {error}."
        raise InvalidArgument(what, "Give lists as boot_guard and recover_plan returned them. Nothing was changed.") from error


@dataclass(frozen=True)
class ReportedDomain:
    """A domain in a list of a result, as a task reports it.

    :arg what: what failed for it.
    :arg source: the host from which it moved back.
    :arg path: of a disk that was kept.
    :arg paths: of files that were deleted, or kept in quarantine.
    :arg record: the ID of the record of the evacuation, for a domain that C(evacuation_cleanup) reports.
    """

    uuid: Maybe[str] = ABSENT
    name: Maybe[str] = ABSENT
    record: Maybe[str] = ABSENT
    what: t.Union[str, Absent] = ABSENT
    source: t.Union[str, Absent] = ABSENT
    path: Maybe[str] = ABSENT
    paths: Maybe[tuple[str, ...]] = ABSENT
    reason: Maybe[str] = ABSENT
    reasons: Maybe[tuple[str, ...]] = ABSENT
    msg: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The domain's name, for a sentence."""
        return str(self.name or self.uuid)

    @property
    def why(self) -> str:
        """The reason for its place in the list."""
        return self.reason or "; ".join(self.reasons or ()) or self.msg or ""


def is_done(task: TaskResult | None) -> bool:
    """Whether a task was run and did not fail."""
    return bool(task and not task.has_failed and not task.skipped)


@dataclass(frozen=True)
class _EndedTask(TaskResult):
    """The task whose error ended the recovery; C(waited_seconds) is the time limit for the return of the host."""

    waited_seconds: t.Union[Json, Absent] = ABSENT


@dataclass(frozen=True)
class _LedgerHost:
    name: str
    state: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _HostTask(TaskResult):
    """What C(host) has returned."""

    host: Maybe[_LedgerHost] = ABSENT


@dataclass(frozen=True)
class CleanupTask(TaskResult):
    """What C(evacuation_cleanup) has returned."""

    cleaned: Maybe[tuple[ReportedDomain, ...]] = ABSENT
    superseded: Maybe[tuple[ReportedDomain, ...]] = ABSENT
    deleted: Maybe[tuple[ReportedDomain, ...]] = ABSENT
    kept: Maybe[tuple[ReportedDomain, ...]] = ABSENT
    refused: Maybe[tuple[ReportedDomain, ...]] = ABSENT


@dataclass(frozen=True)
class _OpenRecord:
    id: t.Optional[str]
    domain: ReportedDomain
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class ReleaseTask(TaskResult):
    """What C(boot_guard) has returned."""

    guard: Maybe[GuardState] = ABSENT
    open_records: Maybe[tuple[_OpenRecord, ...]] = ABSENT

    def check(self) -> None:
        """Raise L(ShapeError) for a result without the state of the guard."""
        if is_done(self) and not self.guard:
            raise ShapeError("guard", "there")


@dataclass(frozen=True)
class _StartsTask(TaskResult):
    """What C(recover_plan) has returned of the domains to start."""

    forget: Maybe[tuple[DomainVerdict, ...]] = ABSENT
    refuse: Maybe[tuple[ReportedDomain, ...]] = ABSENT
    stayed_off: Maybe[tuple[DomainVerdict, ...]] = ABSENT


@dataclass(frozen=True)
class LoopItem:
    """The C(item) of a loop over domains."""

    uuid: str
    name: t.Optional[str]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class DomainItemResult(TaskResult):
    """The result of a loop for one domain, its C(item)."""

    domain: Maybe[ReportedDomain] = ABSENT


@dataclass(frozen=True)
class _DomainLoop(TaskResult):
    results: Maybe[tuple[DomainItemResult, ...]] = ABSENT


@dataclass(frozen=True)
class _ReturnTask:
    """What C(recover_plan) has returned of the moves back."""

    moves: Maybe[tuple[MoveBack, ...]] = ABSENT
    skipped: Maybe[tuple[DomainVerdict, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _MovesLoop(TaskResult):
    """The loop of C(live_migrate), or C(cold_migrate), over the sources."""

    results: Maybe[tuple[DomainsResult, ...]] = ABSENT


@dataclass(frozen=True)
class _ProtectTask:
    """The result of C(protect). It is no L(TaskResult), because its C(skipped) is a list of domains."""

    failed: t.Union[bool, Absent] = ABSENT
    unreachable: t.Union[bool, Absent] = ABSENT
    conflicts: Maybe[tuple[ReportedDomain, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """Whether the task failed, or did not reach its host."""
        return bool(self.failed or self.unreachable)


@dataclass(frozen=True)
class HostTasks:
    """What the tasks of a recovery have returned on one host; None for a task that was not reached.

    :arg ended: the task that ended the recovery there.
    :arg reached: whether the host could be reached; C(answered): whether its libvirt answered.
    :arg entry: of C(host), before anything was changed.
    :arg starts: the plan of the domains to start; C(started): the loop of C(domain_start).
    :arg returning: the plan of the moves back; C(fits), C(moved) and C(moved_off): the loops of C(scheduler_check), C(live_migrate) and C(cold_migrate).
    """

    ended: t.Optional[_EndedTask]
    reached: t.Optional[TaskResult]
    answered: t.Optional[TaskResult]
    entry: t.Optional[_HostTask]
    cleaned: t.Optional[CleanupTask]
    released: t.Optional[ReleaseTask]
    starts: t.Optional[_StartsTask]
    started: t.Optional[_DomainLoop]
    enabled: t.Optional[_HostTask]
    returning: t.Optional[_ReturnTask]
    fits: t.Optional[_DomainLoop]
    moved: t.Optional[_MovesLoop]
    moved_off: t.Optional[_MovesLoop]
    protected: t.Optional[_ProtectTask]

    @classmethod
    def from_results(cls, host: str, tasks: Mapping[str, Mapping[str, Json] | None]) -> HostTasks:
        """Return the results of a host.

        :arg tasks: results by the name of the field, and by host.
        """
        return decode(cls, {field.name: (tasks.get(field.name) or {}).get(host) or None for field in dataclasses.fields(cls)}, "_work.tasks")

    @property
    def moves(self) -> tuple[MoveBack, ...]:
        """The domains that were to move back."""
        return (self.returning.moves or ()) if self.returning else ()
