# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The policy of one move, once the domain has spoken: task, then the domain's own, then its profile, then the host's default."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import (
    SOURCE_DOMAIN,
    SOURCE_HOST,
    SOURCE_PROFILE,
    SOURCE_TASK,
    Policy,
    resolve,
    vetoed,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import OwnPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import PLACE_DEFAULTS, PROFILE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._policy.effective import effective
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings


def policy_of(request: MoveRequest, domain: t.Mapping[str, t.Any], settings: Settings, source: str) -> tuple[Policy, list[str]]:
    """Return the policy of the move, and a warning for each feature that the task wants and the domain forbids.

    Raises L(InvalidArgument) where what the domain says, or the profile it names, is wrong, and L(Conflict) where both features would be on.

    :arg domain: the survey's part about it.
    :arg source: inventory name of the host that it leaves.
    """
    what = f"domain {request.label} on {source}"
    own = OwnPolicy(**domain["policy"]).check(what)
    try:
        profile = settings.profile(source, own.get(PROFILE))
    except InvalidArgument as error:
        raise InvalidArgument(f"The profile of {what} cannot be used: {error.message}", f"{error.next_step or ''} Nothing was moved.".strip()) from error
    layers = [(SOURCE_TASK, request.given), (SOURCE_DOMAIN, own), (SOURCE_PROFILE, profile), (SOURCE_HOST, settings.policy(source))]
    policy = resolve(layers, request.override)
    return policy, [_warning(feature, what, policy[feature]["source"]) for feature in vetoed(policy, request.given)]


def place_of(domain: t.Mapping[str, t.Any], settings: Settings, source: str) -> dict[str, t.Any]:
    """Return priority, drain, group and labels of a domain: its own, else its profile's, else the host's default. Raises as L(policy_of)."""
    own = OwnPolicy(**domain["policy"]).values
    policy = effective(own, settings.profile(source, own.get(PROFILE)), settings.policy(source))
    return {field: policy[field]["value"] for field in PLACE_DEFAULTS}


def _warning(feature: str, what: str, source: str) -> str:
    who = "its own policy" if source == SOURCE_DOMAIN else "the profile that it names"
    return f"{feature}: true of the task is not used for {what}: {who} forbids it. Only override_policy: true overrules that."
