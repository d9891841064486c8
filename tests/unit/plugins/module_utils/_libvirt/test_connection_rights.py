# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of libvirt's two connections a user gets, and what a user without either is told."""

from __future__ import annotations

import errno
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError

LOCAL = "qemu:///system"
REMOTE = "qemu+ssh://kvm2/system"

DENIED_SOCKET = LibvirtError(38, "Failed to connect socket to '/run/libvirt/libvirt-sock': Permission denied", 7, errno.EACCES)
NO_SOCKET = LibvirtError(38, "Failed to connect socket to '/run/libvirt/libvirt-sock': No such file or directory", 7, errno.ENOENT)
NO_AGENT = LibvirtError(94, "authentication unavailable: no polkit agent available to authenticate action 'org.libvirt.unix.manage'", 60)
OVER_SSH = LibvirtError(38, "End of file while reading data: nc: /run/libvirt/libvirt-sock: Permission denied: Input/output error", 7, errno.EIO)


class Connection:
    def setKeepAlive(self, interval: int, count: int) -> None:
        """Accept any."""


class Daemon:
    """libvirt's binding, whose two kinds of connections can be refused; C(asked) are the kinds that were asked for."""

    libvirtError = LibvirtError

    def __init__(self, full: t.Optional[LibvirtError] = None, read_only: t.Optional[LibvirtError] = None) -> None:
        self.refusals = {"full": full, "read-only": read_only}
        self.asked: t.List[str] = []
        self.recovers_after = 0

    def open(self, uri: str) -> Connection:
        return self._answer("full")

    def openReadOnly(self, uri: str) -> Connection:
        return self._answer("read-only")

    def _answer(self, kind: str) -> Connection:
        self.asked.append(kind)
        refusal = self.refusals[kind]
        if refusal is not None and len(self.asked) != self.recovers_after:
            raise refusal
        return Connection()


Serve = t.Callable[..., Daemon]


@pytest.fixture(params=[True, False], ids=["root", "user"])
def is_root(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Return a function that puts a daemon in the place of libvirt, and the test into the place of root or of another user."""

    def use(daemon: Daemon, root: bool = False) -> Daemon:
        monkeypatch.setattr(connection, "_libvirt", daemon)
        monkeypatch.setattr(connection, "start_event_loop", lambda: None)
        monkeypatch.setattr(connection, "is_root", lambda: root)
        return daemon

    return use


def test_whoever_may_act_reads_over_the_full_connection(serve: Serve, is_root: bool) -> None:
    daemon = serve(Daemon(), is_root)
    assert connection.open_for_reading(LOCAL).is_read_only is False
    assert daemon.asked == ["full"]


@pytest.mark.parametrize(
    ("uri", "refusal"),
    [(LOCAL, DENIED_SOCKET), (LOCAL, NO_AGENT), (LOCAL, LibvirtError(45)), (LOCAL, LibvirtError(79)), (LOCAL, LibvirtError(88)), (REMOTE, OVER_SSH)],
    ids=["socket", "no agent", "auth failed", "auth cancelled", "access denied", "over ssh"],
)
def test_a_user_without_rights_reads_over_the_read_only_connection(serve: Serve, uri: str, refusal: LibvirtError) -> None:
    daemon = serve(Daemon(full=refusal))
    assert connection.open_for_reading(uri).is_read_only is True
    assert daemon.asked == ["full", "read-only"]


def test_a_login_that_the_ssh_server_drops_is_no_refusal(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.01)
    daemon = serve(Daemon(full=LibvirtError(38, "Cannot recv data: kex_exchange_identification: read: Connection reset by peer")))
    daemon.recovers_after = 3
    assert connection.open_for_reading(REMOTE).is_read_only is False
    assert daemon.asked == ["full"] * 3


@pytest.mark.parametrize("refusal", [DENIED_SOCKET, NO_AGENT, LibvirtError(45), NO_SOCKET])
def test_root_gets_the_full_connection_or_none(serve: Serve, refusal: LibvirtError) -> None:
    daemon = serve(Daemon(full=refusal), root=True)
    for open_one in (connection.open_for_reading, connection.open_connection):
        with pytest.raises(Unreachable, match="Check the URI, that the host is up, that libvirt runs there, and that this user may connect"):
            open_one(LOCAL)
    assert daemon.asked == ["full", "full"]


@pytest.mark.parametrize(("refusal", "error"), [(DENIED_SOCKET, Forbidden), (NO_AGENT, Forbidden), (LibvirtError(45), Forbidden), (NO_SOCKET, Unreachable)])
def test_an_acting_task_never_uses_the_read_only_connection(serve: Serve, refusal: LibvirtError, error: t.Type[KvmfleetError]) -> None:
    daemon = serve(Daemon(full=refusal))
    with pytest.raises(error, match="become: true.*Nothing was changed" if error is Forbidden else "Check the URI"):
        connection.open_connection(LOCAL)
    assert daemon.asked == ["full"]


@pytest.mark.parametrize(("refusal", "error"), [(DENIED_SOCKET, Forbidden), (NO_AGENT, Forbidden), (NO_SOCKET, Unreachable), (OVER_SSH, Unreachable)])
def test_a_user_with_neither_connection_gets_the_first_refusal(serve: Serve, refusal: LibvirtError, error: t.Type[KvmfleetError]) -> None:
    serve(Daemon(full=refusal, read_only=LibvirtError(38, "the second refusal", 7)))
    with pytest.raises(error) as caught:
        connection.open_for_reading(LOCAL)
    assert str(refusal.text) in str(caught.value)
    assert "the second refusal" not in str(caught.value)
