# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lanes end together: with what they found, or at once when the run is told to end."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing as t

import pytest
from suites import processes
from suites.lanes import run_together

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
# Two lanes, of which each has a tool that hangs; told to end, it says so and each lane takes its lab down.
PROGRAM = """
import os, pathlib, signal, sys
from suites import processes
from suites.lanes import run_together

def lane(name):
    processes.run(["sh", "-c", f"echo > {name}.begun; exec sleep 300"], pathlib.Path.cwd(), os.environ)
    pathlib.Path(f"{name}.down").touch()

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
run_together([lambda: lane("one"), lambda: lane("other")])
"""
# Two lanes that take from one queue: what is third in it never begins.
QUEUE = """
import collections, os, pathlib, signal, sys
from suites import processes
from suites.lanes import run_together, take_each

waiting = collections.deque(["one", "other", "third"])

def lane():
    for name in take_each(waiting):
        processes.run(["sh", "-c", f"echo > {name}.begun; exec sleep 300"], pathlib.Path.cwd(), os.environ)
        pathlib.Path(f"{name}.down").touch()

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
run_together([lane, lane], waiting)
"""


def test_all_lanes_run_and_the_error_of_one_is_raised() -> None:
    ran: list[str] = []

    def break_off() -> None:
        raise ValueError("the lab does not go down")

    with pytest.raises(ValueError, match="the lab does not go down"):
        run_together([break_off, lambda: ran.append("one"), lambda: ran.append("other")])
    assert sorted(ran) == ["one", "other"]


def test_a_terminated_run_begins_nothing_more(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    with subprocess.Popen([sys.executable, "-c", QUEUE], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        _wait_for(tmp_path, "*.begun")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.begun", "one.down", "other.begun", "other.down"]


def test_a_terminated_run_takes_its_labs_down(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        _wait_for(tmp_path, "*.begun")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert sorted(path.name for path in tmp_path.glob("*.down")) == ["one.down", "other.down"]


def test_a_tool_that_is_starting_when_all_are_ended_ends_too(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_started, is_ending = threading.Event(), threading.Event()
    start = subprocess.Popen

    def start_slowly(*arguments: t.Any, **options: t.Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        has_started.set()
        is_ending.wait(30)
        time.sleep(0.5)
        return process

    monkeypatch.setattr(processes.subprocess, "Popen", start_slowly)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        tool = pool.submit(processes.run, ["sleep", "300"], tmp_path, os.environ, hang_seconds=10)
        assert has_started.wait(30)
        is_ending.set()
        processes.end_all()
        assert tool.result(60).code == -signal.SIGTERM


def _wait_for(folder: pathlib.Path, pattern: str) -> None:
    deadline = time.monotonic() + 60
    while len(list(folder.glob(pattern))) < 2:
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.05)
