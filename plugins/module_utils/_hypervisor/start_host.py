# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host that can be asked to start a domain that is defined on it."""

from __future__ import annotations

from .errors import libvirt_errors
from .host import LibvirtHost


class LibvirtStartHost(LibvirtHost):
    """Implements L(StartHost)."""

    def start(self, uuid: str) -> None:
        with libvirt_errors(f"start domain {uuid} on {self.uri}"):
            self._lookup(uuid, "start").create()


def open_start_host(uri: str) -> LibvirtStartHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtStartHost(uri)
