# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drain's saved plans, and the facts, entries and records that its filters are given."""

from __future__ import annotations

import contextlib
import json
import typing as t

from ansible.errors import AnsibleFilterError
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.filter.drain_apply import drain_apply
from ansible_collections.kvmfleet.migration.plugins.filter.drain_facts import drain_facts
from ansible_collections.kvmfleet.migration.plugins.filter.drain_moves import drain_moves
from ansible_collections.kvmfleet.migration.plugins.filter.fleet_scan import fleet_scan
from ansible_collections.kvmfleet.migration.plugins.filter.plan_drain import plan_drain
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import saved
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

from ..mutation import mutated
from ..target import Target

_GUESTS = [f.domain("web", dirty_rate_mib=3), f.domain("db", drain="leave"), f.domain("batch", drain="shutdown"), f.domain("huge", 65000)]
_FACTS = {"kvm1": f.host("kvm1", domains=_GUESTS), "kvm2": f.host("kvm2", 8192), "kvm3": f.host("kvm3", 4096)}
_HOSTS: dict[str, t.Any] = {"sources": ["kvm1"], "candidates": ["kvm2", "kvm3"]}
_PLAN = plan_drain(_FACTS, **_HOSTS, n_plus_one=True)


def _record() -> dict[str, t.Any]:
    ends = schema.place("kvm1", None, f.uuid_of("kvm1")), schema.place("kvm2", None, f.uuid_of("kvm2"))
    made = schema.new_record("live-migration", {"uuid": f.uuid_of("web"), "name": "web"}, *ends, {}, "me", {"memory_mib": 1024, "vcpus": 1})
    return {**made, "status": "completed", "result": {**made["result"], "elapsed_ms": 9000}}


_ARGUMENTS = {
    "entries": [{"name": "kvm2", "host_uuid": f.uuid_of("kvm2"), "host_id": None, "state": "enabled", "reason": ""}],
    "records": [{**_record(), "status": "running"}],
    "history": [_record()],
    "unreachable": {"kvm4": "Task failed: no route"},
    "scheduler": {"kvm2": {"labels": ["ssd"]}},
    "policies": {"kvm1": {"timeout_seconds": 60}},
    "profiles": {"kvm1": {"gold": {"priority": 5}}},
    "parallel": 4,
    "n_plus_one": True,
    "options": {"timeout_seconds": 60, "copy_storage": "none"},
}


def check_plan(data: bytes) -> None:
    """Read a plan's file."""
    saved.read(data)


def check_sealed(plan: t.Any) -> None:
    """Apply a plan whose digest is right, from its file and as an object."""
    document = saved.sealed(plan) if isinstance(plan, dict) else plan
    for given in (document, json.dumps(document)):
        applied = drain_apply(given, _FACTS, **_HOSTS)
        assert all(move["destination"] in _FACTS for move in drain_moves(applied, "kvm1"))


def check_facts(case: tuple[t.Any, t.Any]) -> None:
    """Plan with facts and arguments that may be anything, and look a fleet through."""
    facts, arguments = case
    plan = plan_drain(facts, **_HOSTS, **arguments) if isinstance(arguments, dict) else plan_drain(facts, **_HOSTS, records=arguments)
    with contextlib.suppress(KvmfleetError):
        saved.read(json.dumps(plan))


def check_scan(facts: t.Any) -> None:
    """Look a fleet through for what must not be in one."""
    json.dumps(fleet_scan(facts))


_NOW = "2026-11-21T03:00:05.000Z"
_ASKED = {
    "max_age_seconds": 60,
    "asked": [{"item": "kvm2", "ansible_facts": {"kvmfleet_host": _FACTS["kvm2"]}}, {"item": "kvm3", "unreachable": True, "msg": "no route"}],
    "undisputed_by": ["kvm1"],
    "moves": [{**_record(), "updated_at": _NOW}],
    "told": None,
}
_HOSTVARS = {name: {"ansible_facts": {"kvmfleet_host": facts}} for name, facts in _FACTS.items()}


def check_hostvars(case: tuple[t.Any, t.Any]) -> None:
    """Take the facts that still count out of hostvars and answers."""
    hostvars, asked = case
    if isinstance(asked, dict) and not asked.keys() - _ASKED.keys():
        assert drain_facts(hostvars, ["kvm1", "kvm2", "kvm3"], **asked).keys() <= _FACTS.keys()


TARGETS = [
    Target("drain_hostvars", check_hostvars, st.tuples(mutated(_HOSTVARS), mutated(_ASKED, {**_ASKED, "max_age_seconds": None})), (AnsibleFilterError,)),
    Target.of_bytes("saved_plan", check_plan, json.dumps(_PLAN, separators=(",", ":")).encode(), b'{"schema":1,"digest":"","moves":[]}'),
    Target("saved_plan_sealed", check_sealed, mutated(_PLAN), (AnsibleFilterError,)),
    Target("drain_facts", check_facts, st.tuples(mutated(_FACTS), mutated(_ARGUMENTS)), (AnsibleFilterError,)),
    Target("fleet_facts", check_scan, mutated(_FACTS), (AnsibleFilterError,)),
]
