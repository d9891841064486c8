# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leaving the login session's scope: what systemd is asked, and what is said where it does not help. The program busctl is played by a script."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import detach

RUN = "5a3f0c62-0000-4000-8000-00000000000a"


class Machine:
    """A host with or without systemd; C(groups) is what the kernel says of this process."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.groups = folder / "cgroup"
        self.groups.write_text("0::/user.slice/user-1000.slice/session-3.scope\n", encoding="ascii")
        (folder / "bin").mkdir()
        (folder / "comm").write_text("systemd\n", encoding="ascii")
        (folder / "system").mkdir()
        monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        monkeypatch.setattr(detach, "SYSTEMD_FOLDER", str(folder / "system"))
        monkeypatch.setattr(detach, "FIRST_PROCESS", str(folder / "comm"))
        monkeypatch.setattr(detach, "GROUPS", str(self.groups))

    def let_busctl_run(self, script: str) -> None:
        """Let busctl record its arguments, and run this script."""
        program = self.folder / "bin" / "busctl"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {self.folder}/words\n{script}\n', encoding="ascii")
        program.chmod(0o755)

    def busctl_arguments(self) -> t.Optional[t.List[str]]:
        """Return what busctl was called with; null where it was not."""
        path = self.folder / "words"
        return path.read_text(encoding="ascii").splitlines() if path.exists() else None


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def own_unit() -> str:
    return detach.unit_name(RUN, os.getpid())


def test_the_process_asks_systemd_for_its_own_scope(machine: Machine) -> None:
    machine.let_busctl_run(f'echo "0::/system.slice/{own_unit()}" > {machine.groups}')
    assert detach.join_own_scope(RUN) is None
    words = machine.busctl_arguments() or []
    assert words[:5] == ["call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit"]
    assert words[5:9] == ["ssa(sv)a(sa(sv))", f"kvmfleet-watcher-{RUN}-{os.getpid()}.scope", "fail", "4"]
    assert words[9:] == [
        *("Description", "s", f"kvmfleet.migration watcher, process {os.getpid()}"),
        *("Slice", "s", "system.slice"),
        *("CollectMode", "s", "inactive-or-failed"),
        *("PIDs", "au", "1", str(os.getpid())),
        "0",
    ]


@pytest.mark.parametrize(
    "groups", ["12:pids:/user.slice\n1:name=systemd:/system.slice/{unit}\n0::/user.slice\n", "0::/system.slice/{unit}\n", "0::/../{unit}\n"]
)
def test_the_scope_is_found_in_both_cgroup_hierarchies(machine: Machine, groups: str) -> None:
    machine.let_busctl_run(f"cat > {machine.groups} <<END\n{groups.format(unit=own_unit())}END")
    assert detach.join_own_scope(RUN) is None


def test_the_job_of_systemd_is_awaited(machine: Machine) -> None:
    """The call only queues it."""
    machine.let_busctl_run(f'(sleep 0.4; echo "0::/system.slice/{own_unit()}" > {machine.groups}) > /dev/null 2>&1 &')
    assert detach.join_own_scope(RUN) is None
    assert detach.is_in_unit(own_unit())


@pytest.mark.parametrize("missing", ["system", "comm"])
def test_a_host_without_systemd_needs_no_scope_and_no_warning(machine: Machine, missing: str) -> None:
    machine.let_busctl_run("exit 1")
    path = machine.folder / missing
    path.rmdir() if missing == "system" else path.unlink()
    assert detach.join_own_scope(RUN) is None
    assert machine.busctl_arguments() is None


def test_the_systemd_of_another_process_namespace_is_not_asked(machine: Machine) -> None:
    """Its process ids are others: it would move somebody else."""
    machine.let_busctl_run("exit 1")
    (machine.folder / "comm").write_text("tini\n", encoding="ascii")
    assert detach.join_own_scope(RUN) is None
    assert machine.busctl_arguments() is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('echo "Call failed: Unit exists" >&2; exit 1', "did not start scope kvmfleet-watcher-"),
        ('echo "Call failed: Unit exists" >&2; exit 1', ": Call failed: Unit exists. The watcher stays"),
        (r"printf 'Ger\344t belegt' >&2; exit 1", ": Ger\ufffdt belegt. The watcher stays"),
        ("exec sleep 30", "did not answer within 1 s"),
        ("exit 0", "1 s later the watcher had still not joined it"),
    ],
    ids=["refused", "message of busctl", "other encoding", "hangs", "accepted without effect"],
)
def test_a_failure_to_join_a_scope_is_a_warning_with_its_consequences(machine: Machine, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    monkeypatch.setattr(detach, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(detach, "JOIN_SECONDS", 1.0)
    machine.let_busctl_run(script)
    warning = detach.join_own_scope(RUN) or ""
    assert said in warning
    for part in ("KillUserProcesses=yes", "without its limits", "queued migrations do not start", "busctl status"):
        assert part in warning


def test_a_host_without_busctl_is_warned_about(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.folder / "bin"))
    assert "'busctl'" in (detach.join_own_scope(RUN) or "")
