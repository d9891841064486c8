# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves with the policy of a domain: which source has precedence, what the record keeps of it, and that the policy moves with the domain."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import Operator, by_hand, extra, told, written
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


@pytest.mark.long
def test_the_live_and_the_persistent_policy_move_with_the_domain(lab: Lab, operator: Operator, web: str) -> None:
    by_hand(lab, web, "<timeout_seconds>100</timeout_seconds><novel/>", "--live")
    by_hand(lab, web, "<timeout_seconds>200</timeout_seconds>", "--config")
    assert "another policy than the running domain" in told(operator.policy(web))
    done = operator.move(web)
    assert done.record["policy"]["timeout_seconds"] == {"value": 100, "source": "domain"}
    assert lab.places(web) == {2: "running"}
    assert written(lab, web, "live", on=2) == {"timeout_seconds": "100", "novel": ""}
    assert written(lab, web, "config", on=2) == {"timeout_seconds": "200"}
    assert operator.policy(web, on=2).result["policy"] == {"timeout_seconds": 100}


@pytest.mark.long
def test_each_value_of_the_policy_has_its_source(operator: Operator, web: str) -> None:
    variables = {
        "kvmfleet_profiles": {"quick": {"downtime_ms": 120, "on_timeout": "abort", "timeout_seconds": 50}},
        "kvmfleet_migration_policy": {"stall_seconds": 33, "downtime_ms": 700, "auto_converge": True},
    }
    operator.policy(web, variables=variables, profile="quick", timeout_seconds=60)
    policy = operator.move_with(web, variables, downtime_steps=5).record["policy"]
    assert policy["downtime_steps"] == {"value": 5, "source": "task"}
    assert policy["timeout_seconds"] == {"value": 60, "source": "domain"}
    assert policy["downtime_ms"] == {"value": 120, "source": "profile"}
    assert policy["stall_seconds"] == {"value": 33, "source": "host"}
    assert policy["auto_converge"] == {"value": True, "source": "host"}
    assert policy["post_copy"] == {"value": False, "source": "default"}


def test_a_veto_of_the_domain_overrides_task_and_host_with_a_warning(lab: Lab, operator: Operator, web: str) -> None:
    operator.policy(web, post_copy=False)
    done = operator.move_with(web, {"kvmfleet_migration_policy": {"post_copy": True}}, post_copy=True)
    assert done.ended() == ("completed", None)
    assert done.record["policy"]["post_copy"] == {"value": False, "source": "domain"}
    assert "override_policy" not in done.record["policy"]
    assert f"post_copy: true in the task is ignored for domain {web}" in told(done)
    assert lab.places(web) == {2: "running"}


@pytest.mark.long
def test_override_policy_is_recorded(operator: Operator, web: str) -> None:
    operator.policy(web, post_copy=False)
    done = operator.move(web, post_copy=True, override_policy=True)
    assert done.record["policy"]["post_copy"] == {"value": True, "source": "task"}
    assert done.record["policy"]["override_policy"] == {"value": True, "source": "task"}
    assert done.record["request"]["traits"] == ["COMPUTE_MIGRATE_POST_COPY"]
    assert "is ignored" not in told(done)


AUTO_CONVERGE_BY_DEFAULT = {"kvmfleet_migration_policy": {"auto_converge": True}}
BOTH_BY_DEFAULT = {"kvmfleet_migration_policy": {"auto_converge": True, "post_copy": True}}


@pytest.mark.long
def test_a_default_of_the_host_gives_way_to_what_the_domain_asks_for(lab: Lab, operator: Operator, web: str) -> None:
    assert operator.policy(web, variables=AUTO_CONVERGE_BY_DEFAULT, post_copy=True).result["effective"]["auto_converge"] == {"value": False, "source": "domain"}
    done = operator.move_with(web, AUTO_CONVERGE_BY_DEFAULT)
    assert done.ended() == ("completed", None)
    assert done.record["policy"]["post_copy"] == {"value": True, "source": "domain"}
    assert done.record["policy"]["auto_converge"] == {"value": False, "source": "domain"}
    assert "POSTCOPY" in done.record["connection"]["flags"]
    assert "AUTO_CONVERGE" not in done.record["connection"]["flags"]
    assert lab.places(web) == {2: "running"}


@pytest.mark.long
def test_a_task_decides_between_what_domain_and_host_ask_for(operator: Operator, web: str) -> None:
    operator.policy(web, auto_converge=True)
    done = operator.move_with(web, BOTH_BY_DEFAULT, post_copy=True)
    assert done.record["policy"]["post_copy"] == {"value": True, "source": "task"}
    assert done.record["policy"]["auto_converge"] == {"value": False, "source": "task"}


def test_both_features_in_one_task_are_a_conflict(lab: Lab, operator: Operator, web: str) -> None:
    done = operator.move(web, post_copy=True, auto_converge=True)
    assert done.refused() == "conflict"
    assert "both on in the task" in done.msg
    assert operator.records() == []
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_a_domain_that_got_both_features_by_hand_is_moved_once_the_task_decides(lab: Lab, operator: Operator, web: str) -> None:
    by_hand(lab, web, "<post_copy>yes</post_copy><auto_converge>On</auto_converge>", "--live", "--config")
    done = operator.move(web)
    assert done.refused() == "conflict"
    assert "both on in the domain's own policy" in done.msg
    assert operator.records() == []
    assert operator.move(web, auto_converge=True).record["policy"]["post_copy"] == {"value": False, "source": "task"}


@pytest.mark.long
def test_both_features_as_defaults_of_the_host_are_a_preference_for_post_copy(operator: Operator, web: str) -> None:
    """The task has the facts of both hosts, as that of a drain has."""
    (done,) = operator.play(1, [("live_migrate", {"name": web, "destination": operator.lab.host(2)})], *extra(BOTH_BY_DEFAULT), facts=True)
    (record,) = done["migrations"]
    assert record["status"] == "completed"
    assert (record["policy"]["post_copy"], record["policy"]["auto_converge"]) == ({"value": True, "source": "host"}, {"value": False, "source": "host"})
    assert "POSTCOPY" in record["connection"]["flags"]


@pytest.mark.long
def test_the_forced_pause_and_the_timeout_by_size_are_recorded_with_their_sources(operator: Operator, web: str) -> None:
    variables = {
        "kvmfleet_migration_policy": {"timeout_seconds_per_gib": 90, "force_pause_max_seconds": 44},
        "kvmfleet_profiles": {"gentle": {"force_pause_max_seconds": 4}},
    }
    shown = operator.policy(web, variables=variables, profile="gentle").result["effective"]
    assert shown["force_pause_max_seconds"] == {"value": 4, "source": "profile"}
    policy = operator.move_with(web, variables).record["policy"]
    assert policy["force_pause_max_seconds"] == {"value": 4, "source": "profile"}
    assert policy["timeout_seconds_per_gib"] == {"value": 90, "source": "host"}
    assert policy["timeout_seconds"] == {"value": None, "source": "default"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_seconds_per_gib": 0},
        pytest.param({"timeout_seconds_per_gib": "800"}, marks=pytest.mark.long),
        pytest.param({"force_pause_max_seconds": 0}, marks=pytest.mark.long),
    ],
)
def test_invalid_defaults_of_the_host_move_nothing(lab: Lab, operator: Operator, web: str, wrong: dict[str, t.Any]) -> None:
    assert operator.move_with(web, {"kvmfleet_migration_policy": wrong}).refused() == "invalid_argument"
    assert operator.records() == []
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_a_missing_profile_stops_only_the_domains_that_name_it(lab: Lab, operator: Operator, web: str, guest: Make) -> None:
    other = guest("other")
    assert operator.policy(web, variables={"kvmfleet_profiles": {"gold": {}}}, profile="gold").changed
    done = operator.moves([(web, 2), (other, 2)])
    assert done.code != 0
    assert done.result["error_code"] == "invalid_argument"
    assert "'gold'" in done.msg
    assert (lab.places(web), lab.places(other)) == ({1: "running"}, {2: "running"})
