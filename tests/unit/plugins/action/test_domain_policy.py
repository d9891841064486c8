# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the task domain_policy returns of a domain: the policy in its definition, what holds, and both for people."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.kvmfleet.migration.plugins.action.domain_policy import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import LIVE
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

Result = dict[str, t.Any]
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


def read_policy(**variables: t.Any) -> Result:
    action = ActionModule.__new__(ActionModule)
    action._loader = None
    action._task = types.SimpleNamespace(args={"name": "db1"}, async_val=0, check_mode=False, diff=False, delegate_to=None)
    domain = {"uuid": UUID, "name": "db1", "state": "running", "job": "none", "busy": False}
    action._execute_module = lambda **given: {"changed": False, "domain": domain, "definitions": {LIVE: ""}}
    return t.cast(Result, action.run_with_options(task_vars("kvm1", variables)))


def test_the_policy_for_people_has_each_value_with_its_source() -> None:
    result = read_policy(kvmfleet_migration_policy={"timeout_seconds": 900, "post_copy": True, "on_timeout": "force_complete"})
    assert (result["changed"], result["policy"]) == (False, {})
    assert result["lines"][0] == "The next move of db1 takes:"
    assert {"timeout_seconds: 900 (host)", "post_copy: true (host)", "on_timeout: force_complete (host)"} <= set(result["lines"])
    assert all(line.endswith(("(host)", "(default)")) for line in result["lines"][1:])
    shown = {line.partition(":")[0] for line in result["lines"][1:]}
    assert shown == {field for field, entry in result["effective"].items() if entry["value"] not in (None, [])}
