# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What operators allow: states of hosts, labels, limits, groups of domains and traits, and what prevents a domain from moving at all."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import TRAITS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainGroup
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED, FENCED, MAINTENANCE

from ..._settings.scheduler import MAX_MOVES, SCHEDULER_VARIABLE
from ..fleet import OTHER_LEDGER, Fleet, HostState
from ..request import Request
from .base import PASS, Finding, Rule, names_text, one_or_many

_STATE_TEXTS = {MAINTENANCE: "It is in maintenance", FENCED: "It is fenced", OTHER_LEDGER: "It was protected under another ledger"}


class NotSource(Rule):
    """A domain does not move to its own host, under any of the host's names."""

    name = "not_source"
    overridable = False
    judges_silent = True

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Compare the host IDs; if one is not known, libvirt's UUIDs, and then the names."""
        return Finding(f"{request.name} runs there already.") if request.source_ref.is_same(host.host_ref) else PASS


class Up(Rule):
    """A host without facts accepts no guest."""

    name = "up"
    overridable = False
    judges_silent = True

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Give the host's own failure to answer as the reason."""
        return PASS if host.unanswered is None else Finding(f"It did not answer: {host.unanswered.rstrip('.')}.")


class Enabled(Rule):
    """A host in maintenance, fenced, of another ledger, or in a state that this version does not know, is not a destination."""

    name = "enabled"
    judges_silent = True

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Judge the state in the ledger."""
        if host.state == ENABLED:
            return PASS
        why = f" ({host.state_reason})" if host.state_reason else ""
        return Finding(f"{_STATE_TEXTS.get(host.state, f'Its state in the ledger is {host.state!r}')}{why}.")


class Labels(Rule):
    """The host has every label that the domain requires."""

    name = "labels"

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain requires any label."""
        return bool(request.labels)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the labels that are missing."""
        missing = request.labels - host.settings.labels
        if not missing:
            return PASS
        return Finding(f"It lacks the {one_or_many(len(missing), 'label', 'labels')} {names_text(missing)} (kvmfleet_scheduler.labels).")


class MaxDomains(Rule):
    """A host has at most as many domains as its limit, including those that are moving to it."""

    name = "max_domains"

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Count the domains that are active on the host or reserved for it."""
        limit = host.settings.limits.domains
        if limit is None:
            return PASS
        others = len(host.guests) - (request.uuid in host.guests)
        return Finding(f"It has {others} domains, and its limit is {limit} (kvmfleet_scheduler.limits.domains).") if others >= limit else PASS


class MaxMoves(Rule):
    """A host with a limit of 0 is refused. At any other limit, a move waits for its admission, which is only a warning.

    Each host of a move can switch off its own limit.
    """

    name = MAX_MOVES

    def judges(self, host: HostState) -> bool:
        """Return whether the host answered. The limits of a host that switches them off are left out of the finding."""
        return host.unanswered is None

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Judge the limit of moves into the host, and of those out of the source. Moves count from the start of their job on."""
        source = fleet.source_of(request)
        sides = [(f"to {host.name}", "moves_in", host.settings.move_limits.moves_in, host.moves_in)]
        if source:
            sides.append((f"away from {source.name}", "moves_out", source.settings.move_limits.moves_out, source.moves_out))
        reached = [(where, name, limit) for where, name, limit, moving in sides if limit is not None and len(moving - {request.uuid}) >= limit]
        if not reached:
            return PASS
        never = [f"No move {where} is permitted: {SCHEDULER_VARIABLE}.limits.{name} is 0." for where, name, limit in reached if limit == 0]
        waits = (
            f"As many domains are moving {where} as are permitted, {limit}: it would wait for its turn ({SCHEDULER_VARIABLE}.limits.{name})."
            for where, name, limit in reached
        )
        return Finding(" ".join(never)) if never else Finding(warnings=tuple(waits))


_FEATURES = {trait: feature for feature, trait in TRAITS.items()}


class Traits(Rule):
    """A host that is known to lack a trait is refused; an unverified trait is a warning."""

    name = "traits"

    def applies_to(self, request: Request) -> bool:
        """Return whether any trait is required of the hypervisor."""
        return bool(request.traits)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Give the host's own explanation."""
        open_traits = [trait for trait in request.traits if trait not in host.hardware.traits]
        if not open_traits:
            return PASS
        lacking = host.hardware.missing_traits
        reasons = [f"It lacks {trait_text(trait)}: {lacking[trait]}" for trait in open_traits if trait in lacking]
        unverified = [
            f"{trait_text(trait)} for {request.name} is unverified on {host.name}: no host_facts gathered there say it. QEMU itself checks it at the "
            "start, before anything moves."
            for trait in open_traits
            if trait not in lacking
        ]
        return Finding(" ".join(reasons) or None, tuple(unverified))


def trait_text(trait: str) -> str:
    """Return the feature of a trait, with the trait."""
    return f"{_FEATURES[trait]} ({trait})" if trait in _FEATURES else trait


AFFINITY = "affinity"
ANTI_AFFINITY = "anti-affinity"


class Affinity(Rule):
    """A domain of an affinity group moves to the host of the other members, or to any host if there are none."""

    name = "affinity"

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain is in an affinity group."""
        return bool(request.group and request.group.policy == AFFINITY)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the members and their hosts."""
        group = request.group
        if group is None:
            return PASS
        members = fleet.group_members(group.name)
        if any(uuid != request.uuid for uuid in members.get(host.name, ())):
            return _judge_group_policy(group, request, fleet)
        elsewhere = {name: {guest.name for guest in there.values() if guest.uuid != request.uuid} for name, there in members.items()}
        locations = [f"{names_text(names)} on {name}" for name, names in sorted(elsewhere.items()) if names]
        if not locations:
            return PASS
        return Finding(f"{request.name} must stay together with its group {group.name}: {', '.join(locations)}.")


class AntiAffinity(Rule):
    """A host has at most C(max_per_host) (1) domains of an anti-affinity group; of members that differ in it, the one that permits the fewest counts."""

    name = "anti_affinity"

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain is in an anti-affinity group."""
        return bool(request.group and request.group.policy == ANTI_AFFINITY)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the members on the host."""
        group = request.group
        if group is None:
            return PASS
        others = [guest for uuid, guest in fleet.group_members(group.name).get(host.name, {}).items() if uuid != request.uuid]
        # A member with another policy permits no number of domains: the two policies are refused.
        most = find_max_per_host([group, *(guest.group for guest in others if guest.group and guest.group.policy == group.policy)])
        if len(others) < most:
            return _judge_group_policy(group, request, fleet)
        names = {guest.name for guest in others}
        allowed = f"at most {most} of them on a host" if most > 1 else "no two of them on a host"
        verb = one_or_many(len(names), "is", "are")
        return Finding(f"{request.name} must stay apart from its group {group.name} ({allowed}), of which {names_text(names)} {verb} there.")


def find_max_per_host(groups: Iterable[DomainGroup | None]) -> int:
    """Return how many domains of their group may be on one host, according to these members of it."""
    return min(group.max_per_host or 1 for group in groups if group)


def _judge_group_policy(group: DomainGroup, request: Request, fleet: Fleet) -> Finding:
    """Refuse a group whose members have different policies."""
    policies = fleet.group_policies(group.name)
    if all(policy == group.policy for policy in policies):
        return PASS
    others = "; ".join(f"{policy} by {names_text(names)}" for policy, names in sorted(policies.items()) if policy != group.policy)
    return Finding(f"The group {group.name} has two policies: {group.policy} by {request.name}, {others}. Set one of them with domain_policy.")


class Migratable(Rule):
    """What libvirt and QEMU refuse to move is refused before the start."""

    name = "migratable"
    judges_silent = True

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain has blockers."""
        return bool(request.blockers)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Give each of the blockers that the domain's own host reported."""
        return Finding(f"{request.name} cannot be moved live: {' '.join(_as_sentence(blocker) for blocker in request.blockers)}")


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
