# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Situations on a control node: hosts with little room, closed hosts, other people's moves."""

from __future__ import annotations

import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB, MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control

RESERVED = 512 * MIB
OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
VARIABLES = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd"
ARRIVED = (s.SCHEDULED, s.RUNNING, s.COMPLETED)


def room_for(control: Control, host: str, gib: float) -> None:
    """Let a host have room for guests of so many GiB together."""
    control.fleet.machines[host].total_bytes = int(gib * GIB) + RESERVED


def variables_taken(control: Control) -> None:
    """On the second host, a domain that was renamed has kept the file of its firmware variables, which is that of the guest with its old name."""
    guest = control.fleet.guest()
    guest.definition = guest.xml().replace("</os>", f"<nvram>{VARIABLES}</nvram></os>")
    renamed = guest.definition.replace(UUID, OTHER).replace("<name>web1", "<name>old")
    control.fleet.guest(on="kvm2", uuid=OTHER, name="old", state=domain_states.SHUTOFF, definition=renamed)


def memory_saved(control: Control) -> None:
    """The second host has an old definition of the guest, with a managed-save image."""
    control.fleet.guest()
    control.fleet.guest(on="kvm2", state=domain_states.SHUTOFF)
    control.fleet.machines["kvm2"].saved_memory["web1"] = "older memory"


def close_host(control: Control, host: str, reason: str) -> None:
    body = {"schema": 1, "host_id": None, "name": host, "machine_id": None, "host_uuid": control.fleet.machines[host].host_uuid, "state": "maintenance"}
    control.ledger.put_host(host_entry({**body, "ledger_id": control.ledger.ledger_id, "reason": reason, "since": None, "by": "x"}), None)


def another_move(control: Control, to: str, memory_mib: int, *steps: str, domain: str | None = None, back: bool = False) -> MoveRecord:
    """Write the record of somebody else's move to that host, or away from it, brought on by these steps."""
    away, there = HostRef("kvm9", None, str(uuid.uuid4())), HostRef(to, None, control.fleet.machines[to].host_uuid)
    ends = (there, away) if back else (away, there)
    stored = control.ledger.open_record(
        new_record(s.LIVE_MIGRATION, DomainRef(domain or str(uuid.uuid4()), "other"), *ends, {}, "x", {"memory_mib": memory_mib, "vcpus": 1})
    )
    for step in steps:
        record = stored.record.advance(step, "x")
        stored = control.ledger.update_record(stored, record)
    return stored.record


def run_one_move(control: Control, name: str = "web1", destination: str | None = "kvm2", **given: t.Any) -> t.Any:
    """Run a task with one move, and return its job."""
    (job,) = control.run(name=name, destination=destination, **given)
    return job
