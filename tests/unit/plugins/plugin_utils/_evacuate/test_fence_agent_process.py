# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import KEPT_OUTPUT_BYTES, run_program
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import Agent

LONG = 30


def program(folder: pathlib.Path, body: str) -> str:
    return str(Agent(folder, body).path)


def is_running(pid: int) -> bool:
    """Whether that process does anything; one that its parent has not reaped yet does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def ends(pid: int) -> bool:
    limit = time.monotonic() + LONG
    while is_running(pid) and time.monotonic() < limit:
        time.sleep(0.05)
    return not is_running(pid)


def test_input_is_passed_and_both_output_streams_are_read(tmp_path: pathlib.Path) -> None:
    done = run_program(program(tmp_path, "cat; echo err >&2; exit 7"), b"action=status\n", LONG)
    assert (done.exit_code, done.output, done.torn) == (7, b"action=status\nerr\n", False)


def test_no_argument_is_on_the_command_line(tmp_path: pathlib.Path) -> None:
    assert run_program(program(tmp_path, 'echo "$#"'), b"password=x\n", LONG).output == b"0\n"


def test_the_environment_is_scrubbed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD", "hunter2")
    output = run_program(program(tmp_path, "/usr/bin/env"), b"", LONG).output.decode()
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "LC_ALL", "HOME"}


def test_a_program_that_does_not_read_its_input_is_no_error(tmp_path: pathlib.Path) -> None:
    assert run_program(program(tmp_path, "exec 0<&-; sleep 0.3; exit 0"), b"x" * 300_000, LONG).exit_code == 0
    assert run_program(program(tmp_path, "exit 3"), b"x" * 300_000, LONG).exit_code == 3


def test_a_program_that_closes_its_output_is_awaited(tmp_path: pathlib.Path) -> None:
    assert run_program(program(tmp_path, "exec 0<&- 1>&- 2>&-; sleep 0.5; exit 2"), b"", LONG).exit_code == 2


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: pathlib.Path) -> None:
    pids = tmp_path / "pids"
    done = run_program(program(tmp_path, f'trap "" TERM HUP INT; echo began; sleep 600 & echo "$$ $!" > {pids}; wait; sleep 600'), b"", 2)
    assert (done.exit_code, done.output) == (None, b"began\n")
    assert all(ends(int(pid)) for pid in pids.read_text().split())


def test_children_left_behind_end_with_the_program(tmp_path: pathlib.Path) -> None:
    pid = tmp_path / "pid"
    done = run_program(program(tmp_path, f"sleep 600 & echo $! > {pid}; echo done"), b"", LONG)
    assert (done.exit_code, done.output) == (0, b"done\n")
    assert ends(int(pid.read_text()))


def test_a_child_outside_of_the_group_that_keeps_the_output_is_not_awaited(tmp_path: pathlib.Path) -> None:
    pid = tmp_path / "pid"
    done = run_program(program(tmp_path, f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & while ! test -s {pid}; do sleep 0.1; done; echo done"), b"", LONG)
    try:
        assert (done.exit_code, done.output) == (0, b"done\n")
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_end_of_ten_megabytes_of_output_is_kept(tmp_path: pathlib.Path) -> None:
    done = run_program(program(tmp_path, "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo 'Status: OFF'; exit 2"), b"", LONG)
    assert (done.exit_code, len(done.output), done.torn) == (2, KEPT_OUTPUT_BYTES, True)
    assert done.output.endswith(b"xxx\nStatus: OFF\n")


def test_a_program_that_never_stops_writing_is_killed(tmp_path: pathlib.Path) -> None:
    done = run_program(program(tmp_path, "yes Status: OFF"), b"", 1)
    assert (done.exit_code, done.torn) == (None, True)
    assert len(done.output) <= KEPT_OUTPUT_BYTES


def test_a_program_killed_by_a_signal_has_its_negative_exit_code(tmp_path: pathlib.Path) -> None:
    assert run_program(program(tmp_path, "kill -KILL $$"), b"", LONG).exit_code == -signal.SIGKILL


def test_a_file_that_is_not_a_program_raises(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_bytes(b"\x7fnothing")
    (tmp_path / "data").chmod(0o755)
    with pytest.raises(OSError, match="data"):
        run_program(str(tmp_path / "data"), b"", LONG)
