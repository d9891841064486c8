# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which machine gets another release, and that it keeps its disk where that fails."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError, UsageError
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import image, upgrade
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import Fleet, Machine, plan_machines


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    machines = plan_machines(2, {}, "bookworm")
    fleet = Fleet("kvf", tmp_path)
    fleet.state.mkdir(parents=True)
    fleet = fleet.write_settings({"machines": [dataclasses.asdict(one) for one in machines], "images": {"bookworm": "/b"}, "accelerator": "tcg"})
    for machine in machines:
        fleet.folder(machine).mkdir()
        (fleet.folder(machine) / "disk.qcow2").write_text("old")
    monkeypatch.setattr(image, "ensure_image", lambda _cache, release: tmp_path / f"image-{release}")
    monkeypatch.setattr(upgrade, "require_room", lambda _folder, _gib: None)
    return fleet


def write_new_disk(fleet: Fleet, machine: Machine, _made: pathlib.Path, _old: pathlib.Path) -> pathlib.Path:
    folder = fleet.folder(machine) / "upgrade"
    folder.mkdir()
    (folder / "disk.qcow2").write_text("new")
    return folder / "disk.qcow2"


def test_a_host_gets_the_new_disk_and_keeps_the_old_one(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "_carry", write_new_disk)
    machine = fleet.require_machine("m2")
    upgrade.upgrade(fleet, machine, "trixie")
    folder = fleet.folder(machine)
    assert {path.name: path.read_text() for path in folder.glob("*.qcow2")} == {"disk.qcow2": "new", "disk-bookworm.qcow2": "old"}
    assert (fleet.release(machine), fleet.image(machine).name) == ("trixie", "image-trixie")
    assert not (folder / "upgrade").exists()


def test_a_host_whose_state_cannot_be_copied_keeps_disk_and_release(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> pathlib.Path:
        raise LabError("no")

    monkeypatch.setattr(upgrade, "_carry", fail)
    machine = fleet.require_machine("m2")
    with pytest.raises(LabError, match="no"):
        upgrade.upgrade(fleet, machine, "trixie")
    assert (fleet.folder(machine) / "disk.qcow2").read_text() == "old"
    assert fleet.release(machine) == "bookworm"


@pytest.mark.parametrize(
    ("name", "release", "is_on", "words"), [("nfs", "trixie", False, "not a host"), ("m2", "trixie", True, "is on"), ("m2", "../x", False, "is no release")]
)
def test_an_impossible_upgrade_is_refused(name: str, release: str, is_on: bool, words: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade.qemu, "is_on", lambda _fleet, _machine: is_on)
    machine = fleet.require_machine(name)
    with pytest.raises(UsageError, match=words):
        upgrade.upgrade(fleet, machine, release)
    assert (fleet.folder(machine) / "disk.qcow2").read_text() == "old"
