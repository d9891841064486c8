# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import socket
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError


class Binding:
    """The part of libvirt that opening a connection needs."""

    libvirtError = LibvirtError

    def __init__(self, opened: t.Callable[[str], t.Any]) -> None:
        self.open = opened


class Connection:
    keepalive: t.Tuple[int, int] = (0, 0)

    def setKeepAlive(self, interval: int, count: int) -> None:
        self.keepalive = (interval, count)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[t.Callable[[str], t.Any]], None]:
    """Let libvirt's open do that."""

    def use(opened: t.Callable[[str], t.Any]) -> None:
        monkeypatch.setattr(connection, "_libvirt", Binding(opened))
        monkeypatch.setattr(connection, "start_event_loop", lambda: None)

    return use


def test_a_connection_has_keepalive(answer: t.Callable[..., None]) -> None:
    answer(lambda uri: Connection())
    assert connection.open_connection("qemu:///system").keepalive == (5, 3)


@pytest.mark.parametrize("code", [38, 5, 45, 1, 42])
def test_for_root_every_error_while_opening_a_connection_is_unreachable(answer: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(connection, "is_root", lambda: True)

    def refuse(uri: str) -> t.Any:
        raise LibvirtError(code, "no route to host")

    answer(refuse)
    with pytest.raises(Unreachable, match=r"qemu\+tcp://kvm2/system: no route to host.*Check"):
        connection.open_connection("qemu+tcp://kvm2/system")


def test_opening_a_connection_times_out(answer: t.Callable[..., None]) -> None:
    release = threading.Event()

    def linger(uri: str) -> Connection:
        release.wait(10)
        return Connection()

    answer(linger)
    try:
        with pytest.raises(Unreachable, match="did not answer within"):
            connection.open_connection("qemu+tcp://kvm2/system", timeout_seconds=0.05)
    finally:
        release.set()


@pytest.mark.parametrize("is_on", [True, False])
def test_a_host_whose_port_accepts_connections_gets_more_time(answer: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_on: bool) -> None:
    monkeypatch.setattr(connection, "OPEN_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(connection, "BUSY_OPEN_TIMEOUT_SECONDS", 60.0)
    release = threading.Event()

    def log_in_late(uri: str) -> Connection:
        release.wait(1 if is_on else 30)
        return Connection()

    answer(log_in_late)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"qemu+ssh://127.0.0.1:{listener.getsockname()[1]}/system"
        if not is_on:
            listener.close()
            with pytest.raises(Unreachable, match="did not answer within"):
                connection.open_connection(uri)
        else:
            assert connection.open_connection(uri).keepalive == (5, 3)
    release.set()


def test_a_missing_libvirt_binding_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", None)
    for open_one in (connection.open_connection, connection.open_for_reading):
        with pytest.raises(NotSupported, match=r"no libvirt binding.*as a control node, run the task on the libvirt host"):
            open_one("qemu:///system")


DROPPED = "Cannot recv data: kex_exchange_identification: read: Connection reset by peer"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (DROPPED, errno.ECONNRESET),
        ("Cannot recv data: Connection closed by 10.0.0.2 port 22: Connection reset by peer", errno.ECONNRESET),
        ("Cannot write data: Broken pipe", errno.EPIPE),
        ("End of file while reading data: Input/output error", errno.EIO),
        ("Kann Daten nicht schreiben: Datenübergabe unterbrochen (broken pipe)", errno.EPIPE),
        ("Dateiende beim Lesen der Daten: Eingabe-/Ausgabefehler", errno.EIO),
    ],
)
def test_a_login_that_the_ssh_server_drops_is_tried_again(answer: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch, text: str, number: int) -> None:
    """The client of libvirt and the C library translate their messages."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.01)
    refusals = [LibvirtError(38, text, 7, number)] * 3

    def drop(uri: str) -> Connection:
        if refusals:
            raise refusals.pop()
        return Connection()

    answer(drop)
    assert connection.open_connection("qemu+ssh://kvm2/system").keepalive == (5, 3)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("qemu+ssh://kvm2/system", "Cannot recv data: ssh: connect to host kvm2 port 22: No route to host: Connection reset by peer"),
        ("qemu+ssh://kvm2/system", "Cannot recv data: Permission denied (publickey)."),
        ("qemu+tcp://kvm2/system", DROPPED),
    ],
)
def test_a_refused_login_is_not_tried_again(answer: t.Callable[..., None], uri: str, text: str) -> None:
    tries = []

    def refuse(uri: str) -> t.Any:
        tries.append(uri)
        raise LibvirtError(38, text)

    answer(refuse)
    with pytest.raises(Unreachable, match="Cannot recv data"):
        connection.open_connection(uri)
    assert len(tries) == 1


def test_an_ssh_server_that_drops_every_login_is_unreachable_in_time(answer: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(connection, "_LAST_TRY_SECONDS", 0.5)

    def drop(uri: str) -> t.Any:
        raise LibvirtError(38, DROPPED)

    answer(drop)
    with pytest.raises(Unreachable, match="kex_exchange_identification"):
        connection.open_connection("qemu+ssh://kvm2/system", timeout_seconds=2.0)


BROKEN = "Cannot recv data: Broken pipe"


@pytest.mark.parametrize(
    ("is_on", "text", "given_seconds", "is_opened"),
    [(True, DROPPED, None, True), (False, DROPPED, None, False), (True, BROKEN, None, False), (True, DROPPED, 1.0, False)],
    ids=["busy host", "port refuses", "cause not known", "limit given"],
)
def test_a_busy_host_that_drops_logins_has_the_time_of_one_that_is_slow(
    answer: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_on: bool, text: str, given_seconds: t.Optional[float], is_opened: bool
) -> None:
    """A dropped login is an answer of the host itself only if its port accepts connections: the SSH server may be that of a jump host."""
    for name, seconds in {"OPEN_TIMEOUT_SECONDS": 1.0, "BUSY_OPEN_TIMEOUT_SECONDS": 30.0, "_LAST_TRY_SECONDS": 0.5, "_FIRST_PAUSE_SECONDS": 0.1}.items():
        monkeypatch.setattr(connection, name, seconds)
    began = time.monotonic()

    def drop_for_a_while(uri: str) -> Connection:
        if time.monotonic() - began < 2:
            raise LibvirtError(38, text, 7, errno.EPIPE if text == BROKEN else errno.ECONNRESET)
        return Connection()

    answer(drop_for_a_while)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"qemu+ssh://127.0.0.1:{listener.getsockname()[1]}/system"
        if not is_on:
            listener.close()
        if is_opened:
            assert connection.open_connection(uri, given_seconds).keepalive == (5, 3)
        else:
            with pytest.raises(Unreachable, match="Cannot recv data"):
                connection.open_connection(uri, given_seconds)
            assert time.monotonic() - began < 2


def test_concurrent_logins_to_one_host_are_limited(answer: t.Callable[..., None]) -> None:
    now, most, lock, gate = [0], [0], threading.Lock(), threading.Event()

    def linger(uri: str) -> Connection:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        gate.wait(0.2)
        with lock:
            now[0] -= 1
        return Connection()

    answer(linger)
    threads = [threading.Thread(target=connection.open_connection, args=("qemu+ssh://kvm9/system",)) for dummy in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 1 <= most[0] <= 4


def test_a_connection_for_which_this_host_has_no_thread_is_not_the_silence_of_the_other(answer: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence counts as evidence when a host is evacuated."""

    def refuse(thread: threading.Thread) -> t.NoReturn:
        raise RuntimeError("can't start new thread")

    answer(lambda uri: Connection())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        connection.open_connection("qemu:///system")


def test_an_event_loop_that_could_not_be_started_is_started_by_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    started: t.List[threading.Thread] = []

    def start_second(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) == 1:
            raise RuntimeError("can't start new thread")

    binding = types.SimpleNamespace(registerErrorHandler=lambda handler, context: None, virEventRegisterDefaultImpl=lambda: None)
    monkeypatch.setattr(connection, "_libvirt", binding)
    monkeypatch.setattr(connection, "_LOOP", [])
    monkeypatch.setattr(threading.Thread, "start", start_second)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        connection.start_event_loop()
    connection.start_event_loop()
    connection.start_event_loop()
    assert len(started) == 2
