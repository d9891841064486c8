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

from ansible_collections.kvmfleet.migration.plugins.filter.fleet_scan import fleet_scan
from ansible_collections.kvmfleet.migration.plugins.filter.plan_drain import plan_drain
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import HostQuery, collect_facts, fresh_hosts, read_answers, readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.drift import apply_saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.shares import list_moves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

from ..mutation import mutated
from ..target import Target

_GUESTS = [f.domain("web", dirty_rate_mib=3), f.domain("db", drain="leave"), f.domain("batch", drain="shutdown"), f.domain("huge", 65000)]
_FACTS = {"kvm1": f.host("kvm1", domains=_GUESTS), "kvm2": f.host("kvm2", 8192), "kvm3": f.host("kvm3", 4096)}
_HOSTS: dict[str, t.Any] = {"sources": ["kvm1"], "candidates": ["kvm2", "kvm3"]}
_PLAN = plan_drain(_FACTS, **_HOSTS, n_plus_one=True)


def _record() -> dict[str, t.Any]:
    ends = HostRef("kvm1", None, f.uuid_of("kvm1")), HostRef("kvm2", None, f.uuid_of("kvm2"))
    made = encode(new_record("live-migration", DomainRef(f.uuid_of("web"), "web"), *ends, {}, "me", {"memory_mib": 1024, "vcpus": 1}))
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
    saved_plan.read_plan(data)


def check_sealed(plan: t.Any) -> None:
    """Apply a plan whose digest is right, from its file and as an object."""
    document = {**plan, "schema": saved_plan.PLAN_SCHEMA, "digest": saved_plan.plan_digest(plan)} if isinstance(plan, dict) else plan
    for given in (document, json.dumps(document)):
        with readable_facts():
            applied = apply_saved_plan(given, DrainInputs(_FACTS), **_HOSTS, given={})
        assert all(move["destination"] in _FACTS for move in list_moves(applied, "kvm1"))


def check_facts(case: tuple[t.Any, t.Any]) -> None:
    """Plan with facts and arguments that may be anything, and look a fleet through."""
    facts, arguments = case
    plan = plan_drain(facts, **_HOSTS, **arguments) if isinstance(arguments, dict) else plan_drain(facts, **_HOSTS, records=arguments)
    with contextlib.suppress(KvmfleetError):
        saved_plan.read_plan(json.dumps(plan))


def check_scan(facts: t.Any) -> None:
    """Look a fleet through for what must not be in one."""
    json.dumps(fleet_scan(facts))


_ANSWERS = [{"item": "kvm2", "ansible_facts": {"kvmfleet_host": _FACTS["kvm2"]}}, {"item": "kvm3", "unreachable": True, "msg": "no route"}]
_MOVES = [{**_record(), "updated_at": "2026-11-21T03:00:05.000Z"}]


def check_gathered(case: tuple[t.Any, t.Any, t.Any]) -> None:
    """Take the facts that still count out of what is known and what hosts answered."""
    facts, results, moves = case
    with readable_facts():
        found = collect_facts(_FACTS, facts.get, read_answers(decode(HostQuery, result) for result in results))
        assert fresh_hosts(_FACTS, found.get, [read_record(move) for move in moves], undisputed_by=["kvm1"]) <= _FACTS.keys()


TARGETS = [
    Target(
        "drain_gathered",
        check_gathered,
        st.tuples(mutated({name: with_receipt(facts) for name, facts in _FACTS.items()}), mutated(_ANSWERS), mutated(_MOVES)),
        (KvmfleetError,),
    ),
    Target.of_bytes("saved_plan", check_plan, json.dumps(_PLAN, separators=(",", ":")).encode(), b'{"schema":1,"digest":"","moves":[]}'),
    Target("saved_plan_sealed", check_sealed, mutated(_PLAN), (KvmfleetError,)),
    Target("drain_facts", check_facts, st.tuples(mutated(_FACTS), mutated(_ARGUMENTS)), (AnsibleFilterError,)),
    Target("fleet_facts", check_scan, mutated(_FACTS), (AnsibleFilterError,)),
]
