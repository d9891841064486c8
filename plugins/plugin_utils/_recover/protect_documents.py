# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The document of a domain after its host was queried: what is saved or why nothing is, and which hosts see its disks and files."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import describe_file
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import SIZES_OF_IMAGES
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import (
    REPLACEABLE,
    REPLACEABLE_ADVICE,
    DomainProtection,
    SavedDisk,
    SavedDomain,
    SavedFile,
)

from .._ledger.documents import Document, DomainEntry, HostEntry, MissingNote
from .._ledger.host_entries import list_entries
from .._ledger.ledger import Ledger
from .._ledger.rules import describe_record, map_holders
from .._ledger.sights import Sights
from .._observe.fleet_scan import find_foreign_act
from .inferred_sights import FolderNames, infer_sights


@dataclass(frozen=True)
class ProtectInputs:
    """C(documents), C(unsettled) records and C(tombstones) (evacuations that are C(done), the newest last), each by the domain's UUID; C(hosts), the entries.

    :arg sights: what each other host sees of the host whose domains are saved, by its ID; see L(infer_sights).
    :arg lost: UUIDs of domains of moves that hosts remember and the ledger does not.
    """

    documents: t.Mapping[str, Document] = field(default_factory=dict)
    unsettled: t.Mapping[str, MoveRecord] = field(default_factory=dict)
    tombstones: t.Mapping[str, Sequence[MoveRecord]] = field(default_factory=dict)
    hosts: t.Sequence[HostEntry] = ()
    sights: Sights = field(default_factory=dict)
    lost: t.Collection[str] = ()


def read_inputs(ledger: t.Optional[Ledger], host_id: t.Optional[str], names_here: FolderNames) -> ProtectInputs:
    """Return the inputs for a host; empty if the ledger does not exist yet.

    The documents are read first: a record that is opened or closed later raises the version of the document of its domain.
    """
    if ledger is None:
        return ProtectInputs()
    documents = {document.domain.uuid: document for document in ledger.list_domains()}
    unsettled = map_holders(ledger.list_records(unsettled_only=True))
    tombstones: dict[str, list[MoveRecord]] = {}
    for record in sorted(ledger.list_records(types=[s.EVACUATION], statuses=[s.DONE]), key=lambda record: record.generation):
        tombstones.setdefault(record.domain.uuid.lower(), []).append(record)
    hosts = list_entries(ledger)
    return ProtectInputs(documents, unsettled, tombstones, hosts, infer_sights(ledger, hosts, host_id, names_here))


SAVED = "saved"
UNCHANGED = "unchanged"
CONFLICT = "conflict"
SKIPPED = "skipped"

# What is kept of a domain; a change of one of them is written.
KEPT_KEYS = ("definition", "persistent", "autostart", "state", "request", "policy", "nvram", "tpm", "disks", "files", "boot_id", "ran_before", "own_act")
_STOP_ONE_COPY = "Find out where the guest runs, shut down the copy that is not wanted, and settle the record with kvmfleet.migration.host."


@dataclass(frozen=True)
class Judgement:
    """The decision about a domain: C(kind); C(why), a sentence, if it is not saved; otherwise C(entry), its document, and C(changed), the differences.

    A domain in conflict has an C(entry) if its document gets another possible host.

    :arg act: what was done to the domain without this collection since it was seen last.
    """

    kind: str
    why: str = ""
    entry: t.Optional[DomainEntry] = None
    changed: tuple[str, ...] = ()
    act: t.Optional[ForeignAct] = None


def judge_domain(reported: SavedDomain, inputs: ProtectInputs, protected_host: HostRef, by: str) -> Judgement:
    """Return the decision about a domain that its host has reported.

    :arg reported: with the hosts that see its disks and files.
    :arg protected_host: the host whose domains are being saved.
    """
    alarm = _double_run_alarm(reported, inputs, protected_host)
    before = inputs.documents[reported.uuid].domain if reported.uuid in inputs.documents else None
    if alarm:
        return Judgement(CONFLICT, alarm, _with_possible_host(before, protected_host) if before and reported.uuid in inputs.unsettled else None)
    if reported.awaits_start and not (before and before.possible_hosts) and reported.uuid not in inputs.unsettled:
        # Another host may be about to start it, too. Which of them is the first to be protected says nothing.
        return Judgement(SKIPPED, _AWAITS_START.format(host=protected_host.host))
    hosts = _find_possible_hosts(reported, inputs, protected_host, before)
    if hosts is None:
        return Judgement(SKIPPED, _elsewhere_text(reported, inputs, protected_host, before))
    judgement = _build_document(reported, protected_host, by, before, hosts, next(reversed(inputs.tombstones.get(reported.uuid, ())), None))
    if before is None or reported.uuid in inputs.unsettled or reported.uuid in inputs.lost:
        return judgement
    return dataclasses.replace(judgement, act=find_foreign_act(before, reported.seen, protected_host, by))


def find_missing(inputs: ProtectInputs, protected_host: HostRef, present: t.Collection[str]) -> list[Document]:
    """Return the domains that may be on the host according to the ledger and are not on it. Domains with an unsettled record are omitted."""
    return [
        document
        for uuid, document in inputs.documents.items()
        if uuid not in present and uuid not in inputs.unsettled and document.domain.includes_host(protected_host)
    ]


def note_missing(entry: DomainEntry, inputs: ProtectInputs, protected_host: HostRef, by: str, boot_id: Maybe[str] = ABSENT) -> t.Optional[DomainEntry]:
    """Return the document of a missing domain with a note of that, or without this host if it may be on others too; None if the ledger was set back."""
    if entry.uuid in inputs.lost:
        return None
    now = utc_now()
    others = tuple(host for host in entry.possible_hosts if not host.is_same(protected_host))
    if others:
        return dataclasses.replace(entry, possible_hosts=others, missing=ABSENT, updated_at=now)
    return dataclasses.replace(entry, missing=MissingNote(now, by, protected_host, boot_id), updated_at=now)


_AWAITS_START = "the ledger does not know it, and it is off until {host} is recovered, or until somebody starts it (kvmfleet.migration.domain_start)"


def _double_run_alarm(reported: SavedDomain, inputs: ProtectInputs, protected_host: HostRef) -> str:
    """Return why a domain that is active here may also be active elsewhere; empty if nothing indicates that."""
    if not reported.active:
        return ""
    record, tombstones = inputs.unsettled.get(reported.uuid), inputs.tombstones.get(reported.uuid, ())
    what = f"Domain {reported.name} is active on {protected_host.host}, but "
    if record is not None and not _may_be_active(record, protected_host):
        return f"{what}{describe_record(record)} is unsettled ('{record.status}') and assigns it to another host. It was not saved. {_STOP_ONE_COPY}"
    document = inputs.documents.get(reported.uuid)
    is_elsewhere = not document.domain.includes_host(protected_host) if document else _is_outdated(tombstones, protected_host)
    if record is None and tombstones and is_elsewhere:
        # Each host that the domain was evacuated from, and that is not cleaned, may have an outdated copy.
        if document and _was_seen_inactive(document.domain) and not any(one.source.may_be(protected_host) for one in tombstones):
            return ""
        started = tombstones[-1].destination.host
        return f"{what}{describe_record(tombstones[-1])} is 'done': it was started on {started} and may run twice. It was not saved. {_STOP_ONE_COPY}"
    return ""


def _is_outdated(tombstones: Sequence[MoveRecord], protected_host: HostRef) -> bool:
    """Whether what a host has of a domain without a document is left over from its evacuation: the document was damaged, and may not be replaced from there."""
    is_source = any(one.source.may_be(protected_host) for one in tombstones)
    return is_source and not tombstones[-1].destination.is_same(protected_host)


def _with_possible_host(entry: DomainEntry, protected_host: HostRef) -> t.Optional[DomainEntry]:
    """Return the document of a domain that is active on a host where an unsettled record does not have it, None if the document has that host already.

    An evacuation of that host would leave the domain out otherwise.
    """
    if entry.includes_host(protected_host):
        return None
    return dataclasses.replace(entry, possible_hosts=(*entry.possible_hosts, protected_host), updated_at=utc_now())


def _was_seen_inactive(entry: DomainEntry) -> bool:
    """Whether the only host of the domain did not have it, or had it off, when it was protected last."""
    saved = entry.saved
    return entry.is_missing or bool(saved and saved.host and entry.is_only_on(saved.host) and saved.state == domain_states.SHUTOFF)


def _may_be_active(record: MoveRecord, protected_host: HostRef) -> bool:
    if record.destination.is_same(protected_host):
        return True
    return record.source.is_same(protected_host) and not (record.type == s.EVACUATION and record.status != s.ACCEPTED)


def _find_possible_hosts(
    reported: SavedDomain, inputs: ProtectInputs, protected_host: HostRef, before: t.Optional[DomainEntry]
) -> t.Optional[tuple[HostRef, ...]]:
    """Return where the domain may be, or None if its definition here is a leftover."""
    known = before.possible_hosts if before else ()
    if reported.uuid in inputs.unsettled:
        record = inputs.unsettled[reported.uuid]
        return (known or (protected_host,)) if reported.active or record.source.is_same(protected_host) else None
    if before is None and _is_outdated(inputs.tombstones.get(reported.uuid, ()), protected_host):
        return None
    # The host is authoritative for its running domains, whatever was done outside the ledger.
    if reported.active or before is None or not known:
        return (protected_host,)
    return tuple(protected_host if host.is_same(protected_host) else host for host in known) if before.includes_host(protected_host) else None


def _elsewhere_text(reported: SavedDomain, inputs: ProtectInputs, protected_host: HostRef, before: t.Optional[DomainEntry]) -> str:
    record = inputs.unsettled.get(reported.uuid)
    if record is not None:
        return f"{describe_record(record)} is under way"
    hosts = before.possible_hosts if before else [one.destination for one in inputs.tombstones.get(reported.uuid, ())[-1:]]
    names = ", ".join(str(host.host) for host in hosts)
    return (
        f"according to the ledger it is on {names}, and the inactive definition on {protected_host.host} may be left over. Before you remove it, verify that"
        f" {names} has the domain: after a restore of the ledger it may be the only definition. Started here, it would be recorded on this host"
    )


def _build_document(
    reported: SavedDomain,
    protected_host: HostRef,
    by: str,
    before: t.Optional[DomainEntry],
    hosts: tuple[HostRef, ...],
    tombstone: t.Optional[MoveRecord],
) -> Judgement:
    old: JsonObject = (before.protected or {}) if before else {}
    now = utc_now()
    values = {
        "files": [],
        "own_act": None,
        **encode(reported),
        "request": _keep_kinds(_with_proof(encode(reported.request), reported.disks), old.get("request")),
        "state": reported.state or old.get("state") or ("running" if reported.active else "shut off"),
        **_describe_boot(reported, before, tombstone),
    }
    kept = {key: values[key] for key in KEPT_KEYS}
    changed = [key for key in KEPT_KEYS if key not in old or _comparable_value(key, old[key]) != _comparable_value(key, kept[key])]
    saved_on = before.saved.host if before and before.saved else None
    changed += ["host"] if not saved_on or _lasting_ref(saved_on) != _lasting_ref(protected_host) else []
    changed += ["name"] if before is None or before.name != reported.name else []
    changed += ["missing"] if before is not None and before.missing else []
    changed += ["possible_hosts"] if before is None or list(map(_lasting_ref, before.possible_hosts)) != list(map(_lasting_ref, hosts)) else []
    if before is not None and not changed:
        return Judgement(UNCHANGED, entry=before)
    since = old["state_at"] if old.get("state_at") and "state" not in changed else now
    protected = {"origin": None, **old, **kept, "at": now, "by": by, "host": encode(protected_host), "state_at": since}
    base = before or DomainEntry(reported.uuid, reported.name, hosts, last_record=None)
    entry = dataclasses.replace(base, name=reported.name, possible_hosts=hosts, protected=protected, missing=ABSENT, updated_at=now)
    return Judgement(SAVED, entry=entry, changed=tuple(changed))


def _describe_boot(reported: SavedDomain, before: t.Optional[DomainEntry], tombstone: t.Optional[MoveRecord]) -> JsonObject:
    """Return C(boot_id) and C(ran_before) of the document, see L(DomainProtection). While the host is held, they stay as they are."""
    saved = (before.saved if before else None) or DomainProtection()
    if reported.active:
        return {"boot_id": reported.boot_id or None, "ran_before": None}
    if reported.state is None:
        return {"boot_id": saved.boot_id or None, "ran_before": encode(saved.ran_before or None)}
    is_kept_off = tombstone is not None and tombstone.wanted_state == domain_states.SHUTOFF
    was_stopped = is_kept_off or reported.reason in domain_states.STOPPED_REASONS
    earlier = None if was_stopped or not reported.boot_id else saved.state_before(reported.boot_id)
    return {"boot_id": reported.boot_id or None, "ran_before": encode(earlier)}


def _lasting_ref(host: HostRef) -> HostRef:
    """Return the part of a host whose change is written: libvirt's UUID may differ at each start of its daemon."""
    return dataclasses.replace(host, host_uuid=None) if host.host_id else host


def _with_proof(request: JsonObject, disks: Sequence[SavedDisk]) -> JsonObject:
    """Return the request with the disks that the tokens have proved to be shared, whatever the kind of file system."""
    proved = {disk.target: disk.shared for disk in disks if disk.shared is not ABSENT}
    requested = t.cast("Sequence[JsonObject]", request["disks"])
    return {**request, "disks": [{**disk, "shared": proved.get(str(disk["target"]), t.cast("bool | None", disk["shared"]))} for disk in requested]}


def _keep_kinds(request: JsonObject, before: Json) -> JsonObject:
    """Return the request with the kinds and VLANs of libvirt networks that were saved before, for those that the host does not know now."""
    saved = before.get("networks") if isinstance(before, Mapping) else None
    listed = [one for one in saved if isinstance(one, Mapping)] if isinstance(saved, (list, tuple)) else []
    kinds = {one.get("source"): {"forward": one["forward"]} for one in listed if "forward" in one}
    vlans = {(one.get("source"), one.get("portgroup")): {"network_vlan": one["network_vlan"]} for one in listed if "network_vlan" in one}
    needs = t.cast("Sequence[JsonObject]", request.get("networks") or ())
    known = [(kinds.get(need.get("source"), {}), vlans.get((need.get("source"), need.get("portgroup")), {})) for need in needs]
    kept = [{**kind, **vlan, **need} if need.get("type") == "network" else need for need, (kind, vlan) in zip(needs, known, strict=True)]
    return {**request, "networks": kept} if kinds else request


def _comparable_value(key: str, value: Json) -> Json:
    """Leave out the allocated size of images, which grows constantly."""
    if key != "request" or not isinstance(value, dict):
        return value
    disks = t.cast("Sequence[JsonObject]", value.get("disks") or [])
    return {**value, "disks": [{name: part for name, part in disk.items() if name not in SIZES_OF_IMAGES} for disk in disks]}


_FILE_KINDS = ("file", "dir")

Image = t.TypeVar("Image", SavedDisk, SavedFile)


_UNREAD = "its storage did not answer when it was saved"


def keep_unread_images(reported: SavedDomain, before: t.Optional[DomainProtection]) -> SavedDomain:
    """Return the domain with what was saved before of images whose storage does not answer now. What was not saved before is not proved.

    :arg before: what was saved of the domain.
    """
    unread = set(reported.unread or ())
    if not unread:
        return reported
    disks = {disk.path: disk for disk in (decode(SavedDisk, disk, "disks") for disk in (before and before.disks) or ())}
    files = {file.path: file for file in (decode(SavedFile, file, "files") for file in (before and before.files) or ())}
    return dataclasses.replace(
        reported,
        disks=tuple(_keep_disk(disk, disks.get(disk.path), reported.active) if disk.path in unread else disk for disk in reported.disks),
        files=tuple(_keep_file(file, files.get(file.path)) if file.path in unread else file for file in reported.files or ()),
    )


def _keep_disk(disk: SavedDisk, before: t.Optional[SavedDisk], is_running: bool) -> SavedDisk:
    """Return the disk with the location and the chain that were saved before; without them if the chain of the running domain is another one now."""
    is_same = before is not None and (before.target, before.kind, before.format) == (disk.target, disk.kind, disk.format)
    if before is None or not is_same or (is_running and set(before.backing or ()) != set(disk.backing or ())):
        return dataclasses.replace(disk, backing_problem=disk.backing_problem or _UNREAD)
    chain = {"backing": before.backing, "backing_devices": before.backing_devices, "backing_problem": before.backing_problem}
    return dataclasses.replace(disk, folders=before.folders, mount=before.mount, locks=before.locks, **t.cast("dict[str, t.Any]", chain))


def _keep_file(file: SavedFile, before: t.Optional[SavedFile]) -> SavedFile:
    if before is None or (before.what, before.kind) != (file.what, file.kind):
        return dataclasses.replace(file, folders=())
    return dataclasses.replace(file, folders=before.folders, mount=before.mount)


def prove_images(images: Sequence[Image], host_id: t.Optional[str], hosts: Sequence[HostEntry], sights: Sights) -> tuple[Image, ...]:
    """Return disks, or files, with C(seen_by), the IDs of the hosts that see them, this one included.

    :arg images: as the host reported them.
    :arg hosts: all entries of the ledger, with C(folders) and C(devices).
    :arg sights: what each other host sees of this one, by its ID.
    A network disk is seen by every host, by its nature.
    """
    own = next((entry for entry in hosts if host_id and entry.host_id == host_id), None)
    peers = {entry.host_id: sights.get(entry.host_id, {}) for entry in hosts if entry.host_id and entry.host_id != host_id}
    return tuple(_prove_image(image, host_id, own, peers) for image in images)


def _prove_image(image: Image, host_id: t.Optional[str], own: t.Optional[HostEntry], peers: Mapping[str, JsonObject]) -> Image:
    wanted = _tokens_to_see(image, own)
    seeing: list[str] = [peer for peer, sees in peers.items() if wanted is not None and all(sees.get(path) == token for path, token in wanted.items())]
    seen_by = tuple(sorted([*seeing, *([host_id] if host_id else [])]))
    return dataclasses.replace(image, shared=True if seeing else image.shared, seen_by=seen_by)


def _tokens_to_see(image: SavedDisk | SavedFile, own: t.Optional[HostEntry]) -> t.Optional[dict[str, str]]:
    """Return what a host must see to have this image, as path to token; null if nothing can prove it."""
    folders = (own.folders or {}) if own else {}
    wanted: dict[str, str | None] = {folder: folders.get(folder) for folder in image.folders}
    if isinstance(image, SavedDisk):
        wanted.update(image.backing_devices or {})
        if image.backing_problem:
            return None
    if image.kind == "block":
        wanted[image.path] = image.wwn or None
    elif image.kind != "network" and not (image.kind in _FILE_KINDS and image.folders):
        return None
    return None if None in wanted.values() else t.cast("dict[str, str]", wanted)


@dataclass(frozen=True)
class UnprovedImage:
    """A disk or other file without which a domain would not be started on another host, and why.

    :arg target: of a disk.
    """

    uuid: str
    name: str
    target: t.Optional[str]
    path: t.Optional[str]
    reason: str


def list_unproved(domain: SavedDomain, host_id: t.Optional[str], own: t.Optional[HostEntry]) -> Iterator[UnprovedImage]:
    """Yield each disk or other file without which the domain would not be started on another host.

    :arg domain: with C(seen_by) of its disks and files.
    :arg own: the host's entry; None in check mode if it has none yet.
    """
    needed = [disk for disk in domain.disks if disk.is_needed]
    lacking = [disk for disk in needed if not disk.seeing_hosts - {host_id}]
    for disk in lacking:
        yield UnprovedImage(domain.uuid, domain.name, disk.target, disk.path, _unproved_reason(disk, own))
    for file in domain.files or ():
        if not file.seeing_hosts - {host_id}:
            advice = f": {REPLACEABLE_ADVICE}" if file.what in REPLACEABLE else ""
            yield UnprovedImage(domain.uuid, domain.name, None, file.path, f"no other host was proved to see its {describe_file(file.what, file.path)}{advice}")
    everywhere = frozenset.intersection(*(disk.seeing_hosts for disk in needed)) - {host_id} if needed else {host_id}
    if not lacking and not everywhere:
        yield UnprovedImage(domain.uuid, domain.name, None, None, "each of its disks is seen elsewhere, but no other host sees every one")


def _unproved_reason(disk: SavedDisk, own: t.Optional[HostEntry]) -> str:
    if disk.backing_problem:
        return f"the files that a start would use are not known: {disk.backing_problem}"
    devices = [path for path, wwn in (disk.backing_devices or {}).items() if not wwn]
    if devices:
        return f"the device {', '.join(devices)}, which its image is built on, has no identity (WWN) by which another host could identify it"
    if disk.kind == "network":
        return "the ledger has no other host"
    if disk.kind == "block":
        return f"no other host sees the device {disk.wwn}" if disk.wwn else "the device has no identity (WWN) by which another host could identify it"
    if not disk.folders:
        return f"a disk of the kind {disk.kind!r} cannot be proved to be visible to another host"
    problems = (own.unwritable or {}) if own else {}
    refused = [f"no token could be written to {folder}: {problems[folder]}" for folder in disk.folders if folder in problems]
    return "; ".join(refused) or f"no other host has seen this host's token in {', '.join(disk.folders)}"
