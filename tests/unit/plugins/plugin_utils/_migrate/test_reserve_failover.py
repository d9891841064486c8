# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserve for failover when the scheduler chooses a destination: what is judged, what is refused, and what a person may still do."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.failover import FAILOVER_HOSTS
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import close_host, room_for, run_one_move
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.test_scheduler_check import filters_of, refused

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c09"
BROKEN = "The fleet could no longer lose kvm3 for certain (failover_hosts: 1)."
FOUR = ("kvm1", "kvm2", "kvm3", "kvm4")


def four_hosts(folder: pathlib.Path, hosts: int = 1, small_gib: float = 1) -> Control:
    """Return a fleet in which db1 of kvm3 has room on kvm2 alone, to which the scheduler would move web1 of kvm1, which has room on kvm4, too."""
    control = Control(folder, FOUR)
    control.settings = settings_of_four(kvmfleet_scheduler={"failover_hosts": hosts})
    control.fleet.guest(memory_bytes=1 * GIB)
    control.fleet.guest(name="db1", uuid=OTHER, host="kvm3", memory_bytes=3 * GIB)
    for name, gib in {"kvm1": 1, "kvm2": 3, "kvm3": 3, "kvm4": small_gib}.items():
        room_for(control, name, gib)
    return control


def settings_of_four(**of_each: t.Any) -> t.Any:
    from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import settings_of

    return settings_of(*FOUR, **of_each)
