# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The process that runs the play of a task: C(ansible-playbook) or C(ansible). Its workers, which run the tasks, outlive it if it is killed."""

from __future__ import annotations

import multiprocessing
import os


def find_run_process() -> int:
    """Return the number of the process that has started this worker, also if it has ended since: a worker that it leaves gets another parent."""
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


class ControllerGone(SystemExit):
    """The process that runs the play has ended: this one must no longer act."""


class RunProcess:
    """The process that runs the play of this task."""

    def __init__(self) -> None:
        self._pid = find_run_process()

    def has_ended(self) -> bool:
        """Whether it has ended, so that this worker has another parent."""
        return os.getppid() != self._pid

    def require(self) -> None:
        """Raise L(ControllerGone) if it has ended: from then on a newer run may own what this task changes."""
        if self.has_ended():
            raise ControllerGone(1)
