# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ending and freezing a member of the lab's etcd."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from kvmlab.etcd import wait_for_end, wait_until_stopped

# The first thread of the process ends, another one goes on; the process then looks like a zombie but still holds its sockets and locks.
LEADER_ENDS_FIRST = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(1.5,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_process_has_ended_only_with_its_last_thread() -> None:
    process = subprocess.Popen([sys.executable, "-c", LEADER_ENDS_FIRST])
    try:
        stat = pathlib.Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert len(list(pathlib.Path(f"/proc/{process.pid}/task").iterdir())) == 2
        wait_for_end(process.pid)
        assert not stat.exists()
    finally:
        process.kill()


def test_a_process_that_was_not_stopped_yet_is_waited_for() -> None:
    process = subprocess.Popen(["sleep", "600"])
    stopping = threading.Timer(0.5, os.kill, (process.pid, signal.SIGSTOP))
    try:
        stopping.start()
        wait_until_stopped(process.pid)
        assert pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    finally:
        stopping.cancel()
        process.kill()
        process.wait()
