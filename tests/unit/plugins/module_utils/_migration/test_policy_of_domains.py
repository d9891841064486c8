# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import check_profile, merged, required_traits, resolve, uses_both, vetoed

OF_DOMAIN = ("domain", "profile")


@pytest.mark.parametrize("feature", ["auto_converge", "post_copy"])
@pytest.mark.parametrize("source", OF_DOMAIN)
def test_a_false_of_the_domain_or_its_profile_is_a_veto(feature: str, source: str) -> None:
    layers = [("task", {feature: True}), (source, {feature: False}), ("host", {feature: True})]
    policy = resolve(layers)
    assert policy[feature] == {"value": False, "source": source}
    assert "override_policy" not in policy
    assert vetoed(policy, {feature: True}) == [feature]


def test_override_is_recorded_and_lets_the_task_speak() -> None:
    policy = resolve([("task", {"post_copy": True}), ("domain", {"post_copy": False})], override=True)
    assert policy["post_copy"] == {"value": True, "source": "task"}
    assert policy["override_policy"] == {"value": True, "source": "task"}
    assert vetoed(policy, {"post_copy": True}) == []


def test_override_without_a_word_of_the_task_changes_no_value() -> None:
    policy = resolve([("task", {}), ("domain", {"post_copy": False}), ("host", {"post_copy": True})], override=True)
    assert policy["post_copy"] == {"value": False, "source": "domain"}


def test_a_true_of_the_domain_goes_before_a_false_of_its_profile_and_may_be_switched_off_by_a_task() -> None:
    own_and_profile = [("domain", {"post_copy": True}), ("profile", {"post_copy": False})]
    assert resolve(own_and_profile)["post_copy"] == {"value": True, "source": "domain"}
    assert resolve([("task", {"post_copy": False}), *own_and_profile])["post_copy"] == {"value": False, "source": "task"}


@pytest.mark.parametrize(
    ("layers", "sources"),
    [
        ([("task", {"auto_converge": True, "post_copy": True})], "auto_converge from task and post_copy from task"),
        ([("domain", {"post_copy": True}), ("host", {"auto_converge": True})], "auto_converge from host and post_copy from domain"),
        ([("task", {"post_copy": True}), ("profile", {"auto_converge": True})], "auto_converge from profile and post_copy from task"),
    ],
)
def test_both_on_is_a_conflict_from_whatever_sources(layers: t.Any, sources: str) -> None:
    with pytest.raises(Conflict, match=sources):
        resolve(layers)
    assert uses_both(merged(layers))


def test_a_veto_parts_the_two() -> None:
    policy = resolve([("task", {"post_copy": True}), ("domain", {"auto_converge": False}), ("host", {"auto_converge": True})])
    assert (policy["post_copy"]["value"], policy["auto_converge"]["value"]) == (True, False)


@pytest.mark.parametrize(
    ("own", "profile"),
    [
        ({"post_copy": True}, {"post_copy": False}),
        ({"auto_converge": False}, {"auto_converge": True}),
        ({"auto_converge": True}, {"post_copy": True}),
        ({}, {"auto_converge": True, "post_copy": True}),
    ],
)
def test_a_profile_that_contradicts_is_refused(own: t.Dict[str, bool], profile: t.Dict[str, bool]) -> None:
    with pytest.raises(Conflict, match="database"):
        check_profile(own, "database", profile)


@pytest.mark.parametrize(
    ("own", "profile"),
    [({"post_copy": False}, {"post_copy": False}), ({"timeout_seconds": 5}, {"timeout_seconds": 6}), ({}, {"post_copy": None}), ({"post_copy": True}, {})],
)
def test_a_profile_that_only_adds_or_is_overruled_elsewhere_is_fine(own: t.Dict[str, t.Any], profile: t.Dict[str, t.Any]) -> None:
    check_profile(own, "database", profile)


def test_a_true_feature_asks_for_its_trait() -> None:
    assert required_traits(resolve([("task", {"post_copy": True})])) == ["COMPUTE_MIGRATE_POST_COPY"]
    assert required_traits({"auto_converge": True, "post_copy": False}) == ["COMPUTE_MIGRATE_AUTO_CONVERGE"]
    assert required_traits(resolve([])) == []
