# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import pathlib
import types
import typing as t

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.action.protect import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import TooLarge
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document, find_errors
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import ID1, KVM2, SECRET, UUID1, reported_domain

ROLE = pathlib.Path(__file__).parents[4] / "roles" / "protect_host"
GUARD = {"installed": False, "systemd": False, "held_at_boot": False, "held": False, "note": ""}
ANSWERS: dict[str, dict[str, t.Any]] = {
    "identify": {"identity": {"host_id": ID1, "host_uuid": UUID1, "machine_id": "m1"}, "libvirt_error": None},
    "leave": {"changed": True, "host_id": ID1, "folders": {}, "unwritable": {"/iso": "Read-only file system"}, "devices": {}},
    "see": {"sees": {}},
    "save": {"domains": [reported_domain()], "arriving": [], "unreadable": []},
    "guard": {"changed": False, "guard": GUARD},
}


class Task:
    """The action as a task of the host kvm1 runs it; C(spoken) are the phases whose answers a connection could print."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.variables: dict[str, t.Any] = {"kvmfleet_ledger": str(folder)}
        self.spoken: list[str] = []
        self.phases: list[str] = []
        self.context = types.SimpleNamespace(no_log=False)

    def run(self, check_mode: bool = False, diff: bool = True, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, no_log=False, async_val=0, check_mode=check_mode, diff=diff, delegate_to=None)
        action._play_context = self.context
        action._connection = types.SimpleNamespace(_play_context=self.context)
        action._execute_module = self._execute
        return action.run_with_options(task_vars("kvm1", self.variables))

    def _execute(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        phase = module_args["_work"]["phase"]
        self.phases.append(phase)
        if not self.context.no_log:
            self.spoken.append(phase)
        return ANSWERS[phase]


@pytest.fixture
def task(tmp_path: pathlib.Path) -> Task:
    return Task(tmp_path / "ledger")


def test_a_task_runs_all_steps_and_returns_no_definition(task: Task) -> None:
    result = task.run()
    # Whether the host belongs to another ledger is asked before this one is created.
    assert task.phases == ["identify", "identify", "leave", "see", "save", "guard"]
    assert result["changed"]
    assert [entry["name"] for entry in result["saved"]] == ["web1"]
    assert "Read-only" in " ".join(result["notes"])
    assert SECRET not in json.dumps(result)


def test_a_host_of_another_ledger_is_refused_before_a_ledger_is_created(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty ledger would hide that the right one was moved away, and be in its way when it is moved back."""
    monkeypatch.setitem(ANSWERS, "identify", {"failed": True, "error_code": "conflict", "msg": "This host belongs to another ledger."})
    with pytest.raises(Conflict, match="another ledger"):
        task.run()
    assert not task.folder.exists()


def test_a_domain_that_the_ledger_refuses_is_a_warning(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays unprotected until a person acts."""

    def refuse(*_arguments: object) -> t.NoReturn:
        raise TooLarge("The etcd ledger rejected a document.")

    monkeypatch.setattr(FileLedger, "put_domain", refuse)
    assert any("Domain web1 is not saved" in warning for warning in task.run()["warnings"])


def test_the_result_of_the_role_fulfills_its_schema(task: Task) -> None:
    nothing = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))["__protect_host_nothing"]
    first, again = task.run(), task.run()
    assert (len(first["saved"]), len(again["unchanged"]), len(first["unproved"])) == (1, 1, 1)
    hosts = [{**nothing, **{key: result[key] for key in nothing if key != "error"}} for result in (first, again)]
    check_document("protect-result.json", dict(zip("ab", hosts, strict=True)))
    check_document("protect-result.json", {"kvm1": {**nothing, "error": "The host did not answer."}})
    for key in nothing:
        assert find_errors("protect-result.json", {"kvm1": {name: value for name, value in nothing.items() if name != key}})


def test_only_the_answer_with_definitions_is_hidden_from_verbose_output(task: Task) -> None:
    task.run()
    assert task.spoken == ["identify", "identify", "leave", "see", "guard"]
    assert task.context.no_log is False


@pytest.mark.parametrize(("step", "phases"), [("leave", ["identify", "leave"]), ("read", ["see"]), ("save", ["save", "guard"])])
def test_the_role_runs_the_steps_one_by_one(task: Task, step: str, phases: list[str]) -> None:
    task.run(_work={"step": "leave"})
    task.phases.clear()
    task.run(_work={"step": step})
    assert task.phases == phases


def test_check_mode_creates_no_ledger(task: Task) -> None:
    result = task.run(check_mode=True)
    assert result["changed"]
    assert not task.folder.exists()


def test_a_clean_shutdown_token_without_a_guard_is_refused(task: Task) -> None:
    with pytest.raises(InvalidArgument, match="guard"):
        task.run(clean_shutdown_token=True)
    assert task.phases == []


def test_a_host_that_would_start_a_domain_of_another_host_is_granted_no_token(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task.run()
    ledger = FileLedger(str(task.folder))
    (document,) = ledger.list_domains()
    ledger.put_domain(dataclasses.replace(document.domain, possible_hosts=(KVM2,)), document.version)
    off = reported_domain(active=False, state="shut off", autostart=True)
    monkeypatch.setitem(ANSWERS, "save", {"domains": [off], "arriving": [], "unreadable": []})
    result = task.run(guard=True, clean_shutdown_token=True)
    assert "may be, on another host: web1." in result["guard"]["note"]


def test_unusable_fencing_fails_the_task_after_the_domains_are_saved(task: Task) -> None:
    task.variables["kvmfleet_fencing"] = {"agent": "fence_nobody_has", "options": {"password": SECRET}}
    result = task.run()
    assert task.phases == ["identify", "identify", "leave", "see", "save", "guard"]
    assert (result["failed"], result["changed"], result["error_code"]) == (True, True, "invalid_argument")
    assert result["msg"].startswith("kvmfleet_fencing of kvm1: the agent fence_nobody_has is not on the control node")
    assert "The domains were saved nevertheless." in result["msg"]
    assert SECRET not in result["msg"]
    assert [entry["name"] for entry in result["saved"]] == ["web1"]


def test_unusable_scheduling_which_would_stop_an_evacuation_fails_the_task_after_the_domains_are_saved(task: Task) -> None:
    task.variables["kvmfleet_scheduler"] = {"reserved_mib": 512}
    result = task.run()
    assert (result["failed"], result["changed"], result["error_code"]) == (True, True, "invalid_argument")
    assert result["msg"].startswith("kvmfleet_scheduler of kvm1 has unknown keys: reserved_mib.")
    assert "The domains were saved nevertheless." in result["msg"]


def test_fencing_is_checked_only_by_the_save_step(task: Task) -> None:
    task.variables["kvmfleet_fencing"] = ["fence_ipmilan"]
    assert not task.run(_work={"step": "leave"}).get("failed")
    assert task.run(_work={"step": "save"})["error_code"] == "invalid_argument"


def test_the_domains_of_a_host_without_fencing_are_saved(task: Task) -> None:
    task.variables["kvmfleet_fencing"] = None
    assert not task.run().get("failed")


def test_a_diff_is_returned_only_if_it_is_requested(task: Task) -> None:
    assert "diff" not in task.run(check_mode=True, diff=False)
    assert "web1" in task.run(diff=True)["diff"]["after"]
