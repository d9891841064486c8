# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three hosts of which anything may die, with a hook of ours in their libvirt."""

from __future__ import annotations

import os
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import hooked_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}flt"


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with hooked_lab(PREFIX, len(HOSTS)) as lab:
        yield lab
