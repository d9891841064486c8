# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that cannot be right are named, with the next step, and change nothing."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing as t

import pytest

if t.TYPE_CHECKING:
    from conftest import Command

CASES = [
    (["poweroff", "HOST7"], "HOST1, HOST2"),
    (["guest", "a/b", "--host", "HOST1"], "'a/b'"),
    (["guest", "../b", "--host", "HOST1"], "'../b'"),
    (["guest", "new", "--host", "nowhere"], "'nowhere'"),
    (["guest", "new", "--host", "HOST1", "--mib", "-1"], "-1"),
    (["guest", "new", "--host", "HOST1", "--rate", "5"], "dirty set"),
    (["guest", "new", "--host", "HOST1", "--integrity"], "--dirty-mib"),
    (["guest", "new", "--host", "HOST1", "--transient", "--autostart"], "transient"),
    (["rmguest", "nobody"], "'nobody'"),
    (["check", "nobody"], "'nobody'"),
    (["cut", "HOST1", "--peer", "HOST9"], "'HOST9'"),
    (["slow", "HOST1", "--mbit", "0"], "0"),
    (["up", "--hosts", "10"], "1 to 9"),
    (["fence", "HOST1", "explode"], "'explode'"),
    (["exec", "HOST1"], "exec HOST1 --"),
]


@pytest.mark.parametrize(("arguments", "words"), CASES)
def test_a_wrong_argument_is_refused_and_named(lab: Command, arguments: list[str], words: str) -> None:
    done = lab.run(*(argument.replace("HOST", lab.prefix) for argument in arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("lab: ")
    assert words.replace("HOST", lab.prefix) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_guest_with_the_same_name_is_refused(lab: Command, guest: t.Callable[..., str]) -> None:
    guest("twin")
    done = lab.run("guest", "twin", "--host", lab.host(2))
    assert done.returncode == 2
    assert "rmguest twin" in done.stderr
    assert lab.state("twin", 1) == "running"


def test_a_guest_that_cannot_start_is_removed_again(lab: Command) -> None:
    done = lab.run("guest", "stillborn", "--host", lab.host(1), "--bridge", "nobridge", "--storage", "nbd")
    assert done.returncode == 1
    assert "nobridge" in done.stderr
    assert lab.state("stillborn", 1) is None
    assert lab.run("rmguest", "stillborn").returncode == 2


def test_a_command_on_a_lab_that_is_not_up_names_the_up_command(lab: Command) -> None:
    done = type(lab)("nosuchlab").run("status")
    assert done.returncode == 1
    assert "lab --prefix nosuchlab up" in done.stderr


def test_missing_packages_are_named(lab: Command) -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); from kvmlab import requirements as r; r.find_program = lambda name: None; r.require_machine()"
    folder = str(pathlib.Path(__file__).resolve().parents[2] / "lab")
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=False)
    assert "apt install" in done.stderr
    assert "libvirt-daemon-system" in done.stderr
