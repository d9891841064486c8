# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The migration policy of one move: each value with the source it came from (spec 4; who may overrule whom)."""

from __future__ import annotations

import typing as t

from .._errors import Conflict, InvalidArgument

# What holds where nobody said anything. timeout_seconds: null means 800 s a GiB, 0 means no limit.
DEFAULTS: t.Dict[str, t.Any] = {
    "timeout_seconds": None,
    "on_timeout": "abort",
    "stall_seconds": 60,
    "downtime_ms": 500,
    "downtime_steps": 10,
    "downtime_delay_seconds_per_gib": 75,
    "downtime_strategy": "adaptive",
    "force_suspend_seconds": 10,
    "force_pause_max_seconds": 30,
    "auto_converge": False,
    "post_copy": False,
}

FORCE_COMPLETE = "force_complete"
ABORT = "abort"
STEPPED = "stepped"
ADAPTIVE = "adaptive"
STRATEGIES = (STEPPED, ADAPTIVE)

STRATEGY = "downtime_strategy"
# Who says how the pause is to grow, or how long it may be, gets the ramp that these words describe, unless he names a strategy too.
_RAMP = ("downtime_ms", "downtime_steps", "downtime_delay_seconds_per_gib")

# The two features that only one of a move may use, and that a domain may forbid for good.
FEATURES = ("auto_converge", "post_copy")
OVERRIDE = "override_policy"

# What a host must be able to do for each of them; the names are those of OpenStack.
TRAITS = {"auto_converge": "COMPUTE_MIGRATE_AUTO_CONVERGE", "post_copy": "COMPUTE_MIGRATE_POST_COPY"}

SOURCE_TASK = "task"
SOURCE_DOMAIN = "domain"
SOURCE_PROFILE = "profile"
SOURCE_HOST = "host"
SOURCE_DEFAULT = "default"

# Lowest and highest value. Libvirt refuses a downtime of more than 2,000,000 ms.
_WEEK = 7 * 24 * 3600
_LIMITS: t.Dict[str, t.Tuple[int, int]] = {
    "timeout_seconds": (0, _WEEK),
    "stall_seconds": (0, _WEEK),
    "downtime_ms": (1, 2_000_000),
    "downtime_steps": (1, 1000),
    "downtime_delay_seconds_per_gib": (0, _WEEK),
    "force_suspend_seconds": (0, _WEEK),
    "force_pause_max_seconds": (1, _WEEK),
}
_CHOICES = {"on_timeout": (ABORT, FORCE_COMPLETE), STRATEGY: STRATEGIES}

Layer = t.Tuple[str, t.Mapping[str, t.Any]]
Policy = t.Dict[str, t.Dict[str, t.Any]]


def resolve(layers: t.Sequence[Layer], override: bool = False) -> Policy:
    """Return C({field: {value, source}}) as L(merged) does. Raises L(Conflict) where both features would be on."""
    policy = merged(layers, override)
    if uses_both(policy):
        sources = " and ".join(f"{feature} from {policy[feature]['source']}" for feature in FEATURES)
        raise Conflict(
            f"auto_converge and post_copy would both be on ({sources}), and a move may use one of them.",
            "Switch one of them off in the task or in the domain's policy. Nothing was started.",
        )
    return policy


def merged(layers: t.Sequence[Layer], override: bool = False) -> Policy:
    """Return C({field: {value, source}}): for each field the first layer that has a value, else the built-in default.

    A false of the domain, or of the profile that it names, is a veto over every other source, unless C(override) is set.

    :arg layers: C((source, values)) pairs, most important first; a value of null says nothing.
    Raises L(InvalidArgument) for a value that is out of bounds, naming field and source.
    """
    policy: Policy = {}
    for field, default in DEFAULTS.items():
        source, value = next(((name, values[field]) for name, values in layers if values.get(field) is not None), (SOURCE_DEFAULT, default))
        check_value(field, value, source)
        policy[field] = {"value": value, "source": source}
    _choose_strategy(policy)
    if override:
        policy[OVERRIDE] = {"value": True, "source": SOURCE_TASK}
    else:
        _apply_vetoes(policy, layers)
    return policy


def uses_both(values: t.Mapping[str, t.Any]) -> bool:
    """Whether both features are on, in a policy with sources or in plain values."""
    return all(_plain(values.get(feature)) is True for feature in FEATURES)


def vetoed(policy: t.Mapping[str, t.Any], task: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the features that the task switched on and the domain, or its profile, does not allow."""
    return [feature for feature in FEATURES if task.get(feature) is True and policy[feature]["value"] is False]


def check_profile(own: t.Mapping[str, t.Any], profile_name: str, profile: t.Mapping[str, t.Any]) -> None:
    """Raise L(Conflict) where a domain's own values contradict the profile that it names, or the two together switch on both features (spec 4)."""
    for feature in FEATURES:
        if None not in (own.get(feature), profile.get(feature)) and own[feature] != profile[feature]:
            raise Conflict(
                f"{feature} would be {_word(own[feature])} for the domain itself and {_word(profile[feature])} in its profile {profile_name}.",
                "Give the value in one of the two places, or name another profile.",
            )
    if uses_both({**profile, **{feature: own[feature] for feature in FEATURES if own.get(feature) is not None}}):
        raise Conflict(
            f"With the profile {profile_name} the domain would have auto_converge and post_copy both on, and a move may use one of them.",
            "Switch one of them off, or name another profile.",
        )


def required_traits(policy: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the traits that both hosts need for these features, from a policy with sources or from plain values (spec 4)."""
    return [trait for feature, trait in TRAITS.items() if _plain(policy.get(feature)) is True]


def value(policy: t.Mapping[str, t.Any], field: str) -> t.Any:
    """Return the effective value of a field; the built-in default where an older record does not have it."""
    return policy.get(field, {}).get("value", DEFAULTS[field])


def check_value(field: str, given: t.Any, source: str) -> None:
    """Raise L(InvalidArgument) where that cannot be the field's value."""
    if field in _CHOICES and given not in _CHOICES[field]:
        raise InvalidArgument(f"{field} is {given!r} ({source}).", f"Give one of: {', '.join(_CHOICES[field])}.")
    if isinstance(DEFAULTS.get(field), bool) and not isinstance(given, bool):
        raise InvalidArgument(f"{field} is {given!r} ({source}), which is neither true nor false.")
    if field not in _LIMITS or given is None:
        return
    low, high = _LIMITS[field]
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise InvalidArgument(f"{field} is {given!r} ({source}).", f"Give a whole number from {low} to {high}.")


def _choose_strategy(policy: Policy) -> None:
    """Without a named strategy, whoever gave any of the ramp's values has asked for the ramp."""
    asked = [policy[field]["source"] for field in _RAMP if policy[field]["source"] != SOURCE_DEFAULT]
    if asked and policy[STRATEGY]["source"] == SOURCE_DEFAULT:
        policy[STRATEGY] = {"value": STEPPED, "source": asked[0]}


def _apply_vetoes(policy: Policy, layers: t.Sequence[Layer]) -> None:
    for feature in FEATURES:
        of_domain = [(name, values[feature]) for name, values in layers if name in (SOURCE_DOMAIN, SOURCE_PROFILE) and values.get(feature) is not None]
        # The domain's own value stands before its profile's, so the first of them is the domain's word.
        if of_domain and of_domain[0][1] is False:
            policy[feature] = {"value": False, "source": of_domain[0][0]}


def _plain(value: t.Any) -> t.Any:
    return value["value"] if isinstance(value, dict) else value


def _word(value: bool) -> str:
    return str(value).lower()
