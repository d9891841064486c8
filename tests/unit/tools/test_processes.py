# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tool that hangs or leaves children must not hang the whole run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from suites import processes


def test_exit_code_is_passed_on(tmp_path: Path) -> None:
    assert processes.run(["sh", "-c", "exit 7"], tmp_path, os.environ, 30) == 7


@pytest.mark.parametrize(("script", "shown"), [("echo much; echo more >&2; exit 7", "much\nmore\n"), ("echo much", "passed")])
def test_quiet_tool_is_shown_only_where_it_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str], script: str, shown: str) -> None:
    processes.run_quietly(["sh", "-c", script], tmp_path, os.environ, 30)
    assert capfd.readouterr().out.splitlines(keepends=True)[1:] == [*f"{shown}\n".splitlines(keepends=True)]


def test_tool_that_hangs_is_ended(tmp_path: Path) -> None:
    started = time.monotonic()
    assert processes.run(["sleep", "300"], tmp_path, os.environ, 1) == processes.DIED
    assert time.monotonic() - started < 60


def test_tool_may_clean_up_before_it_is_ended(tmp_path: Path) -> None:
    script = "trap 'echo gone > cleaned; exit 1' TERM; sleep 300 & wait"
    processes.run(["sh", "-c", script], tmp_path, os.environ, 2)
    assert (tmp_path / "cleaned").read_text(encoding="utf-8") == "gone\n"


def test_children_left_behind_are_ended(tmp_path: Path) -> None:
    processes.run(["sh", "-c", "sleep 300 & echo $! > child"], tmp_path, os.environ, 30)
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 30
    while _runs(child):
        assert time.monotonic() < deadline, f"process {child} is still there"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_missing_tool_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.run(["kvmfleet-no-such-tool"], tmp_path, os.environ, 30)
