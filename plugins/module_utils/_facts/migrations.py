# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The migrations that are in progress on a host, as libvirt and the watchers' state files tell of them."""

from __future__ import annotations

import os
import typing as t
import uuid as uuid_module

from .._errors import Internal, InvalidArgument
from .._migration import hypervisor as h
from .._migration.progress import progress_of
from .._records import schema
from .._records import statuses as s
from .._watcher.files import RUN_FOLDER, read_json, record_in
from .._watcher.process import is_alive

States = t.Mapping[str, schema.Record]


class ListedHost(h.Host, t.Protocol):
    """A host that names all its domains."""

    def domains(self) -> t.List[h.DomainInfo]:
        """Every domain, defined or active."""


def read_states(folder: str = RUN_FOLDER) -> t.Optional[t.Dict[str, schema.Record]]:
    """Return the state files of unfinished moves by domain UUID; null where this user may not read them."""
    states = read_files(folder)
    return None if states is None else {uuid: state for uuid, state in states.items() if _is_unfinished(state, uuid)}


def read_files(folder: str) -> t.Optional[t.Dict[str, t.Any]]:
    """Return what stands in each state file, by the domain UUID in its name; null where this user may not read them."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".json")]
        return {name[: -len(".json")]: read_json(os.path.join(folder, name)) for name in names}
    except FileNotFoundError:
        return {}
    except PermissionError:
        return None


def in_progress(host: ListedHost, states: t.Optional[States], uuid: t.Optional[str] = None) -> t.List[schema.Record]:
    """Return a record for each migration away from the host, with figures of this moment and C(watched).

    C(watched) is whether a watcher of ours follows it, null where the state files are not readable.
    A move that no watcher of ours began has an empty record: libvirt does not tell where it goes.

    :arg states: as L(read_states) returns them.
    :arg uuid: only this domain.
    """
    leaving = [info for info in host.domains() if _is_leaving(info.view) and uuid in (None, info.uuid)]
    found = [_running(host, info, (states or {}).get(info.uuid), states is None) for info in leaving]
    seen = {info.uuid for info in leaving}
    waiting = [state for state in (states or {}).values() if state["domain"]["uuid"] not in seen and is_alive(state.get("watcher"))]
    found += [_shown(state, True) for state in waiting if uuid in (None, state["domain"]["uuid"])]
    return sorted(found, key=lambda record: (record["domain"]["name"] or "", record["domain"]["uuid"]))


def canonical_uuid(uuid: t.Optional[str]) -> t.Optional[str]:
    """Return the UUID as libvirt writes it, null for none. Raises L(InvalidArgument) for what is none."""
    try:
        return None if uuid is None else str(uuid_module.UUID(uuid))
    except ValueError as error:
        raise InvalidArgument(f"uuid is {uuid!r}, which is no UUID.", "Give it as 8-4-4-4-12 hexadecimal digits.") from error


def _is_unfinished(state: t.Any, uuid: str) -> bool:
    try:
        record = schema.check_record(state)
    except Internal:
        return False
    return record["status"] not in s.FINAL and bool(record["domain"]["uuid"] == uuid)


def _is_leaving(view: h.GuestView) -> bool:
    in_post_copy = view.state == h.PAUSED and view.reason in (h.POST_COPY, h.POST_COPY_FAILED)
    return view.active and (view.job == h.JOB_OUTGOING or in_post_copy)


def _running(host: h.Host, info: h.DomainInfo, state: t.Optional[schema.Record], unreadable: bool) -> schema.Record:
    watched = None if unreadable else bool(state and is_alive(state.get("watcher")))
    record = _shown(state, watched) if state else _foreign(host, info, watched)
    if info.view.reason in (h.POST_COPY, h.POST_COPY_FAILED):
        record["status"] = s.RUNNING_POST_COPY
    elif record["status"] != s.RUNNING:
        record["status"] = s.RUNNING
    stats = host.job(info.uuid)
    if stats is not None:
        record["progress"] = progress_of(stats, record["progress"]["percent"], info.memory_bytes)
    return record


def _shown(state: schema.Record, watched: t.Optional[bool]) -> schema.Record:
    return {**record_in(state), "watched": watched}


def _foreign(host: h.Host, info: h.DomainInfo, watched: t.Optional[bool]) -> schema.Record:
    record = schema.new_record(
        s.LIVE_MIGRATION,
        {"uuid": info.uuid, "name": info.name},
        schema.place(host.hostname(), None, host.host_uuid()),
        schema.place(None),
        {},
        "libvirt",
        detail="found in progress; libvirt does not tell where it goes",
    )
    return {**record, "id": None, "watched": watched}
