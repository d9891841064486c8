# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The options of a task, one domain during an evacuation, and what all domains of a task share."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import STATE_AS_RECORDED, STATE_RUNNING
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Detection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import HostNames, Renaming
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, NeededFile, SavedDisk, SavedFile
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import EVACUATION

from .._drain.answers import TaskResult
from .._ledger.documents import Stored
from .._ledger.ledger import Ledger
from .._run_process import RunProcess
from .._settings.variables import Settings
from .renaming import RenamedDefinition, rename_definition, rename_disk
from .restart_limit import RestartLimit
from .source import Candidate, Source

RunPhase = Callable[[str, JsonObject], JsonObject]


class Probe(t.Protocol):
    """An attempt to connect to a host that should be silent, which begins when its context is entered."""

    def __enter__(self) -> Probe:
        """Begin the attempt, without waiting for it."""

    def __exit__(self, *error: t.Any) -> None:
        """End the attempt."""

    def read_answer(self) -> tuple[str, str]:
        """Return C(SSH_ANSWERS), C(SSH_SILENT) or C(SSH_UNKNOWN), the last one with the reason."""

    def require_silence(self) -> None:
        """Return if the host was silent; raise L(Unsafe) otherwise."""


MakeProbe = Callable[[str], Probe]


@dataclass(frozen=True)
class ListedDomain:
    """A domain in a list of a result: without its definition.

    :arg state: the state in which it was saved, at C(saved_at).
    :arg missing_since: since when it has been missing from its host.
    :arg reasons: why it is lost until its host returns.
    :arg reason: why it is not started.
    :arg hosts: where it should be, of one that no host has.
    """

    uuid: str
    name: t.Optional[str]
    state: Maybe[str] = ABSENT
    saved_at: Maybe[str] = ABSENT
    missing_since: Maybe[str] = ABSENT
    wanted_state: Maybe[str] = ABSENT
    reasons: Maybe[tuple[str, ...]] = ABSENT
    reason: t.Union[str, Absent] = ABSENT
    hosts: Maybe[tuple[t.Optional[str], ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class AskedHost(TaskResult):
    """What C(host_facts) has returned on a host of the play."""

    ansible_facts: Maybe[JsonObject] = ABSENT


@dataclass(frozen=True)
class EvacuationWork:
    """The input from the role.

    :arg play: the hosts of the play, the survivors.
    :arg fence_tasks: a file of tasks that switches the source off.
    :arg evidence: the evidence that these tasks have set.
    :arg asked: by host of the play, what C(host_facts) has returned.
    :arg excluded: hosts that an earlier step has excluded, with the reason.
    :arg twice: two variables that both name domains.
    :arg first_round: what the step C(query) has returned, see L(FirstRound).
    :arg may_ask_again: whether hosts that contradict each other can be asked again.
    :arg settle: whether only what an earlier run has begun on the host is settled, because the source is back.
    """

    play: Maybe[tuple[str, ...]] = ABSENT
    fence_tasks: Maybe[str] = ABSENT
    evidence: t.Union[Json, Absent] = ABSENT
    asked: Maybe[Mapping[str, t.Optional[AskedHost]]] = ABSENT
    excluded: Maybe[Mapping[str, str]] = ABSENT
    twice: Maybe[tuple[str, ...]] = ABSENT
    first_round: Maybe[JsonObject] = ABSENT
    may_ask_again: Maybe[bool] = ABSENT
    settle: Maybe[bool] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class EvacuationTask:
    """The options of C(evacuate) and C(evacuate_plan). Only the second has C(step), C(destination), C(survivors) and C(since)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    uri: str
    ledger: t.Optional[str]
    source: str
    fencing: t.Optional[tuple[Json, ...]]
    force_down: t.Optional[JsonObject]
    accept_silent: tuple[str, ...]
    accept_fresh: tuple[str, ...]
    accept_locked: t.Optional[JsonObject]
    force: bool
    state: str
    parallel: SignedInt
    lock_wait_seconds: t.Optional[SignedInt]
    work: t.Optional[EvacuationWork]
    domains: t.Optional[tuple[str, ...]]
    step: t.Union[str, Absent] = ABSENT
    destination: Maybe[str] = ABSENT
    survivors: Maybe[tuple[str, ...]] = ABSENT
    since: Maybe[JsonObject] = ABSENT
    restart_limit: Maybe[JsonObject] = ABSENT
    detection: Maybe[JsonObject] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass
class EvacuationContext:
    """What all domains of one task share. C(warnings) is appended to.

    :arg target_host: inventory name of the host that starts the domains.
    :arg restart_limit: the limit that the options state.
    :arg detection: the detection that they state, if its times can be true.
    :arg phase: runs a phase of the module there.
    :arg run_process: the one that runs the play.
    :arg make_probe: returns an attempt to connect to a host of the inventory as Ansible does; None for a task that makes no such attempt.
    :arg show: receives a line about a wait, for people.
    """

    ledger: Ledger
    settings: Settings
    target_host: str
    uri: str
    by: str
    options: EvacuationTask
    phase: RunPhase
    run_process: RunProcess
    warnings: list[str] = field(default_factory=list)
    make_probe: t.Optional[MakeProbe] = None
    show: Callable[[str], None] = lambda line: None
    restart_limit: t.Optional[RestartLimit] = None
    detection: t.Optional[Detection] = None


@dataclass
class EvacuationJob:
    """A domain that may be on the dead host.

    :arg request: what it needs by its effective policy; None if that was never saved.
    :arg stored: its record, once it exists.
    :arg rejoin: the record was C(pre-migrating) before this task.
    :arg older: a record with another host that is also off; this evacuation replaces it.
    :arg has_older_copy: whether that is a move whose destination answers and has the domain, off.
    :arg lost: why it cannot be started before its host returns.
    :arg files: that it needs in addition to its disks and that other hosts were proved to see, as they were saved.
    :arg fresh: those that only its host had and that a start may create again.
    :arg names: those in what was saved of it, of the host that it was saved on.
    :arg renaming: what they are on the host that the task runs on; None if they are the same there.
    :arg prediction: in check mode, the record that the start would have.
    """

    candidate: Candidate
    source: Source
    wanted: str
    request: t.Optional[JsonObject] = None
    stored: t.Optional[Stored] = None
    rejoin: bool = False
    older: t.Optional[MoveRecord] = None
    has_older_copy: bool = False
    lost: list[str] = field(default_factory=list)
    files: list[SavedFile] = field(default_factory=list)
    fresh: list[NeededFile] = field(default_factory=list)
    error: t.Optional[KvmfleetError] = None
    changed: bool = False
    prediction: t.Optional[MoveRecord] = None
    names: t.Optional[HostNames] = None
    renaming: t.Optional[Renaming] = None

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.candidate.uuid

    @property
    def name(self) -> str:
        """The domain's name in what was saved, under which it is started. It may have been renamed since."""
        return str((self.saved.request or {}).get("name") or self.candidate.entry.name)

    @property
    def saved(self) -> DomainProtection:
        """What C(protect) saved of it; empty if it never did."""
        return self.candidate.entry.saved or DomainProtection()

    @property
    def disks(self) -> tuple[SavedDisk, ...]:
        """The disks as C(protect) saved them. An earlier version kept only in the domain's request which of them are C(shareable)."""
        requested = t.cast("t.Sequence[JsonObject]", (self.saved.request or {}).get("disks") or ())
        shared = {disk["target"] for disk in requested if disk.get("shareable")}
        return tuple(decode(SavedDisk, {"shareable": disk["target"] in shared, **disk}) for disk in self.saved.disks or ())

    @functools.cached_property
    def renamed(self) -> RenamedDefinition:
        """The saved definition as the host that the task runs on needs it."""
        return rename_definition(self.saved, self.renaming) if self.renaming else RenamedDefinition(self.saved.definition or "")

    @property
    def disks_here(self) -> tuple[SavedDisk, ...]:
        """The disks as the host that the task runs on sees them."""
        renaming = self.renaming
        return tuple(rename_disk(disk, renaming) for disk in self.disks) if renaming else self.disks

    @property
    def files_here(self) -> tuple[SavedFile, ...]:
        """The proved files likewise."""
        renaming = self.renaming
        return tuple(self.renamed.rename_file(file, renaming) for file in self.files) if renaming else tuple(self.files)

    @property
    def fresh_here(self) -> tuple[str, ...]:
        """The paths there of files that a start may create again."""
        return tuple(self.renamed.rename_needed(file).path for file in self.fresh)

    @property
    def earlier_evacuation(self) -> t.Optional[MoveRecord]:
        """The unsettled evacuation from this source that holds the domain; None if nothing holds it, or another record."""
        record = self.candidate.record
        return record if record and record.type == EVACUATION and record.source.is_same(self.source.host_ref) else None

    @property
    def is_open(self) -> bool:
        """Whether nothing prevents its start so far."""
        return self.error is None and not self.lost

    @property
    def record(self) -> t.Optional[MoveRecord]:
        """Its record as the ledger has it, or as check mode predicts it."""
        return self.stored.record if self.stored else self.prediction

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """The order of the planner: by priority, then by size."""
        request = self.request or {}
        return -_int_or_zero(request.get("priority")), -_int_or_zero(request.get("memory_mib")), self.uuid

    def keep_error(self, step: Callable[[EvacuationJob], None]) -> None:
        """Take a step, unless something prevents the start already. Its error is kept here, so that the other domains continue."""
        if not self.is_open:
            return
        try:
            step(self)
        except Forbidden:
            raise
        except KvmfleetError as error:
            self.error = error

    def as_entry(self) -> ListedDomain:
        """Return the domain as it is listed."""
        return ListedDomain(self.uuid, self.name, self.saved.state or None, self.saved.at or None, self.candidate.entry.missing_since)


def wanted_state(saved: t.Optional[DomainProtection], option: str) -> str:
    """Return the wanted state of the domain: that of the option, or else the last known one."""
    if option != STATE_AS_RECORDED:
        return domain_states.RUNNING if option == STATE_RUNNING else domain_states.SHUTOFF
    # If a document has neither, nothing is started.
    return str(saved.state or None) if saved else domain_states.SHUTOFF


def _int_or_zero(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def check_numbers(parallel: int, lock_wait_seconds: t.Optional[int]) -> None:
    """Raise L(InvalidArgument) for numbers out of bounds."""
    if not 1 <= parallel <= 64:
        raise InvalidArgument(f"parallel is {parallel}.", "Give a number from 1 to 64. Nothing was started.")
    if lock_wait_seconds is not None and not 0 <= lock_wait_seconds <= 3600:
        raise InvalidArgument(f"lock_wait_seconds is {lock_wait_seconds}.", "Give a number from 0 to 3600. Nothing was started.")


class CachedSettings(Settings):
    """Settings that remember each answer. Values that the task itself has read can be read again by a second thread, which must not evaluate templates."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._values: dict[tuple[str, str], Json] = {}
        self._known: dict[str, bool] = {}

    def of(self, host: str, variable: str, default: Json = None) -> Json:
        """Return that variable of that host; the default if the inventory has neither."""
        key = (host, variable)
        if key not in self._values:
            self._values[key] = self._settings.of(host, variable)
        return default if self._values[key] is None else self._values[key]

    def is_known(self, host: str) -> bool:
        """Whether the inventory has the host."""
        if host not in self._known:
            self._known[host] = self._settings.is_known(host)
        return self._known[host]
