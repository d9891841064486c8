# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An administrator takes override_policy away, and operators cannot take it back."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import Operator, told
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

TAKEN_AWAY = {"kvmfleet_override_policy_allowed": False}
GIVEN = {"kvmfleet_override_policy_allowed": True}
OVERRULE = {"post_copy": True, "override_policy": True}


def check_untouched(lab: Lab, operator: Operator, web: str) -> None:
    assert operator.records() == []
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_the_first_move_keeps_the_variable_in_the_ledger_and_no_extra_variable_lifts_it(lab: Lab, operator: Operator, web: str) -> None:
    operator.policy(web, post_copy=False)
    refused = operator.move_with(web, TAKEN_AWAY, **OVERRULE)
    assert refused.refused() == "forbidden"
    assert "Whoever maintains the inventory can change that" in refused.msg
    again = operator.move_with(web, GIVEN, **OVERRULE)
    assert again.refused() == "forbidden"
    assert "has taken it away at" in again.msg
    assert "ledger_settings" in again.msg
    check_untouched(lab, operator, web)
    assert operator.task(1, "ledger_settings", {}).result["settings"]["override_policy_allowed"] is False
    allowed = operator.task(1, "ledger_settings", {"override_policy_allowed": True, "reason": "Agreed"})
    assert (allowed.changed, len(allowed.result["settings"]["decisions"])) == (True, 2)
    done = operator.move(web, **OVERRULE)
    assert done.ended() == ("completed", None)
    assert done.record["policy"]["override_policy"] == {"value": True, "source": "task"}


@pytest.mark.long
def test_a_move_without_override_policy_keeps_the_variable_too_and_says_so_once(operator: Operator, web: str) -> None:
    done = operator.move_with(web, TAKEN_AWAY)
    assert done.ended() == ("completed", None)
    assert "keeps this from now on" in told(done)
    assert operator.task(2, "live_migrate", {"name": web, "destination": operator.lab.host(1), **OVERRULE}).refused() == "forbidden"


@pytest.mark.long
def test_check_mode_refuses_and_writes_nothing(lab: Lab, operator: Operator, web: str) -> None:
    assert operator.move(web, 2, "--check", "-e", '{"kvmfleet_override_policy_allowed": "no"}', **OVERRULE).refused() == "forbidden"
    assert operator.ledger.read_settings() is None
    check_untouched(lab, operator, web)


@pytest.mark.long
def test_a_value_that_is_no_boolean_moves_nothing(lab: Lab, operator: Operator, web: str) -> None:
    done = operator.move_with(web, {"kvmfleet_override_policy_allowed": "perhaps"})
    assert done.refused() == "invalid_argument"
    assert "kvmfleet_override_policy_allowed of" in done.msg
    check_untouched(lab, operator, web)


@pytest.mark.long
def test_a_decision_in_the_ledger_needs_a_reason_and_check_mode_writes_none(lab: Lab, operator: Operator, web: str) -> None:
    assert operator.task(1, "ledger_settings", {}).refused() == "not_found"
    assert operator.task(1, "ledger_settings", {"override_policy_allowed": False}).refused() == "invalid_argument"
    decide = {"override_policy_allowed": False, "reason": "Owners decide"}
    assert operator.task(1, "ledger_settings", decide).changed
    assert operator.task(1, "ledger_settings", {**decide, "override_policy_allowed": True}, "--check").changed
    assert not operator.task(1, "ledger_settings", decide).changed
    assert operator.move(web, **OVERRULE).refused() == "forbidden"
    check_untouched(lab, operator, web)
