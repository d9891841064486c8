# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Connections to libvirt: the binding with its event loop, its errors, and opening a host.

Errors are mapped to errors of the collection once, and by code: messages change between releases.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import random
import re
import socket
import threading
import time
import types
import typing as t
import urllib.parse

from .._logins import DROPPED_LOGIN
from .._model.errors import (
    Aborted,
    Conflict,
    Forbidden,
    Internal,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    NotSupported,
    TimedOut,
    Unreachable,
    Unsafe,
)
from .._model.libvirt_formats import check_uri
from .._module import is_root
from .._time_limits import own_time_limit, timed_question

try:
    import libvirt
except ImportError:
    _libvirt: t.Optional[types.ModuleType] = None
else:
    _libvirt = libvirt

_LOOP: t.List[threading.Thread] = []
_LOOP_LOCK = threading.Lock()


def libvirt_binding() -> types.ModuleType:
    """Return the libvirt module. Raises L(NotSupported) if this Python does not have it."""
    if _libvirt is None:
        raise NotSupported(
            "This host's Python has no libvirt binding.",
            "If it is a libvirt host, install python3-libvirt there, or point ansible_python_interpreter at a Python that has it (usually /usr/bin/python3)."
            " If it is not, as a control node, run the task on the libvirt host that it is about.",
        )
    return _libvirt


def start_event_loop() -> None:
    """Silence the C library's own messages and run its event loop, which keepalive needs. Once a process, never before a fork."""
    binding = libvirt_binding()
    with _LOOP_LOCK:
        if _LOOP:
            return
        binding.registerErrorHandler(lambda context, error: None, None)
        binding.virEventRegisterDefaultImpl()
        loop = threading.Thread(target=_run_loop, args=(binding,), name="libvirt-events", daemon=True)
        loop.start()
        _LOOP.append(loop)


def require_no_event_loop() -> None:
    """Raise L(Internal) if the event loop runs in this process: the C library's loop belongs to one thread, and no fork has that thread."""
    if _LOOP:
        raise Internal(
            "A watcher cannot be forked from a process that has used libvirt: its keepalive would not run.", "Nothing was started. Report this error."
        )


def _run_loop(binding: types.ModuleType) -> None:
    while True:
        binding.virEventRunDefaultImpl()


# Numbers from virErrorNumber, so that a client library older than a code does not matter.
_BY_CODE: t.Dict[int, t.Type[KvmfleetError]] = {
    3: NotSupported,  # NO_SUPPORT
    5: Unreachable,  # NO_CONNECT
    6: Unreachable,  # INVALID_CONN
    8: InvalidArgument,  # INVALID_ARG
    29: Forbidden,  # OPERATION_DENIED
    38: Unreachable,  # SYSTEM_ERROR: sockets that do not connect, or end
    39: Unreachable,  # RPC
    42: NotFound,  # NO_DOMAIN
    45: Forbidden,  # AUTH_FAILED
    55: InvalidState,  # OPERATION_INVALID
    68: TimedOut,  # OPERATION_TIMEOUT
    74: NotSupported,  # ARGUMENT_UNSUPPORTED
    78: Aborted,  # OPERATION_ABORTED
    79: Forbidden,  # AUTH_CANCELLED
    81: Unsafe,  # MIGRATE_UNSAFE
    84: NotSupported,  # OPERATION_UNSUPPORTED
    88: Forbidden,  # ACCESS_DENIED
    91: Conflict,  # CPU_INCOMPATIBLE
    109: Conflict,  # CHECKPOINT_INCONSISTENT
    94: Forbidden,  # AUTH_UNAVAILABLE: polkit would have to ask a person
}

_SYSTEM_ERROR = 38
_RPC_DOMAIN = 7


def translate_error(error: libvirt.libvirtError, attempt: str) -> KvmfleetError:
    """Return the error of the collection for a libvirt error. C(attempt) names the operation, e.g. C(look up domain web1 on kvm1)."""
    code = error.get_error_code()
    text = (error.get_error_message() or str(error)).strip()
    cls = _BY_CODE.get(code, Internal)
    if code == 1 and error.get_error_domain() == _RPC_DOMAIN:
        cls = Unreachable  # "client socket is closed" comes as an internal error of the RPC layer
    return cls(f"Failed to {attempt}: {text} (libvirt error {code}).", libvirt_code=code)


@contextlib.contextmanager
def libvirt_errors(attempt: str) -> t.Iterator[None]:
    """Turn any libvirt error inside the block into an error of the collection that names the attempt."""
    try:
        with timed_question(attempt):
            yield
    except libvirt_binding().libvirtError as error:
        raise translate_error(error, attempt) from error


# A host that does not answer is noticed after interval x (count + 1) seconds.
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 3
OPEN_TIMEOUT_SECONDS = 20.0
# A slow or busy host needs longer to log in a client. Unlike a dead one, it still accepts connections at its port.
BUSY_OPEN_TIMEOUT_SECONDS = 60.0
_PORTS = {"tcp": 16509, "tls": 16514}
_SSH_PORT = 22
_PORT_SECONDS = 3.0
# What libvirt reports if its SSH program had ended before libvirt could send anything: this has other causes than a dropped login too, which the next try
# shows. Libvirt and the C library translate the text ("Broken pipe", "End of file while reading data").
_ENDED_STREAM = (errno.EPIPE, errno.EIO)
# The number of simultaneous logins of this process at one host.
_LOGINS_AT_ONCE = 4
# No try begins later than this before the limit, so that a failure is reported with its cause.
_LAST_TRY_SECONDS = 3.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_RANDOM = random.SystemRandom()

_LOGINS: t.DefaultDict[str, threading.Semaphore] = collections.defaultdict(lambda: threading.Semaphore(_LOGINS_AT_ONCE))


class Opened(t.NamedTuple):
    """An open connection, and whether it is libvirt's read-only one, which refuses all calls that act and some that read."""

    connection: libvirt.virConnect
    is_read_only: bool = False


_Open = t.Callable[[str], Opened]


def open_connection(uri: str, timeout_seconds: t.Optional[float] = None) -> libvirt.virConnect:
    """Open a read-write connection. Raises L(Unreachable) when libvirt refuses, or has not answered within the limit.

    A user other than root gets L(Forbidden) where libvirt, or the permission of its socket, refuses the user.
    The URI is checked here, also one of a record or of another host: L(InvalidArgument).
    Libvirt's own call can block for minutes on a host that is down, so it runs in a thread that is then abandoned.
    A login that the SSH server drops because of too many others is tried again until the limit.

    :arg timeout_seconds: the limit; none means 20 s, and 60 s for a remote host whose port accepts connections, whether it is slow or drops logins.
    """
    return _open_in_time(uri, timeout_seconds, _open_full).connection


def open_for_reading(uri: str, timeout_seconds: t.Optional[float] = None) -> Opened:
    """Open the connection that this user may have, with the limits and errors of L(open_connection).

    Root gets the read-write connection or none. Another user gets the read-only one if the read-write one is refused (docs/libvirt.md, "Connections").
    """
    return _open_in_time(uri, timeout_seconds, _open_full if is_root() else _open_any)


class _Ends(t.NamedTuple):
    """When the tries of one connection end, by the monotonic clock: at C(busy) if the host drops logins and its port accepts connections."""

    normal: float
    busy: float

    @classmethod
    def after(cls, normal_seconds: float, busy_seconds: float) -> _Ends:
        """Return the ends of tries that begin now."""
        now = time.monotonic()
        return cls(now + normal_seconds, now + busy_seconds)


def _open_in_time(uri: str, timeout_seconds: t.Optional[float], open_one: _Open) -> Opened:
    check_uri(uri, "The URI of a libvirt host")
    start_event_loop()
    outcome: t.List[t.Union[Opened, KvmfleetError]] = []
    limit = OPEN_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    ends = _Ends.after(limit, BUSY_OPEN_TIMEOUT_SECONDS if timeout_seconds is None else limit)
    opener = threading.Thread(target=_collect_outcome, args=(uri, outcome, ends, open_one), name="libvirt-open", daemon=True)
    opener.start()
    opener.join(limit)
    if timeout_seconds is None and not outcome and _accepts_connections(uri):
        limit = BUSY_OPEN_TIMEOUT_SECONDS
        opener.join(BUSY_OPEN_TIMEOUT_SECONDS - OPEN_TIMEOUT_SECONDS)
    if not outcome:
        raise Unreachable(
            f"libvirt at {uri} did not answer within {limit:.0f} s.",
            "Check that the host is up and that its libvirt daemon listens for this transport.",
        )
    if isinstance(outcome[0], KvmfleetError):
        raise outcome[0]
    return outcome[0]


def _accepts_connections(uri: str) -> bool:
    """Whether the port of the URI accepts connections from this host. It does not if the host is only reachable through a jump host."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.hostname:
        return False
    port = parts.port or _PORTS.get(parts.scheme.partition("+")[2], _SSH_PORT)
    try:
        with socket.create_connection((parts.hostname, port), timeout=_PORT_SECONDS):
            return True
    except (OSError, UnicodeError):
        return False


def _collect_outcome(uri: str, outcome: t.List[t.Union[Opened, KvmfleetError]], ends: _Ends, open_one: _Open) -> None:
    try:
        with own_time_limit(), libvirt_errors(f"connect to libvirt at {uri}"):
            opened = _open_with_retries(uri, ends, open_one)
            opened.connection.setKeepAlive(KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT)
    except KvmfleetError as error:
        outcome.append(_explain_failure(error))
    else:
        outcome.append(opened)


def _explain_failure(error: KvmfleetError) -> KvmfleetError:
    """Return the error with the next step. For root, every failure means that the host cannot be reached."""
    if not is_root() and (isinstance(error, Forbidden) or _is_denied_socket(error.__cause__)):
        return Forbidden(error.message, "Set become: true, or connect as a user who may use libvirt's read-write connection. Nothing was changed.")
    return Unreachable(error.message, "Check the URI, that the host is up, that libvirt runs there, and that this user may connect.")


def _is_denied_socket(cause: t.Optional[BaseException]) -> bool:
    """Whether the permissions of libvirt's socket refused the user."""
    return isinstance(cause, libvirt_binding().libvirtError) and _has_system_error(cause, errno.EACCES)


def _has_system_error(error: libvirt.libvirtError, *numbers: int) -> bool:
    """Whether an error of libvirt has one of these error numbers of the system."""
    return error.get_error_code() == _SYSTEM_ERROR and error.get_int1() in numbers


def _open_full(uri: str) -> Opened:
    return Opened(libvirt_binding().open(uri))


def _open_any(uri: str) -> Opened:
    """Open the read-only connection if the read-write one fails, unless the SSH server has dropped the login: then libvirt has refused nothing.

    Over SSH, a refusal of libvirt is the end of the connection, like other failures.
    """
    try:
        return _open_full(uri)
    except libvirt_binding().libvirtError as refusal:
        if re.search(DROPPED_LOGIN, str(refusal.get_error_message() or "")):
            raise
        try:
            return Opened(libvirt_binding().openReadOnly(uri), is_read_only=True)
        except libvirt_binding().libvirtError:
            raise refusal from None


def _open_with_retries(uri: str, ends: _Ends, open_once: _Open) -> Opened:
    """Return the connection; a login that is dropped before it is authenticated is repeated, at growing and random intervals."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.scheme.endswith("+ssh"):
        return open_once(uri)
    pause, until = _FIRST_PAUSE_SECONDS, ends.normal
    while True:
        try:
            with _LOGINS[parts.netloc]:
                return open_once(uri)
        except libvirt_binding().libvirtError as error:
            text = str(error.get_error_message() or "")
            if not re.search(DROPPED_LOGIN, text) and not _has_system_error(error, *_ENDED_STREAM):
                raise
            if not _has_time(pause, until):
                if not (_has_time(pause, ends.busy) and _is_dropped_by_host(uri, text)):
                    raise
                until = ends.busy
        time.sleep(pause * _RANDOM.uniform(0.5, 1.5))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _has_time(pause_seconds: float, until: float) -> bool:
    return time.monotonic() + pause_seconds + _LAST_TRY_SECONDS <= until


def _is_dropped_by_host(uri: str, text: str) -> bool:
    """Whether the host itself has dropped the login, so that it is up: the SSH server that did may also be that of a jump host."""
    return bool(re.search(DROPPED_LOGIN, text)) and _accepts_connections(uri)
