# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a domain's policy, its profile and its host's default make of its move: the strategy, the priority, the group, the limits."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import (
    OVERRIDE,
    SOURCE_DOMAIN,
    SOURCE_HOST,
    SOURCE_PROFILE,
    SOURCE_TASK,
    Policy,
    required_traits,
    resolve,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import OwnPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import PLACE_DEFAULTS, PROFILE

from .._policy.effective import effective
from .._settings import Settings

MIGRATE, SHUTDOWN, LEAVE = "migrate", "shutdown", "leave"

Body = Mapping[str, t.Any]


def place_of(domain: Body, host: str, settings: Settings) -> dict[str, t.Any]:
    """Return priority, drain, group and labels of a domain of that host. Raises L(InvalidArgument) where it names a profile that cannot be used."""
    own = domain.get("policy") or {}
    policy = effective(own, _profile(domain, host, settings), settings.policy(host))
    return {name: policy[name]["value"] for name in PLACE_DEFAULTS}


def policy_of(domain: Body, host: str, settings: Settings, options: Body) -> Policy:
    """Return the policy of its move as C(live_migrate) will find it, place included.

    Raises L(InvalidArgument) where the domain's policy, its profile or an option is wrong, and L(Conflict) where both features would be on.

    :arg options: of C(live_migrate), as the drain gives them.
    """
    wrong = domain.get("policy_problems") or {}
    own = OwnPolicy(dict(domain.get("policy") or {}), dict(wrong) if isinstance(wrong, Mapping) else dict.fromkeys(wrong, "")).check(f"domain {domain['name']}")
    profile, default = _profile(domain, host, settings), settings.policy(host)
    layers = [(SOURCE_TASK, options), (SOURCE_DOMAIN, own), (SOURCE_PROFILE, profile), (SOURCE_HOST, default)]
    place = effective(own, profile, default)
    return {**resolve(layers, options.get(OVERRIDE) is True), **{name: place[name] for name in PLACE_DEFAULTS}}


def needs_of(domain: Body, place: Body, policy: t.Optional[Policy] = None) -> dict[str, t.Any]:
    """Return the domain's request with its effective place, and the traits that its move's policy needs."""
    traits = {} if policy is None else {"traits": required_traits(policy)}
    return {**domain["request"], **place, **traits}


def _profile(domain: Body, host: str, settings: Settings) -> Body:
    name = (domain.get("policy") or {}).get(PROFILE)
    try:
        return settings.profile(host, name)
    except InvalidArgument as error:
        raise InvalidArgument(f"The profile of domain {domain['name']} cannot be used: {error.message}", error.next_step) from error
