# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Asking the file system without waiting for a server that is gone."""

from __future__ import annotations

import threading
import typing as t

T = t.TypeVar("T")


def within(seconds: float, ask: t.Callable[[], T]) -> t.Optional[T]:
    """Return the answer, or null where it failed or was not there in time: then the asking thread is left behind."""
    answer: t.List[T] = []

    def run() -> None:
        try:
            answer.append(ask())
        except (OSError, ValueError):
            return

    thread = threading.Thread(target=run, name="facts-patience", daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else None
