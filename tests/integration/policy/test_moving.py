# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves with the policy of a domain: which source has precedence, what the record keeps of it, and that the policy moves with the domain."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import Operator, by_hand, told, written
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


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


@pytest.mark.long
def test_a_veto_of_the_domain_overrides_task_and_host_with_a_warning(lab: Lab, operator: Operator, web: str) -> None:
    operator.policy(web, post_copy=False)
    done = operator.move_with(web, {"kvmfleet_migration_policy": {"post_copy": True}}, post_copy=True)
    assert done.ended() == ("completed", None)
    assert done.record["policy"]["post_copy"] == {"value": False, "source": "domain"}
    assert "override_policy" not in done.record["policy"]
    assert f"post_copy: true in the task is ignored for domain {web}" in told(done)
    assert lab.places(web) == {2: "running"}


def test_override_policy_is_recorded(operator: Operator, web: str) -> None:
    operator.policy(web, post_copy=False)
    done = operator.move(web, post_copy=True, override_policy=True)
    assert done.record["policy"]["post_copy"] == {"value": True, "source": "task"}
    assert done.record["policy"]["override_policy"] == {"value": True, "source": "task"}
    assert done.record["request"]["traits"] == ["COMPUTE_MIGRATE_POST_COPY"]
    assert "is ignored" not in told(done)


@pytest.mark.long
def test_post_copy_and_auto_converge_from_two_sources_are_a_conflict(lab: Lab, operator: Operator, web: str) -> None:
    operator.policy(web, post_copy=True)
    done = operator.move_with(web, {"kvmfleet_migration_policy": {"auto_converge": True}})
    assert done.refused() == "conflict"
    assert "auto_converge from host and post_copy from domain" in done.msg
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
