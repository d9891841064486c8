# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tool that hangs or leaves children must not hang the whole run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from suites import processes
from suites.hangs import Output


def run(tmp_path: Path, *argv: str, **options: t.Any) -> processes.Ended:
    return processes.run(argv, tmp_path, os.environ, **options)


def test_exit_code_and_output_of_a_tool_are_returned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "sh", "-c", "echo said; exit 7") == processes.Ended(7, output="said\n")
    assert capfd.readouterr().out.splitlines()[1:] == ["said"]


@pytest.mark.parametrize(("script", "shown"), [("echo much; echo more >&2; exit 7", "much\nmore"), ("echo much", "passed")])
def test_output_of_a_quiet_tool_is_shown_only_if_it_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str], script: str, shown: str) -> None:
    run(tmp_path, "sh", "-c", script, quiet=True)
    assert capfd.readouterr().out.splitlines(keepends=True)[1:] == [*f"{shown}\n".splitlines(keepends=True)]


def test_output_is_shown_while_the_tool_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def show(text: str) -> None:
        if text.strip():
            shown.append(text.strip())
            (tmp_path / "shown").touch()

    monkeypatch.setattr(processes, "_show", show)
    run(tmp_path, "sh", "-c", "echo first; while ! [ -e shown ]; do sleep 0.1; done; echo last", hang_seconds=60)
    assert shown == ["first", "last"]


def test_a_tool_that_hangs_is_ended(tmp_path: Path) -> None:
    ended = run(tmp_path, "sleep", "300", hang_seconds=1)
    assert (ended.code, ended.hang[:28]) == (processes.HUNG, "hung: no output at all for 1")


class Slow:
    """A tool of which each look takes so many seconds of a clock that does not run by itself, and which says something at every third look."""

    def __init__(self, output: Path, look_seconds: float, looks: int) -> None:
        self.output, self.look_seconds, self.looks = output, look_seconds, looks
        self.now = 0.0
        self.signals: list[int] = []

    def wait(self, seconds: float) -> int:
        self.now += self.look_seconds
        self.looks -= 1
        if self.looks <= 0 or self.signals:
            return 0
        if self.looks % 3 == 0:
            with self.output.open("a", encoding="utf-8") as stream:
                stream.write(f"{self.looks} to go\n")
        raise subprocess.TimeoutExpired("slow", seconds)

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


@pytest.mark.parametrize(("look_seconds", "hang"), [(200, ""), (400, "hung: no output for 800 s after '9 to go'")])
def test_a_tool_is_ended_only_without_any_sign_of_progress(tmp_path: Path, look_seconds: float, hang: str) -> None:
    output = Output(tmp_path / "output")
    output.path.touch()
    tool = Slow(output.path, look_seconds, 10)
    ended = processes._follow(t.cast("t.Any", tool), output, output, 600, True, lambda: tool.now)
    assert ended == processes.Ended(processes.HUNG if hang else 0, hang)
    assert tool.signals == ([signal.SIGTERM] if hang else [])


class Until(Output):
    """Signs of life until a file is there."""

    def __init__(self, mark: Path) -> None:
        super().__init__(mark)
        self._signs = 0

    def signs(self) -> int:
        self._signs += not self.path.exists()
        return self._signs


def test_a_tool_can_clean_up_before_it_is_ended(tmp_path: Path) -> None:
    script = "trap 'echo gone > cleaned; exit 1' TERM; touch ready; sleep 300 & wait"
    run(tmp_path, "sh", "-c", script, watch=Until(tmp_path / "ready"), hang_seconds=1)
    assert (tmp_path / "cleaned").read_text(encoding="utf-8") == "gone\n"


def test_a_tool_ends_although_a_child_keeps_its_output_open(tmp_path: Path) -> None:
    assert run(tmp_path, "sh", "-c", "setsid sleep 20 & echo done", hang_seconds=60).output == "done\n"


def test_children_left_behind_are_ended(tmp_path: Path) -> None:
    run(tmp_path, "sh", "-c", "sleep 300 & echo $! > child")
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


def test_a_missing_tool_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(tmp_path, "kvmfleet-no-such-tool")
