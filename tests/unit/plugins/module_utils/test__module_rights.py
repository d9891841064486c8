# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user without rights who calls a module that acts: the task is forbidden before anything is changed."""

from __future__ import annotations

import os
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import phases as guard
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import run as cold
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import policy, shutting_down, starting
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import cleanup, evacuate, protect
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import phases as lease
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene, run, spare
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError

LOCAL = "qemu:///system"
UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
PHASES = {
    "live_migrate": {"prepare": spare.prepare_moves, "start": run.start_moves},
    "cold_migrate": {"carry_out": cold.carry_out_moves},
    "migration_abort": intervene.PHASES,
    "protect": protect.PHASES,
    "evacuate": evacuate.PHASES,
    "evacuation_cleanup": cleanup.PHASES,
    "boot_guard": guard.PHASES,
    "host": guard.DECISION_PHASES,
    "host_lease": lease.PHASES,
}
NEEDING_ROOT = [(module, phase) for module, phases in PHASES.items() for phase in phases]
PARAMS = {"name": "web1", "uuid": None, "uri": LOCAL, "wait_seconds": 5, "start_again": False, "bandwidth_mib": None}


class Daemon:
    """A libvirt that refuses this user the connection that can act; C(asked) counts the tries."""

    libvirtError = LibvirtError

    def __init__(self) -> None:
        self.asked = 0

    def open(self, uri: str) -> t.NoReturn:
        self.asked += 1
        raise LibvirtError(45, "authentication failed: access denied by policy", 60)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    daemon = Daemon()
    monkeypatch.setattr(connection, "_libvirt", daemon)
    monkeypatch.setattr(connection, "start_event_loop", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return daemon


@pytest.mark.parametrize(("module", "phase"), NEEDING_ROOT, ids=[f"{module}-{phase}" for module, phase in NEEDING_ROOT])
def test_a_phase_that_needs_root_is_forbidden_before_libvirt_is_asked(daemon: Daemon, module: str, phase: str) -> None:
    with pytest.raises(Forbidden, match="become"):
        t.cast(t.Any, PHASES[module][phase])(LOCAL, {"host_id": UUID, "uris": {}, "domains": []})
    assert daemon.asked == 0


@pytest.mark.parametrize(
    "act",
    [shutting_down.shutdown_of, starting.start_of],
    ids=["domain_shutdown", "domain_start"],
)
def test_an_act_on_a_domain_is_forbidden_before_libvirt_is_asked(daemon: Daemon, act: t.Callable[[t.Any], t.Any]) -> None:
    with pytest.raises(Forbidden, match="become"):
        act(PARAMS)
    assert daemon.asked == 0


@pytest.mark.parametrize("phase", ["read", "write"])
def test_a_policy_is_forbidden_to_a_user_whom_libvirt_gives_no_connection_that_acts(daemon: Daemon, phase: str) -> None:
    """Unlike the other modules, this one does not need root, only the right to use libvirt."""
    work = {"name": "web1", "uuid": UUID, "change": {}, "what": "domain web1 on kvm1"}
    with pytest.raises(Forbidden, match=r"access denied by policy.*Nothing was changed"):
        t.cast(t.Any, policy.PHASES[phase])(LOCAL, work)
    assert daemon.asked == 1
