# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules live_migrate and cold_migrate in check mode."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import cold_migrate, live_migrate
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars


@pytest.mark.parametrize(("module", "run", "options"), [(live_migrate, "MoveRun", {}), (cold_migrate, "ColdRun", {"method": "offline"})], ids=["live", "cold"])
@pytest.mark.parametrize("is_there", [False, True])
def test_check_mode_creates_no_ledger(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, run: str, options: dict[str, t.Any], is_there: bool
) -> None:
    used: list[Ledger] = []
    # What a run predicts is tested with the run.
    monkeypatch.setattr(
        module,
        run,
        lambda context, *more: types.SimpleNamespace(predict_moves=lambda requests: used.append(context.ledger) or list(context.ledger.list_records())),
    )
    folder = tmp_path / "ledger"
    if is_there:
        FileLedger(str(folder))
    action = module.ActionModule.__new__(module.ActionModule)
    action._loader = None
    action._task = types.SimpleNamespace(
        args={"name": "web1", "destination": "kvm2", **options},
        async_val=0,
        check_mode=True,
        diff=False,
        delegate_to=None,
        no_log=False,
        get_name=lambda: "move",
    )
    result: dict[str, t.Any] = action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": str(folder)}, {"kvm2": {}}))
    assert result["migrations"] == []
    assert folder.exists() == is_there
    assert (used[0].name == str(folder)) == is_there
    assert pathlib.Path(used[0].name).exists() == is_there
