# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of a recovery for each host, from the results of its tasks (recover_verify), and its lines for a terminal."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, Maybe, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED, ENABLED

from .._drain.answers import TaskResult
from .._drain.verify_request import DomainsResult
from .._ledger.ledger import Ledger
from .._scheduler.filters.base import names_text
from .displaced import keep_origins
from .task_results import CleanupTask, DomainItemResult, DomainVerdict, HostTasks, LoopItem, MoveBack, ReleaseTask, ReportedDomain, is_done


@dataclass(frozen=True)
class HostRecovery:
    """What was done on one host, what was not, and its final state.

    :arg cleaned: with the next four, lists of C(evacuation_cleanup).
    :arg stayed_off: domains that ran before the host went down and that nothing has started.
    :arg skipped: domains that are elsewhere now, or are not moved.
    :arg error: what ended the recovery, empty if nothing did.
    """

    cleaned: tuple[ReportedDomain, ...]
    superseded: tuple[ReportedDomain, ...]
    deleted: tuple[ReportedDomain, ...]
    kept: tuple[ReportedDomain, ...]
    refused: tuple[ReportedDomain, ...]
    released: bool
    started: tuple[ReportedDomain, ...]
    stayed_off: tuple[DomainVerdict, ...]
    enabled: bool
    brought_home: tuple[ReportedDomain, ...]
    skipped: tuple[DomainVerdict, ...]
    failed: tuple[ReportedDomain, ...]
    notes: tuple[str, ...]
    error: str


def result_lines(result: Mapping[str, HostRecovery]) -> list[str]:
    """Return what was done on each host, what was not, and the final state of the host."""
    lines: list[str] = []
    for host, own in result.items():
        lines += [f"CLEANED {entry.label} on {host}" for entry in own.cleaned]
        lines += [f"BACK    {entry.label} on {host}: {entry.why}" for entry in own.superseded]
        lines += [f"DELETED {path} of {entry.label} on {host}" for entry in own.deleted for path in entry.paths or ()]
        lines += _kept_lines(host, own.kept)
        lines += [f"REFUSED {entry.label} on {host}: {entry.why}" for entry in own.refused]
        lines += [f"STARTED {entry.label} on {host}" for entry in own.started]
        lines += [f"OFF     {entry.name or entry.uuid} on {host}: {entry.reason}" for entry in own.stayed_off]
        lines += [f"HOME    {entry.label} from {entry.source} to {host}" for entry in own.brought_home]
        lines += [f"LEFT    {entry.name or entry.uuid}: {entry.reason}" for entry in own.skipped]
        lines += [f"FAILED  to {entry.what} {entry.label}: {entry.why}" for entry in own.failed]
        lines += [f"NOTE    {host}: {note}" for note in own.notes]
        lines += [f"FAILED  {host}: {own.error}"] if own.error else []
        lines.append(f"{host}: {_counts_text(own)}. {_return_text(own)}")
    return [printable_line(line) for line in lines]


def list_problems(own: HostRecovery) -> list[str]:
    """Return the sentences with which the role fails on a host."""
    sentences = [own.error] if own.error else []
    sentences += [f"Failed to {entry.what} {entry.label}: {entry.why}" for entry in own.failed]
    sentences += [f"{entry.label} was not cleaned up: {entry.why}" for entry in own.refused]
    return [printable_line(sentence) for sentence in sentences]


# From this number of kept files on, those that were kept for one reason share a line: on shared storage, that is every image.
_MANY_KEPT = 4


def _kept_lines(host: str, kept: Iterable[ReportedDomain]) -> list[str]:
    groups: dict[str, list[ReportedDomain]] = {}
    for entry in kept:
        groups.setdefault(entry.why, []).append(entry)
    lines = list[str]()
    for why, entries in groups.items():
        if len(entries) < _MANY_KEPT:
            lines += [f"KEPT    {_kept_text(entry)} on {host}: {why}" for entry in entries]
        else:
            lines.append(f"KEPT    each of {len(entries)} files on {host} ({names_text({entry.label for entry in entries})}): {why}")
    return lines


def _kept_text(entry: ReportedDomain) -> str:
    """Return which files of which domain were kept. A quarantine that its host cannot read has neither."""
    paths = ", ".join([entry.path] if entry.path else entry.paths or ())
    label = f"record {entry.record}" if entry.record and not (entry.name or entry.uuid) else entry.label
    return f"{paths} of {label}" if paths else label


def _counts_text(own: HostRecovery) -> str:
    return f"{len(own.cleaned)} cleaned, {len(own.started)} started, {len(own.brought_home)} brought home, {len(own.failed)} failed"


def _return_text(own: HostRecovery) -> str:
    held = "Its boot is released" if own.released else "It was NOT released: its boot guard, if it has one, still holds automatic starts"
    return f"{held}, and it {'accepts domains again' if own.enabled else 'does NOT accept domains'}."


LOST_HOST = "It stopped answering during recovery. Run recover again."
NO_BOOT_GUARD = "No boot guard is installed, so nothing was held at this boot, and nothing will be at the next one. See protect_host."
DAMAGED_BOOT_GUARD = "Some files of its boot guard are missing, so the next boot may not be held. Run protect_host for it."


@dataclass(frozen=True)
class _VerifyWork:
    """The input from the role: the hosts that have answered to the end, and the results of the tasks, by name and by host."""

    present: Maybe[tuple[str, ...]] = ABSENT
    tasks: Maybe[Mapping[str, t.Optional[Mapping[str, Json]]]] = ABSENT


@dataclass(frozen=True)
class VerifyTask:
    """The options of C(recover_verify)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    hosts: tuple[str, ...]
    publish_as: t.Optional[str]
    ledger: t.Optional[str]
    work: t.Optional[_VerifyWork]


@dataclass(frozen=True)
class VerifyRequest:
    """The input of the verdicts.

    :arg hosts: that were to be recovered.
    :arg tasks: by host, of those that have answered to the end.
    """

    hosts: tuple[str, ...]
    tasks: Mapping[str, HostTasks]
    check_mode: bool

    @classmethod
    def from_task(cls, task: VerifyTask, check_mode: bool) -> VerifyRequest:
        """Return the request of a task with these options."""
        work = task.work or _VerifyWork()
        return cls(task.hosts, {host: HostTasks.from_results(host, work.tasks or {}) for host in work.present or ()}, check_mode)

    def build_results(self, errors: Mapping[str, str]) -> dict[str, HostRecovery]:
        """Return the result of each host; those that stopped answering come last.

        :arg errors: what failed after the tasks, by host.
        """
        found = {host: build_host_result(host, tasks, self.check_mode) for host, tasks in self.tasks.items()}
        found = {host: dataclasses.replace(own, error=own.error or errors.get(host, "")) for host, own in found.items()}
        silent = [host for host in self.hosts if host not in self.tasks]
        nothing = build_host_result("", HostTasks.from_results("", {}), self.check_mode)
        return {**found, **{host: dataclasses.replace(nothing, error=LOST_HOST) for host in silent}}

    def find_returned(self) -> dict[str, str]:
        """Return the hosts to which domains were to move back, with their names in the ledger."""
        return {host: tasks.entry.host.name for host, tasks in self.tasks.items() if tasks.moves and tasks.entry and tasks.entry.host}


def build_host_result(host: str, tasks: HostTasks, check_mode: bool) -> HostRecovery:
    """Return what the tasks did on one host."""
    cleaned, item_results = tasks.cleaned or CleanupTask(), (tasks.started.results or ()) if tasks.started else ()
    brought_home, left = _list_moved_back(tasks, check_mode)
    return HostRecovery(
        cleaned=cleaned.cleaned or (),
        superseded=cleaned.superseded or (),
        deleted=cleaned.deleted or (),
        kept=cleaned.kept or (),
        refused=cleaned.refused or (),
        released=is_done(tasks.released),
        started=tuple(item_result.domain for item_result in item_results if item_result.changed and item_result.domain),
        stayed_off=(tasks.starts.stayed_off or ()) if tasks.starts else (),
        enabled=_is_enabled(tasks),
        brought_home=tuple(brought_home),
        skipped=(*((tasks.starts.forget or ()) if tasks.starts else ()), *((tasks.returning.skipped or ()) if tasks.returning else ())),
        failed=(*_list_failed_starts(tasks), *_list_open_records(host, tasks), *left, *_list_conflicts(tasks)),
        notes=_list_guard_notes(tasks.released),
        error=_ending_error(host, tasks),
    )


def note_returned(ledger: Ledger | None, names: Mapping[str, str], write: bool) -> dict[str, str]:
    """Keep in the ledger which domains are still displaced from these hosts. Return what failed, by host.

    :arg names: of the hosts in the ledger.
    """
    errors: dict[str, str] = {}
    for host, name in names.items():
        try:
            found = ledger.find_host(name=name) if ledger else None
            if ledger and found:
                keep_origins(ledger, found.host, write)
        except KvmfleetError as error:
            errors[host] = str(error)
    return errors


def describe_problems(results: Mapping[str, HostRecovery]) -> dict[str, str]:
    """Return why the recovery has failed, by host."""
    return {host: " ".join(sentences) for host, own in results.items() if (sentences := list_problems(own))}


def _list_guard_notes(released: ReleaseTask | None) -> tuple[str, ...]:
    guard = (released.guard or None) if released and is_done(released) else None
    if guard is None or guard.installed:
        return ()
    return (DAMAGED_BOOT_GUARD if guard.held or guard.released else NO_BOOT_GUARD,)


def _ending_error(host: str, tasks: HostTasks) -> str:
    """Return what ended the recovery, empty if nothing did."""
    if not tasks.ended:
        return ""
    if not any(task and task.has_failed for task in (tasks.reached, tasks.answered)):
        return _failure_text(tasks.ended)
    why = (tasks.ended.message or "no answer").rstrip(".")
    return (
        f"{host} did not return within {tasks.ended.waited_seconds} s: {why}. Nothing was changed: its state in the ledger stays. "
        "Check its console and the login of Ansible, then run recover again."
    )


def _is_enabled(tasks: HostTasks) -> bool:
    """Whether the host accepts domains: its maintenance was ended, or its state was not changed."""
    if not tasks.enabled or tasks.enabled.has_failed:
        return False
    found = tasks.enabled.host or (tasks.entry.host if tasks.entry else None)
    return bool(found and found.state == ENABLED)


def list_failed(item_results: Iterable[DomainItemResult], what: str) -> list[ReportedDomain]:
    """Return the domains of a loop whose task failed or did not reach its host, with the reason."""
    failed = [(decode(LoopItem, item_result.item or None, "item"), item_result) for item_result in item_results if item_result.has_failed]
    return [ReportedDomain(item.uuid, item.name, what=what, reason=_failure_text(item_result)) for item, item_result in failed]


def list_moved_back(moves: Iterable[MoveBack], results: Iterable[DomainsResult], check_mode: bool = False) -> tuple[list[ReportedDomain], list[ReportedDomain]]:
    """Return the domains that moved back, and those that did not, with the reason.

    :arg results: of the loop of C(live_migrate), or C(cold_migrate), over the sources.
    """
    by_source = {str(result.item): result for result in results}
    brought_home: list[ReportedDomain] = []
    left: list[ReportedDomain] = []
    for move in moves:
        # In check mode a source is not queried if its domains could not move before their host is enabled.
        nothing = DomainsResult(failed=not check_mode, msg="Its move was not started.")
        why = _why_not(move.uuid, by_source.get(move.source, nothing), check_mode)
        if why is None:
            brought_home.append(ReportedDomain(move.uuid, move.name, source=move.source))
        else:
            left.append(ReportedDomain(move.uuid, move.name, what="bring home", reason=why))
    return brought_home, left


def _why_not(uuid: str, result: DomainsResult, check_mode: bool) -> t.Optional[str]:
    refusal = result.reasons.get(uuid)
    if refusal:
        return refusal
    record = next((record for record in result.migrations or () if record.domain.uuid == uuid), None)
    if record is not None and record.status == COMPLETED:
        return None
    if result.has_failed and not result.failures:
        return _failure_text(result)
    if record is None or check_mode:
        return None
    return f"Its move is '{record.status}' (record {record.id})."


def _failure_text(task: TaskResult) -> str:
    return task.message or "It failed without a message."


def _list_failed_starts(tasks: HostTasks) -> Sequence[ReportedDomain]:
    refused = [dataclasses.replace(entry, what="start") for entry in (tasks.starts.refuse or () if tasks.starts else ())]
    return refused + list_failed((tasks.started.results or ()) if tasks.started else (), "start")


def _list_open_records(host: str, tasks: HostTasks) -> Sequence[ReportedDomain]:
    """Return why the host stays in maintenance, if records are open."""
    records = (tasks.released.open_records or ()) if tasks.enabled and tasks.released else ()
    if not records:
        return []
    ids, names = ", ".join(str(record.id) for record in records), ", ".join(str(record.domain.name) for record in records)
    reason = (
        f"It stays in maintenance, because records are open: {ids} (of {names}). Run live_migrate or evacuate again, which settles them, or settle "
        "them with the module host; then run recover again."
    )
    return [ReportedDomain(None, host, what="enable", reason=reason)]


def _list_moved_back(tasks: HostTasks, check_mode: bool) -> tuple[list[ReportedDomain], list[ReportedDomain]]:
    """Return what L(list_moved_back) does for the moves of the host. A domain that the scheduler refuses was not moved."""
    unfit = list_failed((tasks.fits.results or ()) if tasks.fits else (), "bring home")
    refused = {entry.uuid for entry in unfit}
    moves = [move for move in tasks.moves if move.uuid not in refused]
    live, off = [move for move in moves if not move.method], [move for move in moves if move.method]
    brought_home, left = list_moved_back(live, (tasks.moved.results or ()) if tasks.moved else (), check_mode)
    defined, undefined = list_moved_back(off, (tasks.moved_off.results or ()) if tasks.moved_off else (), check_mode)
    return brought_home + defined, unfit + left + undefined


def _list_conflicts(tasks: HostTasks) -> Sequence[ReportedDomain]:
    conflicts = (tasks.protected.conflicts or ()) if tasks.protected and not tasks.protected.has_failed else ()
    return [dataclasses.replace(conflict, what="protect") for conflict in conflicts]
