# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor import connection, library
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._hypervisor.test_errors import LibvirtError


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
        monkeypatch.setattr(library, "_libvirt", Binding(opened))
        monkeypatch.setattr(connection, "start_event_loop", lambda: None)

    return use


def test_a_connection_has_keepalive(answer: t.Callable[..., None]) -> None:
    answer(lambda uri: Connection())
    assert connection.open_connection("qemu:///system").keepalive == (5, 3)


@pytest.mark.parametrize("code", [38, 5, 45, 1, 42])
def test_whatever_libvirt_says_when_it_opens_nothing_it_is_unreachable(answer: t.Callable[..., None], code: int) -> None:
    def refuse(uri: str) -> t.Any:
        raise LibvirtError(code, "no route to host")

    answer(refuse)
    with pytest.raises(Unreachable, match=r"qemu\+tcp://kvm2/system: no route to host.*Check"):
        connection.open_connection("qemu+tcp://kvm2/system")


def test_a_host_that_never_answers_is_not_waited_for(answer: t.Callable[..., None]) -> None:
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


def test_without_the_binding_it_is_not_the_host_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_libvirt", None)
    with pytest.raises(NotSupported, match="no libvirt binding"):
        connection.open_connection("qemu:///system")
