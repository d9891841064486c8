# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Opening a connection to libvirt: with a time limit, with keepalive, and with a sentence when it fails."""

from __future__ import annotations

import collections
import random
import re
import socket
import threading
import time
import typing as t
import urllib.parse

from .._errors import KvmfleetError, Unreachable
from .._migration.logins import DROPPED
from .._patience import limited
from .errors import libvirt_errors
from .library import libvirt, start_event_loop
from .uri import check_uri

# A host that does not answer is noticed after interval x (count + 1) seconds.
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 3
OPEN_TIMEOUT_SECONDS = 20.0
# A slow or busy host needs longer to log in a client. Unlike a dead one, it still accepts connections at its port.
BUSY_OPEN_TIMEOUT_SECONDS = 60.0
_PORTS = {"tcp": 16509, "tls": 16514}
_SSH_PORT = 22
_PORT_SECONDS = 3.0
# What OpenSSH reports for a login that the server dropped, or libvirt when its SSH program had ended before libvirt could send anything. The latter has
# other causes, too; the next try shows them.
_DROPPED = re.compile(rf"{DROPPED}|Broken pipe|End of file while reading data")
# So many logins of this process at one host are on their way at once.
_LOGINS_AT_ONCE = 4
# No try begins so shortly before the limit: then the failure is told with its cause.
_LAST_TRY_SECONDS = 3.0
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 2.0
_RANDOM = random.SystemRandom()

_LOGINS: t.DefaultDict[str, threading.Semaphore] = collections.defaultdict(lambda: threading.Semaphore(_LOGINS_AT_ONCE))


def open_connection(uri: str, timeout_seconds: t.Optional[float] = None) -> t.Any:
    """Open a read-write connection. Raises L(Unreachable) when libvirt refuses, or has not answered within the limit.

    Whoever gave the URI, also a record or another host, it is checked here: L(InvalidArgument).
    Libvirt's own call can block for minutes on a host that is down, so it runs in a thread that is left behind then.
    A login that the SSH server drops because of too many others is tried again until the limit.

    :arg timeout_seconds: the limit; none means 20 s, and 60 s for a remote host whose port accepts connections.
    """
    check_uri(uri, "The URI of a libvirt host")
    start_event_loop()
    outcome: t.List[t.Any] = []
    limit = OPEN_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    opener = threading.Thread(target=_open, args=(uri, outcome, time.monotonic() + limit), name="libvirt-open", daemon=True)
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
    """Whether the port of the URI accepts connections from here; it does not where only a jump host reaches the host."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.hostname:
        return False
    port = parts.port or _PORTS.get(parts.scheme.partition("+")[2], _SSH_PORT)
    try:
        with socket.create_connection((parts.hostname, port), timeout=_PORT_SECONDS):
            return True
    except (OSError, UnicodeError):
        return False


def _open(uri: str, outcome: t.List[t.Any], until: float) -> None:
    try:
        with limited(), libvirt_errors(f"connect to libvirt at {uri}"):
            connection = _opened(uri, until)
            connection.setKeepAlive(KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT)
    except KvmfleetError as error:
        outcome.append(Unreachable(error.message, "Check the URI, that the host is up, and that this user may connect."))
    else:
        outcome.append(connection)


def _opened(uri: str, until: float) -> t.Any:
    """Return the connection; a login that is dropped before it is authenticated is repeated, at growing and random intervals."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.scheme.endswith("+ssh"):
        return libvirt().open(uri)
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            with _LOGINS[parts.netloc]:
                return libvirt().open(uri)
        except libvirt().libvirtError as error:
            if not _DROPPED.search(str(error.get_error_message() or "")) or time.monotonic() + pause + _LAST_TRY_SECONDS > until:
                raise
        time.sleep(pause * _RANDOM.uniform(0.5, 1.5))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
