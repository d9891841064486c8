# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserve for failover in the plan of a drain: the end of the plan is judged, and the drained host is one of the lost hosts."""

from __future__ import annotations

import collections
import itertools
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.drift import apply_saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import PlannedReserve
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.reserve import check_reserve
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan, read_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator import fleets
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.test_failover import can_lose, moved

Facts = dict[str, dict[str, t.Any]]


def plan_of(facts: Facts, hosts: int, candidates: t.Sequence[str] | None = None, settings: Facts | None = None, **known: t.Any) -> DrainPlan:
    scheduler = {name: {**(settings or {}).get(name, {}), "failover_hosts": hosts} for name in facts}
    others = [name for name in facts if name != "kvm1"] if candidates is None else candidates
    return make_plan(DrainInputs(facts, scheduler=scheduler, **known), ["kvm1"], others)


def reserve_of(facts: Facts, hosts: int, **known: t.Any) -> PlannedReserve:
    reserve = plan_of(facts, hosts, **known).reserve
    assert reserve
    return reserve


# Only kvm4 has room for c if kvm1 is lost, too; a could go there or to kvm2.
FACTS: Facts = {
    "kvm1": f.host("kvm1", 1000, domains=[f.domain("a", 900)]),
    "kvm2": f.host("kvm2", 1000),
    "kvm3": f.host("kvm3", 1500, domains=[f.domain("c", 1200)]),
    "kvm4": f.host("kvm4", 1500),
}


def test_room_is_kept_for_a_guest_that_a_person_may_let_start_with_fresh_firmware_variables() -> None:
    ids = {name: f.uuid_of(f"ID {name}") for name in FACTS}
    disk = f.disk("vda")
    facts = {name: {**known, "host_id": ids[name]} for name, known in FACTS.items()}
    facts["kvm3"]["domains"] = [f.domain("c", 1200, disks=[disk])]
    seen = {"target": "vda", "kind": "file", "path": disk["source"], "readonly": False, "optional": False, "folders": [], "seen_by": list(ids.values())}
    host, path = {"host": "kvm3", "host_id": ids["kvm3"]}, "/var/lib/libvirt/qemu/nvram/c_VARS.fd"
    variables = {"what": "nvram", "kind": "file", "path": path, "folders": ["/var/lib/libvirt/qemu/nvram"], "seen_by": [ids["kvm3"]]}
    protected = {"at": "2020-01-01T00:00:00Z", "host": host, "disks": [seen], "files": [variables], "definition": "<domain/>"}
    saved = domain_entry({"uuid": f.uuid_of("c"), "name": "c", "possible_hosts": [], "protected": protected})
    plan = plan_of(facts, 2, documents=[saved])
    assert plan.reserve
    assert plan.reserve.left_out == ()
    assert [move.destination for move in plan.moves] == ["kvm2"], "there is room for c on kvm4"


def test_a_plan_without_the_setting_has_no_reserve() -> None:
    plan = plan_of(FACTS, 0)
    assert not plan.reserve
    assert "reserve" not in encode(plan)
    assert not [line for line in plan_lines(plan) if line.startswith("RESERVE")]
    check_reserve(plan.reserve)


def test_the_drain_of_one_host_is_never_refused_for_a_reserve_of_one() -> None:
    full: Facts = {
        "kvm1": f.host("kvm1", 1000, domains=[f.domain("a", 900)]),
        "kvm2": f.host("kvm2", 900),
        "kvm3": f.host("kvm3", 700, domains=[f.domain("b", 700)]),
    }
    plan = plan_of(full, 1)
    assert plan.reserve == PlannedReserve(1, (), (), ())
    assert [move.destination for move in plan.moves] == ["kvm2"]
    assert "RESERVE The fleet keeps its reserve (failover_hosts: 1)." in plan_lines(plan)
    assert plan.n_plus_one is None


def test_a_destination_that_keeps_the_reserve_is_preferred_to_the_highest_weight() -> None:
    assert {move.name: move.destination for move in plan_of(FACTS, 0).moves} == {"a": "kvm4"}
    plan = plan_of(FACTS, 2)
    assert {move.name: move.destination for move in plan.moves} == {"a": "kvm2"}
    assert plan.reserve == PlannedReserve(2, (), (), ())


def with_old_qemu(c_mib: int) -> Facts:
    """A fleet in which a could be started on kvm2, and cannot move there: its QEMU is older."""
    old = {"libvirt": 9000000, "hypervisor": f.HYPERVISOR - 1000}
    return {**FACTS, "kvm2": f.host("kvm2", 1000, versions=old), "kvm3": f.host("kvm3", 1500, domains=[f.domain("c", c_mib)])}


def test_a_plan_that_uses_up_the_reserve_names_the_hosts_and_is_refused() -> None:
    plan = plan_of(with_old_qemu(1200), 2)
    assert plan.reserve == PlannedReserve(2, (("kvm1", "kvm3"),), (), ())
    assert "RESERVE The fleet could no longer lose kvm1 and kvm3 for certain (failover_hosts: 2)." in plan_lines(plan)
    with pytest.raises(Conflict, match=r"^The plan would use up the reserve for failover\. The fleet could no longer lose kvm1 and kvm3 .*Nothing was moved\."):
        check_reserve(plan.reserve)


def test_a_loss_that_was_not_possible_before_is_a_warning() -> None:
    plan = plan_of(FACTS, 2, candidates=["kvm3", "kvm4"])
    assert plan.reserve == PlannedReserve(2, (), (("kvm1", "kvm3"), ("kvm1", "kvm4")), ())
    check_reserve(plan.reserve)
    text = "RESERVE The fleet cannot lose kvm1 and kvm3, nor kvm1 and kvm4 for certain, with or without this (failover_hosts: 2)."
    assert text in plan_lines(plan)


def test_the_largest_number_that_a_host_has_counts() -> None:
    plan = make_plan(DrainInputs(FACTS, scheduler={"kvm3": {"failover_hosts": 2}, "kvm4": {"failover_hosts": 1}}), ["kvm1"], ["kvm2", "kvm3", "kvm4"])
    assert plan.reserve
    assert plan.reserve.hosts == 2
    assert plan.settings["kvm3"]["failover_hosts"] == 2
    assert "kvm2" not in plan.settings


def test_hosts_out_of_service_use_the_reserve() -> None:
    entries = [host_entry({"name": "kvm2", "state": "maintenance"})]
    assert reserve_of(FACTS, 2, entries=entries) == PlannedReserve(2, (), (), ())
    # One more than the two: a is on kvm4 then, and c has no place.
    assert reserve_of(FACTS, 3, entries=entries).missing == (("kvm1", "kvm2", "kvm3"), ("kvm1", "kvm2", "kvm4"))


def test_a_plan_says_that_more_hosts_than_the_reserve_are_out_of_service() -> None:
    plan = plan_of(FACTS, 1, entries=[host_entry({"name": "kvm2", "state": "maintenance"})])
    assert plan.reserve == PlannedReserve(1, (), (), (), out_of_service=("kvm1", "kvm2"))
    check_reserve(plan.reserve)
    text = "RESERVE The reserve is used up, and nothing is judged: kvm1, kvm2 are out of service after this (failover_hosts: 1)."
    assert [line for line in plan_lines(plan) if line.startswith("RESERVE")] == [text]
    document = t.cast("dict[str, t.Any]", encode(plan))
    check_document("drain-plan.json", document)
    assert read_plan(document) == plan


def test_a_plan_with_a_reserve_is_read_back_and_applies_until_it_would_use_the_reserve_up() -> None:
    plan = plan_of(FACTS, 2)
    document = t.cast("dict[str, t.Any]", encode(plan))
    check_document("drain-plan.json", document)
    assert read_plan(document) == plan
    others = ["kvm2", "kvm3", "kvm4"]
    scheduler = {name: {"failover_hosts": 2} for name in FACTS}
    assert apply_saved_plan(document, DrainInputs(FACTS, scheduler=scheduler), ["kvm1"], others, {}) == plan
    small = encode(plan_of(with_old_qemu(300), 2))
    assert apply_saved_plan(small, DrainInputs(with_old_qemu(300), scheduler=scheduler), ["kvm1"], others, {})
    with pytest.raises(Conflict, match=r"no longer applies\. The fleet could no longer lose kvm1 and kvm3 for certain"):
        apply_saved_plan(small, DrainInputs(with_old_qemu(1200), scheduler=scheduler), ["kvm1"], others, {})


@pytest.mark.parametrize("hosts", [1, 2])
def test_an_admitted_drain_never_takes_a_loss_away_that_was_possible_before(hosts: int) -> None:
    counts: collections.Counter[bool] = collections.Counter()
    for seed in range(250):
        whole = fleets.whole(seed)
        if len(whole.facts) <= hosts:
            continue
        plan = plan_of(whole.facts, hosts, settings=whole.settings)
        if plan.unplaced or not plan.moves or not plan.reserve:
            continue
        left_out = plan.reserve.left_out
        then = moved(whole, {move.uuid: move.destination for move in plan.moves})
        sets = [("kvm1", *more) for more in itertools.combinations([name for name in whole.facts if name != "kvm1"], hosts - 1)]
        worse = {lost for lost in sets if can_lose(whole, lost, left_out) and not can_lose(then, lost, left_out)}
        assert set(plan.reserve.broken) == worse, seed
        counts[not plan.reserve.broken] += 1
    assert counts[True] > 20, counts
