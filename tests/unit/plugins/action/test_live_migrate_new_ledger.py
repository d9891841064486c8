# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the modules live_migrate and cold_migrate create a ledger."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import cold_migrate, live_migrate
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

BOTH = pytest.mark.parametrize(
    ("module", "run", "options"), [(live_migrate, "MoveRun", {}), (cold_migrate, "ColdRun", {"method": "offline"})], ids=["live", "cold"]
)


class Task:
    """The action as a task of the host kvm1; the host belongs to the ledger of that ID, if any. C(used) are the ledgers of the runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, run: str, options: dict[str, t.Any]) -> None:
        self.module, self.options = module, options
        self.ledger_id: str | None = None
        self.used: list[Ledger] = []

        def make_run(context: t.Any, *more: t.Any) -> types.SimpleNamespace:
            # What a run does and predicts is tested with the run.
            def note_ledger(requests: t.Any) -> list[t.Any]:
                self.used.append(context.ledger)
                return list(context.ledger.list_records())

            return types.SimpleNamespace(predict_moves=note_ledger, run_moves=note_ledger)

        monkeypatch.setattr(module, run, make_run)

    def run(self, folder: pathlib.Path, check_mode: bool) -> dict[str, t.Any]:
        action = self.module.ActionModule.__new__(self.module.ActionModule)
        action._loader = None
        action._execute_module = self._execute
        action._task = types.SimpleNamespace(
            args={"name": "web1", "destination": "kvm2", **self.options},
            async_val=0,
            check_mode=check_mode,
            diff=False,
            delegate_to=None,
            no_log=False,
            get_name=lambda: "move",
        )
        result: dict[str, t.Any] = action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": str(folder)}, {"kvm2": {}}))
        return result

    def _execute(self, module_name: str, module_args: dict[str, t.Any], **_more: t.Any) -> dict[str, t.Any]:
        assert (module_name, module_args["_work"]) == ("kvmfleet.migration.host", {"phase": "read"})
        return {"identity": {"host_id": None, "machine_id": "m1", "host_uuid": None, "ledger_id": self.ledger_id}, "libvirt_error": None}


@BOTH
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("check_mode", [False, True])
def test_check_mode_creates_no_ledger(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    module: types.ModuleType,
    run: str,
    options: dict[str, t.Any],
    is_there: bool,
    check_mode: bool,
) -> None:
    folder = tmp_path / "ledger"
    if is_there:
        FileLedger(str(folder))
    task = Task(monkeypatch, module, run, options)
    assert task.run(folder, check_mode)["migrations"] == []
    exists = is_there or not check_mode
    assert folder.exists() == exists
    assert (task.used[0].name == str(folder)) == exists
    assert pathlib.Path(task.used[0].name).exists() == exists


@BOTH
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_task_on_a_host_that_belongs_to_another_ledger_creates_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, run: str, options: dict[str, t.Any], check_mode: bool
) -> None:
    """An empty one would hide that the right one was moved away, and be in its way when it is moved back."""
    task = Task(monkeypatch, module, run, options)
    task.ledger_id = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
    with pytest.raises(Conflict, match=f"kvm1 was protected under the ledger {task.ledger_id}, and there is no ledger where this task looks for it"):
        task.run(tmp_path / "ledger", check_mode)
    assert (list(tmp_path.iterdir()), task.used) == ([], [])
