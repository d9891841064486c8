# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module ledger_settings as a task has it."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.ledger_settings import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars


class Node:
    """A control node whose inventory names a ledger that does not exist yet."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "ledger"
        self.check_mode = False

    def task(self, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=self.check_mode, diff=True, delegate_to=None)
        return action.run_with_options(task_vars("localhost", {"kvmfleet_ledger": str(self.path)}))


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_a_decision_is_written_once_and_read_back(node: Node) -> None:
    first = node.task(override_policy_allowed=False, reason="Owners decide")
    assert (first["changed"], first["settings"]["override_policy_allowed"], first["settings"]["reason"]) == (True, False, "Owners decide")
    assert (first["diff"]["before"]["override_policy_allowed"], first["diff"]["after"]["override_policy_allowed"]) == (True, False)
    second = node.task(override_policy_allowed=False, reason="Said twice")
    assert (second["changed"], second["settings"]) == (False, first["settings"])
    read = node.task()
    assert (read["changed"], read["settings"], "diff" in read) == (False, first["settings"], False)
    assert (read["ledger"], read["ledger_id"]) == (str(node.path), FileLedger(str(node.path)).ledger_id)
    again = node.task(override_policy_allowed=True, reason="New racks")
    assert (again["changed"], len(again["settings"]["decisions"])) == (True, 2)


def test_a_new_ledger_allows_it_and_nobody_has_decided_that(node: Node) -> None:
    FileLedger(str(node.path))
    settings = node.task()["settings"]
    assert settings == {"override_policy_allowed": True, "by": None, "at": None, "reason": None, "decisions": []}
    assert not node.task(override_policy_allowed=True, reason="To be sure")["changed"]


def test_check_mode_predicts_and_writes_nothing(node: Node) -> None:
    FileLedger(str(node.path))
    node.check_mode = True
    done = node.task(override_policy_allowed=False, reason="Owners decide")
    assert (done["changed"], done["settings"]["override_policy_allowed"]) == (True, False)
    node.check_mode = False
    assert node.task()["settings"]["override_policy_allowed"] is True


@pytest.mark.parametrize(("args", "check_mode"), [({}, False), ({"override_policy_allowed": False, "reason": "x"}, True)])
def test_without_a_ledger_nothing_is_read_or_created(node: Node, args: dict[str, t.Any], check_mode: bool) -> None:
    node.check_mode = check_mode
    with pytest.raises(NotFound):
        node.task(**args)
    assert not node.path.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"override_policy_allowed": False}, "no reason is given"),
        ({"override_policy_allowed": True, "reason": "  "}, "no reason is given"),
        ({"reason": "Because"}, "without override_policy_allowed"),
        ({"override_policy_allowed": "perhaps", "reason": "x"}, "override_policy_allowed"),
        ({"override_policy": False, "reason": "x"}, "override_policy"),
    ],
)
def test_bad_options_change_nothing(node: Node, args: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        node.task(**args)
    assert not node.path.exists()
