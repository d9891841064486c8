# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asking a host's libvirtd from outside, by its own socket: no process has to start on the host, and a cut cable does not matter."""

from __future__ import annotations

import concurrent.futures
import threading
import typing as t

try:
    import libvirt
except ImportError:
    # Only the distribution's Python has the binding. Others use what of this package asks nothing.
    libvirt = None

__all__ = ["NoAnswer", "ask", "libvirt"]

SOCKET = "run/libvirt/libvirt-sock"

Answer = t.TypeVar("Answer")
Question = t.Callable[[t.Any], Answer]


class NoAnswer(Exception):
    """libvirtd has answered with an error, or not at all."""


def ask(init_pid: int, question: Question[Answer], timeout_seconds: float = 60) -> Answer:
    """Return what the libvirtd of the host with that first process answers.

    :raises NoAnswer: it answers with an error, or not in time.
    """
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()
    # libvirt's calls know no timeout: a thread that waits for ever is left behind.
    threading.Thread(target=_answer, args=(answer, f"qemu+unix:///system?socket=/proc/{init_pid}/root/{SOCKET}", question), daemon=True).start()
    try:
        return answer.result(timeout_seconds)
    except libvirt.libvirtError as exc:
        raise NoAnswer(str(exc)) from exc
    except concurrent.futures.TimeoutError:
        raise NoAnswer(f"libvirtd has not answered for {timeout_seconds:g} s.") from None


def _answer(answer: concurrent.futures.Future[Answer], uri: str, question: Question[Answer]) -> None:
    try:
        connection = libvirt.open(uri)
        try:
            answer.set_result(question(connection))
        finally:
            connection.close()
    except libvirt.libvirtError as exc:
        answer.set_exception(exc)
