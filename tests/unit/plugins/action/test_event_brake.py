# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task C(event_brake): what it takes, what it refuses, and what it leaves alone in check mode."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.event_brake import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden

Task = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def task(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Return a function that runs the task for a user whose state is below the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(check_mode: bool = False, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=check_mode, diff=False, delegate_to=None)
        return action.run_with_options({"inventory_hostname": "localhost", "hostvars": {}})

    return run


def test_a_slot_is_taken_once_and_can_be_released(task: Task, tmp_path: pathlib.Path) -> None:
    first = task(host="kvm1")
    assert (first["changed"], [place["host"] for place in first["places"]]) == (True, ["kvm1"])
    assert task(host="kvm1") == {"changed": False, "places": first["places"]}
    with pytest.raises(Conflict):
        task(host="kvm2")
    assert task(host="kvm1", state="released") == {"changed": True, "places": []}
    assert task(host="kvm2")["changed"]
    assert (tmp_path / "kvmfleet" / "events" / "brake.json").stat().st_mode & 0o777 == 0o600


def test_check_mode_predicts_and_writes_nothing(task: Task, tmp_path: pathlib.Path) -> None:
    assert task(check_mode=True, host="kvm1")["changed"]
    assert not (tmp_path / "kvmfleet").exists()
    task(host="kvm1")
    with pytest.raises(Conflict):
        task(check_mode=True, host="kvm2")


def test_a_disarmed_brake_refuses_slots_and_still_releases_them(task: Task, tmp_path: pathlib.Path) -> None:
    task(host="kvm1")
    (tmp_path / "kvmfleet" / "events" / "disarmed").touch()
    for check_mode in (False, True):
        with pytest.raises(Forbidden, match="disarmed"):
            task(check_mode=check_mode, host="kvm1")
    assert task(host="kvm1", state="released")["changed"]
