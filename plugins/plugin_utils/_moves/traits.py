# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the source can do what a move's policy asks for, by its own probe. What cannot be told is a warning; a feature is never left out in silence."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import TRAITS, required_traits
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest

Facts = t.Mapping[str, t.Any]
_FEATURES = {trait: feature for feature, trait in TRAITS.items()}


def check_source(request: MoveRequest, facts: Facts, source: str) -> list[str]:
    """Return a warning for each required trait that the source could not tell of. Raises L(NotSupported), with the reason, for one that it lacks."""
    required = required_traits(request.policy)
    missing = facts["missing_traits"]
    lacking = [f"it needs {trait} ({_FEATURES[trait]}). {missing[trait]}" for trait in required if trait in missing]
    if lacking:
        raise NotSupported(f"{source} cannot move domain {request.label} as asked: {' '.join(lacking)}", "Nothing was moved.")
    return [
        f"{_FEATURES[trait]} for domain {request.label} is unverified on {source} ({trait}). QEMU itself checks it at the start, before anything moves."
        for trait in required
        if trait not in facts["traits"]
    ]
