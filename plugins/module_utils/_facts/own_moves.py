# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The moves that began on this host.

libvirt and the state files of watchers have the moves in progress; the last move of each domain is kept until the next boot.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t

from .._dataclass import dataclass
from .._host_identity import read_host_id
from .._libvirt.host import open_reader
from .._libvirt.interface import Host
from .._live_watchers import is_alive
from .._migration.monitor import measure_progress
from .._model import domain_states
from .._model import statuses as s
from .._model.clock import boot_moment, utc_before
from .._model.codec import Json, JsonObject, encode
from .._model.errors import Forbidden, Internal, InvalidArgument
from .._model.facts import FROM_AFAR, NOT_READABLE
from .._model.records import MoveRecord, new_record
from .._model.references import DomainRef, HostRef, canonical_uuid
from .._model.watched_moves import StateFile, read_state
from .._module import is_root, require_local
from .._run_folder import RUN_FOLDER, is_locked, read_json, read_own_act
from .._time_limits import limit_questions


def read_state_files(folder: str) -> t.Optional[t.Dict[str, StateFile]]:
    """Return all state files by domain UUID, without those that are torn or have another domain's name; null if this user may not read them."""
    documents = read_documents(folder)
    if documents is None:
        return None
    read = {uuid: _state_or_none(document) for uuid, document in documents.items()}
    return {uuid: state for uuid, state in read.items() if state and state.record.domain.uuid == uuid}


def read_documents(folder: str) -> t.Optional[t.Dict[str, Json]]:
    """Return the content of each state file by the domain UUID in its name; null if this user may not read them."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".json")]
        return {name[: -len(".json")]: read_json(os.path.join(folder, name)) for name in names}
    except FileNotFoundError:
        return {}
    except PermissionError:
        return None


def _state_or_none(document: Json) -> t.Optional[StateFile]:
    try:
        return read_state(document)
    except Internal:
        return None


# Beside the definitions, which survive a boot too.
NOTES_FOLDER = "/var/lib/kvmfleet/evacuations"

_SUMMARY_KEYS = ("id", "generation", "type", "status", "updated_at", "domain", "source", "destination")


def list_remembered(folder: str = RUN_FOLDER, notes_folder: str = NOTES_FOLDER) -> t.Optional[t.List[JsonObject]]:
    """Return the part of each move and evacuation that is compared with a ledger, with its C(ledger_id); null if this user may not read it."""
    moves, notes = _read_kept_states(folder), _read_kept_states(notes_folder)
    if moves is None or notes is None:
        return None
    return [_summarize_record(state.record) for state in [*moves, *notes]]


def find_remembered(record_id: str, folder: str = RUN_FOLDER, notes_folder: str = NOTES_FOLDER) -> t.Optional[JsonObject]:
    """Return the complete C(record), and in C(watched) whether a process on this host still acts for it; null if this host does not remember the record."""
    for state in _read_kept_states(folder) or ():
        if state.record.id == record_id:
            return {"record": encode(state.record), "watched": is_alive(state.watcher)}
    for note in _read_kept_states(notes_folder) or ():
        if note.record.id == record_id:
            return {"record": encode(note.record), "watched": is_locked(note.record.domain.uuid, folder)}
    return None


def _summarize_record(record: MoveRecord) -> JsonObject:
    return {**{key: encode(getattr(record, key)) for key in _SUMMARY_KEYS}, "ledger_id": record.ledger_id or None}


def _read_kept_states(folder: str) -> t.Optional[t.List[StateFile]]:
    """Return the moves that are kept in a folder, in the order of the file names; notes of evacuations name no watcher."""
    found = read_state_files(folder)
    return None if found is None else [state for uuid, state in sorted(found.items()) if _has_canonical_ids(state.record)]


def _has_canonical_ids(record: MoveRecord) -> bool:
    try:
        return canonical_uuid(record.id) == record.id and canonical_uuid(record.domain.uuid) == record.domain.uuid
    except InvalidArgument:
        return False


States = t.Mapping[str, StateFile]


@dataclass(frozen=True)
class Migration:
    """A migration away from this host.

    :arg record: of a foreign job it has no ID, and no destination, because libvirt does not report it.
    :arg watched: whether one of our watchers follows it; null if the state files are not readable.
    """

    record: MoveRecord
    watched: t.Optional[bool]

    def as_json(self) -> JsonObject:
        """Return the migration as a module returns it."""
        return {**encode(self.record), "watched": self.watched}


def read_unfinished_states(folder: str = RUN_FOLDER) -> t.Optional[t.Dict[str, StateFile]]:
    """Return the state files of unfinished moves by domain UUID; null if this user may not read them."""
    states = read_state_files(folder)
    return None if states is None else {uuid: state for uuid, state in states.items() if state.record.status not in s.FINAL}


# What is unknown about the migrations of a host without the state files of its watchers.
_IN_STATE_FILES = ("id", "destination", "watched", "waiting")


def explain_unread_states(states: t.Optional[States], is_own_host: bool) -> t.Dict[str, str]:
    """Return what is unknown to a user other than root without these state files, with the reason: of each migration, and C(waiting) for those without a job.

    :arg states: as L(read_unfinished_states) returns them.
    """
    if states is not None or is_root():
        return {}
    return dict.fromkeys(_IN_STATE_FILES, f"{NOT_READABLE} ({RUN_FOLDER})" if is_own_host else FROM_AFAR)


def list_in_progress(host: Host, states: t.Optional[States], uuid: t.Optional[str] = None) -> t.List[Migration]:
    """Return each migration away from the host, with its current figures.

    :arg states: as L(read_unfinished_states) returns them.
    :arg uuid: only this domain.
    """
    leaving = [info for info in host.list_domains() if info.view.is_leaving and uuid in (None, info.uuid)]
    found = [_describe_running(host, info, (states or {}).get(info.uuid), states is None) for info in leaving]
    seen = {info.uuid for info in leaving}
    waiting = [state for state in (states or {}).values() if state.record.domain.uuid not in seen and is_alive(state.watcher)]
    found += [Migration(state.record, True) for state in waiting if uuid in (None, state.record.domain.uuid)]
    return sorted(found, key=lambda migration: (migration.record.domain.name or "", migration.record.domain.uuid))


def find_in_progress(host: Host, uuid: str, folder: str = RUN_FOLDER) -> t.Optional[Migration]:
    """Return the migration of that domain away from the host; null if there is none."""
    found = list_in_progress(host, read_unfinished_states(folder), uuid)
    return found[0] if found else None


def _describe_running(host: Host, info: domain_states.DomainInfo, state: t.Optional[StateFile], unreadable: bool) -> Migration:
    watched = None if unreadable else bool(state and is_alive(state.watcher))
    stats = host.read_job(info.uuid)
    record = state.record if state else _describe_foreign(host, info, stats.elapsed_ms if stats else 0)
    in_post_copy = info.view.reason in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
    progress = record.progress if stats is None else measure_progress(stats, record.progress.percent, info.memory_bytes)
    return Migration(dataclasses.replace(record, status=s.RUNNING_POST_COPY if in_post_copy else s.RUNNING, progress=progress), watched)


def _describe_foreign(host: Host, info: domain_states.DomainInfo, elapsed_ms: int) -> MoveRecord:
    """Return a record of a job that began so long ago."""
    record = new_record(
        s.LIVE_MIGRATION,
        DomainRef(info.uuid, info.name),
        HostRef(host.read_hostname(), None, host.host_uuid()),
        HostRef(None, None, None),
        {},
        "libvirt",
        detail="found in progress; libvirt does not report its destination",
    )
    return dataclasses.replace(record, id=None, created_at=utc_before(elapsed_ms))


@limit_questions
def report_seen_domains(uri: str, _work: JsonObject) -> t.Dict[str, Json]:
    """Return C(domains) of this host as L(SeenDomain), its C(host_id) and C(host_uuid), and in C(remembered) the moves that it remembers.

    Domains that are still moving to this host are left out. What this user may not read is null.
    """
    boot_id = boot_moment().boot_id
    host = open_reader(require_local(uri))
    try:
        found = [definition.info for definition in host.list_definitions().definitions]
        host_uuid = host.host_uuid()
    finally:
        host.close()
    domains = [
        domain_states.SeenDomain(
            info.uuid,
            info.name,
            info.view.active,
            info.view.state_to_restore(is_held=False),
            info.view.reason,
            info.autostart,
            boot_id or None,
            read_own_act(info.uuid),
        )
        for info in found
        if info.view.job != domain_states.JOB_INCOMING
    ]
    return {"changed": False, "host_id": _find_host_id(), "host_uuid": host_uuid, "domains": encode(domains), "remembered": list_remembered()}


def _find_host_id() -> t.Optional[str]:
    """Return the host's own ID; null for none, and for one that this user may not read."""
    try:
        return read_host_id()
    except Forbidden:
        return None
