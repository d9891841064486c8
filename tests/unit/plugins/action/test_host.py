# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.host import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, KvmfleetError, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

ID, UUID = (str(uuid.UUID(int=number)) for number in (1, 2))


class Host:
    """The module's half: a host that may have an ID, and gets one when it is asked to."""

    def __init__(self, host_id: str | None = None) -> None:
        self.host_id = host_id
        self.phases: list[str] = []

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        phase = module_args["_work"]["phase"]
        self.phases.append(phase)
        if phase == "recall":
            return {"told": None}
        if phase == "create":
            self.host_id = ID
            return {"changed": True, "host_id": ID}
        return {"identity": {"host_id": self.host_id, "machine_id": "m1", "hostname": "kvm1", "host_uuid": UUID}, "libvirt_error": None}


class Fleet:
    """Runs the action as a task of the host kvm1 would."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "ledger"
        self.host = Host()
        self.check_mode = False
        self.strategy = "linear"
        self.async_val = 0

    def task(self, here: str = "kvm1", **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(
            args=args,
            async_val=self.async_val,
            check_mode=self.check_mode,
            diff=True,
            delegate_to=None,
            get_play=lambda: types.SimpleNamespace(strategy=self.strategy),
        )
        action._execute_module = self.host.run
        return action.outcome(task_vars(here, {"kvmfleet_ledger": str(self.folder)}))

    def entries(self) -> list[dict[str, t.Any]]:
        return [document.body for document in FileLedger(str(self.folder)).hosts()]


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def test_the_first_task_makes_identity_and_entry_and_the_second_changes_nothing(fleet: Fleet) -> None:
    first = fleet.task(state="maintenance", reason="disk")
    assert first["changed"]
    assert (first["host"]["host_id"], first["host"]["state"], first["host"]["reason"]) == (ID, "maintenance", "disk")
    assert first["diff"]["before"] == {}
    second = fleet.task(state="maintenance", reason="disk")
    assert not second["changed"]
    assert second["host"] == first["host"]
    assert fleet.host.phases == ["read", "create", "read"]


def test_who_a_host_has_just_said_it_is_is_not_asked_again(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.host.phases = []
    result = fleet.task(state="maintenance", _work={"told": {"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "domains": []}})
    assert result["changed"]
    assert [(entry["name"], entry["host_id"], entry["state"]) for entry in fleet.entries()] == [("kvm1", ID, "maintenance")]
    assert fleet.host.phases == []
    fleet.task(state="enabled", _work={"told": {"host_id": None, "host_uuid": UUID}})
    fleet.task(state="maintenance", _work={"told": {}})
    assert fleet.host.phases == ["read", "read"]


def test_check_mode_predicts_and_writes_neither_entry_nor_identity_nor_ledger(fleet: Fleet) -> None:
    fleet.check_mode = True
    result = fleet.task(state="fenced")
    assert result["changed"]
    assert result["host"]["state"] == "fenced"
    assert fleet.host.phases == ["read"]
    assert not fleet.folder.exists()


def test_without_a_state_it_reads_and_makes_nothing(fleet: Fleet) -> None:
    assert fleet.task() == {"changed": False, "host": None}
    assert not fleet.folder.exists()
    fleet.task(state="maintenance")
    assert fleet.task()["host"]["state"] == "maintenance"
    assert fleet.host.phases == ["read", "read", "create", "read"]


def test_a_host_that_does_not_answer_is_written_by_its_name_from_another(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.host = Host()
    result = fleet.task(here="localhost", name="kvm1", state="fenced", reason="burnt")
    assert result["changed"]
    assert fleet.host.phases == []
    assert [(entry["name"], entry["host_id"], entry["state"]) for entry in fleet.entries()] == [("kvm1", ID, "fenced")]


def test_an_unknown_name_is_not_found_and_nothing_is_written(fleet: Fleet) -> None:
    with pytest.raises(NotFound, match="kvm9"):
        fleet.task(name="kvm9", state="fenced")
    assert fleet.entries() == []


@pytest.mark.parametrize("name", ["", "kvm\n1"])
def test_a_name_that_cannot_be_one_is_refused(fleet: Fleet, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name is"):
        fleet.task(name=name, state="fenced")


def test_a_host_that_lost_its_identity_is_not_given_another(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.host = Host()
    with pytest.raises(Conflict, match="lost its identity"):
        fleet.task(state="maintenance")
    assert fleet.host.phases == ["read"]


@pytest.mark.parametrize("strategy", ["free", "ansible.builtin.free", "host_pinned"])
def test_what_needs_all_hosts_together_refuses_other_strategies(fleet: Fleet, strategy: str) -> None:
    fleet.strategy = strategy
    with pytest.raises(NotSupported, match="strategy"):
        fleet.task(_work={"together": True}, state="maintenance")
    assert fleet.task(state="maintenance")["changed"]


def test_async_is_refused(fleet: Fleet) -> None:
    fleet.async_val = 60
    with pytest.raises(InvalidArgument, match="async"):
        fleet.task(state="enabled")


def test_the_module_s_error_keeps_its_code(fleet: Fleet) -> None:
    fleet.host.run = lambda **call: {"failed": True, "msg": "no root", "error_code": "forbidden"}  # type: ignore[method-assign]
    with pytest.raises(KvmfleetError, match="no root") as caught:
        fleet.task(state="enabled")
    assert caught.value.error_code == "forbidden"
