# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A worker names the process that has started it, also when that has been killed before the task begins."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
import time

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import find_run_process


def note_run_process(run: int, noted: pathlib.Path) -> None:
    """Do as a task of Ansible whose run is killed while it begins, by a closed terminal for example."""
    os.kill(run, signal.SIGHUP)
    while os.getppid() == run:
        time.sleep(0.01)
    partial = noted.with_suffix(".partial")
    partial.write_text(f"{find_run_process()} {os.getppid()}", encoding="ascii")
    partial.rename(noted)


def begin_task(noted: pathlib.Path) -> None:
    """Do as ansible-playbook: start a worker, and wait for it."""
    worker = multiprocessing.get_context("fork").Process(target=note_run_process, args=(os.getpid(), noted))
    worker.start()
    worker.join()


def test_a_worker_whose_run_was_killed_before_its_task_began_names_that_run(tmp_path: pathlib.Path) -> None:
    noted = tmp_path / "noted"
    run = multiprocessing.get_context("fork").Process(target=begin_task, args=(noted,))
    run.start()
    run.join()
    for _attempt in range(500):
        if noted.exists():
            break
        time.sleep(0.01)
    found, parent = map(int, noted.read_text(encoding="ascii").split())
    assert (found, parent == run.pid) == (run.pid, False)


def test_a_process_that_nobody_has_started_as_a_worker_names_its_parent() -> None:
    assert find_run_process() == os.getppid()
