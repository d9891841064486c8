# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the task domain_policy returns of a domain: the policy in its definition, what holds, and both for people; and what it refuses to write."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.domain_policy import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import CONFIG, LIVE
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

Result = dict[str, t.Any]
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


class Host:
    """A host with the domain db1; C(phases) are what the action has asked of it."""

    def __init__(self, policy: str = "", busy: bool = False) -> None:
        self.policy = policy
        self.persistent: str | None = None
        self.busy = busy
        self.phases: list[str] = []
        self.variables: Result = {}

    def task(self, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args={"name": "db1", **args}, async_val=0, check_mode=False, diff=False, delegate_to=None)
        action._execute_module = self._run
        return t.cast(Result, action.run_with_options(task_vars("kvm1", self.variables)))

    def _run(self, module_args: Result, **_given: t.Any) -> Result:
        self.phases.append(module_args["_work"]["phase"])
        domain = {"uuid": UUID, "name": "db1", "state": "running", "job": "migration", "busy": self.busy}
        return {"changed": False, "domain": domain, "definitions": {LIVE: self.policy, **({} if self.persistent is None else {CONFIG: self.persistent})}}


def test_the_policy_for_people_has_each_value_with_its_source() -> None:
    host = Host()
    host.variables = {"kvmfleet_migration_policy": {"timeout_seconds": 900, "post_copy": True, "on_timeout": "force_complete"}}
    result = host.task()
    assert (result["changed"], result["policy"]) == (False, {})
    assert result["lines"][0] == "The next move of db1 takes:"
    assert {"timeout_seconds: 900 (host)", "post_copy: true (host)", "on_timeout: force_complete (host)"} <= set(result["lines"])
    assert all(line.endswith(("(host)", "(default)")) for line in result["lines"][1:])
    shown = {line.partition(":")[0] for line in result["lines"][1:]}
    assert shown == {field for field, entry in result["effective"].items() if entry["value"] not in (None, [])}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"force_pause_max_seconds": 0}, "force_pause_max_seconds is 0"),
        ({"force_pause_max_seconds": 604801}, "force_pause_max_seconds is 604801"),
        ({"force_pause_max_seconds": "soon"}, "force_pause_max_seconds"),
        ({"post_copy": "maybe"}, "post_copy"),
        ({"timeout_seconds": -1}, "timeout_seconds is -1"),
        ({"timeout_seconds_per_gib": 90}, "timeout_seconds_per_gib"),
        ({"unset": ["timeout"]}, "unset"),
        ({"unset": ["drain"], "drain": "leave"}, "drain is both set and unset"),
        ({"state": "absent", "post_copy": True}, "state: absent removes the whole policy, but fields are given"),
        ({"name": None}, "Exactly one of name and uuid is needed"),
        ({"name": "a/b"}, "a/b"),
    ],
)
def test_invalid_fields_are_refused_before_the_host_is_asked(args: Result, words: str) -> None:
    host = Host()
    with pytest.raises(InvalidArgument, match=words):
        host.task(**args)
    assert host.phases == []


@pytest.mark.parametrize(
    ("policy", "args", "kind", "words"),
    [
        ("<post_copy>maybe</post_copy>", {"priority": 3}, InvalidArgument, "domain db1 on kvm1 is wrong: <post_copy>: .* set or unset post_copy"),
        ("<post_copy>1</post_copy>", {}, InvalidArgument, "<post_copy>: .* Nothing was changed"),
        ("<auto_converge></auto_converge>", {"unset": ["drain"]}, InvalidArgument, "<auto_converge>"),
        ("<post_copy>yes</post_copy><post_copy>no</post_copy>", {"priority": 3}, InvalidArgument, "<post_copy>: It is listed more than once"),
        ("<post_copy>Yes</post_copy>", {"auto_converge": True}, Conflict, "would both be on .* Nothing was changed"),
        ("", {"profile": "gold"}, InvalidArgument, "'gold'.*Valid names are: gentle"),
        ("", {"profile": "gentle"}, InvalidArgument, "The profile gentle in kvmfleet_profiles of kvm1: force_pause_max_seconds"),
    ],
)
def test_what_the_element_or_a_profile_forbids_is_not_written(policy: str, args: Result, kind: type[KvmfleetError], words: str) -> None:
    host = Host(f"<policy>{policy}</policy>" if policy else "")
    host.variables = {"kvmfleet_profiles": {"gentle": {"force_pause_max_seconds": 0}}}
    with pytest.raises(kind, match=words):
        host.task(**args)
    assert host.phases == ["read"]


@pytest.mark.parametrize("policy", ["<profile>gentle</profile>", "<post_copy>on</post_copy>", ""])
def test_a_profile_is_checked_in_each_definition_that_gets_it(policy: str) -> None:
    host = Host()
    host.persistent = f"<policy>{policy}</policy>"
    host.variables = {"kvmfleet_profiles": {"gentle": {"post_copy": False}}}
    change: Result = {"profile": "gentle"} if "post_copy" in policy else {"post_copy": True}
    if policy:
        with pytest.raises(Conflict, match=r"post_copy would be true for the persistent definition and false in its profile gentle\."):
            host.task(**change)
    else:
        assert host.task(**change)["changed"]
    assert host.phases == ["read", *([] if policy else ["write"])]


def test_a_malformed_element_is_repaired_by_setting_it() -> None:
    host = Host("<policy><post_copy>maybe</post_copy></policy>")
    result = host.task(post_copy=False)
    assert (result["changed"], result["policy"], host.phases) == (True, {"post_copy": False}, ["read", "write"])


def test_a_policy_is_not_written_during_a_job() -> None:
    host = Host(busy=True)
    with pytest.raises(InvalidState, match=r"has a job in progress .* Nothing was changed"):
        host.task(priority=3)
    assert host.phases == ["read"]
