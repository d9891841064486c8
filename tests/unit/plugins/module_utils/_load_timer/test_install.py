# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timer that stores readings of the load, below a folder that stands for the root of a host."""

from __future__ import annotations

import os
import pathlib

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
