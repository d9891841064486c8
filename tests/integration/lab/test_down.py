# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removal of a lab: nothing of it is left, and another lab is not affected."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import typing as t

import pytest

if t.TYPE_CHECKING:
    from conftest import Command

ROOT = pathlib.Path(os.environ.get("KVMFLEET_LAB_STATE", "/run/kvmfleet-lab"))


def traces(prefix: str) -> t.List[str]:
    """Return what this machine has of a lab: namespaces, interfaces, mounts, processes, files."""
    found = [name for name in output("ip", "netns", "list").split() if name.startswith(prefix)]
    found += [line for line in output("ip", "-br", "link").splitlines() if line.startswith(f"{prefix}-")]
    found += [line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if f"/{prefix}/" in line or f"/{prefix}-" in line]
    found += [line for line in output("ps", "-eo", "args").splitlines() if f"/{prefix}/" in line or f" {prefix} " in line]
    return found + [str(path) for path in ROOT.glob(f"{prefix}*") if path.name == prefix]


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_down_removes_a_busy_lab_completely_and_leaves_another_one_running(lab: Command, other: Command) -> None:
    other("up", "--hosts", "2")
    for kind in ("none", "nbd", "bindfs", "local"):
        other("guest", f"busy-{kind}", "--host", other.host(1), "--storage", kind, "--dirty-mib", "4", "--rate", "100")
    keep = f"ControlPath={ROOT}/{other.prefix}/cm/test"
    subprocess.run(
        [
            "ssh",
            "-F",
            f"{ROOT}/{other.prefix}/ssh/config",
            "-o",
            keep,
            "-o",
            "ControlMaster=auto",
            "-o",
            "ControlPersist=60",
            f"root@{other.status()[other.host(1)]['address']}",
            "true",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=30,
    )
    other("poweroff", other.host(2))
    assert len(traces(other.prefix)) > 5
    other("down")
    assert traces(other.prefix) == []
    assert all(row["libvirtd"] and row["sshd"] for row in lab.status().values())
    assert lab("exec", lab.host(1), "--", "sh", "-c", "grep -c ' /var/lib/kvmfleet ' /proc/mounts").strip() == "1"


def test_down_removes_a_lab_whose_state_folder_is_lost(other: Command) -> None:
    other("up", "--hosts", "1")
    shutil.rmtree(ROOT / other.prefix)
    other("down")
    assert traces(other.prefix) == []


def test_down_without_a_lab_succeeds(other: Command) -> None:
    other("down")
    other("down")


def test_a_prefix_in_use_with_another_state_folder_is_refused(lab: Command) -> None:
    for verb in ("up", "down"):
        done = lab.run("--state", "/run/kvmfleet-lab-elsewhere", verb)
        assert done.returncode == 1
        assert "--state" in done.stderr
    assert all(row["libvirtd"] for row in lab.status().values())


def test_a_lab_leaves_nothing_in_run_and_var_cache(other: Command) -> None:
    """On a copy of the machine whose /run and /var/cache are empty, they are empty again afterwards."""
    script = f"""
        mount -n -t tmpfs tmpfs /run && mount -n -t tmpfs tmpfs /var/cache && ip link set lo up
        unset KVMFLEET_LAB_STATE
        lab="{shlex.join(other.command())}"
        $lab up --hosts 1 >/dev/null && $lab guest g --host {other.host(1)} --storage nbd && $lab down || exit 1
        ls -A /run /var/cache
    """
    done = subprocess.run(["unshare", "-m", "-n", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "/run:\n\n/var/cache:\n"
