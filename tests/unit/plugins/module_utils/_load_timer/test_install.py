# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timer that stores readings of the load, below a folder that stands for the root of a host."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _systemd
from ansible_collections.kvmfleet.migration.plugins.module_utils._load_timer import install as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal

ALL = {"/usr/local/lib/kvmfleet/kvmfleet-load.pyz", *(f"/etc/systemd/system/{unit}" for unit in (m.SERVICE, m.TIMER)), f"/{m.WANTS_LINK}"}


def tree(root: pathlib.Path) -> set[str]:
    return {f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_symlink() or path.is_file()}


def test_a_second_installation_changes_nothing(tmp_path: pathlib.Path) -> None:
    assert (set(m.install_timer(300, str(tmp_path)).files), tree(tmp_path)) == (ALL, ALL)
    assert os.readlink(tmp_path / m.WANTS_LINK) == f"/etc/systemd/system/{m.TIMER}"
    assert m.install_timer(300, str(tmp_path)) == m.UnitChange((), systemd=False)


def test_a_program_that_needs_a_virtual_environment_is_a_warning(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removes it after an upgrade of Ansible, for example, and no reading is stored any more."""
    monkeypatch.setattr(_systemd, "INTERPRETERS", ("/usr/bin/python3",))
    assert m.install_timer(300, str(tmp_path)).warnings == ()
    monkeypatch.setattr(_systemd, "INTERPRETERS", ())
    monkeypatch.setattr(sys, "prefix", "/opt/venv")
    (warning,) = m.install_timer(300, str(tmp_path)).warnings
    assert (sys.executable in warning, warning.endswith("without it, no reading is stored.")) == (True, True)


def test_another_interval_changes_the_timer_alone(tmp_path: pathlib.Path) -> None:
    m.install_timer(300, str(tmp_path))
    assert m.install_timer(420, str(tmp_path)).files == (f"/etc/systemd/system/{m.TIMER}",)
    assert "OnUnitActiveSec=420s" in (tmp_path / "etc/systemd/system" / m.TIMER).read_text(encoding="utf-8")


@pytest.mark.parametrize("lost", sorted(ALL))
def test_an_interrupted_installation_is_completed(tmp_path: pathlib.Path, lost: str) -> None:
    m.install_timer(300, str(tmp_path))
    (tmp_path / lost.lstrip("/")).unlink()
    assert m.install_timer(300, str(tmp_path)).files == (lost,)
    assert tree(tmp_path) == ALL


@pytest.mark.parametrize("lost", ["", *sorted(ALL)])
def test_removing_leaves_nothing_also_of_an_incomplete_timer(tmp_path: pathlib.Path, lost: str) -> None:
    m.install_timer(300, str(tmp_path))
    if lost:
        (tmp_path / lost.lstrip("/")).unlink()
    assert set(m.remove_timer(str(tmp_path)).files) == ALL - {lost}
    assert tree(tmp_path) == set()
    assert m.remove_timer(str(tmp_path)) == m.UnitChange((), systemd=False)


def test_check_mode_predicts_both_and_changes_neither(tmp_path: pathlib.Path) -> None:
    assert set(m.install_timer(300, str(tmp_path), check_mode=True).files) == ALL
    assert tree(tmp_path) == set()
    m.install_timer(300, str(tmp_path))
    assert set(m.remove_timer(str(tmp_path), check_mode=True).files) == ALL
    assert tree(tmp_path) == ALL


def test_a_folder_in_place_of_a_file_is_an_error_with_the_next_step(tmp_path: pathlib.Path) -> None:
    (tmp_path / "usr/local/lib").mkdir(parents=True)
    (tmp_path / "usr/local/lib/kvmfleet").write_text("")
    with pytest.raises(Internal, match="cannot be written") as caught:
        m.install_timer(300, str(tmp_path))
    assert "run the task again" in str(caught.value)


class Systemd:
    """The calls of systemctl, and whether systemd runs."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def run(self, *arguments: str, state: str) -> None:
        assert state.endswith(".")
        self.calls.append(arguments)


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    systemd = Systemd()
    monkeypatch.setattr(m, "is_systemd_running", lambda root: True)
    for module in (m, _systemd):
        monkeypatch.setattr(module, "run_systemctl", systemd.run)
    return systemd


def test_systemd_starts_the_timer_also_if_an_earlier_task_died_before_it(tmp_path: pathlib.Path, systemd: Systemd) -> None:
    m.install_timer(300, str(tmp_path))
    m.install_timer(300, str(tmp_path))
    assert systemd.calls == [("daemon-reload",), ("restart", m.TIMER), ("start", m.TIMER)]


def test_a_timer_whose_task_died_after_its_files_had_changed_is_started_anew(tmp_path: pathlib.Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    m.install_timer(300, str(tmp_path))

    def refuse(*arguments: str, state: str) -> None:
        raise Internal(f"failed. {state}")

    with monkeypatch.context() as context:
        context.setattr(_systemd, "run_systemctl", refuse)
        with pytest.raises(Internal, match="in place"):
            m.install_timer(60, str(tmp_path))
    systemd.calls.clear()
    assert m.install_timer(60, str(tmp_path), check_mode=True).files == m.install_timer(60, str(tmp_path)).files != ()
    assert systemd.calls == [("daemon-reload",), ("restart", m.TIMER)]
    assert m.install_timer(60, str(tmp_path)).files == ()
    assert tree(tmp_path) == ALL


def test_systemd_stops_the_timer_before_its_files_are_gone(tmp_path: pathlib.Path, systemd: Systemd) -> None:
    m.install_timer(300, str(tmp_path))
    systemd.calls.clear()
    m.remove_timer(str(tmp_path))
    m.remove_timer(str(tmp_path))
    assert systemd.calls == [("stop", m.TIMER), ("daemon-reload",)]


def test_a_timer_that_cannot_be_stopped_keeps_its_files(tmp_path: pathlib.Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: str, state: str) -> None:
        raise Internal(f"failed. {state}")

    m.install_timer(300, str(tmp_path))
    monkeypatch.setattr(m, "run_systemctl", refuse)
    with pytest.raises(Internal, match="still in place"):
        m.remove_timer(str(tmp_path))
    assert tree(tmp_path) == ALL


class Disk:
    """The files below the real root, so that none of them is written."""

    def __init__(self) -> None:
        self.files: dict[str, t.Any] = {}

    def has_content(self, path: str, content: t.Any, _mode: int) -> bool:
        return bool(self.files.get(path) == content)

    def write(self, path: str, content: t.Any, *_mode: int) -> None:
        self.files[path] = content


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(m, "is_systemd_running", lambda _root: False)
    monkeypatch.setattr(m, "choose_interpreter", lambda: "/usr/bin/python3")
    monkeypatch.setattr(m, "is_linked", lambda path, unit: disk.files.get(path) == unit)
    for name, replacement in (("has_content", disk.has_content), ("install_file", disk.write), ("link_unit", disk.write)):
        monkeypatch.setattr(m, name, replacement)
    return disk


def answer_with(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let every program end with that code."""
    monkeypatch.setattr(subprocess, "run", lambda command, **_options: subprocess.CompletedProcess(command, code, b"", b"no libvirt\n"))


def test_a_program_that_does_not_run_is_not_installed_also_by_the_next_task(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, 1)
    for _try in range(2):
        with pytest.raises(Internal, match=r"does not run on this host: no libvirt\. The timer was not changed"):
            m.install_timer(300)
    assert disk.files == {}
    answer_with(monkeypatch, 0)
    assert set(m.install_timer(300).files) == ALL == set(disk.files)
    answer_with(monkeypatch, 1)
    with pytest.raises(Internal, match="does not run on this host"):
        m.install_timer(420)


def test_a_program_that_runs_and_cannot_store_a_reading_is_another_error(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt hangs, for example: nothing is wrong with the program."""
    answer_with(monkeypatch, m.NOT_STORED)
    with pytest.raises(Internal, match=r"runs on this host, and could not store a reading: no libvirt\. The timer was not changed\."):
        m.install_timer(300)
    assert disk.files == {}


def test_an_installed_program_that_does_not_run_any_more_is_an_error(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade of the operating system, the default Python may be another one, which lacks the binding of libvirt. Nobody sees the timer fail."""
    answer_with(monkeypatch, 0)
    m.install_timer(300)
    assert m.install_timer(300).files == ()
    answer_with(monkeypatch, 1)
    with pytest.raises(Internal, match=r"no libvirt\. The timer was not changed"):
        m.install_timer(300)
    assert m.install_timer(300, check_mode=True).files == ()
