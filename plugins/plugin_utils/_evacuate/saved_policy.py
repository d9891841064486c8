# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a saved domain needs by its effective policy. C(protect) saves the own policy of the domain alone, because hosts do not know profiles."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import PROFILE, SOURCE_DEFAULT, required_traits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection

from .._settings.policies import EffectivePolicy, effective_policy
from .._settings.variables import Settings


def effective_request(saved: DomainProtection, settings: Settings, task_host: str, source: str) -> t.Optional[JsonObject]:
    """Return the saved request with priority, group, labels and traits of the effective policy; None if no request was saved.

    A policy that cannot be read leaves the request as it was saved, and does not prevent an evacuation.

    :arg task_host: whose profiles apply; C(source): the host whose default priority applies.
    """
    if not saved.request:
        return None
    try:
        policy = _read_policy(saved.policy or {}, settings, task_host, source)
    except (InvalidArgument, AnsibleError):
        return saved.request
    found = {field: value for field, value in encode(policy.scheduling).items() if policy.sources[field] != SOURCE_DEFAULT}
    return {**saved.request, **found, "traits": required_traits(policy.moves.features)}


def _read_policy(own: JsonObject, settings: Settings, task_host: str, source: str) -> EffectivePolicy:
    # Of the defaults for moves that start on the dead host, none of the moves themselves applies.
    return effective_policy(own, settings.profile(task_host, own.get(PROFILE)), _default_priority(settings, source))


def _default_priority(settings: Settings, source: str) -> JsonObject:
    """Return it as a policy; empty if the host has none, or if its variables cannot be read."""
    try:
        policy = settings.policy(source)
    except (InvalidArgument, AnsibleError):
        return {}
    return {"priority": policy["priority"]} if "priority" in policy else {}
