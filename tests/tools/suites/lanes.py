# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several runs of tests at once, each with hosts of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from . import processes

Work = TypeVar("Work")


def run_together(lanes: Sequence[Callable[[], None]], waiting: deque[Work] | None = None) -> None:
    """Run these at once, and wait for all. Raises what one of them raises.

    When this process is told to end, the tools that they run are ended, so that each lane takes its labs down without delay.

    :arg waiting: what the lanes take from when they have nothing more to do; emptied when this process is told to end.
    """
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        running = [pool.submit(lane) for lane in lanes]
        try:
            concurrent.futures.wait(running)
        except (KeyboardInterrupt, SystemExit):
            if waiting is not None:
                waiting.clear()
            processes.end_all()
            raise
        for lane in running:
            lane.result()


def take_each(waiting: deque[Work]) -> Iterator[Work]:
    """Yield the first of what waits, until several lanes together have taken everything."""
    with contextlib.suppress(IndexError):
        while True:
            yield waiting.popleft()
