# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What migration_abort and migration_force_complete make of their options, on a fake host."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, KvmfleetError, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene
from ansible_collections.kvmfleet.migration.plugins.modules.migration_abort import migration_abort
from ansible_collections.kvmfleet.migration.plugins.modules.migration_force_complete import migration_force_complete
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

Work = t.Callable[[t.Any], t.Dict[str, t.Any]]


class Task:
    """A module as its work sees it: options, and whether only to look."""

    def __init__(self, check_mode: bool = False, **params: t.Any) -> None:
        given = {"uri": LOCAL_URI, "name": "web1", "uuid": None, "wait_seconds": 5, "missing_ok": False, "complete": True, "bandwidth_mib": None}
        self.params = {**given, **params}
        self.check_mode = check_mode


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet(link_mib=100)
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(intervene, "open_host", fleet.open)
    monkeypatch.setattr(intervene, "prepare_run_folder", lambda: str(folder))
    monkeypatch.setattr(intervene.Intervention, "__init__", _in_folder(intervene.Intervention.__init__, str(folder)))
    monkeypatch.setattr(intervene, "require_root", lambda: None)
    fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)
    return fleet


def _in_folder(init: t.Callable[..., None], folder: str) -> t.Callable[..., None]:
    """Let an intervention look for state files in the test's own folder."""
    return lambda self, *given, **named: init(self, *given, **{**named, "folder": folder})


BOTH = pytest.mark.parametrize("work", [migration_abort, migration_force_complete])


@BOTH
def test_a_task_without_root_is_forbidden_before_it_connects(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    monkeypatch.setattr(intervene, "require_root", _module.require_root)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden, match="become"):
        work(Task())
    assert fleet.connections == []


@BOTH
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"wait_seconds": -1}, InvalidArgument),
        ({"uuid": "no-uuid", "name": None}, InvalidArgument),
        ({"name": ""}, InvalidArgument),
        ({"name": "a/b"}, InvalidArgument),
        ({"name": "nobody"}, NotFound),
        ({"uuid": "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c99", "name": None}, NotFound),
        ({"uri": "qemu+ssh://kvm2/system"}, NotSupported),
    ],
)
def test_bad_options_are_refused(fleet: FakeFleet, work: Work, params: t.Dict[str, t.Any], expected: t.Type[KvmfleetError]) -> None:
    with pytest.raises(expected):
        work(Task(**params))


@pytest.mark.parametrize("mib", [-1, 10**7 + 1])
def test_a_bandwidth_out_of_bounds_is_refused(fleet: FakeFleet, mib: int) -> None:
    with pytest.raises(InvalidArgument, match=f"bandwidth_mib is {mib}"):
        migration_force_complete(Task(bandwidth_mib=mib))


def test_a_force_task_with_nothing_to_do_is_refused(fleet: FakeFleet) -> None:
    with pytest.raises(InvalidArgument, match="nothing to do"):
        migration_force_complete(Task(complete=False))


@BOTH
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_domain_that_does_not_move_is_not_found(fleet: FakeFleet, work: Work, check_mode: bool) -> None:
    with pytest.raises(NotFound, match="not being migrated"):
        work(Task(check_mode))


@pytest.mark.parametrize("check_mode", [False, True])
def test_an_abort_without_a_move_is_no_change_with_missing_ok(fleet: FakeFleet, check_mode: bool) -> None:
    assert migration_abort(Task(check_mode, missing_ok=True)) == {"changed": False, "migrations": []}


def test_an_unknown_domain_is_not_found_even_with_missing_ok(fleet: FakeFleet) -> None:
    with pytest.raises(NotFound):
        migration_abort(Task(name="nobody", missing_ok=True))


@BOTH
def test_check_mode_returns_the_migration_and_changes_nothing(fleet: FakeFleet, work: Work) -> None:
    migration = fleet.begin_elsewhere()
    result = work(Task(check_mode=True))
    assert (result["changed"], [record["domain"]["uuid"] for record in result["migrations"]]) == (True, [UUID])
    assert (fleet.source.calls, migration.ended.is_set()) == ([], False)


@pytest.mark.parametrize("how", [{"name": "web1"}, {"name": None, "uuid": UUID}, {"name": None, "uuid": UUID.upper()}])
def test_an_abort_cancels_the_migration(fleet: FakeFleet, how: t.Dict[str, t.Any]) -> None:
    migration = fleet.begin_elsewhere()
    result = migration_abort(Task(**how))
    assert (result["changed"], result["migrations"][0]["status"]) == (True, "cancelled")
    assert migration.ended.is_set()


@pytest.mark.parametrize("mib", [0, 7])
def test_only_the_bandwidth_is_changed_without_complete(fleet: FakeFleet, mib: int) -> None:
    migration = fleet.begin_elsewhere(bandwidth_mib=50)
    assert migration_force_complete(Task(complete=False, bandwidth_mib=mib))["changed"] is True
    assert migration.cap_bytes == mib * MIB
    assert [call.split()[0] for call in fleet.source.calls] == ["set_bandwidth_mib"]
