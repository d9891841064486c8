# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What each domain of a host that is drained is for the plan: to be placed, on its way already, to be shut down, to be left, or not to be moved at all."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import Policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import BEFORE_JOB

from .._scheduler.request import Request
from . import facts as read
from . import policy as p
from .known import Known
from .shapes import plain
from .wish import Wish

NO_RECEIVER = "A migration of it that has no record is in progress, and no candidate says that it receives it: wait for its end and run again."
ARRIVING = "It is still arriving here: wait for the end of that migration and run again."

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]


@dataclass(frozen=True)
class Leaver:
    """A domain that the plan finds a place for.

    :arg way: where it is going already; None for nowhere yet.
    :arg booked: the way is a booking that has not begun, and holds only while that host still passes.
    """

    request: Request
    policy: Policy
    dirty_rate_mib: t.Optional[float] = None
    way: t.Optional[str] = None
    booked: bool = False


@dataclass
class Sorted:
    """The domains of all sources. C(stuck), C(shutdowns) and C(skipped) are as the plan has them."""

    leavers: dict[str, Leaver] = field(default_factory=dict)
    stuck: list[Document] = field(default_factory=list)
    shutdowns: list[Document] = field(default_factory=list)
    skipped: list[Document] = field(default_factory=list)


def sort_domains(known: Known, sources: Sequence[str], wish: Wish) -> Sorted:
    """Return the domains of the sources by what is to be done with them."""
    into = Sorted()
    for source in sources:
        for domain in sorted(known.facts[source]["domains"], key=lambda domain: (domain["name"], domain["uuid"])):
            _sort(domain, source, known, wish, into)
    return into


def _sort(domain: Body, source: str, known: Known, wish: Wish, into: Sorted) -> None:
    base: Document = {"name": str(domain["name"]), "uuid": str(domain["uuid"]), "source": source}
    if not domain["active"]:
        into.skipped.append({**base, "state": domain["state"], "drain": "", "reason": f"It is {domain['state']}: its definition stays."})
        return
    try:
        policy = p.policy_of(domain, source, known.settings, wish.moves)
        leaver = _leaver(domain, source, known, wish, policy)
    except KvmfleetError as error:
        into.stuck.append(_stuck(base, domain, str(error)))
        return
    under_way = read.is_leaving(domain)
    strategy = p.MIGRATE if under_way else policy["drain"]["value"]
    problem = None if under_way and leaver.way else _problem(domain, leaver.request, known, wish, strategy)
    if strategy == p.LEAVE:
        reason = f"Its policy is to be left (drain: leave): {source} will not be safe to reboot."
        into.skipped.append({**base, "state": domain["state"], "drain": p.LEAVE, "reason": reason})
    elif problem:
        into.stuck.append(_stuck(base, domain, problem))
    elif strategy == p.SHUTDOWN:
        into.shutdowns.append({**base, "reason": "Its policy is to be shut down (drain: shutdown)."})
    else:
        into.leavers[leaver.request.uuid] = leaver


def _stuck(base: Document, domain: Body, reason: str) -> Document:
    return {**base, "memory_mib": int(domain["memory_mib"]), "reason": reason, "rejected": []}


def _leaver(domain: Body, source: str, known: Known, wish: Wish, policy: Policy) -> Leaver:
    place = {name: policy[name]["value"] for name in ("priority", "drain", "group", "labels")}
    needs = plain(p.needs_of(domain, place, policy))
    copied = read.local_disks(needs) if wish.copies else {}
    here = known.place(source)
    request = Request.of(needs, domain["uuid"], domain["name"], source, here["host_uuid"], copied=copied, unsafe=wish.unsafe, source_id=here["host_id"])
    record = known.record_from(request.uuid, here)
    way = _destination_of(record, known)
    if read.is_leaving(domain):
        others = known.active_on(request.uuid, but=here)
        return Leaver(request, policy, way=way or (others[0] if len(others) == 1 else None))
    booked = record is not None and record["status"] in BEFORE_JOB
    return Leaver(request, policy, domain.get("dirty_rate_mib"), way if booked else None, booked)


def _destination_of(record: t.Optional[Body], known: Known) -> t.Optional[str]:
    if record is None:
        return None
    named: t.Optional[str] = record["destination"].get("host")
    return named or next((host for host in known.facts if same_host(known.place(host), record["destination"])), None)


def _problem(domain: Body, request: Request, known: Known, wish: Wish, strategy: str) -> t.Optional[str]:
    """Return why the domain can be neither moved nor shut down as things are."""
    state, source = domain["state"], request.source
    elsewhere = known.active_on(request.uuid, but=request.source_place)
    if read.is_leaving(domain):
        return NO_RECEIVER
    if read.is_arriving(domain):
        return ARRIVING
    if strategy == p.SHUTDOWN and state != h.RUNNING:
        return f"It is {state}: only a running domain can be shut down. Resume, stop or repair it and run again."
    if state not in read.MOVABLE:
        return f"It is {state}: only a running or a paused domain can be moved live. Stop or repair it and run again."
    if elsewhere:
        return f"It is active on {', '.join(elsewhere)} as well. Nothing is done to either: find out which of them is the right one."
    local = [] if strategy == p.SHUTDOWN or wish.copies or wish.unsafe else sorted(read.local_disks(request.needs))
    if local:
        return (
            f"It writes to storage of {source} alone (disk {', '.join(local)}). Put that on shared storage or have it copied (copy_storage); "
            "or let the domain be shut down (drain: shutdown)."
        )
    return None
