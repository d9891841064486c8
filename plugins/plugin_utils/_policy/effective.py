# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What holds for a domain when a task says nothing: its own policy, its profile, its host's default, and the built-in values."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import (
    FEATURES,
    SOURCE_DEFAULT,
    SOURCE_DOMAIN,
    SOURCE_HOST,
    SOURCE_PROFILE,
    Policy,
    merged,
    uses_both,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import PLACE_DEFAULTS, PROFILE_FIELDS, check_fields

Values = t.Mapping[str, t.Any]


def effective(own: Values, profile: Values, host: Values) -> Policy:
    """Return C({field: {value, source}}) of every field that a domain can have. Raises L(InvalidArgument) for a value of the host that cannot be.

    :arg host: C(kvmfleet_migration_policy) of the domain's host.
    """
    check_fields({field: host[field] for field in ("priority", "drain") if field in host}, PROFILE_FIELDS, "kvmfleet_migration_policy of the host")
    layers = [(SOURCE_DOMAIN, own), (SOURCE_PROFILE, profile), (SOURCE_HOST, host)]
    moves = {field: entry for field, entry in merged(layers).items() if field in PROFILE_FIELDS}
    return {**moves, **{field: _first(layers, field, default) for field, default in PLACE_DEFAULTS.items()}}


def warning_of(policy: Policy) -> str | None:
    """Return the sentence for a policy with which no move would start, none for one that is fine."""
    if not uses_both(policy):
        return None
    sources = " and ".join(f"{feature} from {policy[feature]['source']}" for feature in FEATURES)
    return f"auto_converge and post_copy are both on ({sources}): a move is refused unless its task switches one of them off."


def _first(layers: t.Sequence[tuple[str, Values]], field: str, default: t.Any) -> dict[str, t.Any]:
    source, value = next(((name, values[field]) for name, values in layers if values.get(field) is not None), (SOURCE_DEFAULT, default))
    return {"value": value, "source": source}
