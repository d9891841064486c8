# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of one host with a guest that starts with it, and a boot guard that each test installs itself."""

from __future__ import annotations

import os
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.guard.support.host import Host
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}guard"


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 1) as lab:
        yield lab


@pytest.fixture
def host(lab: Lab) -> t.Iterator[Host]:
    """Return a host that was never guarded, with the guest C(auto), which starts with it, and C(other), which does not."""
    host = Host(lab)
    lab("guest", "auto", "--host", host.name, "--mib", "32", "--autostart")
    lab("guest", "other", "--host", host.name, "--mib", "32")
    yield host
    lab("poweroff", host.name)
    host.forget_the_guard()
    lab("up", "--hosts", "1")
    for guest in ("auto", "other"):
        lab("rmguest", guest)
