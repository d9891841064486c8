# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Merges and resolves the migration policy of a move: which source overrides which, which values are valid, and the limits for a guest of a given size."""

from __future__ import annotations

import dataclasses
import typing as t

from .._model.codec import Json, JsonObject
from .._model.errors import Conflict
from .._model.policies import (
    DEFAULTS,
    FEATURES,
    PROFILE,
    SOURCE_DEFAULT,
    SOURCE_DOMAIN,
    SOURCE_PROFILE,
    SOURCE_TASK,
    STEPPED,
    STRATEGY,
    GivenPolicy,
    PolicyScalar,
    ResolvedPolicy,
    check_policy_value,
    features_in,
    given_policy,
    has_both_features,
)
from .._model.policy_documents import POLICY_ROOT, OwnPolicy
from .downtime import downtime_steps, effective_timeout_seconds

# A layer with one of these options selects the ramp, unless a strategy is also set.
_RAMP = ("downtime_ms", "downtime_steps", "downtime_delay_seconds_per_gib")

Layer = t.Tuple[str, JsonObject]


def merge_layers(layers: t.Sequence[Layer], override: bool = False) -> GivenPolicy:
    """Return, for each option, the value of the first layer that has one, else the built-in default.

    A false of the domain, or of the profile that it names, is a veto over every other source, unless C(override) is set. If two layers switch on one feature
    each, the more important layer decides: the other feature becomes false, with that layer as its source.

    :arg layers: C((source, values)) pairs, most important first; null values are ignored.
    Raises L(InvalidArgument) for a value that is out of bounds, naming option and source.
    """
    values: t.Dict[str, PolicyScalar] = {}
    sources: t.Dict[str, str] = {}
    for option, default in DEFAULTS.items():
        source, value = next(((name, given[option]) for name, given in layers if given.get(option) is not None), (SOURCE_DEFAULT, default))
        check_policy_value(option, value, source)
        values[option], sources[option] = t.cast(PolicyScalar, value), source
    _choose_strategy(values, sources)
    if not override:
        _apply_vetoes(values, sources, layers)
    _drop_less_important_feature(values, sources, [name for name, _given in layers])
    return given_policy(values, sources, override)


def has_conflict(policy: GivenPolicy) -> bool:
    """Whether one task, one domain or one profile switches on both features, and no more important source decides between them."""
    return has_both_features(policy.features) and not policy.has_preference


def check_features(policy: GivenPolicy) -> GivenPolicy:
    """Return the policy. Raises L(Conflict) if both features would be on, and not only as defaults of the host."""
    if has_conflict(policy):
        raise Conflict(
            f"auto_converge and post_copy are both on in {describe_source(policy)}, but a move can use only one of them.",
            "Switch one of them off there, or request one of them in the task. Nothing was started.",
        )
    return policy


def check_task_features(task: JsonObject) -> None:
    """Raise L(Conflict) if the options of one task switch on both features."""
    if has_both_features(features_in(task)):
        raise Conflict("auto_converge and post_copy are both on in the task, but a move can use only one of them.", "Remove one of them. Nothing was started.")


def describe_source(policy: GivenPolicy) -> str:
    """Return where both features were switched on."""
    return {SOURCE_TASK: "the task", SOURCE_DOMAIN: "the domain's own policy", SOURCE_PROFILE: "the profile of the domain"}[policy.source_of(FEATURES[0])]


def prefer_feature(policy: GivenPolicy, can_post_copy: bool) -> GivenPolicy:
    """Return the policy with one feature where both are defaults of the host.

    :arg can_post_copy: whether both hosts, and the other options of the move, permit post-copy.
    """
    if not policy.has_preference:
        return policy
    return dataclasses.replace(policy, auto_converge=not can_post_copy, post_copy=can_post_copy)


def resolve_policy(given: GivenPolicy, gib: float) -> ResolvedPolicy:
    """Return the resolved policy for a guest of that size; see L(size_gib)."""
    timeout = effective_timeout_seconds(given.timeout_given, given.timeout_seconds_per_gib, gib)
    ramp = downtime_steps(given.downtime_ms, given.downtime_steps, given.downtime_delay_seconds_per_gib, gib, timeout)
    return ResolvedPolicy(timeout, given.on_timeout, given.stall_seconds, given.downtime_ms, given.downtime_strategy, tuple(ramp))


def vetoed_features(policy: GivenPolicy, task: JsonObject) -> t.List[str]:
    """Return the features that the task switched on and the domain, or its profile, does not allow."""
    return [feature for feature in features_in(task) if feature not in policy.features]


def why_no_post_copy(own: OwnPolicy) -> str:
    """Return why a move without a record must not be switched to post-copy: what the domain's own policy forbids, or may forbid because it cannot be read.

    Empty if nothing forbids it. A host cannot read profiles, which are defined in the inventory.
    """
    unreadable = [name for name in (POLICY_ROOT, PROFILE, *FEATURES) if name in own.wrong]
    if unreadable:
        return f"its policy cannot be read ({', '.join(unreadable)})"
    if own.values.get("post_copy") is False:
        return "its policy forbids post-copy"
    if own.values.get("auto_converge") is True:
        return "its policy requests auto-converge"
    return f"its profile {own.values[PROFILE]!r} is defined in the inventory, which this host cannot read" if PROFILE in own.values else ""


def check_profile(own: JsonObject, profile_name: str, profile: JsonObject, where: str) -> None:
    """Raise L(Conflict) if a domain's own values contradict the profile that it names, or the two together switch on both features.

    :arg where: what has the own values, for the message.
    """
    for feature in FEATURES:
        if None not in (own.get(feature), profile.get(feature)) and own[feature] != profile[feature]:
            raise Conflict(
                f"{feature} would be {_format_bool(own[feature])} for {where} and {_format_bool(profile[feature])} in its profile {profile_name}.",
                "Give the value in one of the two places, or name another profile.",
            )
    if has_both_features(features_in({**profile, **{feature: own[feature] for feature in FEATURES if own.get(feature) is not None}})):
        raise Conflict(
            f"With the profile {profile_name} {where} would have auto_converge and post_copy both on, but a move can use only one of them.",
            "Switch one of them off, or name another profile.",
        )


def _choose_strategy(values: t.Dict[str, PolicyScalar], sources: t.Dict[str, str]) -> None:
    """Without a named strategy, any given value of the ramp selects the ramp."""
    given = [sources[option] for option in _RAMP if sources[option] != SOURCE_DEFAULT]
    if given and sources[STRATEGY] == SOURCE_DEFAULT:
        values[STRATEGY], sources[STRATEGY] = STEPPED, given[0]


def _apply_vetoes(values: t.Dict[str, PolicyScalar], sources: t.Dict[str, str], layers: t.Sequence[Layer]) -> None:
    for feature in FEATURES:
        of_domain = [(name, given[feature]) for name, given in layers if name in (SOURCE_DOMAIN, SOURCE_PROFILE) and given.get(feature) is not None]
        # The domain's own value comes before its profile's, so the first of them is that of the domain.
        if of_domain and of_domain[0][1] is False:
            values[feature], sources[feature] = False, of_domain[0][0]


def _drop_less_important_feature(values: t.Dict[str, PolicyScalar], sources: t.Dict[str, str], order: t.Sequence[str]) -> None:
    """Switch off the feature of the less important source if two sources switch on one each."""
    if not all(values[feature] for feature in FEATURES):
        return
    winner, loser = sorted(FEATURES, key=lambda feature: order.index(sources[feature]))
    if sources[winner] != sources[loser]:
        values[loser], sources[loser] = False, sources[winner]


def _format_bool(value: Json) -> str:
    return str(value).lower()
