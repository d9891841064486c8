# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import (
    Layer,
    check_features,
    check_profile,
    check_task_features,
    has_conflict,
    merge_layers,
    prefer_feature,
    resolve_policy,
    vetoed_features,
    why_no_post_copy,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import (
    DEFAULTS,
    GivenPolicy,
    features_in,
    given_policy,
    read_given_policy,
    required_traits,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import OwnPolicy, parse_policy


def entry_of(policy: GivenPolicy, option: str) -> t.Tuple[t.Any, str]:
    return policy.value_of(option), policy.source_of(option)


def test_defaults_apply_without_any_layer() -> None:
    policy = merge_layers([("task", {}), ("host", {})])
    assert {option: policy.value_of(option) for option in policy.sources} == DEFAULTS
    assert set(policy.sources.values()) == {"default"}


def test_a_policy_with_its_sources_is_read_back_from_a_record() -> None:
    policy = merge_layers([("task", {"timeout_seconds": 60, "post_copy": True}), ("host", {"downtime_ms": 9})], override=True)
    document = policy.as_json()
    assert document["timeout_seconds"] == {"value": 60, "source": "task"}
    assert document["override_policy"] == {"value": True, "source": "task"}
    assert list(document) == [*DEFAULTS, "override_policy"]
    assert read_given_policy(document) == policy


@pytest.mark.parametrize("entry", [{"value": "soon", "source": "task"}, {"value": True, "source": "task"}, 60, None])
def test_an_invalid_value_of_a_policy_in_a_record_counts_as_missing(entry: t.Any) -> None:
    policy = read_given_policy({"stall_seconds": entry, "timeout_seconds": entry})
    assert (policy.stall_seconds, policy.timeout_given, policy.sources) == (60, None, {})


def test_the_first_layer_with_a_value_takes_precedence_for_each_field() -> None:
    policy = merge_layers([("task", {"downtime_ms": 300, "stall_seconds": None}), ("host", {"downtime_ms": 100, "stall_seconds": 5, "unknown": 1})])
    assert entry_of(policy, "downtime_ms") == (300, "task")
    assert entry_of(policy, "stall_seconds") == (5, "host")
    assert policy.source_of("downtime_steps") == "default"
    assert "unknown" not in policy.as_json()


@pytest.mark.parametrize(("field", "given"), [("timeout_seconds", 0), ("stall_seconds", 0), ("auto_converge", False), ("downtime_delay_seconds_per_gib", 0)])
def test_zero_and_false_count_as_values(field: str, given: t.Any) -> None:
    assert entry_of(merge_layers([("task", {field: given}), ("host", {field: DEFAULTS[field] or 9})]), field) == (given, "task")


@pytest.mark.parametrize(
    ("field", "lowest", "highest"),
    [
        ("timeout_seconds", 0, 604800),
        ("timeout_seconds_per_gib", 1, 604800),
        ("force_pause_max_seconds", 1, 604800),
        ("stall_seconds", 0, 604800),
        ("downtime_ms", 1, 2_000_000),
        ("downtime_steps", 1, 1000),
        ("downtime_delay_seconds_per_gib", 0, 604800),
    ],
)
def test_each_number_has_its_bounds(field: str, lowest: int, highest: int) -> None:
    for given in (lowest, highest):
        assert merge_layers([("task", {field: given})]).value_of(field) == given
    for given in (lowest - 1, highest + 1, -1, 10**30):
        with pytest.raises(InvalidArgument, match=rf"{field} is -?\d+ \(task\)"):
            merge_layers([("task", {field: given})])


@pytest.mark.parametrize("given", [True, "60", 1.5, [1], {"a": 1}])
def test_a_numeric_field_must_be_an_integer(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"stall_seconds is .* \(host\)"):
        merge_layers([("task", {}), ("host", {"stall_seconds": given})])


@pytest.mark.parametrize("given", ["yes", 1, "true", []])
def test_a_boolean_field_must_be_true_or_false(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="neither true nor false"):
        merge_layers([("host", {"auto_converge": given})])


def test_an_unknown_choice_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"on_timeout is 'explode' \(host\).*abort"):
        merge_layers([("host", {"on_timeout": "explode"})])


def test_a_field_that_an_older_record_lacks_has_the_default() -> None:
    assert read_given_policy({}) == GivenPolicy()
    policy = read_given_policy({"downtime_ms": {"value": 9, "source": "task"}})
    assert (policy.downtime_ms, policy.sources) == (9, {"downtime_ms": "task"})


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
        (True, False, None, True, (False, "domain")),
        (True, None, False, True, (False, "profile")),
        (False, True, False, None, (False, "task")),
        (None, True, None, False, (True, "domain")),
        (None, True, False, None, (True, "domain")),
        (None, None, True, False, (True, "profile")),
        (False, True, None, None, (False, "task")),
        (None, None, None, True, (True, "host")),
        (None, False, None, True, (False, "domain")),
        (True, None, None, False, (True, "task")),
        (None, None, None, None, (False, "default")),
    ],
)
def test_false_is_a_veto_of_domain_and_profile_but_not_of_the_host(
    feature: str, task: t.Any, domain: t.Any, profile: t.Any, host: t.Any, expected: t.Tuple[bool, str]
) -> None:
    layers = [("task", {feature: task}), ("domain", {feature: domain}), ("profile", {feature: profile}), ("host", {feature: host})]
    assert entry_of(merge_layers(layers), feature) == expected


@pytest.mark.parametrize("feature", ["auto_converge", "post_copy"])
def test_override_policy_lifts_a_veto_and_is_recorded(feature: str) -> None:
    layers = [("task", {feature: True}), ("domain", {feature: False})]
    policy = merge_layers(layers, override=True)
    assert entry_of(policy, feature) == (True, "task")
    assert vetoed_features(policy, {feature: True}) == []
    assert policy.as_json()["override_policy"] == {"value": True, "source": "task"}
    assert "override_policy" not in merge_layers(layers).as_json()


def test_override_policy_without_a_value_of_the_task_keeps_the_veto() -> None:
    policy = merge_layers([("task", {}), ("domain", {"post_copy": False}), ("host", {"post_copy": True})], override=True)
    assert entry_of(policy, "post_copy") == (False, "domain")


LAYERS = ("task", "domain", "profile", "host")


def layers_of(**values: t.Dict[str, bool]) -> t.List[Layer]:
    return [(name, dict(values.get(name, {}))) for name in LAYERS]


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in LAYERS for b in LAYERS if a != b])
def test_of_two_features_from_two_layers_the_more_specific_one_counts(first: str, second: str) -> None:
    policy = check_features(merge_layers(layers_of(**{first: {"auto_converge": True}, second: {"post_copy": True}})))
    winner = min(first, second, key=LAYERS.index)
    assert entry_of(policy, "auto_converge") == (winner == first, winner)
    assert entry_of(policy, "post_copy") == (winner == second, winner)
    assert (policy.has_preference, policy.required_features) == (False, policy.features)


@pytest.mark.parametrize(("layer", "where"), [("task", "the task"), ("domain", "the domain's own policy"), ("profile", "the profile of the domain")])
def test_both_features_in_one_layer_are_a_conflict_unless_a_more_specific_one_decides(layer: str, where: str) -> None:
    both = {"auto_converge": True, "post_copy": True}
    policy = merge_layers(layers_of(**{layer: both}, host={"post_copy": True}))
    assert has_conflict(policy)
    with pytest.raises(Conflict, match=f"are both on in {where}"):
        check_features(policy)
    if layer != "task":
        assert check_features(merge_layers(layers_of(**{layer: both}, task={"post_copy": True}))).features == ["post_copy"]
        assert check_features(merge_layers(layers_of(**{layer: both}, task={"post_copy": False}))).features == ["auto_converge"]


def test_both_features_as_defaults_of_the_host_are_a_preference() -> None:
    policy = check_features(merge_layers(layers_of(host={"auto_converge": True, "post_copy": True})))
    assert (policy.has_preference, policy.required_features) == (True, [])
    for can_post_copy in (True, False):
        chosen = prefer_feature(policy, can_post_copy)
        assert entry_of(chosen, "post_copy") == (can_post_copy, "host")
        assert entry_of(chosen, "auto_converge") == (not can_post_copy, "host")
        assert not chosen.has_preference


@pytest.mark.parametrize("layer", ["task", "domain", "profile"])
@pytest.mark.parametrize("feature", ["auto_converge", "post_copy"])
@pytest.mark.parametrize("value", [True, False])
def test_defaults_of_the_host_never_block_what_a_more_specific_layer_decides(layer: str, feature: str, value: bool) -> None:
    other = "post_copy" if feature == "auto_converge" else "auto_converge"
    policy = check_features(merge_layers(layers_of(**{layer: {feature: value}}, host={"auto_converge": True, "post_copy": True})))
    assert entry_of(policy, feature) == (value, layer)
    assert entry_of(policy, other) == ((False, layer) if value else (True, "host"))
    assert prefer_feature(policy, can_post_copy=True) == policy


def test_a_veto_is_applied_before_the_layers_are_compared() -> None:
    policy = merge_layers(layers_of(task={"post_copy": True}, domain={"post_copy": False}, host={"auto_converge": True}))
    assert (entry_of(policy, "post_copy"), entry_of(policy, "auto_converge")) == ((False, "domain"), (True, "host"))
    policy = check_features(merge_layers(layers_of(task={"post_copy": True}, domain={"auto_converge": False}, host={"auto_converge": True})))
    assert (entry_of(policy, "post_copy"), entry_of(policy, "auto_converge")) == ((True, "task"), (False, "domain"))


def test_an_overridden_veto_takes_the_other_feature_of_the_domain_with_it() -> None:
    policy = merge_layers(layers_of(task={"post_copy": True}, domain={"post_copy": False, "auto_converge": True}), override=True)
    assert (entry_of(policy, "post_copy"), entry_of(policy, "auto_converge")) == ((True, "task"), (False, "task"))


def test_a_task_with_both_features_is_refused() -> None:
    with pytest.raises(Conflict, match="both on in the task"):
        check_task_features({"auto_converge": True, "post_copy": True})
    check_task_features({"auto_converge": True, "post_copy": False})
    check_task_features({})


@pytest.mark.parametrize(
    ("xml", "why"),
    [
        ("", ""),
        ("<policy><post_copy>true</post_copy></policy>", ""),
        ("<policy><auto_converge>false</auto_converge><priority>many</priority></policy>", ""),
        ("<policy><post_copy>false</post_copy></policy>", "its policy forbids post-copy"),
        ("<policy><post_copy>No</post_copy></policy>", "its policy forbids post-copy"),
        ("<policy><auto_converge>on</auto_converge></policy>", "its policy requests auto-converge"),
        ("<policy><profile>db</profile></policy>", "its profile 'db' is defined in the inventory, which this host cannot read"),
        ("<policy><post_copy>maybe</post_copy></policy>", r"its policy cannot be read (post_copy)"),
        ("<policy><auto_converge/></policy>", r"its policy cannot be read (auto_converge)"),
        ("<policy><profile>a</profile><profile>b</profile></policy>", r"its policy cannot be read (profile)"),
        ("<policy><post_copy>true</post_copy>", r"its policy cannot be read (policy)"),
    ],
)
def test_what_forbids_post_copy_or_cannot_be_read_on_the_host(xml: str, why: str) -> None:
    assert why_no_post_copy(parse_policy(xml)) == why


def test_a_policy_without_elements_forbids_nothing() -> None:
    assert why_no_post_copy(OwnPolicy()) == ""


@pytest.mark.parametrize("feature", ["auto_converge", "post_copy"])
def test_requested_features_with_a_veto_are_named(feature: str) -> None:
    task = {"auto_converge": False, "post_copy": False, feature: True}
    for source in ("domain", "profile"):
        assert vetoed_features(merge_layers([("task", task), (source, {feature: False})]), task) == [feature]
    assert vetoed_features(merge_layers([("task", task)]), task) == []


@pytest.mark.parametrize(
    ("own", "profile"),
    [
        ({"post_copy": True}, {"post_copy": False}),
        ({"auto_converge": False}, {"auto_converge": True}),
        ({"post_copy": True}, {"auto_converge": True}),
        ({"auto_converge": True}, {"post_copy": True}),
        ({}, {"auto_converge": True, "post_copy": True}),
    ],
)
def test_a_profile_that_contradicts_the_domain_is_a_conflict(own: t.Dict[str, bool], profile: t.Dict[str, bool]) -> None:
    with pytest.raises(Conflict, match="db"):
        check_profile(own, "db", profile, "the domain itself")


@pytest.mark.parametrize(
    ("own", "profile"),
    [
        ({}, {"post_copy": True}),
        ({"post_copy": True}, {"post_copy": True}),
        ({"post_copy": True, "auto_converge": False}, {"post_copy": True}),
        ({"post_copy": True, "auto_converge": False}, {"downtime_ms": 5}),
        ({"post_copy": False}, {"post_copy": False}),
        ({"timeout_seconds": 5}, {"timeout_seconds": 6}),
        ({}, {"post_copy": None}),
        ({"post_copy": True}, {}),
    ],
)
def test_a_profile_that_does_not_contradict_the_domain_is_accepted(own: t.Dict[str, t.Any], profile: t.Dict[str, t.Any]) -> None:
    check_profile(own, "db", profile, "the domain itself")


def test_each_feature_needs_its_trait() -> None:
    assert required_traits(features_in({"post_copy": True, "auto_converge": False})) == ["COMPUTE_MIGRATE_POST_COPY"]
    assert required_traits(merge_layers([("host", {"auto_converge": True})]).features) == ["COMPUTE_MIGRATE_AUTO_CONVERGE"]
    assert required_traits(GivenPolicy().features) == []


def test_the_timeout_is_resolved_for_the_size_of_the_guest() -> None:
    policy = resolve_policy(GivenPolicy(), 16)
    assert (policy.timeout_seconds, policy.full_downtime_from_seconds, policy.is_stepped, policy.is_forced_on_timeout) == (12800, 6400, False, False)
    assert resolve_policy(GivenPolicy(timeout_given=0), 16).timeout_seconds == 0
    assert resolve_policy(GivenPolicy(timeout_given=60, on_timeout="force_complete"), 16).is_forced_on_timeout


def test_the_timeout_by_size_can_be_set_by_the_host_and_is_recorded() -> None:
    policy = merge_layers(layers_of(host={"timeout_seconds_per_gib": 50, "downtime_strategy": "stepped"}))  # type: ignore[dict-item]
    assert policy.as_json()["timeout_seconds_per_gib"] == {"value": 50, "source": "host"}
    resolved = resolve_policy(read_given_policy(policy.as_json()), 16)
    assert (resolved.timeout_seconds, resolved.full_downtime_from_seconds, resolved.ramp[-1]) == (800, 400, (400.0, 500))
    assert resolve_policy(merge_layers(layers_of()), 1000).timeout_seconds == 604800
    assert resolve_policy(merge_layers([("task", {"timeout_seconds": 0}), ("host", {"timeout_seconds_per_gib": 50})]), 16).timeout_seconds == 0


def test_a_stepped_ramp_takes_at_most_half_of_a_given_or_computed_timeout() -> None:
    """The plan of a drain and the watcher go by the same limit."""
    given = given_policy({"downtime_strategy": "stepped"}, {})
    policy = resolve_policy(given, 16)
    assert policy.is_stepped
    assert policy.ramp[-1] == (6400.0, 500)
    assert resolve_policy(given_policy({"timeout_seconds": 100, "downtime_strategy": "stepped"}, {}), 16).ramp[-1] == (50.0, 500)


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
def test_downtime_options_select_the_stepped_strategy_unless_one_is_named(layers: t.List[Layer], expected: t.Dict[str, t.Any]) -> None:
    assert merge_layers(layers).as_json()["downtime_strategy"] == expected


def test_an_unknown_downtime_strategy_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Give one of: stepped, adaptive"):
        merge_layers([("task", {"downtime_strategy": "steep"})])
