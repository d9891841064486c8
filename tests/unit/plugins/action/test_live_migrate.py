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
PREDICTED = {MOVE["uuid"]: {"seconds": 2.0}}


class Task(types.SimpleNamespace):
    def copy(self) -> Task:
        return Task(**vars(self))


class Step:
    """The step on kvm1; C(error) is what the moves, or the plan, fail with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share: Result = {"moves": [MOVE], "shutdowns": [], "cold_moves": [], "ends": ["kvm1", "kvm2"], "predicted": PREDICTED}
        self.warnings: list[str] = []
        self.plan_errors: list[KvmfleetError] = []
        self.move_errors: list[KvmfleetError] = []
        self.planned: list[Result] = []
        self.moved: list[Result] = []
        monkeypatch.setattr(FleetAction, "run_with_options", lambda action, task_vars: self._move(action))

    def run(self, **work: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._task = Task(args={"_work": work, "progress": "none"}, delegate_to=None)
        action._connection = action._play_context = action._loader = action._templar = None
        action._shared_loader_obj = types.SimpleNamespace(action_loader=types.SimpleNamespace(get=self._planner))
        return t.cast(Result, action.run_with_options({"inventory_hostname": "kvm1"}))

    def _planner(self, name: str, **parts: t.Any) -> types.SimpleNamespace:
        assert name == "kvmfleet.migration.drain_plan"
        return types.SimpleNamespace(run_with_options=lambda task_vars: self._plan(parts["task"].args))

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
        return {"changed": True, "migrations": [], "_seen": {}, "warnings": ["old", "new"]}


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    return Step(monkeypatch)


def test_the_moves_of_the_plan_are_carried_out_in_the_same_step(step: Step) -> None:
    step.warnings = ["old"]
    done = step.run(plan=OPTIONS, look=True)
    assert step.planned == [OPTIONS]
    assert step.moved == [{"_work": {"plan": None, "look": True, "predicted": PREDICTED}, "progress": "none", "moves": [MOVE], "parallel": 3}]
    assert (done["changed"], done["_moved"], done["warnings"]) == (True, True, ["old", "new"])
    assert done["shares"]["kvm1"] == step.share
    assert "failed" not in done


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
    done = step.run(plan=OPTIONS)
    assert (done["failed"], done["changed"], done["error_code"]) == (True, False, "invalid_argument")
    assert done["plan"]["options"] == {"parallel": 3}


def test_without_a_request_of_the_role_only_the_moves_are_made(step: Step) -> None:
    assert "plan" not in step.run(look=True)
    assert step.planned == []
    assert step.moved == [{"_work": {"look": True}, "progress": "none"}]
