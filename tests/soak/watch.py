# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at the fleet all the time, beside whoever acts, and keeps the first thing that must never be."""

from __future__ import annotations

import collections
import threading
import time
import typing as t

from .eyes import Eyes
from .looks import Look, told
from .model import Model, Violation

PAUSE_SECONDS = 0.4
KEPT = 40


class Watch:
    """:arg before: called before each judgement, e.g. to learn whom the fence device has switched off."""

    def __init__(self, eyes: Eyes, model: Model, before: t.Callable[[], None]) -> None:
        self._eyes = eyes
        self._model = model
        self._before = before
        self._kept: collections.deque[tuple[float, Look]] = collections.deque(maxlen=KEPT)
        self._found: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> Watch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *dummy: object) -> None:
        self._end.set()
        self._thread.join(30)

    @property
    def last(self) -> Look:
        """What was seen last."""
        return self._kept[-1][1]

    def kept(self) -> list[dict[str, t.Any]]:
        """Return the last looks, each with its second since the beginning."""
        return [{"at": at, "look": told(look)} for at, look in list(self._kept)]

    def look_now(self) -> Look:
        """Look once more, by who acts."""
        look = self._eyes.look()
        self._keep(look)
        return look

    def check(self) -> None:
        """Raise what was found, if anything was."""
        if self._found:
            raise self._found

    def pause(self, seconds: float) -> None:
        """Let time pass; raises what is found meanwhile."""
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            self.check()
            self._end.wait(min(left, 0.2))
        self.check()

    def until(self, ask: t.Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so; return whether it is so within these seconds."""
        limit = time.monotonic() + seconds
        while not ask():
            if time.monotonic() > limit:
                return False
            self.pause(0.3)
        return True

    def _run(self) -> None:
        try:
            while not self._end.wait(PAUSE_SECONDS):
                self._look()
        except Violation as violation:
            self._found = violation
        except BaseException as error:
            self._found = error
            raise

    def _look(self) -> None:
        first = self._eyes.look()
        second = self._eyes.look()
        self._before()
        self._keep(first)
        self._keep(second)
        self._model.judge(first, second)

    def _keep(self, look: Look) -> None:
        self._kept.append((round(time.monotonic() - self._began, 2), look))
