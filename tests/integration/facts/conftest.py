# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections to the hosts of the lab, as a source has them to its destinations."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost, open_host
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Connect = t.Callable[[int], LibvirtHost]


@pytest.fixture
def connect(lab: Lab) -> t.Iterator[Connect]:
    """Return a function that connects to a host from afar; the connection is closed after the test."""
    with contextlib.ExitStack() as stack:

        def connect(number: int) -> LibvirtHost:
            host = open_host(f"qemu+tcp://{lab.rows()[lab.host(number)]['address']}/system", 20)
            stack.callback(host.close)
            return host

        yield connect
