# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module live_migrate: as the one step in which the role drain_host plans and moves."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.live_migrate import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction

Result = dict[str, t.Any]
MOVE = {"uuid": "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", "destination": "kvm2"}
OPTIONS = {"sources": ["kvm1"]}
VERIFY = {"publish_as": "drain_host_result"}
STATS = {"data": {"drain_host_result": {"safe": True}}}
PREDICTED = {MOVE["uuid"]: {"seconds": 2.0}}


class Task(types.SimpleNamespace):
    def copy(self) -> Task:
        return Task(**vars(self))


class Step:
    """The step on kvm1; the errors are what the plan, the moves or the verification fail with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share: Result = {"moves": [MOVE], "shutdowns": [], "cold_moves": [], "ends": ["kvm1", "kvm2"], "predicted": PREDICTED}
        self.warnings: list[str] = []
        self.plan_errors: list[KvmfleetError] = []
        self.move_errors: list[KvmfleetError] = []
        self.verify_errors: list[KvmfleetError] = []
        self.seen: Result = {"kvm1": {}, "kvm2": {}}
        self.planned: list[Result] = []
        self.verified: list[Result] = []
        self.moved: list[Result] = []
        self.failed: Result = {}
        monkeypatch.setattr(FleetAction, "run_with_options", lambda action, task_vars: self._move(action))

    def run(self, **work: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._task = Task(args={"_work": work, "progress": "none"}, delegate_to=None)
        action._connection = action._play_context = action._loader = action._templar = None
        action._shared_loader_obj = types.SimpleNamespace(action_loader=types.SimpleNamespace(get=self._find_action))
        return t.cast(Result, action.run_with_options({"inventory_hostname": "kvm1"}))

    def _find_action(self, name: str, **parts: t.Any) -> types.SimpleNamespace:
        act = {"kvmfleet.migration.drain_plan": self._plan, "kvmfleet.migration.drain_verify": self._verify}[name]
        return types.SimpleNamespace(run_with_options=lambda task_vars: act(parts["task"].args))

    def _plan(self, options: Result) -> Result:
        self.planned.append(options)
        for error in self.plan_errors:
            raise error
        plan = {"options": {"parallel": 3}}
        return {"changed": False, "plan": plan, "shares": {"kvm1": self.share}, "_answered": {}, **({"warnings": self.warnings} if self.warnings else {})}

    def _move(self, action: FleetAction) -> Result:
        self.moved.append(action._task.args)
        for error in self.move_errors:
            raise error
        return {"changed": True, "migrations": [], "_seen": self.seen, "warnings": ["old", "new"], **self.failed}

    def _verify(self, options: Result) -> Result:
        self.verified.append(options)
        for error in self.verify_errors:
            raise error
        return {"changed": False, "result": {"safe": True}, "problems": {}, "ansible_stats": STATS, "warnings": ["new", "newest"]}


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    return Step(monkeypatch)


def test_the_moves_of_the_plan_are_carried_out_in_the_same_step(step: Step) -> None:
    step.warnings = ["old"]
    done = step.run(plan=OPTIONS, look=True, verify=VERIFY)
    assert step.planned == [OPTIONS]
    work = {"plan": None, "look": True, "verify": VERIFY, "predicted": PREDICTED}
    assert step.moved == [{"_work": work, "progress": "none", "moves": [MOVE], "parallel": 3}]
    assert (done["changed"], done["_moved"], done["warnings"]) == (True, True, ["old", "new", "newest"])
    assert done["shares"]["kvm1"] == step.share
    assert "failed" not in done


def test_the_drain_is_verified_in_the_same_step_if_all_of_its_hosts_were_seen_at_its_end(step: Step) -> None:
    done = step.run(plan=OPTIONS, look=True, verify=VERIFY)
    [options] = step.verified
    assert (options["publish_as"], options["plan"], options["_work"]["answered"]) == ("drain_host_result", done["plan"], {})
    assert options["_work"]["moved"]["kvm1"]["_seen"] == step.seen
    assert done["_verified"] == {"changed": False, "result": {"safe": True}, "problems": {}}
    assert done["ansible_stats"] == STATS


def test_a_drain_whose_hosts_must_still_be_asked_is_verified_by_the_role(step: Step) -> None:
    del step.seen["kvm2"]
    assert "_verified" not in step.run(plan=OPTIONS, look=True, verify=VERIFY)
    assert step.verified == []


def test_a_drain_in_which_a_move_failed_is_verified_by_the_role(step: Step) -> None:
    """Ansible does not publish the statistics of a task that failed."""
    step.failed = {"failed": True, "msg": "The move took too long."}
    done = step.run(plan=OPTIONS, look=True, verify=VERIFY)
    assert (done["failed"], "_verified" in done, step.verified) == (True, False, [])


def test_the_role_reports_why_a_drain_cannot_be_verified(step: Step) -> None:
    step.verify_errors = [InvalidArgument("The plan is not complete.")]
    done = step.run(plan=OPTIONS, look=True, verify=VERIFY)
    assert (done["changed"], done["_moved"]) == (True, True)
    assert "_verified" not in done


def test_without_a_plan_nothing_is_moved(step: Step) -> None:
    step.plan_errors = [Conflict("There is no place.")]
    with pytest.raises(Conflict, match="There is no place"):
        step.run(plan=OPTIONS)
    assert step.moved == []


@pytest.mark.parametrize("share", [{"moves": []}, {"cold_moves": [MOVE]}, {"shutdowns": [MOVE["uuid"]]}])
def test_a_plan_without_moves_or_with_domains_to_shut_down_is_returned_alone(step: Step, share: Result) -> None:
    step.share |= share
    done = step.run(plan=OPTIONS)
    assert step.moved == []
    assert "_moved" not in done
    assert done["plan"] == {"options": {"parallel": 3}}


def test_moves_that_cannot_begin_leave_the_plan_in_the_result(step: Step) -> None:
    step.move_errors = [InvalidArgument("timeout_seconds must be a number.")]
    done = step.run(plan=OPTIONS, verify=VERIFY)
    assert (done["failed"], done["changed"], done["error_code"]) == (True, False, "invalid_argument")
    assert done["plan"]["options"] == {"parallel": 3}


def test_without_a_request_of_the_role_only_the_moves_are_made(step: Step) -> None:
    assert "plan" not in step.run(look=True)
    assert step.planned == []
    assert step.moved == [{"_work": {"look": True}, "progress": "none"}]
