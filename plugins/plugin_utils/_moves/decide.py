# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What is to be done about one request, now that both hosts and the ledger have spoken. Decides only; touches nothing."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import (
    Conflict,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    NotSupported,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import is_twin, may_be_host, same_answer, same_host, shares_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import record_in
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import HOST_ID_FILE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.places import HOW_TO_SET_UUID, place_told
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.copying import check_storage
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.reasons import compact
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest

Facts = dict[str, t.Any]


@dataclass
class AlreadyThere:
    """The domain runs at a wanted destination under the same UUID."""

    uuid: str
    host: str


@dataclass
class Observe:
    """The record's move is watched: follow it."""

    stored: Stored
    destination: str


@dataclass
class Conclude:
    """The record's move has ended, and its state file says how; only the ledger does not know yet."""

    stored: Stored
    record: Facts


@dataclass
class Adopt:
    """The record's move has no watcher: give it one, which follows the job or finds out how it ended."""

    stored: Stored


@dataclass
class AdoptForeign:
    """Libvirt moves the domain, and no record knows of it."""

    host: str


@dataclass
class Start:
    """Move it, to one of these candidates; C(refused) has the sentence of each that was ruled out before the scheduler was asked."""

    candidates: list[str]
    refused: dict[str, str] = field(default_factory=dict)


Decision = AlreadyThere | Observe | Conclude | Adopt | AdoptForeign | Start


def decide(request: MoveRequest, source: str, survey: Facts, domain: Facts, stored: Stored | None) -> Decision:
    """Return the decision. Raises the error that the task is to fail with, before anything has moved.

    :arg source: inventory name of the source host.
    :arg survey: what C(prepare) found on both sides.
    :arg domain: the part of it about this domain.
    :arg stored: the unsettled record that holds the domain.
    """
    watch = domain.get("watch")
    if stored is not None:
        return _held(request, source, survey, domain, stored)
    if not domain["found"]:
        return _not_at_source(request, source, domain)
    if watch and watch["alive"]:
        record = watch["record"]
        raise Conflict(
            f"Domain {request.label} is being moved on {source} for record {record['id']}, which this ledger does not have.",
            "Another ledger owns that move. Use the one it was started with.",
        )
    view = domain["info"]["view"]
    if view["job"] == h.JOB_OUTGOING:
        return _foreign(request, source, domain)
    _check_movable(request, source, domain, view)
    return _start(request, source, survey, domain)


def _held(request: MoveRequest, source: str, survey: Facts, domain: Facts, stored: Stored) -> Decision:
    record, watch = stored.record, domain.get("watch")
    if record["type"] != "live-migration" or not _is_source(record, source, survey, domain):
        raise Conflict(
            f"Domain {request.label} is held by {record['type']} record {record['id']} ({record['status']}) from {record['source']['host']} "
            f"to {record['destination']['host']}.",
            f"Settle that one first: run its task again on {record['source']['host']}.",
        )
    alive = watch is not None and watch["alive"]
    if watch is not None and alive and watch["record"].get("id") != record["id"]:
        raise Conflict(f"Domain {request.label} is being moved on {source} for record {watch['record'].get('id')}, but the ledger has {record['id']}.")
    in_flight = alive or (domain["found"] and domain["info"]["view"]["job"] == h.JOB_OUTGOING)
    wanted = request.destination
    if in_flight and wanted not in (None, record["destination"]["host"]):
        raise Conflict(
            f"Domain {request.label} is on its way from {source} to {record['destination']['host']} (record {record['id']}), not to {wanted}.",
            "Wait for that move, or abort it first.",
        )
    if alive:
        return Observe(stored, record["destination"]["host"])
    known = newest(record, watch)
    return Conclude(stored, known) if known["status"] in s.CLOSED else Adopt(stored)


def _is_source(record: Facts, source: str, survey: Facts, domain: Facts) -> bool:
    """Whether this host is the one that the record moves the domain away from.

    A record without a host ID can name it by a libvirt UUID of before: then the domain, or the state file of that record, has to be here.
    """
    here, end = place_told(None, source, survey["source"]), record["source"]
    if same_host(end, here) or not (end.get("host_id") or end.get("host_uuid")):
        return True
    watch = domain.get("watch")
    is_here = domain["found"] or (watch is not None and watch["record"].get("id") == record["id"])
    return bool(is_here) and may_be_host(end, here)


def newest(record: Facts, watch: Facts | None) -> Facts:
    """Return the record as its state file has it, where that is the same record and not an older generation; else as given."""
    if watch is None or watch["record"].get("id") != record["id"] or watch["record"].get("generation", 0) < record["generation"]:
        return record
    return record_in(watch["record"])


def _not_at_source(request: MoveRequest, source: str, domain: Facts) -> Decision:
    host = _where_active(request, domain)
    if host is not None:
        return AlreadyThere(domain["there"][request.uris[host]]["uuid"], host)
    raise NotFound(
        f"There is no domain {request.label!r} on {source}, and none that is known by that name runs at {_names(request)}.",
        "Check the name and the host (virsh list --all). Nothing was moved.",
    )


def _foreign(request: MoveRequest, source: str, domain: Facts) -> Decision:
    receiving = [host for host, uri in request.uris.items() if domain["there"].get(uri, {}).get("active")]
    if not receiving:
        raise Conflict(
            f"Domain {request.label} is being moved away from {source} by somebody else, and not to {_names(request)}.",
            "Wait for that move, or abort it first.",
        )
    return AdoptForeign(receiving[0])


def _check_movable(request: MoveRequest, source: str, domain: Facts, view: Facts) -> None:
    seen = h.GuestView(**view).describe()
    if view["job"] != h.JOB_NONE:
        raise InvalidState(f"Domain {request.label} on {source} is {seen} and has a job in progress ({view['job']}).", "Wait for its end. Nothing was moved.")
    if not view["active"]:
        host = _where_active(request, domain)
        where = f"; a copy under the same UUID runs on {host}" if host else ""
        raise InvalidState(f"Domain {request.label} on {source} is {seen}{where}: only a running domain can be moved live.", "Nothing was moved.")
    if view["state"] not in (h.RUNNING, h.PAUSED):
        raise InvalidState(f"Domain {request.label} on {source} is {seen}: it cannot be moved live.", "Nothing was moved.")
    twin = _where_active(request, domain)
    if twin:
        raise InvalidState(
            f"Domain {request.label} is active on {source} and under the same UUID on {twin}.",
            "Find out at once which copy is the right one; nothing was touched.",
        )


def _start(request: MoveRequest, source: str, survey: Facts, domain: Facts) -> Start:
    """Sort out the candidates that cannot receive the domain whatever the scheduler says. Raises the one's error, or L(Conflict) naming all."""
    problems = {host: _problem(request, source, survey, domain, host) for host in request.uris}
    candidates = [host for host, problem in problems.items() if problem is None]
    refused = {host: problem for host, problem in problems.items() if problem is not None}
    if candidates:
        return Start(candidates, {host: problem.message for host, problem in refused.items()})
    first, *others = refused.values()
    if all(other.message == first.message for other in others):
        raise first
    error = type(first) if all(isinstance(other, type(first)) for other in others) else Conflict
    reasons = compact({host: problem.message for host, problem in refused.items()})
    raise error(f"No host of the group kvmfleet_hosts can receive domain {request.label}. {reasons}", "Nothing was moved.")


def _problem(request: MoveRequest, source: str, survey: Facts, domain: Facts, host: str) -> KvmfleetError | None:
    """Return why that host cannot be the destination: silent, the source itself, another domain of that name, or disks that it cannot have."""
    uri = request.uris[host]
    facts = survey["destinations"][uri]
    if not facts["answered"]:
        return Unreachable(f"The destination {host} does not answer: {facts['msg']}", "Nothing was moved.")
    problem = _identity_problem(request, source, survey["source"], host, facts)
    if problem is not None:
        return problem
    if uri in domain["name_taken"]:
        name, other = domain["info"]["name"], domain["name_taken"][uri]
        return Conflict(f"{host} has another domain named {name} ({other}).", "Rename one of the two. Nothing was moved.")
    try:
        check_storage(request, domain, source, host)
    except KvmfleetError as error:
        return error
    return None


def _identity_problem(request: MoveRequest, source: str, here: Facts, host: str, there: Facts) -> KvmfleetError | None:
    """Return why the two ends cannot be the two hosts of a move."""
    if is_twin(here, there):
        return Conflict(
            f"Two hosts say they are {here['host_id']}: {source}, and the destination {host}, with another libvirt UUID.",
            f"If {HOST_ID_FILE} of one of them is a copy, remove it there. Nothing was moved.",
        )
    if shares_uuid(here, there):
        return NotSupported(
            f"{source} and the destination {host} have the same libvirt UUID ({there['host_uuid']}): libvirt refuses to migrate between them.",
            f"{HOW_TO_SET_UUID} Nothing was moved.",
        )
    if same_answer(here, there):
        return InvalidArgument(f"The destination {host} is the host that domain {request.label} runs on, by libvirt's UUID.", "Nothing was moved.")
    return None


def _where_active(request: MoveRequest, domain: Facts) -> str | None:
    return next((host for host, uri in request.uris.items() if domain["there"].get(uri, {}).get("active")), None)


def _names(request: MoveRequest) -> str:
    return request.destination or "any host of the group kvmfleet_hosts"
