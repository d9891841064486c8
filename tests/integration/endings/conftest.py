# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only the scenarios of a move's end need: somebody who intervenes, faults that are undone, foreign migrations."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import heal, migrate_by_virsh
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

# The guest of the measurements.
BUSY = ("--mib", "512", "--dirty-mib", "200", "--rate", "8100")

Make = t.Callable[..., str]


@pytest.fixture
def control_type() -> type[Session]:
    return Session


@pytest.fixture
def mended(lab: Lab, guest: Make) -> t.Iterator[None]:
    """Undo what a scenario does to hosts and cables."""
    yield
    heal(lab)


@pytest.fixture
def busy(guest: Make) -> str:
    return guest("busy", *BUSY)


@pytest.fixture
def foreign(lab: Lab, endless: str) -> t.Iterator[subprocess.Popen[str]]:
    """A migration of the endless guest that somebody began with virsh."""
    with migrate_by_virsh(lab, endless) as process:
        yield process
