# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The parts of a record of a move: its acts, history, figures, connection and copied disks, and what a cold move does."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject
from .resource_maps import Renaming


@dataclass(frozen=True)
class Act:
    """An act on the guest (suspend, abort, resume), written down before it is done."""

    at: str
    act: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HistoryLine:
    """A status that the record has had, or an event that changed none."""

    IS_LENIENT: t.ClassVar[bool] = True
    at: str
    status: str
    by: t.Union[str, Absent, None] = ABSENT
    detail: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def writer(self) -> t.Optional[str]:
        """Who wrote the line, if the line states this."""
        return self.by if isinstance(self.by, str) else None


@dataclass(frozen=True)
class Progress:
    """The figures of a job (bytes, bytes a second, percent)."""

    memory_total_bytes: int
    memory_processed_bytes: int
    memory_remaining_bytes: int
    disk_total_bytes: int
    disk_processed_bytes: int
    disk_remaining_bytes: int
    percent: int
    iteration: int
    dirty_rate_bytes: int
    bandwidth_bytes: int
    throttle_percent: int
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The outcome of a move (milliseconds, bytes); null if it is not known, as before its end."""

    IS_LENIENT: t.ClassVar[bool] = True
    elapsed_ms: t.Optional[int]
    downtime_ms: t.Optional[int]
    predicted_downtime_ms: t.Optional[int]
    setup_ms: t.Optional[int]
    bytes: t.Optional[int]
    iterations: t.Optional[int]
    mode: t.Union[str, Absent, None] = ABSENT
    rung: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class PredictedMove:
    """The prediction for a move, made before it began (seconds, milliseconds, bytes).

    :arg downtime_ms: null if no dirty rate was measured, or if the move is not expected to converge.
    :arg bytes: what it sends in its first pass.
    """

    seconds: float
    low_seconds: float
    high_seconds: float
    downtime_ms: t.Optional[int]
    bytes: int
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """The figures of one poll, kept thinned (bytes, bytes a second, milliseconds, percent)."""

    IS_LENIENT: t.ClassVar[bool] = True
    # A watcher continues with this figure; the others were never required.
    NEEDED: t.ClassVar[t.Tuple[str, ...]] = ("allowed_downtime_ms",)
    elapsed_ms: t.Optional[int] = None
    remaining_bytes: t.Optional[int] = None
    bandwidth_bytes: t.Optional[int] = None
    dirty_rate_bytes: t.Optional[int] = None
    allowed_downtime_ms: t.Optional[int] = None
    throttle_percent: t.Optional[int] = None
    iteration: t.Optional[int] = None
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a domain, on which incremental backups build. libvirt keeps it on one host, and does not move it.

    :arg name: of the checkpoint, the same as that of its bitmap in each image.
    :arg definition: libvirt's XML of it, without that of the domain.
    """

    name: str
    definition: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Before:
    """The guest before the move; empty until it was read.

    :arg state: of the guest; C(reason) is libvirt's.
    :arg max_downtime_ms: the maximum downtime that was set in libvirt; C(bandwidth_mib) likewise, in MiB/s.
    :arg at_destination: whether the destination had a definition of it. C(autostart_at_destination) is true if that was marked for automatic start.
    :arg checkpoints: those that libvirt had of it, parents first; absent if there were none, or if they were not read.
    :arg state_at: of an evacuation: when the state was seen. C(saved_at) is when the definition was saved, C(disks) are those of it.
    """

    IS_LENIENT: t.ClassVar[bool] = True
    state: t.Union[str, Absent, None] = ABSENT
    reason: t.Union[str, Absent, None] = ABSENT
    persistent: t.Union[bool, Absent, None] = ABSENT
    autostart: t.Union[bool, Absent, None] = ABSENT
    max_downtime_ms: t.Union[int, Absent, None] = ABSENT
    bandwidth_mib: t.Union[int, Absent, None] = ABSENT
    at_destination: t.Union[bool, Absent, None] = ABSENT
    autostart_at_destination: t.Union[bool, Absent, None] = ABSENT
    checkpoints: t.Union[t.Tuple[Checkpoint, ...], Absent, None] = ABSENT
    state_at: t.Union[str, Absent, None] = ABSENT
    saved_at: t.Union[str, Absent, None] = ABSENT
    disks: t.Union[t.Tuple[JsonObject, ...], Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Connection:
    """The migrate call of the move: C(flags) and C(parameters) at the start of its job.

    :arg is_shared: the watcher sets the bandwidth of the job, because it shares the link with other moves.
    """

    IS_LENIENT: t.ClassVar[bool] = True
    destination_uri: t.Union[str, Absent, None] = ABSENT
    bandwidth_mib: t.Union[int, Absent, None] = ABSENT
    link_mib: t.Union[int, Absent, None] = ABSENT
    is_shared: t.Union[bool, Absent, None] = ABSENT
    flags: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    parameters: t.Union[JsonObject, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


LIVE, PERSISTENT = "live", "persistent"


@dataclass(frozen=True)
class DefinitionChange:
    """A name that the definition has on the source, and another one at the destination (L(resource_maps)).

    :arg path: its place in the definition, e.g. C(devices[1]/interface[1]/source[1]/@bridge).
    :arg definitions: the definitions in which it differs, C(live) and C(persistent).
    """

    path: str
    before: str
    after: str
    definitions: t.Tuple[str, ...]
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DiskCopy:
    """A disk that the move copies.

    :arg bytes: the size of the disk, which is reserved at the destination.
    :arg action: what the move does with the target.
    :arg made: whether this move has made the target, and has to remove it where it fails.
    """

    target: str
    path: str
    format: str
    capacity_bytes: int
    bytes: int
    action: str
    made: t.Union[bool, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class CopiedStorage:
    """The storage of a move that copies disks."""

    mode: str
    disks: t.Tuple[DiskCopy, ...]
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Detection:
    """How the death of the host was detected that a domain is evacuated from. Times are RFC 3339, UTC.

    :arg silent_since: when the host was heard from last, as far as the detection knows.
    :arg detected_at: when it was judged to be gone.
    :arg by: what has judged that, for people.
    """

    silent_since: str
    detected_at: str
    by: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


# How a cold move treats the guest: it is off; its memory is saved and restored; it is shut down.
COLD_METHODS = (OFFLINE, SAVE, SHUTDOWN) = ("offline", "save", "shutdown")


@dataclass(frozen=True)
class CopiedFile:
    """A file with state of a guest beside its disks, which a cold move copies to the destination.

    :arg what: C(nvram) for firmware variables, C(tpm) for the state of an emulated TPM.
    :arg path: its path on the source.
    :arg bytes: its size in bytes.
    :arg sha256: of its content, which was read again at the destination.
    :arg destination_path: its path at the destination; absent if it is the same.
    """

    what: str
    path: str
    bytes: int
    sha256: str
    destination_path: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def path_there(self) -> str:
        """Its path at the destination."""
        return self.destination_path or self.path


@dataclass(frozen=True)
class ColdMove:
    """What a cold move does, and what it has done.

    :arg start: whether the guest is started at the destination.
    :arg shutdown_wait_seconds: how long its shutdown is waited for.
    :arg image: the path of the saved memory on both hosts; of a managed-save image, under which name the source holds it during the move.
    :arg image_format: libvirt's format of the saved memory.
    :arg resumes_as: the state in which the guest of a managed-save image resumes, C(running) or C(paused); absent for a domain that has no such image.
    :arg files: the files that were copied.
    :arg kept: where the source keeps what it had of the domain: its definition, and these files.
    :arg renaming: the names that may differ at the destination, by which any later process settles the move.
    """

    start: bool
    shutdown_wait_seconds: t.Union[int, Absent, None] = ABSENT
    image: t.Union[str, Absent, None] = ABSENT
    image_format: t.Union[str, Absent, None] = ABSENT
    resumes_as: t.Union[str, Absent, None] = ABSENT
    files: t.Union[t.Tuple[CopiedFile, ...], Absent, None] = ABSENT
    kept: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    renaming: t.Union[Renaming, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What a run reports about a move that waits for its admission. Times are RFC 3339, UTC.

    :arg limits: the limits that apply to the move, by name.
    :arg until: when its run gives up; null for never.
    :arg seen_at: the time of this report.
    """

    limits: t.Mapping[str, int]
    since: str
    until: t.Optional[str]
    seen_at: str
    waits_for: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


NO_PROGRESS = Progress(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
NO_RESULT = Result(None, None, None, None, None, None, mode=None, rung=None)


# What the move does with the target: create it, remove and create it again, or fill the existing one.
CREATE = "create"
REPLACE = "replace"
FILL = "fill"
