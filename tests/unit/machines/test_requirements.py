# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is missing on this machine is named, with what to do."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import types

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import qemu, requirements


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_program", lambda name: None if name in ("fence_ipmilan", "ipmi_sim") else f"/usr/bin/{name}")
    with pytest.raises(LabError, match=r"apt install -y --no-install-recommends fence-agents openipmi$"):
        requirements.require_programs()


def test_a_cache_without_free_space_is_refused_with_the_required_size(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=2**30))
    with pytest.raises(LabError, match=r"has 1\.0 GiB of room, and 5 GiB are needed.*--cache"):
        requirements.require_room(tmp_path / "cache", 5)


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(LabError, match=r"need 1000000000 MiB of memory.*--hosts"):
        requirements.require_memory(1_000_000_000)


def test_only_the_process_of_the_machine_is_found_and_killed(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "qemu.pid"
    begun = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", str(file)]
    with subprocess.Popen(["sleep", "60"]) as other, subprocess.Popen(begun, stdout=subprocess.PIPE) as machine:
        # A process has its command line in /proc only a moment after Popen returns.
        assert machine.stdout
        machine.stdout.readline()
        file.write_text(f"{other.pid}\n")
        assert qemu.pid(tmp_path) is None
        qemu.kill_in(tmp_path)
        assert other.poll() is None
        file.write_text(f"{machine.pid}\n")
        assert qemu.pid(tmp_path) == machine.pid
        qemu.kill_in(tmp_path)
        assert machine.wait() == -signal.SIGKILL
        other.kill()
