# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host answers on its port."""

from __future__ import annotations

import json
import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import answering as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.asking import ask_peer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import NONE, LeaseAnswer

from .conftest import OWN, make_config

LINE = {"host_id": OWN, "boot_id": "boot", "lease": "none"}


def answer_none(store: str) -> LeaseAnswer:
    return LeaseAnswer(OWN, "boot", NONE)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(port: int, sent: bytes, ends: bool = False) -> bytes:
    deadline = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), 5)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with connection, connection.makefile("rb") as stream:
        connection.sendall(sent)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        return stream.read()


@pytest.fixture(scope="module")
def port() -> int:
    """Of a host that is no relay."""
    port = free_port()
    m.Answerer(make_config(port=port), answer_none).start()
    return port


@pytest.mark.parametrize("sent", [b"lease\n", b"\n", b"\xff\xfe\n", b"", b"x" * 512])
def test_each_connection_gets_one_line(port: int, sent: bytes) -> None:
    assert [json.loads(line) for line in ask(port, sent).splitlines()] == [LINE]


@pytest.mark.parametrize(("sent", "store"), [(b"lease\n", ""), (b"lease 0123abc\n", "0123abc"), (b"lease \n", ""), (b"leases 0123abc\n", "")])
def test_the_etcd_that_is_asked_for_is_passed_on(sent: bytes, store: str) -> None:
    asked, port = list[str](), free_port()

    def answer(store: str) -> LeaseAnswer:
        asked.append(store)
        return answer_none(store)

    m.Answerer(make_config(port=port), answer).start()
    assert json.loads(ask(port, sent)) == LINE
    assert asked == [store]


def test_who_says_nothing_more_is_answered_at_once(port: int) -> None:
    begun = time.monotonic()
    assert json.loads(ask(port, b"", ends=True)) == LINE
    assert time.monotonic() - begun < 0.9
    assert ask_peer(OWN, "127.0.0.1", port, "store") == NONE


def test_a_host_without_a_thread_for_a_peer_answers_the_next_one(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The service goes on renewing, so nothing starts it again. Without etcd, a host runs on only if most of its peers answer that they have no lease."""
    monkeypatch.setattr(m, "_CONNECTIONS", 1)
    port, start, refused = free_port(), threading.Thread.start, list[threading.Thread]()

    def refuse_first(thread: threading.Thread) -> None:
        if thread.name != "answering" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_first)
    m.Answerer(make_config(port=port), answer_none).start()
    assert ask(port, b"") == b""
    assert "A peer cannot be answered: can't start new thread." in capfd.readouterr().err
    assert json.loads(ask(port, b"lease\n")) == LINE


def test_many_connections_that_say_nothing_do_not_keep_the_host_from_answering(port: int) -> None:
    ask(port, b"lease\n")
    silent = [socket.create_connection(("127.0.0.1", port), 5) for _number in range(40)]
    assert json.loads(ask(port, b"lease\n")) == LINE
    for connection in silent:
        connection.close()


def test_only_a_relay_passes_bytes_on_and_only_to_members_that_it_knows() -> None:
    with socket.create_server(("127.0.0.1", 0)) as member:
        endpoint = f"127.0.0.1:{member.getsockname()[1]}"
        ports = {name: free_port() for name in ("off", "elsewhere", "on")}
        m.Answerer(make_config(port=ports["off"], relay=False, endpoints=(endpoint,)), answer_none).start()
        m.Answerer(make_config(port=ports["elsewhere"], relay=True), answer_none).start()
        m.Answerer(make_config(port=ports["on"], relay=True, endpoints=(endpoint,)), answer_none).start()
        request = f"relay {endpoint}\nhello".encode("ascii")
        assert [ask(ports[name], request) for name in ("off", "elsewhere")] == [b"", b""]
        ask(ports["on"], b"lease\n")
        with socket.create_connection(("127.0.0.1", ports["on"]), 5) as connection:
            connection.sendall(request)
            inner, _address = member.accept()
            with inner:
                assert read_exactly(inner, 5) == b"hello"
                inner.sendall(b"world")
                assert read_exactly(connection, 5) == b"world"
            assert connection.recv(1) == b""


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data: t.List[bytes] = []
    while sum(map(len, data)) < size:
        data.append(connection.recv(size))
    return b"".join(data)


def test_a_port_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(m, "_RETRY_SECONDS", 0.1)
    with socket.create_server(("", 0)) as taken:
        port = int(taken.getsockname()[1])
        m.Answerer(make_config(port=port), answer_none).start()
        deadline = time.monotonic() + 10
        while "cannot be answered on port" not in capfd.readouterr().err:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert json.loads(ask(port, b"lease\n")) == LINE
