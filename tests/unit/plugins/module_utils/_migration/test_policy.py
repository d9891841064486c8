# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import (
    DEFAULTS,
    Layer,
    check_profile,
    merged,
    required_traits,
    resolve,
    value,
    vetoed,
)


def test_without_a_word_from_anybody_the_defaults_hold() -> None:
    policy = resolve([("task", {}), ("host", {})])
    assert {field: entry["value"] for field, entry in policy.items()} == DEFAULTS
    assert {entry["source"] for entry in policy.values()} == {"default"}


def test_the_first_layer_with_a_value_wins_field_by_field() -> None:
    policy = resolve([("task", {"downtime_ms": 300, "stall_seconds": None}), ("host", {"downtime_ms": 100, "stall_seconds": 5, "unknown": 1})])
    assert policy["downtime_ms"] == {"value": 300, "source": "task"}
    assert policy["stall_seconds"] == {"value": 5, "source": "host"}
    assert policy["downtime_steps"]["source"] == "default"
    assert "unknown" not in policy


@pytest.mark.parametrize(("field", "given"), [("timeout_seconds", 0), ("stall_seconds", 0), ("auto_converge", False), ("downtime_delay_seconds_per_gib", 0)])
def test_zero_and_false_are_values(field: str, given: t.Any) -> None:
    assert resolve([("task", {field: given}), ("host", {field: DEFAULTS[field] or 9})])[field] == {"value": given, "source": "task"}


@pytest.mark.parametrize(
    ("field", "lowest", "highest"),
    [
        ("timeout_seconds", 0, 604800),
        ("stall_seconds", 0, 604800),
        ("downtime_ms", 1, 2_000_000),
        ("downtime_steps", 1, 1000),
        ("downtime_delay_seconds_per_gib", 0, 604800),
    ],
)
def test_each_number_has_its_bounds(field: str, lowest: int, highest: int) -> None:
    for given in (lowest, highest):
        assert value(resolve([("task", {field: given})]), field) == given
    for given in (lowest - 1, highest + 1, -1, 10**30):
        with pytest.raises(InvalidArgument, match=rf"{field} is -?\d+ \(task\)"):
            resolve([("task", {field: given})])


@pytest.mark.parametrize("given", [True, "60", 1.5, [1], {"a": 1}])
def test_a_number_is_a_whole_number(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"stall_seconds is .* \(host\)"):
        resolve([("task", {}), ("host", {"stall_seconds": given})])


@pytest.mark.parametrize("given", ["yes", 1, "true", []])
def test_a_switch_is_true_or_false(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="neither true nor false"):
        resolve([("host", {"auto_converge": given})])


def test_an_unknown_choice_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match=r"on_timeout is 'explode' \(host\).*abort"):
        resolve([("host", {"on_timeout": "explode"})])


def test_a_field_that_an_older_record_lacks_has_the_default() -> None:
    assert value({}, "downtime_ms") == 500
    assert value({"downtime_ms": {"value": 9, "source": "task"}}, "downtime_ms") == 9


# -- who may overrule whom -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", ["auto_converge", "post_copy"])
@pytest.mark.parametrize(
    ("task", "domain", "profile", "host", "expected"),
    [
        (True, None, None, None, (True, "task")),
        (True, False, None, None, (False, "domain")),
        (True, None, False, None, (False, "profile")),
        (True, True, False, None, (True, "task")),
        (True, False, True, None, (False, "domain")),
        (None, True, None, False, (True, "domain")),
        (None, None, True, False, (True, "profile")),
        (False, True, None, None, (False, "task")),
        (None, None, None, True, (True, "host")),
        (None, False, None, True, (False, "domain")),
        (True, None, None, False, (True, "task")),
        (None, None, None, None, (False, "default")),
    ],
)
def test_a_false_of_the_domain_is_a_veto_and_a_false_of_the_host_is_not(
    feature: str, task: t.Any, domain: t.Any, profile: t.Any, host: t.Any, expected: t.Tuple[bool, str]
) -> None:
    layers = [("task", {feature: task}), ("domain", {feature: domain}), ("profile", {feature: profile}), ("host", {feature: host})]
    found = resolve(layers)[feature]
    assert (found["value"], found["source"]) == expected


@pytest.mark.parametrize("feature", ["auto_converge", "post_copy"])
def test_an_override_lifts_the_veto_and_is_in_the_record(feature: str) -> None:
    layers = [("task", {feature: True}), ("domain", {feature: False})]
    policy = resolve(layers, override=True)
    assert policy[feature] == {"value": True, "source": "task"}
    assert policy["override_policy"] == {"value": True, "source": "task"}
    assert "override_policy" not in resolve(layers)


def test_an_override_without_a_word_of_the_task_leaves_the_domain_s() -> None:
    assert resolve([("task", {}), ("domain", {"post_copy": False}), ("host", {"post_copy": True})], override=True)["post_copy"]["value"] is False


@pytest.mark.parametrize("first", ["task", "domain", "profile", "host"])
@pytest.mark.parametrize("second", ["task", "domain", "profile", "host"])
def test_both_features_from_whatever_mix_of_sources_conflict(first: str, second: str) -> None:
    values: t.Dict[str, t.Dict[str, bool]] = {name: {} for name in ("task", "domain", "profile", "host")}
    values[first]["auto_converge"] = True
    values[second]["post_copy"] = True
    with pytest.raises(Conflict, match=f"auto_converge from {first} and post_copy from {second}"):
        resolve(list(values.items()))


def test_a_veto_comes_before_the_conflict() -> None:
    policy = resolve([("task", {"auto_converge": True, "post_copy": True}), ("domain", {"post_copy": False})])
    assert (policy["auto_converge"]["value"], policy["post_copy"]["value"]) == (True, False)


def test_what_was_asked_for_and_vetoed_is_named() -> None:
    task = {"post_copy": True, "auto_converge": False}
    assert vetoed(resolve([("task", task), ("domain", {"post_copy": False})]), task) == ["post_copy"]
    assert vetoed(resolve([("task", task)]), task) == []


@pytest.mark.parametrize(
    ("own", "profile"),
    [
        ({"post_copy": True}, {"post_copy": False}),
        ({"auto_converge": False}, {"auto_converge": True}),
        ({"post_copy": True}, {"auto_converge": True}),
        ({}, {"auto_converge": True, "post_copy": True}),
    ],
)
def test_a_profile_that_contradicts_the_domain_is_a_conflict(own: t.Dict[str, bool], profile: t.Dict[str, bool]) -> None:
    with pytest.raises(Conflict):
        check_profile(own, "db", profile)


@pytest.mark.parametrize("own", [{}, {"post_copy": True}, {"post_copy": True, "auto_converge": False}])
def test_a_profile_that_agrees_or_says_nothing_passes(own: t.Dict[str, bool]) -> None:
    check_profile(own, "db", {"post_copy": True})
    check_profile(own, "db", {"downtime_ms": 5})


def test_each_feature_needs_its_trait() -> None:
    assert required_traits({"post_copy": {"value": True, "source": "task"}, "auto_converge": False}) == ["COMPUTE_MIGRATE_POST_COPY"]
    assert required_traits(resolve([("host", {"auto_converge": True})])) == ["COMPUTE_MIGRATE_AUTO_CONVERGE"]
    assert required_traits(DEFAULTS) == []


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([], {"value": "adaptive", "source": "default"}),
        ([("task", {"timeout_seconds": 60})], {"value": "adaptive", "source": "default"}),
        ([("task", {"downtime_ms": 300})], {"value": "stepped", "source": "task"}),
        ([("task", {}), ("domain", {"downtime_ms": 300})], {"value": "stepped", "source": "domain"}),
        ([("task", {}), ("host", {"downtime_steps": 5})], {"value": "stepped", "source": "host"}),
        ([("task", {"downtime_ms": 300, "downtime_strategy": "adaptive"})], {"value": "adaptive", "source": "task"}),
        ([("task", {"downtime_ms": 300}), ("host", {"downtime_strategy": "adaptive"})], {"value": "adaptive", "source": "host"}),
    ],
)
def test_whoever_describes_the_ramp_gets_it_unless_a_strategy_is_named(layers: t.List[Layer], expected: t.Dict[str, t.Any]) -> None:
    assert merged(layers)["downtime_strategy"] == expected


def test_a_strategy_is_one_of_two() -> None:
    with pytest.raises(InvalidArgument, match="Give one of: stepped, adaptive"):
        merged([("task", {"downtime_strategy": "steep"})])
