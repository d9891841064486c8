# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of a host as a user without rights reads it: libvirt's read-only connection knows the UUID, too."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import identity as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import host as libvirt_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, KvmfleetError, NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet


@pytest.fixture(autouse=True)
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that may act is refused, and the files of this machine are not read."""

    def refuse(uri: str, timeout_seconds: t.Optional[float] = None) -> t.NoReturn:
        raise Forbidden(f"{uri} is not for this user.", "Set become: true.")

    monkeypatch.setattr(libvirt_host, "open_connection", refuse)
    monkeypatch.setattr(module, "read_host_id", lambda: None)
    monkeypatch.setattr(module, "read_machine_id", lambda: None)
    monkeypatch.setattr(module, "find_ledger_id", lambda: None)


def read() -> t.Tuple[t.Optional[str], t.Optional[str]]:
    found = t.cast(t.Any, module.read_identity(LOCAL_URI, {}))
    return found["identity"]["host_uuid"], found["libvirt_error"]


def test_the_uuid_is_read_without_the_right_to_act(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FakeFleet()
    fleet.source.is_read_only = True

    def answer(uri: str, timeout_seconds: t.Optional[float] = None) -> connection.Opened:
        return connection.Opened(t.cast(t.Any, fleet.open(uri)), is_read_only=True)

    monkeypatch.setattr(libvirt_host, "open_for_reading", answer)
    monkeypatch.setattr(libvirt_host, "LibvirtHost", lambda uri, given: given.connection)
    assert read() == (fleet.source.host_uuid, None)
    assert [host.is_closed for host in fleet.connections] == [True]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unreachable("Nobody answers."), "Nobody answers. Start libvirt there."),
        (NotSupported("Python has no libvirt binding.", "Install it."), "Python has no libvirt binding. Install it."),
    ],
)
def test_a_libvirt_that_does_not_answer_is_no_error_and_what_to_do_is_said(monkeypatch: pytest.MonkeyPatch, error: KvmfleetError, text: str) -> None:
    def refuse(uri: str, timeout_seconds: t.Optional[float] = None) -> t.NoReturn:
        raise error

    monkeypatch.setattr(libvirt_host, "open_for_reading", refuse)
    assert read() == (None, text)
