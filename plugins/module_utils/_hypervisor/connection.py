# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Opening a connection to libvirt: with a time limit, with keepalive, and with a sentence when it fails."""

from __future__ import annotations

import threading
import typing as t

from .._errors import KvmfleetError, Unreachable
from .._patience import limited
from .errors import libvirt_errors
from .library import libvirt, start_event_loop
from .uri import check_uri

# A host that does not answer is noticed after interval x (count + 1) seconds.
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 3
OPEN_TIMEOUT_SECONDS = 20.0


def open_connection(uri: str, timeout_seconds: float = OPEN_TIMEOUT_SECONDS) -> t.Any:
    """Open a read-write connection. Raises L(Unreachable) when libvirt refuses, or has not answered within the limit.

    Whoever gave the URI, also a record or another host, it is checked here: L(InvalidArgument).
    Libvirt's own call can block for minutes on a host that is down, so it runs in a thread that is left behind then.
    """
    check_uri(uri, "The URI of a libvirt host")
    start_event_loop()
    outcome: t.List[t.Any] = []
    opener = threading.Thread(target=_open, args=(uri, outcome), name="libvirt-open", daemon=True)
    opener.start()
    opener.join(timeout_seconds)
    if not outcome:
        raise Unreachable(
            f"libvirt at {uri} did not answer within {timeout_seconds:.0f} s.",
            "Check that the host is up and that its libvirt daemon listens for this transport.",
        )
    if isinstance(outcome[0], KvmfleetError):
        raise outcome[0]
    return outcome[0]


def _open(uri: str, outcome: t.List[t.Any]) -> None:
    try:
        with limited(), libvirt_errors(f"connect to libvirt at {uri}"):
            connection = libvirt().open(uri)
            connection.setKeepAlive(KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT)
    except KvmfleetError as error:
        outcome.append(Unreachable(error.message, "Check the URI, that the host is up, and that this user may connect."))
    else:
        outcome.append(connection)
