# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Sorts the domains of a host that is drained: to be placed, already moving, to be shut down, to be left, or not movable."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import SHUTOFF
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import LEAVE, MIGRATE, OVERRIDE, SAVE, SHUTDOWN, GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import BEFORE_JOB, COLD_MIGRATION

from .._scheduler.request import Request, read_request
from .._settings.policies import EffectivePolicy, build_needs, owner_of, read_move_policy
from .inputs import DrainInputs, DrainOptions
from .plan_entries import PassedStrategy, PlannedShutdown, SkippedDomain, UnplacedDomain
from .saved_plan import to_plain_json
from .strategies import DrainedDomain, StrategyChoice, choose_strategy, describe_passed, local_disks

# Why strategies are not possible that were tried already, by UUID of the domain.
Refused = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class LeavingDomain:
    """A domain for which the plan has to find a destination.

    :arg used_mib: how much of its memory it has written; None if that is not known.
    :arg destination: where it is already moving; None if it is not.
    :arg reserved: whether the destination is a reservation of a move that has not begun. It is valid only while that host still passes.
    :arg method: of C(cold_migrate); empty for a live move. C(start) is whether the domain runs at the destination.
    :arg strategy: the strategy for it, by which it leaves; C(passed) are those that are preferred to it and not possible; empty for a domain that is off.
    :arg has_other: whether another strategy can be tried if no host accepts the domain.
    """

    request: Request
    policy: GivenPolicy
    dirty_rate_mib: t.Optional[float] = None
    used_mib: t.Optional[int] = None
    destination: t.Optional[str] = None
    reserved: bool = False
    method: str = ""
    start: bool = True
    strategy: str = MIGRATE
    passed: tuple[PassedStrategy, ...] = ()
    has_other: bool = False


@dataclass
class SortedDomains:
    """The domains of all sources. C(stuck), C(shutdowns) and C(skipped) are as the plan has them.

    :arg leavers: by UUID, the domains that run at their destination.
    :arg definitions: by UUID, those that are only defined there.
    """

    leavers: dict[str, LeavingDomain] = field(default_factory=dict)
    definitions: dict[str, LeavingDomain] = field(default_factory=dict)
    stuck: list[UnplacedDomain] = field(default_factory=list)
    shutdowns: list[PlannedShutdown] = field(default_factory=list)
    skipped: list[SkippedDomain] = field(default_factory=list)

    @property
    def all_leavers(self) -> dict[str, LeavingDomain]:
        """Every domain that leaves its host, by UUID."""
        return {**self.leavers, **self.definitions}

    def add_leaver(self, leaver: LeavingDomain) -> None:
        """Add a domain that leaves its host."""
        (self.leavers if leaver.start else self.definitions)[leaver.request.uuid] = leaver


def sort_domains(inputs: DrainInputs, sources: Sequence[str], options: DrainOptions, refused: t.Optional[Refused] = None) -> SortedDomains:
    """Return the domains of the sources, sorted by what to do with them."""
    into = SortedDomains()
    for source in sources:
        for domain in sorted(inputs.hosts[source].domains or (), key=lambda domain: (domain.name, domain.uuid)):
            sort_domain(domain, source, inputs, options, (refused or {}).get(domain.uuid, {}), into)
    return into


def sort_domain(domain: DomainFacts, source: str, inputs: DrainInputs, options: DrainOptions, refused: Mapping[str, str], into: SortedDomains) -> None:
    """Add one domain of a source to those of its kind."""
    record = inputs.find_record_from(domain.uuid, inputs.host_ref(source))
    is_resumed = record is not None and record.type == COLD_MIGRATION
    if not domain.active and not is_resumed and not options.cold.moves_shut_off:
        into.skipped.append(_skip_definition(domain, source, ""))
        return
    try:
        policy = read_move_policy(owner_of(domain, source), inputs.settings, options.moves, options.moves.get(OVERRIDE) is True)
        leaver = _make_leaving_domain(domain, source, inputs, options, policy)
    except KvmfleetError as error:
        if domain.active:
            into.stuck.append(_stuck_domain(domain, source, str(error)))
        else:
            into.skipped.append(_skip_definition(domain, source, str(error)))
        return
    elsewhere, versions = inputs.hosts_where_active(domain.uuid, but=leaver.request.source_ref), inputs.hosts[source].versions
    drained = DrainedDomain(domain, leaver.request, elsewhere, record, options, (versions or {}).get("libvirt"))
    if record is not None and is_resumed:
        into.add_leaver(_resume_cold_move(leaver, record, inputs))
    elif not domain.active:
        _sort_definition(drained, leaver, policy, into)
    elif domain.is_leaving and leaver.destination:
        into.add_leaver(leaver)
    else:
        strategies = (MIGRATE,) if domain.is_leaving else list_drain_strategies(policy, options)
        _apply_choice(choose_strategy(strategies, drained.find_problem, refused), drained, leaver, len(strategies), into)


def make_remaining_request(domain: DomainFacts, host: HostRef) -> Request:
    """Return what a domain needs that stays on its host. One without a usable request counts with its memory and its vCPUs alone."""
    try:
        return Request.from_needs(domain.request or {}, domain.uuid, domain.name, host.host or "", host.host_uuid or "", source_id=host.host_id)
    except KvmfleetError:
        needs = {"memory_mib": max(1, domain.memory_mib or 0), "vcpus": max(1, domain.vcpus or 0)}
        return Request.from_needs(needs, domain.uuid, domain.name, host.host or "", host.host_uuid or "", source_id=host.host_id)


def list_drain_strategies(policy: EffectivePolicy, options: DrainOptions) -> tuple[str, ...]:
    """Return the strategies for a domain: those of its policy, else those of the drain."""
    return policy.scheduling.strategies if policy.has_strategies else options.cold.strategies


def _apply_choice(choice: StrategyChoice, drained: DrainedDomain, leaver: LeavingDomain, strategies: int, into: SortedDomains) -> None:
    domain, source, passed = drained.facts, leaver.request.source, choice.passed
    cold, noted = drained.options.cold, passed or ABSENT
    if choice.strategy is None:
        into.stuck.append(_stuck_domain(domain, source, choice.reason))
    elif choice.strategy == LEAVE:
        reason = f"Its policy leaves it on the host (drain: leave): {source} will not be safe to reboot."
        into.skipped.append(SkippedDomain(domain.name, domain.uuid, source, domain.state or "", LEAVE, _with_passed(passed, reason), noted))
    elif choice.strategy == SHUTDOWN and not cold.moves_stopped:
        ends = " It is transient, so its definition ends with it, and nothing starts it again." if domain.persistent is False else ""
        reason = f"Its policy shuts it down (drain: shutdown).{ends}"
        into.shutdowns.append(PlannedShutdown(domain.name, domain.uuid, source, _with_passed(passed, reason), noted))
    else:
        leaver = replace(leaver, strategy=choice.strategy, passed=passed, has_other=len(passed) + 1 < strategies)
        into.add_leaver(leaver if choice.strategy == MIGRATE else _make_cold(leaver, choice.strategy, cold.restart or choice.strategy == SAVE))


def _with_passed(passed: Sequence[PassedStrategy], reason: str) -> str:
    return f"{describe_passed(passed)} {reason}".strip()


def _make_cold(leaver: LeavingDomain, method: str, start: bool, has_memory: bool = False) -> LeavingDomain:
    """Return the domain as it moves without a live migration. A guest that is shut down starts anew, and is not judged by rules about moves.

    :arg has_memory: whether it has a managed-save image, which moves with it, and needs the CPU with which it was saved.
    """
    starts = method != SAVE and not has_memory
    request = replace(leaver.request, needs=replace(leaver.request.needs, traits=()), starts=starts, is_cold=True, copied={})
    return replace(leaver, request=request, method=method, start=start)


def _resume_cold_move(leaver: LeavingDomain, record: MoveRecord, inputs: DrainInputs) -> LeavingDomain:
    """Return the domain as an earlier, interrupted run has begun to move it."""
    destination = _find_destination(record, inputs)
    start = record.method == SAVE or bool(record.cold and record.cold.start)
    return replace(_make_cold(leaver, str(record.method or OFFLINE), start), destination=destination, reserved=False)


def _sort_definition(drained: DrainedDomain, leaver: LeavingDomain, policy: EffectivePolicy, into: SortedDomains) -> None:
    """Sort a domain that is off, and whose definition is to move."""
    domain, source = drained.facts, leaver.request.source
    if list_drain_strategies(policy, drained.options)[0] == LEAVE:
        problem: t.Optional[str] = "Its policy leaves it on the host (drain: leave)."
    elif drained.elsewhere:
        problem = f"It is active on {', '.join(drained.elsewhere)}."
    else:
        problem = drained.find_cold_problem()
    if problem:
        into.skipped.append(_skip_definition(domain, source, problem))
    else:
        into.add_leaver(_make_cold(leaver, OFFLINE, start=False, has_memory=domain.has_saved_memory))


def _skip_definition(domain: DomainFacts, source: str, problem: str) -> SkippedDomain:
    reason = f"It is {domain.state}. {problem} Its definition stays." if problem else f"It is {domain.state}: its definition stays."
    return SkippedDomain(domain.name, domain.uuid, source, domain.state or "", "", reason)


def skip_unplaced_definition(leaver: LeavingDomain, reason: str) -> SkippedDomain:
    """Return the entry of a domain that is off, and whose definition no host can accept."""
    request = leaver.request
    return SkippedDomain(request.name, request.uuid, request.source, SHUTOFF, "", f"It is {SHUTOFF}. {reason} Its definition stays.")


def _stuck_domain(domain: DomainFacts, source: str, reason: str) -> UnplacedDomain:
    return UnplacedDomain(str(domain.name), str(domain.uuid), source, domain.memory_mib or 0, reason, ())


def _make_leaving_domain(domain: DomainFacts, source: str, inputs: DrainInputs, options: DrainOptions, policy: EffectivePolicy) -> LeavingDomain:
    needs = read_request(to_plain_json(build_needs(domain, policy.scheduling, policy.moves)))
    copied = {disk.target: disk.count_copy(options.copy_mode) for disk in local_disks(needs)} if options.copies_storage else {}
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
    if domain.is_leaving:
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
