# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Asking without waiting for ever: file servers that are gone, and libvirt daemons that hang while their connection lives."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import threading
import time
import typing as t

from ._errors import Unreachable

T = t.TypeVar("T")
Work = t.TypeVar("Work", bound=t.Callable[..., t.Any])

# Libvirt itself waits 30 s for a domain that is busy, and starts a QEMU or two to learn what it can.
QUESTION_SECONDS = 120.0
_LOOK_SECONDS = 1.0
_END_SECONDS = 5.0

# By thread: what libvirt was asked, and when. Threads that somebody waits for within a limit are in the set instead.
_asked: t.Dict[int, t.Tuple[str, float]] = {}
_limited: t.Set[int] = set()


def within(seconds: float, ask: t.Callable[[], T]) -> t.Optional[T]:
    """Return the answer, or null where it failed (OSError, ValueError) or was not there in time: then the asking thread is left behind."""
    answer: t.List[T] = []

    def run() -> None:
        with limited(), contextlib.suppress(OSError, ValueError):
            answer.append(ask())

    thread = threading.Thread(target=run, name="patience", daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else None


@contextlib.contextmanager
def limited() -> t.Iterator[None]:
    """Say that somebody waits for this thread within a limit of their own."""
    thread = threading.get_ident()
    _limited.add(thread)
    try:
        yield
    finally:
        _limited.discard(thread)


@contextlib.contextmanager
def asking(attempt: str) -> t.Iterator[None]:
    """Say that libvirt is asked from here on to C(attempt), until the end of the block."""
    thread = threading.get_ident()
    if thread in _limited:
        yield
        return
    before = _asked.get(thread)
    _asked[thread] = (attempt, time.monotonic())
    try:
        yield
    finally:
        del _asked[thread]
        if before:
            _asked[thread] = (before[0], time.monotonic())


def patient(work: Work) -> Work:
    """Let a function that changes nothing end with L(Unreachable) when libvirt leaves one question unanswered for C(QUESTION_SECONDS).

    Its call cannot be ended, so it runs in a thread that is left behind then.
    """

    @functools.wraps(work)
    def patiently(*arguments: t.Any, **options: t.Any) -> t.Any:
        pool = concurrent.futures.ThreadPoolExecutor(1)
        answer = pool.submit(work, *arguments, **options)
        pool.shutdown(wait=False)
        while not concurrent.futures.wait([answer], _LOOK_SECONDS).done:
            _check_questions()
        return answer.result()

    return t.cast(Work, patiently)


def _check_questions() -> None:
    attempt, since = min(tuple(_asked.values()), key=lambda asked: asked[1], default=("", time.monotonic()))
    if time.monotonic() - since < QUESTION_SECONDS:
        return
    # At its end Python waits for the threads of its pools, and libvirt will never answer this one.
    end = threading.Timer(_END_SECONDS, os._exit, args=(1,))
    end.daemon = True
    end.start()
    raise Unreachable(
        f"Failed to {attempt}: libvirt did not answer within {QUESTION_SECONDS:.0f} s, and its connection lives.",
        "Its daemon hangs: look at its log, and restart it (domains go on). Nothing was changed.",
    )
