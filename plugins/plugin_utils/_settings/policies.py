# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The effective policy of a domain: its own, that of its profile, the default of its host, and the built-in values."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import (
    check_features,
    describe_source,
    has_conflict,
    merge_layers,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, SignedInt, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import (
    PLACEMENT_DEFAULTS,
    PROFILE,
    PROFILE_FIELDS,
    SOURCE_DEFAULT,
    SOURCE_DOMAIN,
    SOURCE_HOST,
    SOURCE_PROFILE,
    SOURCE_TASK,
    GivenPolicy,
    check_field,
    check_fields,
    list_strategies,
    required_traits,
    strategies_value,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import OwnPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainGroup, DomainRequest

from .variables import Settings


@dataclass(frozen=True)
class Scheduling:
    """Where a domain may be placed, and what a drain does with it.

    :arg drain: what a drain does with it: a strategy, or a list of them.
    :arg group: the group of domains that it keeps together with, or apart from.
    :arg labels: the labels that its host must have in the inventory.
    """

    priority: SignedInt
    drain: Json
    group: t.Optional[DomainGroup]
    labels: tuple[str, ...]

    @property
    def strategies(self) -> tuple[str, ...]:
        """What a drain does with the domain, the preferred strategy first."""
        return list_strategies(self.drain)


DEFAULT_SCHEDULING = decode(Scheduling, PLACEMENT_DEFAULTS)


@dataclass(frozen=True)
class EffectivePolicy:
    """The policy of a domain.

    :arg moves: of its moves.
    :arg sources: the source of each field of C(scheduling).
    """

    moves: GivenPolicy
    scheduling: Scheduling
    sources: t.Mapping[str, str]

    def as_json(self) -> JsonObject:
        """Return C({field: {value, source}}) of every field that a domain can have."""
        moves = {field: entry for field, entry in self.moves.as_json().items() if field in PROFILE_FIELDS}
        return {**moves, **{field: {"value": value, "source": self.sources[field]} for field, value in encode(self.scheduling).items()}}

    @property
    def has_strategies(self) -> bool:
        """Whether a policy of the domain, its profile or its host says what a drain does with it."""
        return self.sources["drain"] != SOURCE_DEFAULT

    @property
    def warning(self) -> str | None:
        """A sentence for a policy with which no move would start; empty for a valid one."""
        if not has_conflict(self.moves):
            return None
        return f"auto_converge and post_copy are both on in {describe_source(self.moves)}: a move is refused unless its task decides between them."


@dataclass(frozen=True)
class PolicyOwner:
    """A domain whose policy is needed.

    :arg what: the domain for messages, e.g. C(domain web1 on kvm1).
    :arg host: the inventory name of its host.
    :arg own: its own policy.
    """

    what: str
    host: str
    own: OwnPolicy

    def read_profile(self, settings: Settings) -> JsonObject:
        """Return its profile. Raises L(InvalidArgument) for one that cannot be used."""
        try:
            return settings.profile(self.host, self.own.values.get(PROFILE))
        except InvalidArgument as error:
            next_step = f"{error.next_step or ''} Nothing was moved.".strip()
            raise InvalidArgument(f"The profile of {self.what} cannot be used: {error.message}", next_step) from error


def owner_of(domain: DomainFacts, host: str) -> PolicyOwner:
    """Return a domain as the facts of that host have it."""
    return PolicyOwner(f"domain {domain.name}", host, OwnPolicy(dict(domain.policy or {}), dict(domain.policy_problems or {})))


def merge_policy(task: JsonObject, host: JsonObject, own: JsonObject | None = None, profile: JsonObject | None = None, override: bool = False) -> GivenPolicy:
    """Return the policy of a move: the task has precedence over the domain, the domain over its profile, and the profile over the host.

    :arg task: the options of the task; C(host) is C(kvmfleet_migration_policy) of the source.
    :arg own: the domain's own policy; unknown before the domain was surveyed.
    Raises L(InvalidArgument) for a value that is out of bounds.
    """
    return merge_layers([(SOURCE_TASK, task), (SOURCE_DOMAIN, own or {}), (SOURCE_PROFILE, profile or {}), (SOURCE_HOST, host)], override)


def effective_policy(own: JsonObject, profile: JsonObject, host: JsonObject) -> EffectivePolicy:
    """Return the policy without a task. Raises L(InvalidArgument) for an invalid value of the domain or of the host.

    :arg host: C(kvmfleet_migration_policy) of the domain's host.
    """
    check_fields({field: host[field] for field in ("priority", "drain") if field in host}, PROFILE_FIELDS, "kvmfleet_migration_policy of the host")
    layers = [(SOURCE_DOMAIN, own), (SOURCE_PROFILE, profile), (SOURCE_HOST, host)]
    found = {field: _first_value(layers, field, default) for field, default in PLACEMENT_DEFAULTS.items()}
    values, sources = {field: value for field, (value, _source) in found.items()}, {field: source for field, (_value, source) in found.items()}
    return EffectivePolicy(merge_policy({}, host, own, profile), _read_scheduling(values), sources)


def _first_value(layers: t.Sequence[tuple[str, JsonObject]], field: str, default: Json) -> tuple[Json, str]:
    """Return the value of the first layer that has one, and its source."""
    return next(((values[field], name) for name, values in layers if values.get(field) is not None), (default, SOURCE_DEFAULT))


def _read_scheduling(values: JsonObject) -> Scheduling:
    for field, value in values.items():
        if value is not None:
            check_field(field, dict(value) if isinstance(value, t.Mapping) else value)
    return decode(Scheduling, {**values, "drain": strategies_value(list_strategies(values["drain"]))})


def read_scheduling(owner: PolicyOwner, settings: Settings) -> Scheduling:
    """Return priority, drain, group and labels of a domain: its own, else its profile's, else the host's default.

    Raises L(InvalidArgument) if the domain names a profile that cannot be used.
    """
    return effective_policy(owner.own.values, owner.read_profile(settings), settings.policy(owner.host)).scheduling


def read_move_policy(owner: PolicyOwner, settings: Settings, task: JsonObject, override: bool = False) -> EffectivePolicy:
    """Return the policy of a move of the domain.

    Raises L(InvalidArgument) if the policy of the domain, its profile or an option is wrong, and L(Conflict) if the task, the domain or its profile switches
    on both features.

    :arg task: the options of C(live_migrate).
    :arg override: whether the task overrules a veto of the domain.
    """
    own = owner.own.check_values(owner.what)
    profile, default = owner.read_profile(settings), settings.policy(owner.host)
    return replace(effective_policy(own, profile, default), moves=check_features(merge_policy(task, default, own, profile, override)))


def build_needs(domain: DomainFacts, scheduling: Scheduling, moves: t.Optional[GivenPolicy] = None) -> JsonObject:
    """Return a domain's request with the rest of its effective policy, and the traits that the policy of its moves needs."""
    traits: JsonObject = {} if moves is None else {"traits": required_traits(moves.required_features)}
    return {**(domain.request or {}), **encode(scheduling), **traits}


def add_scheduling(needs: DomainRequest, scheduling: Scheduling, moves: GivenPolicy) -> DomainRequest:
    """Return a request with the rest of the domain's effective policy, and the traits that the policy of its moves needs."""
    traits = tuple(required_traits(moves.required_features))
    return replace(needs, traits=traits, priority=scheduling.priority, drain=scheduling.drain, group=scheduling.group, labels=scheduling.labels)
