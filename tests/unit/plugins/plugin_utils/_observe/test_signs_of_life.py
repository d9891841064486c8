# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that are probed on the loopback interface, and the leases of hosts by their names."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import queue
import socket
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReader, SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import put_key
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import signs_of_life
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.signs_of_life import LeasesByName, LeaseWatch, leases_by_name, probe_port

LIMIT_SECONDS = 60
LEASE = HostLease("1", "kvm1", "b", 1, 1, 15, 3, LeaseFleet("a", 3), "direct", "2026-11-26T20:00:00.000Z", 0)


def test_a_port_that_answers_or_refuses_has_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert asyncio.run(probe_port("127.0.0.1", port)).answers
    assert asyncio.run(probe_port("127.0.0.1", port)).answers


def test_an_address_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # A server whose queue is full answers nobody.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        fill = [socket.socket() for _number in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        monkeypatch.setattr(signs_of_life, "_PROBE_TIMEOUT_SECONDS", 0.3)
        answer = asyncio.run(probe_port("127.0.0.1", port))
        for one in fill:
            one.close()
    assert (answer.answers, answer.says) == (False, "no answer within 0.3 s")


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[socket.AddressFamily, str]) -> None:
    def found(_host: str, port: int, *_args: object, **_options: object) -> list[object]:
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)) for family, address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def test_one_address_of_a_name_that_refuses_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with addresses of both families, of which one leads nowhere, or that refuses on both."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for other in ("127.0.0.2", "255.255.255.255"):
        resolve_to(monkeypatch, (socket.AF_INET, other), (socket.AF_INET, "127.0.0.1"))
        assert asyncio.run(probe_port("kvm1", port)).answers, other


def test_a_silent_address_of_a_name_does_not_hide_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as full, socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        full.bind(("127.0.0.1", port))
        full.listen(0)
        fill = [socket.socket() for _number in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        resolve_to(monkeypatch, (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"))
        monkeypatch.setattr(signs_of_life, "_PROBE_TIMEOUT_SECONDS", 0.3)
        assert asyncio.run(probe_port("kvm1", port)).answers
        for one in fill:
            one.close()


@pytest.mark.parametrize(("reporter", "answers"), [("192.0.2.1", True), ("198.51.100.1", False)])
def test_a_host_whose_firewall_rejects_has_answered(monkeypatch: pytest.MonkeyPatch, reporter: str, answers: bool) -> None:
    """As firewalld does, with the error that a router has about a host that is off."""

    def reject(_socket: socket.socket, _address: object) -> None:
        raise OSError(errno.EHOSTUNREACH, "no")

    message = (socket.IPPROTO_IP, 11, bytes(6) + b"\x0d" + bytes(13) + socket.inet_aton(reporter) + bytes(8))
    monkeypatch.setattr(socket.socket, "connect", reject)
    monkeypatch.setattr(socket.socket, "recvmsg", lambda *_sizes: (b"", [message], 0, ("192.0.2.1", 22)))
    assert asyncio.run(probe_port("192.0.2.1", 22)).answers is answers


def test_an_address_that_cannot_be_reached_does_not_answer() -> None:
    # A name that is none.
    assert not asyncio.run(probe_port("host.invalid", 22)).answers


def test_of_two_leases_of_one_name_the_one_renewed_last_counts() -> None:
    old, new = SeenLease(7, LEASE), SeenLease(9, dataclasses.replace(LEASE, host_id="2"))
    assert leases_by_name({"2": new, "1": old}) == {"kvm1": new}
    assert leases_by_name({"1": old, "2": new}) == {"kvm1": new}


def test_leases_are_read_again_and_again_and_each_problem_is_said_once(tmp_path: Path) -> None:
    member = Cluster(tmp_path / "etcd")
    try:
        member.up(1)
        address = parse_address(member.location())
        client = Client(address, EtcdOptions())
        read: queue.Queue[LeasesByName] = queue.Queue()
        said: list[str] = []
        watch = LeaseWatch(LeaseReader(Client(address, EtcdOptions())), read.put, said.append)
        watch.start()
        assert read.get(timeout=LIMIT_SECONDS) == {}
        for host_id, value in (("1", json.dumps(encode(LEASE))), ("2", "{")):
            client.run_transaction([], [put_key(f"{address.prefix}leases/{host_id}", value)], [])
        while not (leases := read.get(timeout=LIMIT_SECONDS)):
            pass
        assert leases["kvm1"].lease == LEASE
        for _read in range(3):
            read.get(timeout=LIMIT_SECONDS)
        assert len(said) == 1
        assert "leases/2" in said[0]
        watch.stop()
        watch.join(LIMIT_SECONDS)
        assert not watch.is_alive()
    finally:
        member.down()
