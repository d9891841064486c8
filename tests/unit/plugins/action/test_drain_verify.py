# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module drain_verify: judges a drain by facts and ledger, shows the result and publishes it."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import drain_verify
from ansible_collections.kvmfleet.migration.plugins.action.drain_verify import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record

WEB = domain("web1")
PLAN = encode(make_plan(DrainInputs({"kvm1": facts("kvm1", WEB), "kvm2": facts("kvm2")}), ["kvm1"], ["kvm2"]))
MOVED = {"moved": {"kvm1": {"migrations": [encode(record("web1", "kvm1", "kvm2", "completed"))]}}}

Result = dict[str, t.Any]


class Node:
    """A control node that knows the facts of two hosts after a drain."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.facts = {"kvm1": facts("kvm1"), "kvm2": facts("kvm2", WEB)}
        self.check_mode = False

    def task(self, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=False)
        action._task.args = {"plan": PLAN, "publish_as": "drain_host_result", **args}
        hosts = {name: {"inventory_hostname": name, "ansible_facts": {"kvmfleet_host": known}} for name, known in self.facts.items()}
        own = {**hosts.pop("kvm1"), "kvmfleet_ledger": self.ledger.name}
        done: Result = action.run_with_options(task_vars("kvm1", own, hosts))
        check_document("drain-result.json", done["result"])
        return done


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(drain_verify, "Display", lambda: types.SimpleNamespace(display=print))
    return Node(tmp_path)


def test_the_result_of_a_drain_is_shown_and_published_for_all_batches(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    done = node.task(_work=MOVED)
    assert (done["changed"], done["problems"]) == (False, {})
    assert [entry["name"] for entry in done["result"]["kvm1"]["moved"]] == ["web1"]
    assert done["ansible_stats"] == {"data": {"drain_host_result": done["result"]}, "per_host": False, "aggregate": True}
    assert "kvm1: 1 moved, 0 failed, 0 left as they were. Safe to reboot." in capsys.readouterr().out


def test_a_host_with_an_unsettled_record_is_not_safe_to_reboot(node: Node) -> None:
    node.ledger.open_record(record("other", "kvm1", "kvm2"))
    done = node.task(_work=MOVED)
    assert done["result"]["kvm1"]["safe_to_reboot"] is False
    assert "of other is unsettled (running)." in done["problems"]["kvm1"]


def test_a_new_answer_of_a_host_overrides_its_facts(node: Node) -> None:
    asked = [{"item": "kvm1", "ansible_facts": {"kvmfleet_host": facts("kvm1", WEB)}}]
    done = node.task(_work={**MOVED, "asked": asked})
    assert "web1 on kvm1: It is still running (booted) on kvm1." in done["problems"]["kvm1"]


def test_a_plan_only_run_has_no_result(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.facts = {"kvm1": facts("kvm1", WEB), "kvm2": facts("kvm2")}
    done = node.task(only=True)
    assert (done["problems"], capsys.readouterr().out) == ({}, "")
    node.check_mode = True
    assert node.task()["problems"] == {}
    assert "NOT safe to reboot" in capsys.readouterr().out


@pytest.mark.parametrize("args", [{"plan": {"sources": ["kvm1"]}}, {"plan": {**PLAN, "sources": []}}, {"_work": {"moved": 5}}])
def test_an_invalid_plan_or_task_result_is_refused(node: Node, args: Result) -> None:
    with pytest.raises(InvalidArgument):
        node.task(**args)


def test_a_result_is_not_published_unless_a_name_is_given(node: Node) -> None:
    assert "ansible_stats" not in node.task(_work=MOVED, publish_as=None)


def test_a_guest_that_has_arrived_since_its_host_was_queried_makes_the_reboot_unsafe(node: Node) -> None:
    stored = node.ledger.open_record(record("late", "kvm2", "kvm1", "accepted"))
    for status in ("scheduled", "queued", "preparing", "running", "completed"):
        stored = node.ledger.update_record(stored, stored.record.advance(status, "a test"))
    result = node.task(_work=MOVED)["result"]["kvm1"]
    assert (result["safe_to_reboot"], "late arrived here" in result["blockers"][0]) == (False, True)


def test_a_guest_that_an_evacuation_has_started_since_its_host_was_queried_makes_the_reboot_unsafe(node: Node) -> None:
    stored = node.ledger.open_record(record("late", "kvm2", "kvm1", "accepted", type="evacuation"))
    for status in ("pre-migrating", "done"):
        stored = node.ledger.update_record(stored, stored.record.advance(status, "a test"))
    result = node.task(_work=MOVED)["result"]["kvm1"]
    assert (result["safe_to_reboot"], "late arrived here" in str(result["blockers"])) == (False, True)


@pytest.mark.parametrize(("kind", "statuses"), [("live-migration", ("completed",)), ("evacuation", ("pre-migrating", "done"))])
def test_a_guest_that_arrives_while_the_ledger_is_read_makes_the_reboot_unsafe(
    node: Node, monkeypatch: pytest.MonkeyPatch, kind: str, statuses: tuple[str, ...]
) -> None:
    begun = [node.ledger.open_record(record("late", "kvm2", "kvm1", "running" if kind == "live-migration" else "accepted", type=kind))]

    def then_arrive(read: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def read_and_arrive(*args: t.Any) -> t.Any:
            found = read(*args)
            for stored in [begun.pop()] if begun else []:
                for status in statuses:
                    stored = node.ledger.update_record(stored, stored.record.advance(status, "a test"))
            return found

        return read_and_arrive

    for name in ("read_unsettled", "read_arrived_since_plan"):
        monkeypatch.setattr(drain_verify, name, then_arrive(getattr(drain_verify, name)))
    assert node.task(_work=MOVED)["result"]["kvm1"]["safe_to_reboot"] is False
