# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The eyes on one case: which exceptions, how much processor time, how much memory, and what it touches outside of its folder."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import typing as t
from collections.abc import Iterator
from types import FrameType

from .target import Case, Target

CPU_SECONDS = 5.0
MEMORY_BYTES = 1024**3


class Finding(AssertionError):
    """A case that did what no input may make a parser do. Its cause is the exception, where there was one."""


class _TooSlow(BaseException):
    """No C(except) of a parser is to catch it."""


def observe(target: Target, case: Case) -> None:
    """Run one case. Raises L(Finding), which says what is wrong."""
    try:
        with _limited_time(), _confined():
            target.check(case)
    except target.may_raise as error:
        if not str(error):
            raise Finding(f"{target.name}: a {type(error).__name__} says nothing") from error
    except _TooSlow:
        raise Finding(f"{target.name}: not done after {CPU_SECONDS:g} s of processor time") from None
    except Exception as error:
        raise Finding(f"{target.name}: {type(error).__name__}: {str(error)[:300]}") from error


@contextlib.contextmanager
def _limited_time() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _stop(_number: int, _frame: FrameType | None) -> t.NoReturn:
    raise _TooSlow


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process have so much more memory than it has now: beyond that there is C(MemoryError), which no parser may raise."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as stream:
        now = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# Where the case that runs may write; None while none runs.
_places: tuple[str, ...] | None = None
_is_hooked = False
_allowed: list[str] = []

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of Python's audit, with the positions of paths in their arguments.
_CHANGES = {
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.truncate": (0,),
    "os.rename": (0, 1),
    "os.link": (0, 1),
    "os.symlink": (1,),
}
_NEVER = ("subprocess.Popen", "os.exec", "os.system", "os.fork", "os.posix_spawn", "socket.connect")


def may_write(folder: str) -> None:
    """Let all cases of this process write into that folder."""
    _allowed.append(os.path.realpath(folder) + os.sep)


@contextlib.contextmanager
def _confined() -> Iterator[None]:
    global _places, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_audit)
        _is_hooked = True
    _places = (*_allowed, "/dev/null")
    keeps, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        _places = None
        sys.dont_write_bytecode = keeps


def _audit(event: str, arguments: tuple[t.Any, ...]) -> None:
    if _places is None:
        return
    if event == "open":
        flags = arguments[2] if isinstance(arguments[2], int) else 0
        if flags & _WRITING or flags & os.O_DIRECTORY:
            _check_path(event, arguments[0])
    elif event in _CHANGES:
        for position in _CHANGES[event]:
            _check_path(event, arguments[position])
    elif event in _NEVER:
        raise Finding(f"{event} {arguments!r:.300}")


def _check_path(event: str, path: t.Any) -> None:
    if isinstance(path, int):
        return
    text = os.fsdecode(path)
    # A bare name is relative to a folder that was opened before, which was looked at then: it can only be a name.
    inside = text.startswith(_places or ()) if os.path.isabs(text) else "/" not in text and text not in ("", ".", "..")
    if not inside or ".." in text.split("/"):
        raise Finding(f"{event} outside of the given folder: {text!r:.300}")
