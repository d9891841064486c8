# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A move on the wire between the halves: the survey of both hosts, the start order of the control node, and the state file on the source host."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .clock import BootMoment
from .codec import ABSENT, Absent, Json, JsonObject, ShapeError, decode, encode
from .domain_states import DomainInfo
from .errors import Internal
from .facts import HostFacts
from .policy_documents import OwnPolicy
from .record_parts import Connection, DefinitionChange
from .records import MoveRecord, read_record
from .requests import DomainRequest
from .resource_maps import Renaming

# The number of simultaneous moves that leaves it to the window on the source, and how many of them that starts at most.
AUTO_PARALLEL = 0
AUTO_WINDOW = 4


@dataclass(frozen=True)
class SurveyQuestion:
    """A domain that may move.

    :arg known_uuids: the UUIDs that the ledger has for the name.
    :arg destination_uris: of the destination, or of all candidates.
    :arg copy_storage: whether disks are to be copied.
    :arg request: a saved request; then only the candidates are queried.
    :arg renamings: by URI of a destination, the names that differ there.
    :arg is_cold: whether the domain may be moved although it is off.
    :arg save_folder: of a cold move that saves the memory: the folder for it.
    """

    name: t.Union[str, Absent, None]
    uuid: t.Union[str, Absent, None]
    destination_uris: t.Tuple[str, ...]
    known_uuids: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    copy_storage: t.Union[bool, Absent] = ABSENT
    request: t.Union[DomainRequest, Absent, None] = ABSENT
    renamings: t.Union[t.Mapping[str, Renaming], Absent] = ABSENT
    is_cold: t.Union[bool, Absent] = ABSENT
    save_folder: t.Union[str, Absent] = ABSENT

    @property
    def uuids(self) -> t.List[str]:
        """The UUIDs under which the domain may be known."""
        return [uuid for uuid in (self.uuid, *(self.known_uuids or ())) if uuid]

    @property
    def gives_up_memory(self) -> bool:
        """Whether the guest does not take its memory along, so that its next start at the destination uses its saved definition."""
        return bool(self.is_cold) and not self.save_folder


@dataclass(frozen=True)
class CpuVerdict:
    """Whether a host can run a guest with its CPU; C(reason) states why not."""

    passed: bool
    reason: t.Optional[str]


@dataclass(frozen=True)
class UnprovedDevice:
    """A device or volume that the domain writes to, or that a disk is built on, and that other hosts are not known to see.

    :arg store: the identity of the device, the same on every host that has it; null if it has none.
    """

    target: str
    path: str
    store: t.Optional[str]


@dataclass(frozen=True)
class UnsharedFile:
    """A file that a disk is built on, and that other hosts are not known to see.

    :arg role: C(backing) or C(data); null if the file is not known.
    :arg why: why the file is not known.
    """

    target: str
    role: t.Optional[str]
    path: t.Optional[str]
    why: t.Optional[str]


@dataclass(frozen=True)
class PresentDomain:
    """A domain that a destination has.

    :arg runs: whether its guest runs there, and does not only arrive.
    :arg saved: whether it is off and has a managed-save image.
    """

    uuid: str
    active: bool
    runs: t.Union[bool, Absent] = ABSENT
    saved: t.Union[bool, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class WatchReport:
    """What the source keeps of a domain's last move: the JSON of its state file, and whether the watcher lives."""

    record: JsonObject
    alive: bool


@dataclass(frozen=True)
class RewriteVerdict:
    """What would differ in the definition of a domain at a destination; C(problem) states why it cannot be rewritten, C(error_code) classes it."""

    changes: t.Tuple[DefinitionChange, ...]
    problem: t.Union[str, Absent] = ABSENT
    error_code: t.Union[str, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class SurveyedDomain:
    """What source and destinations report about one domain. Values that depend on a destination are by its URI.

    :arg found: whether the source has the domain. Without it, there is only C(there), and C(request) with what belongs to it.
    :arg there: what a destination has of the domain.
    :arg info: the domain as its source has it.
    :arg policy: the domain's own policy.
    :arg request: what the domain needs of a host.
    :arg cpu: whether the destination can run the domain's CPU.
    :arg paths: which paths of the domain exist at the destination.
    :arg other_files: images on shared storage that exist at the destination and are proved to be other files there, by the names of the destination.
    :arg unshared_disks: targets of disks that are files of the source.
    :arg storage: the disks as L(SurveyedDisk), or C(msg) if they could not be examined.
    :arg name_taken: UUID of another domain that has the name at the destination.
    :arg watch: the state of the domain's last move on the source, and whether its watcher lives.
    :arg seen_devices: by name of a destination, the paths of devices that it has according to the ledger. The control node adds them.
    :arg busy_with: the job other than a migration that occupies the domain, e.g. C(a backup).
    :arg memory_lock_bytes: how much memory its QEMU process on the source may lock.
    :arg qemu_replaced: whether that process still is the QEMU from before an upgrade of the source.
    :arg rewrites: what would differ in its definition at the destination, where a name may.
    """

    found: bool
    there: t.Mapping[str, PresentDomain]
    info: t.Union[DomainInfo, Absent] = ABSENT
    policy: t.Union[OwnPolicy, Absent] = ABSENT
    request: t.Union[DomainRequest, Absent, None] = ABSENT
    cpu: t.Union[t.Mapping[str, CpuVerdict], Absent] = ABSENT
    paths: t.Union[t.Mapping[str, t.Mapping[str, bool]], Absent] = ABSENT
    other_files: t.Union[t.Mapping[str, t.Tuple[str, ...]], Absent] = ABSENT
    unshared_disks: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    unproved_devices: t.Union[t.Tuple[UnprovedDevice, ...], Absent] = ABSENT
    unshared_files: t.Union[t.Tuple[UnsharedFile, ...], Absent] = ABSENT
    storage: t.Union[t.Mapping[str, Json], Absent] = ABSENT
    name_taken: t.Union[t.Mapping[str, str], Absent] = ABSENT
    watch: t.Union[WatchReport, Absent, None] = ABSENT
    seen_devices: t.Union[t.Mapping[str, t.Tuple[str, ...]], Absent] = ABSENT
    memory_lock_bytes: t.Union[int, Absent] = ABSENT
    qemu_replaced: t.Union[bool, Absent] = ABSENT
    busy_with: t.Union[str, Absent] = ABSENT
    rewrites: t.Union[t.Mapping[str, RewriteVerdict], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def at_source(self) -> t.Optional[DomainInfo]:
        """The domain as its source has it; null if the source does not have it."""
        return self.info if self.found and self.info else None

    @property
    def source_info(self) -> DomainInfo:
        """The domain as its source has it. Raises L(Internal) if the source does not have it."""
        if self.at_source is None:
            raise Internal("The source does not have the domain.")
        return self.at_source

    @property
    def uuid(self) -> t.Optional[str]:
        """The UUID of a domain that the source has."""
        return self.info.uuid if self.info else None

    def is_active_at(self, uri: str) -> bool:
        """Whether the destination of that URI has the domain active."""
        return uri in self.there and self.there[uri].active

    def runs_at(self, uri: str) -> bool:
        """Whether the guest runs on the destination of that URI."""
        return self.is_active_at(uri) and self.there[uri].runs is not False


# A domain that was not surveyed.
NOT_SURVEYED: t.Final = SurveyedDomain(found=False, there={})


@dataclass(frozen=True)
class Survey:
    """The answers of all hosts.

    :arg source: the facts of the source.
    :arg destinations: by URI the facts of each destination, or why it did not answer.
    """

    source: HostFacts
    destinations: t.Mapping[str, HostFacts]
    domains: t.Tuple[SurveyedDomain, ...]


def read_survey(document: Json) -> Survey:
    """Return the survey of a JSON document. Raises L(Internal) for any other."""
    try:
        return decode(Survey, document, "survey")
    except ShapeError as exc:
        raise Internal(f"The answer of the source host cannot be read: {exc}.", "Report this as a bug. Nothing was moved.") from exc


# Keys of a state, or of what a host reports of one, that are not a part of the record.
_BESIDE = ("watcher", "answers", "waits_for", "link_wait", "forcing", "job_started_at", "alive", "watched")


@dataclass(frozen=True)
class Watcher:
    """The process that watches a move. Its start time distinguishes it from a later process with the same ID.

    :arg start_ticks: in clock ticks since boot.
    :arg run_id: the run that it works for.
    """

    pid: int
    start_ticks: t.Union[int, Absent, None] = ABSENT
    run_id: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class LinkWait:
    """How long a job has waited for its share of the link. All times are seconds from the start of the job.

    :arg seconds: the length of all waits that are over.
    :arg since: when the present wait began; null if the job does not wait.
    """

    seconds: float
    since: t.Optional[float] = None

    def seconds_at(self, elapsed: float) -> float:
        """Return how long the job has waited until that time."""
        return self.seconds if self.since is None else self.seconds + max(0.0, elapsed - self.since)


NO_LINK_WAIT: t.Final = LinkWait(0.0)


@dataclass(frozen=True)
class ForcingProgress:
    """What another watcher needs beside the record to continue forcing a move.

    :arg paused_at: since when the guest is paused, in seconds from the start of the job, without its waits for the link; null if it is not.
    :arg bandwidth_mib: the cap that a person has set for the forced move, 0 for none; absent if nobody has.
    """

    paused_at: t.Optional[float] = None
    bandwidth_mib: t.Union[int, Absent] = ABSENT


NO_FORCING: t.Final = ForcingProgress()


@dataclass(frozen=True)
class StateFile:
    """The record of a move with its watcher.

    :arg watcher: null if the file names no process.
    :arg answers: the answers by the IDs of intents: an error, or an empty object.
    :arg waits_for: what the move waits for, a phrase.
    :arg link_wait: how long its job has waited for the link.
    :arg forcing: the progress of forcing it.
    :arg job_started_at: when its job began, in seconds of the monotonic clock of the source, which begins with each boot, as the file does; null without a job.
    """

    record: MoveRecord
    watcher: t.Optional[Watcher]
    answers: t.Mapping[str, JsonObject] = dataclasses.field(default_factory=dict)
    waits_for: t.Optional[str] = None
    link_wait: LinkWait = NO_LINK_WAIT
    forcing: ForcingProgress = NO_FORCING
    job_started_at: t.Optional[float] = None

    def as_json(self) -> t.Dict[str, Json]:
        """Return the JSON object that the file holds."""
        record = encode(self.record)
        further = {key: record.pop(key) for key in self.record.extra}
        beside: t.Dict[str, Json] = {"waits_for": self.waits_for} if self.waits_for else {}
        if self.link_wait != NO_LINK_WAIT:
            beside["link_wait"] = encode(self.link_wait)
        if self.forcing != NO_FORCING:
            beside["forcing"] = encode(self.forcing)
        if self.job_started_at is not None:
            beside["job_started_at"] = self.job_started_at
        return {**record, "watcher": encode(self.watcher), "answers": encode(self.answers), **beside, **further}


def read_state(document: Json) -> StateFile:
    """Return the state that a JSON document represents. Raises L(Internal) if it holds no record."""
    if not isinstance(document, t.Mapping):
        raise Internal("Not a record: the document must be a JSON object.")
    answers, waits_for = document.get("answers"), document.get("waits_for")
    return StateFile(
        read_record(record_in(document)),
        read_watcher(document.get("watcher")),
        {key: one for key, one in answers.items() if isinstance(one, dict)} if isinstance(answers, dict) else {},
        waits_for if isinstance(waits_for, str) else None,
        _read_link_wait(document.get("link_wait")),
        _read_forcing(document.get("forcing")),
        _read_seconds(document.get("job_started_at")),
    )


def record_in(document: JsonObject) -> t.Dict[str, Json]:
    """Return the JSON of the record in a state, without its watcher."""
    return {key: value for key, value in document.items() if key not in _BESIDE}


def read_watcher(value: Json) -> t.Optional[Watcher]:
    """Return the process that a state file names; null if it names none."""
    try:
        return decode(Watcher, value)
    except ShapeError:
        return None


def _read_link_wait(value: Json) -> LinkWait:
    try:
        return decode(LinkWait, value)
    except ShapeError:
        return NO_LINK_WAIT


def _read_forcing(value: Json) -> ForcingProgress:
    try:
        return decode(ForcingProgress, value)
    except ShapeError:
        return NO_FORCING


def _read_seconds(value: Json) -> t.Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return t.cast(float, value) if is_number and t.cast(float, value) >= 0 else None


@dataclass(frozen=True)
class StartOrder:
    """One move: its record, and the flags and parameters for libvirt.

    :arg flags: libvirt's, by their names.
    :arg parameters: libvirt's migration parameters.
    :arg adopt: the move has already begun: it is followed, or settled if its job has ended.
    :arg waits: the move may not begin before its run admits it.
    :arg aborted_by: of an adopted move: the person who aborts it.
    :arg busy_wait_seconds: how long the move waits for another job of the domain, e.g. a backup.
    :arg renaming: the names that differ at the destination. The definitions themselves stay on the source, because they have passwords.
    :arg begin_until: until when the order may arrive, on the clock of the source in the boot of its survey; absent if C(adopt) is set.
    """

    record: MoveRecord
    source_uri: str
    destination_uri: str
    flags: t.Tuple[str, ...]
    parameters: JsonObject
    adopt: bool
    waits: bool
    aborted_by: t.Union[str, Absent] = ABSENT
    busy_wait_seconds: t.Union[int, Absent] = ABSENT
    renaming: t.Union[Renaming, Absent] = ABSENT
    begin_until: t.Union[BootMoment, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.record.domain.uuid

    @property
    def name(self) -> str:
        """The domain's name, for messages."""
        return str(self.record.domain.name)


def read_start_order(document: JsonObject) -> StartOrder:
    """Return the order of a document that came from the control node; a move that has already begun keeps the flags and parameters of its job.

    Raises L(Internal) if its record is invalid.
    """
    record = read_record(document["record"])
    begun, busy_wait_seconds = record.connection or Connection(), document.get("busy_wait_seconds")
    return StartOrder(
        record=record,
        source_uri=str(document["source_uri"]),
        destination_uri=str(document["destination_uri"]),
        flags=begun.flags or tuple(t.cast(t.Sequence[str], document.get("flags", ()))),
        parameters=begun.parameters or t.cast(JsonObject, document.get("parameters", {})),
        adopt=bool(document.get("adopt", False)),
        waits=bool(document.get("waits", False)),
        aborted_by=str(document["aborted_by"]) if document.get("aborted_by") else ABSENT,
        busy_wait_seconds=busy_wait_seconds if isinstance(busy_wait_seconds, int) else ABSENT,
        renaming=decode(Renaming, document["renaming"]) if document.get("renaming") else ABSENT,
        begin_until=decode(BootMoment, document["begin_until"]) if document.get("begin_until") else ABSENT,
    )
