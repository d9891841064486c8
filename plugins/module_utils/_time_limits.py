# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Time limits for queries to file servers that do not answer, and to libvirt daemons that hang while their connection is open."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import threading
import time
import typing as t

from ._model.errors import Unreachable

T = t.TypeVar("T")
Work = t.TypeVar("Work", bound=t.Callable[..., t.Any])

# Libvirt itself waits 30 s for a busy domain, and may start QEMU to determine its capabilities.
QUESTION_SECONDS = 120.0
_CHECK_SECONDS = 1.0
_END_SECONDS = 5.0

# By thread: the call of libvirt, and its start. Threads with another time limit are in the set instead.
_questions: t.Dict[int, t.Tuple[str, float]] = {}
_limited_threads: t.Set[int] = set()


class PendingAnswer(t.Generic[T]):
    """A query that runs in a thread of its own while the caller does something else."""

    def __init__(self, ask: t.Callable[[], T]) -> None:
        self._answer: t.List[T] = []
        self._ask = ask
        self._thread = threading.Thread(target=self._run, name="patience", daemon=True)
        self._thread.start()

    def wait(self, seconds: t.Optional[float]) -> t.Optional[T]:
        """Return the answer; null if the query failed (OSError, ValueError), or does not end within that time. Then its thread is abandoned.

        :arg seconds: null if the caller's thread is one that may be abandoned, too.
        """
        self._thread.join(seconds)
        return self._answer[0] if self._answer else None

    @property
    def is_late(self) -> bool:
        """Whether the query has neither ended nor failed yet."""
        return self._thread.is_alive()

    def _run(self) -> None:
        with own_time_limit(), contextlib.suppress(OSError, ValueError):
            self._answer.append(self._ask())


def answer_within(seconds: float, ask: t.Callable[[], T]) -> t.Optional[T]:
    """Return the answer; null if the query failed (OSError, ValueError) or timed out. In the latter case, its thread is abandoned."""
    return PendingAnswer(ask).wait(seconds)


def answer_all_within(seconds: float, questions: t.Mapping[str, t.Callable[[], T]]) -> t.Dict[str, t.Optional[T]]:
    """Return the answers to all of these questions, which are asked side by side; each is null as in L(answer_within)."""
    return wait_for_each(seconds, {key: PendingAnswer(ask) for key, ask in questions.items()})


def wait_for_each(seconds: float, pending: t.Mapping[str, PendingAnswer[T]]) -> t.Dict[str, t.Optional[T]]:
    """Return the answers to queries that run side by side; each is null as in L(answer_within)."""
    deadline = time.monotonic() + seconds
    return {key: answer.wait(max(deadline - time.monotonic(), 0)) for key, answer in pending.items()}


@contextlib.contextmanager
def own_time_limit() -> t.Iterator[None]:
    """Declare that another thread waits for this one with a time limit of its own."""
    thread = threading.get_ident()
    _limited_threads.add(thread)
    try:
        yield
    finally:
        _limited_threads.discard(thread)


@contextlib.contextmanager
def timed_question(attempt: str) -> t.Iterator[None]:
    """Declare that the block calls libvirt to C(attempt)."""
    thread = threading.get_ident()
    if thread in _limited_threads:
        yield
        return
    before = _questions.get(thread)
    _questions[thread] = (attempt, time.monotonic())
    try:
        yield
    finally:
        del _questions[thread]
        if before:
            _questions[thread] = (before[0], time.monotonic())


def limit_questions(work: Work) -> Work:
    """Let a function that changes nothing end with L(Unreachable) when libvirt leaves one question unanswered for C(QUESTION_SECONDS).

    Its call cannot be ended, so it runs in a thread that is then abandoned.
    """

    @functools.wraps(work)
    def ask_limited(*arguments: t.Any, **options: t.Any) -> t.Any:
        pool = concurrent.futures.ThreadPoolExecutor(1)
        answer = pool.submit(work, *arguments, **options)
        pool.shutdown(wait=False)
        while not concurrent.futures.wait([answer], _CHECK_SECONDS).done:
            _check_questions()
        return answer.result()

    return t.cast(Work, ask_limited)


def _check_questions() -> None:
    attempt, since = min(tuple(_questions.values()), key=lambda question: question[1], default=("", time.monotonic()))
    if time.monotonic() - since < QUESTION_SECONDS:
        return
    end_process_soon(1)
    raise Unreachable(
        f"Failed to {attempt}: libvirt did not answer within {QUESTION_SECONDS:.0f} s, although its connection is alive.",
        "Its daemon hangs: check its log, and restart it (domains keep running). Nothing was changed.",
    )


def end_process_soon(exit_code: int) -> None:
    """End this process in a few seconds: at its end, Python waits for the threads of its pools, and libvirt never answers one of them."""
    end = threading.Timer(_END_SECONDS, os._exit, args=(exit_code,))
    end.daemon = True
    end.start()
