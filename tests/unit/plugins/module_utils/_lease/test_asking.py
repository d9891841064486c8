# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asking peers: each answer counts for its own host only, and the time is bounded."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import asking as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE

from .conftest import OWN, PEER, THIRD


@contextlib.contextmanager
def answering(line: t.Optional[bytes], address: str = "127.0.0.1") -> t.Iterator[int]:
    """A service that answers every connection with this line; with none it accepts and says nothing."""
    with socket.create_server((address, 0)) as server:
        kept: t.List[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _address = server.accept()
                    kept.append(connection)
                    if line is not None:
                        connection.sendall(line)
                        connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])


def line_of(host_id: str, lease: str) -> bytes:
    return json.dumps({"host_id": host_id, "boot_id": "boot", "lease": lease}).encode("ascii") + b"\n"


def peer_at(port: int, host_id: str = PEER, *addresses: str) -> LeasePeer:
    return LeasePeer(host_id, "kvm2", addresses or ("127.0.0.1",), port, False)


def test_the_answers_of_peers_are_listed_by_host() -> None:
    with answering(line_of(PEER, NONE)) as one, answering(line_of(THIRD, HELD)) as other:
        assert m.ask_peers([peer_at(one), peer_at(other, THIRD)], ["a", "b"]) == {store: {PEER: NONE, THIRD: HELD} for store in "ab"}


def test_the_answer_of_a_later_version_counts_although_it_says_more() -> None:
    """While a fleet is upgraded, hosts of both versions need each other for a majority when etcd fails."""
    line = json.dumps({"host_id": PEER, "boot_id": "boot", "lease": NONE, "since": 7}).encode("ascii") + b"\n"
    with answering(line) as port:
        assert m.ask_peers([peer_at(port)], ["a"]) == {"a": {PEER: NONE}}


@pytest.mark.parametrize(
    "line", [line_of(OWN, NONE), line_of(PEER, "perhaps"), b"{}\n", b"\n", b"", b"not json\n", b'{"host_id": 1}\n', b"[" * 3000, b"x" * 10_000, b"\xff\n"]
)
def test_what_is_no_answer_of_that_host_does_not_count(line: bytes) -> None:
    with answering(line) as port:
        assert m.ask_peers([peer_at(port)], ["a"]) == {"a": {}}


def test_peers_that_say_nothing_or_are_off_cost_the_time_limit_once() -> None:
    with answering(None) as silent, answering(line_of(THIRD, NONE)) as port:
        peers = [peer_at(silent, f"{number:08d}-0000-4000-8000-000000000000") for number in range(10, 20)]
        begun = time.monotonic()
        assert m.ask_peers([*peers, peer_at(1), peer_at(port, THIRD)], ["a"], seconds=0.5) == {"a": {THIRD: NONE}}
        assert time.monotonic() - begun < 2


def test_a_lease_on_one_of_two_addresses_counts() -> None:
    with answering(line_of(PEER, HELD)) as port, socket.create_server(("127.0.0.2", port)) as other:
        threading.Thread(target=lambda: other.accept()[0].sendall(line_of(PEER, NONE)), daemon=True).start()
        assert m.ask_peers([peer_at(port, PEER, "127.0.0.2", "127.0.0.1")], ["a"]) == {"a": {PEER: HELD}}


def test_a_second_address_answers_for_a_host_whose_first_one_does_not() -> None:
    with answering(line_of(PEER, NONE), "127.0.0.2") as port:
        assert m.ask_peers([dataclasses.replace(peer_at(port), addresses=("127.0.0.1", "127.0.0.2"))], ["a"]) == {"a": {PEER: NONE}}


@contextlib.contextmanager
def silent(address: str, port: int) -> t.Iterator[None]:
    """A port that answers no attempt to connect: the queue of its service is full."""
    with socket.create_server((address, port), backlog=0), contextlib.ExitStack() as waiting:
        with contextlib.suppress(OSError):
            while True:
                waiting.enter_context(socket.create_connection((address, port), 0.1))
        yield


def found_addresses(port: int, *addresses: str) -> t.Callable[..., t.Any]:
    return lambda *_arguments, **_options: [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in addresses]


def test_an_address_of_a_name_that_is_silent_does_not_use_up_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example one of IPv6 that leads nowhere: the peer would count as silent, and the watchdog reset a host whose peers answer."""
    with answering(line_of(PEER, NONE)) as port, silent("127.0.0.2", port):
        monkeypatch.setattr(socket, "getaddrinfo", found_addresses(port, "127.0.0.2", "127.0.0.1"))
        assert m.ask_peers([peer_at(port, PEER, "kvm2")], ["a"], seconds=1.0) == {"a": {PEER: NONE}}


def test_an_address_of_a_name_that_refuses_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(line_of(PEER, NONE), "127.0.0.2") as port:
        monkeypatch.setattr(socket, "getaddrinfo", found_addresses(port, "127.0.0.1", "127.0.0.2"))
        assert m.ask_peers([peer_at(port, PEER, "kvm2")], ["a"]) == {"a": {PEER: NONE}}
        monkeypatch.setattr(socket, "getaddrinfo", found_addresses(port, "127.0.0.1", "127.0.0.3"))
        with pytest.raises(ConnectionRefusedError):
            m.ask_peer(PEER, "kvm2", port, "a")


def test_a_peer_that_answers_nobody_is_unreachable_and_one_that_refuses_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rejecting = LeasePeer("00000009-0000-4000-8000-000000000000", "kvm9", ("192.0.2.9",), 16516, False)
    connect = m._connect

    def reject(address: str, port: int, seconds: float) -> socket.socket:
        if address == "192.0.2.9":
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        return connect(address, port, seconds)

    monkeypatch.setattr(m, "_connect", reject)
    with answering(line_of(PEER, NONE)) as port:
        second_address = LeasePeer(THIRD, "kvm3", ("192.0.2.9", "127.0.0.1"), port, False)
        assert m.list_unreachable([peer_at(port), peer_at(1, OWN), second_address, rejecting], seconds=1) == [rejecting]
