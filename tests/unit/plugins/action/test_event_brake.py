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
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, KvmfleetError, NotFound

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


@pytest.mark.parametrize(
    ("host", "work", "kind", "words"),
    [
        ("", {"inventory": ["kvm1"]}, InvalidArgument, "The source that was not given is not a host of the inventory. Nothing was done."),
        ("kvm9", {"inventory": ["kvm1"]}, InvalidArgument, "The source kvm9 is not a host of the inventory. Nothing was done."),
        ("kvm1", {"inventory": []}, InvalidArgument, "is not a host of the inventory"),
        ("", {"play": ["kvm1"]}, InvalidArgument, "Set the host that is back, for example -e source=kvm1. Nothing was done."),
        ("kvm1", {"play": ["kvm1", "kvm2"]}, InvalidArgument, "Set the host that is back"),
        ("kvm1", {"play": []}, InvalidArgument, "Set the host that is back"),
        (
            "kvm1",
            {"entries": []},
            NotFound,
            "kvm1 is not in the ledger. Set kvmfleet_ledger to the ledger under which the host was protected. Nothing was done.",
        ),
        ("kvm1", {"entries": 7}, InvalidArgument, "entries"),
    ],
)
def test_a_request_of_a_playbook_is_refused_and_takes_no_slot(
    task: Task, tmp_path: pathlib.Path, host: str, work: dict[str, t.Any], kind: type[KvmfleetError], words: str
) -> None:
    with pytest.raises(kind) as caught:
        task(host=host, _work=work)
    assert words in str(caught.value)
    assert not (tmp_path / "kvmfleet").exists()


@pytest.mark.parametrize("work", [{"inventory": ["kvm1", "kvm2"]}, {"play": ["kvm1"]}, {"entries": ["kvm1"]}])
def test_an_accepted_request_takes_no_slot_yet(task: Task, tmp_path: pathlib.Path, work: dict[str, t.Any]) -> None:
    assert task(host="kvm1", _work=work) == {"changed": False, "places": []}
    assert not (tmp_path / "kvmfleet").exists()
