# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The copy of an evacuated domain on its returned host: what the halves of C(evacuation_cleanup) exchange, and the manifest of a quarantine."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from .._dataclass import dataclass
from .clock import BootMoment
from .codec import ABSENT, Absent, JsonObject, ShapeError
from .references import DomainRef, HostAnswer
from .saved_domains import SavedDisk


@dataclass(frozen=True)
class CleanupQuestion:
    """A domain that was evacuated from this host.

    :arg record: the ID of the record of that evacuation.
    :arg defined: whether the evacuation was to define the domain, not to start it.
    :arg came_back: whether a newer record states that this host has the domain again.
    :arg expected: the hosts that have the domain according to the ledger.
    :arg saved: the disks as they were saved of this host.
    :arg fenced: whether records have the domain on C(expected) alone, each of these hosts is fenced, and the ledger has the definition of the domain.
    :arg missing: whether the ledger has noted that the only one of them does not have the domain any more.
    """

    uuid: str
    name: t.Optional[str]
    record: str
    defined: bool
    came_back: bool
    expected: t.Tuple[JsonObject, ...]
    saved: t.Tuple[SavedDisk, ...]
    fenced: t.Union[bool, Absent] = ABSENT
    missing: t.Union[bool, Absent] = ABSENT


@dataclass(frozen=True)
class FleetReading:
    """The answers of all other hosts about domains whose copies are to be removed.

    :arg answers: by the name of each host.
    :arg uuids: the domains that the hosts were asked about.
    :arg moment: when they were asked.
    """

    answers: t.Mapping[str, HostAnswer]
    uuids: t.Tuple[str, ...]
    moment: BootMoment


@dataclass(frozen=True)
class DiskVerdict:
    """The verdict about a disk of the copy.

    :arg quarantine: whether the disk may be quarantined; C(reason) states why not.
    :arg only_copy: whether it may be the only copy of its data.
    """

    target: str
    path: str
    quarantine: bool
    reason: str
    only_copy: bool


@dataclass(frozen=True)
class CleanupPlan:
    """What may be done to a copy.

    :arg kind: C(clean), C(refuse), C(alarm) or C(superseded); C(reason) is a part of a sentence.
    :arg where: the host that has the domain now; null if it is on hosts that are fenced and do not answer, or active on this host alone.
    :arg managed_save: the path of a saved memory image. C(nvram) and C(tpm) are paths, too.
    """

    uuid: str
    name: t.Optional[str]
    record: str
    kind: str
    reason: str
    where: t.Optional[str]
    present: bool
    managed_save: t.Optional[str]
    nvram: t.Optional[str]
    tpm: t.Optional[str]
    disks: t.Tuple[DiskVerdict, ...]

    @property
    def domain(self) -> DomainRef:
        """The domain."""
        return DomainRef(self.uuid, self.name)


@dataclass(frozen=True)
class QuarantinedDisk:
    """A file that was moved to quarantine, or would be.

    :arg target: the device of a disk; null for a saved memory image.
    :arg quarantine: where the file is now; null for one that would be moved.
    """

    target: t.Optional[str]
    path: str
    quarantine: t.Optional[str]


@dataclass(frozen=True)
class KeptDisk:
    """A disk that was not touched, and why."""

    target: str
    path: str
    reason: str
    only_copy: bool


@dataclass(frozen=True)
class CleanupDone:
    """What was done to a copy.

    :arg undefined: whether the domain was undefined for this record, now or by an earlier run.
    :arg restore: the shell command that puts everything back.
    """

    changed: bool
    undefined: bool
    quarantined: t.Tuple[QuarantinedDisk, ...]
    kept: t.Tuple[KeptDisk, ...]
    restore: t.Optional[str]


QUARANTINE_SCHEMA = 1
# WORKING: files are being moved. COMPLETE: all of them were moved. DELETED: they were deleted after their retention.
WORKING, COMPLETE, DELETED = "working", "complete", "deleted"
_QUARANTINE_STATES = (WORKING, COMPLETE, DELETED)


@dataclass(frozen=True)
class QuarantinedFile:
    """A file in quarantine.

    :arg kind: C(disk) or C(managed_save).
    :arg target: the device of a disk.
    :arg source: the path of the file before, C(destination) its path in the quarantine.
    """

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"source": "from", "destination": "to"}
    kind: str
    target: t.Optional[str]
    source: str
    destination: str
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a relative path."""
        for key, path in (("from", self.source), ("to", self.destination)):
            if not os.path.isabs(path):
                raise ShapeError(key, "an absolute path")


@dataclass(frozen=True)
class QuarantineManifest:
    """All files in quarantine for one record of an evacuation.

    :arg record: the ID of that record.
    :arg definition: the path of the definition that was kept; null if the domain was not defined any more.
    :arg restore: the shell command that puts everything back.
    """

    schema: int
    record: str
    domain: DomainRef
    host_id: str
    created_at: str
    definition: t.Optional[str]
    items: t.Tuple[QuarantinedFile, ...]
    state: str
    completed_at: t.Optional[str]
    restore: t.Optional[str]
    deleted_at: t.Union[str, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a schema or a state that this version does not know."""
        if self.schema != QUARANTINE_SCHEMA:
            raise ShapeError("schema", str(QUARANTINE_SCHEMA))
        if self.state not in _QUARANTINE_STATES:
            raise ShapeError("state", f"one of {', '.join(_QUARANTINE_STATES)}")


@dataclass(frozen=True)
class QuarantineEntry:
    """What a host lists of the quarantine of one record; of a damaged manifest the ID of the record alone.

    :arg paths: where the files are.
    :arg reason: why they are kept.
    """

    record: str
    uuid: t.Union[str, Absent] = ABSENT
    name: t.Union[str, Absent, None] = ABSENT
    paths: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    reason: t.Union[str, Absent] = ABSENT


@dataclass(frozen=True)
class QuarantineListing:
    """The complete quarantines of a host, and in C(kept) the manifests that cannot be read."""

    quarantined: t.Tuple[QuarantineEntry, ...]
    kept: t.Tuple[QuarantineEntry, ...]


@dataclass(frozen=True)
class QuarantineExpiry:
    """The quarantines that were deleted after their retention, and those that were kept, with the reason."""

    deleted: t.Tuple[QuarantineEntry, ...]
    kept: t.Tuple[QuarantineEntry, ...]
