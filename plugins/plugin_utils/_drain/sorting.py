# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Sorts the domains of a host that is drained: to be placed, already moving, to be shut down, to be left, or not movable."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import OVERRIDE, GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import BEFORE_JOB

from .._scheduler.request import Request, read_request
from .._settings.policies import LEAVE, MIGRATE, SHUTDOWN, EffectivePolicy, build_needs, owner_of, read_move_policy
from .inputs import DrainInputs, DrainOptions
from .preparation import MOVABLE, is_arriving, is_leaving, local_disks
from .saved_plan import PlannedShutdown, SkippedDomain, UnplacedDomain, to_plain_json

NO_RECEIVER = "A migration of it without a record is in progress, and no candidate reports that it receives the domain: wait until it ends, then run again."
ARRIVING = "It is still arriving here: wait until that migration ends, then run again."


@dataclass(frozen=True)
class LeavingDomain:
    """A domain for which the plan has to find a destination.

    :arg used_mib: how much of its memory it has written; None if that is not known.
    :arg destination: where it is already moving; None if it is not.
    :arg reserved: whether the destination is a reservation of a move that has not begun. It is valid only while that host still passes.
    """

    request: Request
    policy: GivenPolicy
    dirty_rate_mib: t.Optional[float] = None
    used_mib: t.Optional[int] = None
    destination: t.Optional[str] = None
    reserved: bool = False


@dataclass
class SortedDomains:
    """The domains of all sources. C(stuck), C(shutdowns) and C(skipped) are as the plan has them."""

    leavers: dict[str, LeavingDomain] = field(default_factory=dict)
    stuck: list[UnplacedDomain] = field(default_factory=list)
    shutdowns: list[PlannedShutdown] = field(default_factory=list)
    skipped: list[SkippedDomain] = field(default_factory=list)


def sort_domains(inputs: DrainInputs, sources: Sequence[str], options: DrainOptions) -> SortedDomains:
    """Return the domains of the sources, sorted by what to do with them."""
    into = SortedDomains()
    for source in sources:
        for domain in sorted(inputs.hosts[source].domains or (), key=lambda domain: (domain.name, domain.uuid)):
            _sort_domain(domain, source, inputs, options, into)
    return into


def _sort_domain(domain: DomainFacts, source: str, inputs: DrainInputs, options: DrainOptions, into: SortedDomains) -> None:
    state = domain.state or ""
    if not domain.active:
        into.skipped.append(SkippedDomain(str(domain.name), str(domain.uuid), source, state, "", f"It is {state}: its definition stays."))
        return
    try:
        policy = read_move_policy(owner_of(domain, source), inputs.settings, options.moves, options.moves.get(OVERRIDE) is True)
        leaver = _make_leaving_domain(domain, source, inputs, options, policy)
    except KvmfleetError as error:
        into.stuck.append(_stuck_domain(domain, source, str(error)))
        return
    under_way = is_leaving(domain)
    strategy = MIGRATE if under_way else policy.scheduling.drain
    problem = None if under_way and leaver.destination else _find_problem(domain, leaver.request, inputs, options, strategy)
    if strategy == LEAVE:
        reason = f"Its policy leaves it on the host (drain: leave): {source} will not be safe to reboot."
        into.skipped.append(SkippedDomain(str(domain.name), str(domain.uuid), source, state, LEAVE, reason))
    elif problem:
        into.stuck.append(_stuck_domain(domain, source, problem))
    elif strategy == SHUTDOWN:
        into.shutdowns.append(PlannedShutdown(str(domain.name), str(domain.uuid), source, "Its policy shuts it down (drain: shutdown)."))
    else:
        into.leavers[leaver.request.uuid] = leaver


def _stuck_domain(domain: DomainFacts, source: str, reason: str) -> UnplacedDomain:
    return UnplacedDomain(str(domain.name), str(domain.uuid), source, domain.memory_mib or 0, reason, ())


def _make_leaving_domain(domain: DomainFacts, source: str, inputs: DrainInputs, options: DrainOptions, policy: EffectivePolicy) -> LeavingDomain:
    needs = read_request(to_plain_json(build_needs(domain, policy.scheduling, policy.moves)))
    copied = local_disks(needs) if options.copies_storage else {}
    source_ref = inputs.host_ref(source)
    request = Request.from_needs(
        needs,
        domain.uuid,
        domain.name,
        source,
        source_ref.host_uuid or "",
        copied=copied,
        unsafe=options.is_unsafe,
        source_id=source_ref.host_id,
        one_way=options.permits_one_way,
    )
    record = inputs.find_record_from(request.uuid, source_ref)
    destination = _find_destination(record, inputs)
    if is_leaving(domain):
        others = inputs.hosts_where_active(request.uuid, but=source_ref)
        return LeavingDomain(request, policy.moves, used_mib=domain.used_mib or None, destination=destination or (others[0] if len(others) == 1 else None))
    reserved = record is not None and record.status in BEFORE_JOB
    dirty_rate_mib = None if domain.dirty_rate_mib is ABSENT else domain.dirty_rate_mib
    used_mib = None if domain.used_mib is ABSENT else domain.used_mib
    return LeavingDomain(request, policy.moves, dirty_rate_mib, used_mib, destination if reserved else None, reserved)


def _find_destination(record: t.Optional[MoveRecord], inputs: DrainInputs) -> t.Optional[str]:
    if record is None:
        return None
    return record.destination.host or next((host for host in inputs.facts if inputs.host_ref(host).is_same(record.destination)), None)


def _find_problem(domain: DomainFacts, request: Request, inputs: DrainInputs, options: DrainOptions, strategy: str) -> t.Optional[str]:
    """Return why the domain can currently be neither moved nor shut down."""
    state, source = domain.state or "", request.source
    elsewhere = inputs.hosts_where_active(request.uuid, but=request.source_ref)
    if is_leaving(domain):
        return NO_RECEIVER
    if is_arriving(domain):
        return ARRIVING
    if strategy == SHUTDOWN and state != domain_states.RUNNING:
        return f"It is {state}: only a running domain can be shut down. Resume, stop or repair it and run again."
    if state not in MOVABLE:
        return f"It is {state}: only a running or a paused domain can be moved live. Stop or repair it and run again."
    if elsewhere:
        return f"It is active on {', '.join(elsewhere)} as well. Neither is changed: find out which copy is correct."
    local = [] if strategy == SHUTDOWN or options.copies_storage or options.is_unsafe else sorted(local_disks(request.needs))
    if local:
        return (
            f"It writes to storage of {source} alone (disk {', '.join(local)}). Put that on shared storage or have it copied (copy_storage); "
            "or let the domain be shut down (drain: shutdown)."
        )
    return None
