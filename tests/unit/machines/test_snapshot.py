# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which snapshot a fleet may start from."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError, UsageError
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import snapshot
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import Fleet, plan_machines

MACHINES = plan_machines(1, {}, "bookworm")


@pytest.fixture
def saved(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(snapshot, "version", lambda: "format 1, QEMU 7.2")
    for machine in MACHINES:
        (tmp_path / machine.name).mkdir()
        (tmp_path / machine.name / "memory").touch()
    (tmp_path / "version").write_text("format 1, QEMU 7.2")
    return tmp_path


def test_a_complete_snapshot_of_this_version_is_usable(saved: pathlib.Path) -> None:
    snapshot.require_usable(saved, MACHINES)


def test_a_snapshot_of_another_version_is_refused_with_both(saved: pathlib.Path) -> None:
    (saved / "version").write_text("format 1, QEMU 9.0")
    with pytest.raises(LabError, match=r"another version \(format 1, QEMU 9\.0\), and this machine has format 1, QEMU 7\.2.*Remove it"):
        snapshot.require_usable(saved, MACHINES)


def test_a_snapshot_without_one_of_the_machines_is_refused(saved: pathlib.Path) -> None:
    (saved / "nfs" / "memory").unlink()
    with pytest.raises(LabError, match="has no nfs"):
        snapshot.require_usable(saved, MACHINES)


def test_a_missing_snapshot_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UsageError, match="There is no snapshot"):
        snapshot.require_usable(tmp_path / "nothing", MACHINES)


@pytest.mark.parametrize("name", ["", "../x", "A", "-x", "x" * 40])
def test_an_invalid_name_of_a_snapshot_is_refused(name: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(UsageError, match="not valid"):
        snapshot.named(Fleet("kvf", tmp_path), name)


@pytest.mark.parametrize("was_upgraded", [True, False])
def test_a_snapshot_restores_the_release_of_a_machine(was_upgraded: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet("kvf", tmp_path)
    fleet.state.mkdir(parents=True)
    machine = MACHINES[0]
    settings = {"machines": [dataclasses.asdict(machine)], "images": {"bookworm": "/b"}, "accelerator": "tcg"}
    fleet = fleet.write_settings(settings)
    saved = tmp_path / "saved"
    for folder in (fleet.folder(machine), saved / machine.name):
        folder.mkdir(parents=True)
    (saved / "version").write_text(snapshot.version())
    (saved / machine.name / "memory").touch()
    if was_upgraded:
        fleet.set_release(machine, "trixie", pathlib.Path("/t"))
        shutil.copy(fleet.folder(machine) / "upgraded.json", saved / machine.name)
    fleet.set_release(machine, "forky", pathlib.Path("/f"))
    for name in ("create_disk", "start", "kill"):
        monkeypatch.setattr(snapshot.qemu, name, lambda *_arguments, **_options: None)
    monkeypatch.setattr(snapshot.qemu, "monitor", lambda *_arguments: Monitor())
    snapshot.load(fleet, saved)
    assert (fleet.release(machine), str(fleet.image(machine))) == (("trixie", "/t") if was_upgraded else ("bookworm", "/b"))


class Monitor:
    """The monitor of a machine whose memory has been loaded."""

    def execute(self, command: str, **_arguments: object) -> dict[str, str]:
        return {"status": "completed"} if command == "query-migrate" else {}
