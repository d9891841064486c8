# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The forms of results that a task, a role or a playbook puts together key by key, for which the code needs no dataclass of its own."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, Progress
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_documents import UnprovedImage
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_domains import ConflictingDomain, ListedDocument


@dataclasses.dataclass(frozen=True)
class MissingRecord:
    """A move or evacuation that a host remembers, and of which the ledger has nothing, or an older state."""

    id: str
    generation: int
    type: str
    status: str
    updated_at: str
    domain: DomainRef
    source: HostRef
    destination: HostRef
    ledger_id: t.Optional[str]
    remembered_by: str
    ledger_status: t.Optional[str]


@dataclasses.dataclass(frozen=True)
class MoveFailure:
    """A move that failed, of those of a task."""

    domain: str
    uuid: t.Optional[str]
    msg: str
    error_code: str


@dataclasses.dataclass(frozen=True)
class TextDiff:
    """The difference that a task with `--diff` returns."""

    before: str
    after: str


@dataclasses.dataclass(frozen=True)
class MigrateResult:
    """What a task of `live_migrate` returns. Ansible adds keys of its own."""

    changed: bool
    migrations: t.Union[tuple[MoveRecord, ...], Absent] = ABSENT
    missing_records: t.Union[tuple[MissingRecord, ...], Absent] = ABSENT
    warnings: t.Union[tuple[str, ...], Absent] = ABSENT
    diff: t.Union[TextDiff, Absent] = ABSENT
    failed: t.Union[bool, Absent] = ABSENT
    msg: t.Union[str, Absent] = ABSENT
    error_code: t.Union[str, Absent] = ABSENT
    failures: t.Union[tuple[MoveFailure, ...], Absent] = ABSENT


@dataclasses.dataclass(frozen=True)
class UnsavedDomain:
    """A domain that was not saved, and why."""

    uuid: str
    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class BootGuardState:
    """The boot guard of a host."""

    installed: bool
    systemd: bool
    held_at_boot: bool
    held: bool
    note: str


@dataclasses.dataclass(frozen=True)
class HostProtection:
    """The result of the role `protect_host` on one host."""

    saved: tuple[ListedDocument, ...]
    unchanged: tuple[ListedDocument, ...]
    missing: tuple[ListedDocument, ...]
    conflicts: tuple[ConflictingDomain, ...]
    skipped: tuple[UnsavedDomain, ...]
    unproved: tuple[UnprovedImage, ...]
    notes: tuple[str, ...]
    guard: t.Union[BootGuardState, None]
    watchdog: t.Union[ProtectedWatchdog, None]
    error: str


@dataclasses.dataclass(frozen=True)
class ActOfOthers:
    """What was done to a domain without this collection."""

    uuid: str
    name: t.Optional[str]
    act: str
    msg: str


@dataclasses.dataclass(frozen=True)
class MoveInFlight:
    """A move that has not ended: the main keys of its record, and who reports it."""

    id: t.Optional[str]
    type: str
    status: str
    domain: DomainRef
    source: HostRef
    destination: HostRef
    progress: Progress
    updated_at: str
    host: t.Optional[str]
    watched: t.Optional[bool]
    line: str


@dataclasses.dataclass(frozen=True)
class FleetStatus:
    """What the playbook `status` publishes."""

    attention: tuple[str, ...]
    foreign_acts: tuple[ActOfOthers, ...]
    hosts: Mapping[str, tuple[str, ...]]
    moves: tuple[MoveInFlight, ...]
    maintenance: tuple[str, ...] = ()
    evacuated: tuple[str, ...] = ()
