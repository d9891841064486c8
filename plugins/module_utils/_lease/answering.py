# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host answers its peers: whether it has its lease; and, if it is a relay, the bytes of etcd.

A connection begins with a line. C(relay HOST:PORT) connects to that member of etcd; for any other line, or none within a second, the answer is one
line with a L(LeaseAnswer). C(lease STORE) asks for a lease in that etcd, see L(LeaseConfig); any other line for one in any.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import sys
import threading
import time
import typing as t

from .._model.codec import encode
from .._model.leases import LeaseAnswer
from .config import LeaseConfig
from .etcd import split_endpoint

_LINE_SECONDS = 1.0
_SEND_SECONDS = 5.0
_CONNECT_SECONDS = 2.0
# Renewals use a stream through a relay again; one without bytes for so long is left over.
_IDLE_SECONDS = 120.0
_RETRY_SECONDS = 5.0
_CONNECTIONS = 128
_RELAY, _LEASE = "relay ", "lease "


class Answerer:
    """Listens in a thread of its own, and answers each connection in another.

    :arg answer: what the host knows at that moment; its argument is the etcd that is asked for, empty for any.
    """

    def __init__(self, config: LeaseConfig, answer: t.Callable[[str], LeaseAnswer]) -> None:
        self._config = config
        self._answer = answer
        self._free = threading.BoundedSemaphore(_CONNECTIONS)

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._listen, name="answering", daemon=True).start()

    def _listen(self) -> t.NoReturn:
        while True:
            try:
                with _open_listener(self._config.port) as listener:
                    while True:
                        self._accept(listener)
            except OSError as error:
                log_line(f"Peers cannot be answered on port {self._config.port}: {error}. This is tried again.")
            time.sleep(_RETRY_SECONDS)

    def _accept(self, listener: socket.socket) -> None:
        connection, _address = listener.accept()
        if not self._free.acquire(blocking=False):
            connection.close()
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError as error:  # no more threads
            log_line(f"A peer cannot be answered: {error}.")
            connection.close()
            self._free.release()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                line, rest = _read_line(connection)
                if line.startswith(_RELAY):
                    self._relay(connection, line[len(_RELAY) :].strip(), rest)
                else:
                    connection.settimeout(_SEND_SECONDS)
                    store = line[len(_LEASE) :].strip() if line.startswith(_LEASE) else ""
                    connection.sendall(json.dumps(encode(self._answer(store))).encode("ascii") + b"\n")
        finally:
            self._free.release()

    def _relay(self, connection: socket.socket, endpoint: str, rest: bytes) -> None:
        """Pass bytes on between a peer and a member of etcd. Only members of this host's own configuration are reached this way."""
        if not self._config.relay or endpoint not in self._config.endpoints:
            return
        with socket.create_connection(split_endpoint(endpoint), _CONNECT_SECONDS) as member:
            member.settimeout(_SEND_SECONDS)
            connection.settimeout(_SEND_SECONDS)
            if rest:
                member.sendall(rest)
            _pass_on(connection, member)


def log_line(text: str) -> None:
    """Write a line to the log of the service."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _open_listener(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_CONNECTIONS)
    return socket.create_server(("", port), backlog=_CONNECTIONS)


def _read_line(connection: socket.socket) -> t.Tuple[str, bytes]:
    """Return the first line, empty if there is none in time, and the bytes after it."""
    data, deadline = b"", time.monotonic() + _LINE_SECONDS
    with contextlib.suppress(TimeoutError, socket.timeout):
        while b"\n" not in data and len(data) < 512 and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            more = connection.recv(512)
            if not more:
                break
            data += more
    line, newline, rest = data.partition(b"\n")
    return (line.decode("ascii", "replace"), rest) if newline else ("", b"")


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes both ways until one side ends, or nothing comes for a while."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while ready := selector.select(_IDLE_SECONDS):
            for key, _events in ready:
                data = t.cast(socket.socket, key.fileobj).recv(65536)
                if not data:
                    return
                key.data.sendall(data)
