# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SSH server of a host, which drops logins while another one is not authenticated yet (MaxStartups)."""

from __future__ import annotations

import contextlib
import socket
import typing as t

from .fleet import eventually
from .site import Site

SSHD_CONFIG, SERVICES_LOG = "etc-ssh/sshd_config", "var-log-libvirt/services.log"
RELOAD = "kill -HUP $(cat /run/sshd.pid)"
DROPPED = "drop connection"


class Door:
    """The SSH server of a host, which allows one login that is not authenticated yet and drops all others meanwhile."""

    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._number = number
        self._conf = site.on_disk(number, SSHD_CONFIG)
        self._log = site.on_disk(number, SERVICES_LOG)

    @contextlib.contextmanager
    def narrow(self) -> t.Iterator[None]:
        before = self._conf.read_text()
        try:
            self._configure(before.replace("MaxStartups 100:30:200", "MaxStartups 1:100:1"))
            yield
        finally:
            self._configure(before)

    @contextlib.contextmanager
    def occupied(self) -> t.Iterator[None]:
        """Begin a login that never authenticates, so that every other one is dropped."""
        layout = self._site.lab.layout
        with socket.create_connection((layout.host_address(self._site.lab.host(self._number)), 22), timeout=60) as login:
            assert login.recv(4) == b"SSH-"
            yield

    def drops(self) -> int:
        """Return how often the server has begun to drop logins: it logs only the first of several in a row."""
        return self._log.read_text(errors="replace").count(DROPPED)

    def _configure(self, text: str) -> None:
        self._conf.write_text(text)
        listening = self._log.read_text(errors="replace").count("Server listening")
        self._site.lab.on(self._number, "sh", "-c", RELOAD)
        eventually(lambda: self._log.read_text(errors="replace").count("Server listening") > listening, "sshd listens again")
