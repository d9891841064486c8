# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.cleanup.support.scene import Scene
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'cle')}c"


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 2) as lab:
        yield lab


@pytest.fixture
def control(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[Control]:
    """A fleet that no ledger knows yet; at the end its ledger's audit chain holds."""
    for number in (1, 2):
        lab.on(number, "sh", "-c", "rm -rf /var/lib/kvmfleet/* /var/lib/libvirt/.kvmfleet-quarantine")
    control = Control(lab, tmp_path)
    yield control
    control.verify_audit()


@pytest.fixture
def scene(lab: Lab, control: Control) -> t.Iterator[Scene]:
    """A guest can be evacuated from the first host to the second one; at the end none is left."""
    scene = Scene(lab, control)
    yield scene
    scene.clear()
