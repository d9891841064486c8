# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A clock that only moves when somebody sleeps on it, and does at its times what a test has planned."""

from __future__ import annotations

import threading
import typing as t

STEP_SECONDS = 0.05

Act = t.Callable[[], object]


class FakeClock:
    """Seconds from 0. Sleeping takes no time: it moves the clock on in small steps, with everything that goes by it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._now = 0.0
        self._planned: t.List[t.Tuple[float, int, Act]] = []
        self._everyone: t.List[t.Callable[[float], None]] = []
        self.settle: Act = lambda: None

    def __call__(self) -> float:
        return self._now

    def at(self, seconds: float, act: Act) -> None:
        """Do that when the clock reaches so many seconds."""
        with self.lock:
            self._planned.append((seconds, len(self._planned), act))

    def after(self, seconds: float, act: Act) -> None:
        """Do that in so many seconds from now."""
        self.at(self._now + seconds, act)

    def every_step(self, act: t.Callable[[float], None]) -> None:
        """Call that at each step, with the seconds that passed."""
        self._everyone.append(act)

    def sleep(self, seconds: float) -> None:
        """Move on by so many seconds; C(settle) is called before and after, so that no thread lags behind."""
        end = self._now + seconds
        self.settle()
        while self._now < end - 1e-9:
            with self.lock:
                step = min(STEP_SECONDS, end - self._now)
                self._now += step
                self._do_what_is_due()
                for act in self._everyone:
                    act(step)
        self.settle()

    def _do_what_is_due(self) -> None:
        due = sorted((plan for plan in self._planned if plan[0] <= self._now + 1e-9), key=lambda plan: plan[:2])
        self._planned = [plan for plan in self._planned if plan not in due]
        for _seconds, _order, act in due:
            act()
