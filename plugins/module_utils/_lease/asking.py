# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Asks the peers of a host whether they have their leases."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import time
import typing as t

from .._model.codec import ShapeError, decode
from .._model.leases import HELD, NONE, LeaseAnswer
from .._time_limits import PendingAnswer
from .config import LeasePeer

ANSWER_SECONDS = 2.0
_MAX_BYTES = 4096


Answers = t.Dict[str, t.Dict[str, str]]


def ask_peers(peers: t.Sequence[LeasePeer], stores: t.Iterable[str], seconds: float = ANSWER_SECONDS) -> Answers:
    """Return by etcd and by host_id what the peers answer, C(held) or C(none); those that do not answer in time are missing. All is asked at once.

    A peer that gives two answers is taken to have its lease if one of them says so.

    :arg stores: what stands for the etcd in which they may have a lease, see L(LeaseConfig).
    """
    answers: Answers = {store: {} for store in stores}
    asked = [(store, peer, PendingAnswer(_question(peer, address, store, seconds))) for store in answers for peer in peers for address in peer.addresses]
    deadline = time.monotonic() + seconds
    for store, peer, pending in asked:
        answer = pending.wait(max(deadline - time.monotonic(), 0.0))
        if answer is not None and answers[store].get(peer.host_id) != HELD:
            answers[store][peer.host_id] = answer
    return answers


def _question(peer: LeasePeer, address: str, store: str, seconds: float) -> t.Callable[[], t.Optional[str]]:
    return lambda: ask_peer(peer.host_id, address, peer.port, store, seconds)


def ask_peer(host_id: str, address: str, port: int, store: str, seconds: float = ANSWER_SECONDS) -> t.Optional[str]:
    """Return C(held) or C(none), as the host answers; null for another host at its address, or an answer that is none. Raises C(OSError)."""
    with _connect(address, port, seconds) as connection:
        connection.sendall(f"lease {store}\n".encode("ascii"))
        with connection.makefile("rb") as stream:
            line = stream.readline(_MAX_BYTES)
    with contextlib.suppress(ValueError, RecursionError, ShapeError):
        answer = decode(LeaseAnswer, json.loads(line))
        return answer.lease if answer.host_id == host_id and answer.lease in (HELD, NONE) else None
    return None


def list_unreachable(peers: t.Sequence[LeasePeer], seconds: float = ANSWER_SECONDS) -> t.List[LeasePeer]:
    """Return the peers at none of whose addresses anything answers: they are off, or a firewall rejects the question. One without the service refuses it."""
    pending = [(peer, PendingAnswer(_attempt(address, peer.port, seconds))) for peer in peers for address in peer.addresses]
    deadline = time.monotonic() + seconds
    reached = {peer.host_id for peer, attempt in pending if attempt.wait(max(deadline - time.monotonic(), 0.0))}
    return [peer for peer in peers if peer.host_id not in reached]


def _attempt(address: str, port: int, seconds: float) -> t.Callable[[], bool]:
    def try_port() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            _connect(address, port, seconds).close()
        return True

    return try_port


def _connect(address: str, port: int, seconds: float) -> socket.socket:
    """Return a connection to the first address of a name that accepts one. All are tried at once: a silent one would use up the time. Raises C(OSError)."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as attempts, contextlib.ExitStack() as opened:
        code = errno.ETIMEDOUT
        for family, kind, protocol, _name, where in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError):
                attempt = opened.enter_context(socket.socket(family, kind, protocol))
                attempt.setblocking(False)
                code = attempt.connect_ex(where)
                if code in (0, errno.EINPROGRESS):
                    attempts.register(attempt, selectors.EVENT_WRITE)
        while attempts.get_map():
            ready = [t.cast(socket.socket, key.fileobj) for key, _events in attempts.select(max(deadline - time.monotonic(), 0.0))]
            for attempt in ready:
                attempts.unregister(attempt)
                code = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code == 0:
                    connection = socket.socket(fileno=attempt.detach())
                    connection.settimeout(seconds)
                    return connection
            if not ready:
                raise TimeoutError
    raise OSError(code, os.strerror(code))
