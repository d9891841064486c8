# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of drains to hosts that have other names for a bridge or a folder: what a plan shows of them, and when it no longer applies."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NameChange, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.drift import apply_saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

MAPS = {
    "kvm1": ResourceMaps(bridges={"prod": "br0"}, images={"fast": "/srv/images"}, cpus={"guests": "0-7"}),
    "kvm2": ResourceMaps(bridges={"prod": "br7"}, images={"fast": "/data/fast"}, cpus={"guests": "8-15"}),
}
NEEDS = {
    "networks": [{"type": "bridge", "source": "br0"}],
    "disks": [f.disk("vda"), f.disk("vdb")],
    "pinning": {"vcpus": {str(cpu): [cpu] for cpu in range(6)}, "emulator": None},
}
STORE = [{"path": "/data/fast", "kind": "nfs4", "store": "nfs4:nas:/images", "capacity_bytes": 2**44, "available_bytes": 2**43}]
SOURCES, CANDIDATES = ["kvm1"], ["kvm2"]


def inputs(maps: t.Mapping[str, ResourceMaps] | None = None, *more: dict[str, t.Any]) -> DrainInputs:
    web, plain = f.domain("web", vcpus=6, **NEEDS), f.domain("plain", networks=[], disks=[])
    facts = {"kvm1": f.host("kvm1", domains=[web, plain, *more]), "kvm2": f.host("kvm2", bridges=["br7", "br0"], mounts=STORE)}
    return DrainInputs(copy.deepcopy(facts), resource_maps=MAPS if maps is None else maps)


@pytest.fixture
def plan() -> DrainPlan:
    return make_plan(inputs(), SOURCES, CANDIDATES, DrainOptions())


def move_of(plan: DrainPlan, name: str) -> t.Any:
    return next(move for move in plan.all_moves if move.name == name)


def test_a_plan_has_the_names_that_a_guest_gets(plan: DrainPlan) -> None:
    assert not plan.unplaced, plan.unplaced
    changes = move_of(plan, "web").rewritten
    assert NameChange("bridges", "br0", "br7") in changes
    # Two images in one folder are one change.
    assert [one for one in changes if one.kind == "images"] == [NameChange("images", "/srv/images", "/data/fast")]
    assert NameChange("cpus", "5", "13") in changes
    assert move_of(plan, "plain").rewritten is ABSENT
    assert "rewritten" not in encode(move_of(plan, "plain"))


def test_the_text_of_a_plan_shows_the_names_in_short(plan: DrainPlan) -> None:
    (line,) = [line for line in plan_lines(plan) if line.startswith("NAMES")]
    names = "bridge br0 → br7; folder /srv/images → /data/fast; set of CPUs 0 → 8, 1 → 9, 2 → 10 and 3 more"
    assert line == f"NAMES  web on kvm2: {names}"


def plan_cold_moves(maps: t.Mapping[str, ResourceMaps]) -> DrainPlan:
    off = f.domain("off", state="shut off", active=False, disks=[], networks=NEEDS["networks"])
    return make_plan(inputs(maps, off), SOURCES, CANDIDATES, DrainOptions.from_values(shut_off="move", strategies=["save"], save_folder="/srv/shared"))


def test_moves_that_are_not_live_have_their_names_too() -> None:
    plan = plan_cold_moves(MAPS)
    assert not plan.unplaced, plan.unplaced
    assert encode(move_of(plan, "off"))["rewritten"] == [{"kind": "bridges", "before": "br0", "after": "br7"}]
    assert NameChange("bridges", "br0", "br7") in move_of(plan, "web").rewritten


def test_a_definition_is_planned_to_no_host_that_lacks_a_name_for_its_bridge() -> None:
    plan = plan_cold_moves({"kvm1": replace(MAPS["kvm1"], images={}, cpus={}), "kvm2": ResourceMaps()})
    (entry,) = [entry for entry in plan.skipped if entry.name == "off"]
    assert "kvm2 has no bridge 'prod' in kvmfleet_bridge_map" in entry.reason


def test_a_saved_plan_with_the_same_maps_is_applied_unchanged(plan: DrainPlan) -> None:
    assert decode(DrainPlan, encode(plan)) == plan
    assert apply_saved_plan(encode(plan), inputs(), SOURCES, CANDIDATES, {}) == plan


@pytest.mark.parametrize(
    ("host", "maps", "sentence"),
    [
        ("kvm2", replace(MAPS["kvm2"], bridges={"prod": "br0"}), "In kvmfleet_bridge_map of kvm2 prod is 'br0' now; the plan was made with 'br7'."),
        ("kvm1", replace(MAPS["kvm1"], networks={"lan": "default"}), "In kvmfleet_network_map of kvm1 lan is 'default' now"),
    ],
)
def test_changed_maps_are_drift(plan: DrainPlan, host: str, maps: ResourceMaps, sentence: str) -> None:
    with pytest.raises(Conflict) as refused:
        apply_saved_plan(encode(plan), inputs({**MAPS, host: maps}), SOURCES, CANDIDATES, {})
    assert sentence in str(refused.value)


def test_maps_that_are_gone_are_drift(plan: DrainPlan) -> None:
    with pytest.raises(Conflict, match=r"In kvmfleet_bridge_map of kvm1 prod is .* now; the plan was made with 'br0'"):
        apply_saved_plan(encode(plan), inputs({}), SOURCES, CANDIDATES, {})


def test_a_plan_of_an_earlier_version_is_applied_whatever_the_maps_are(plan: DrainPlan) -> None:
    earlier = replace(plan, moves=tuple(replace(move, rewritten=ABSENT) for move in plan.moves), resource_maps=ABSENT).seal()
    assert "resource_maps" not in encode(earlier)
    assert apply_saved_plan(encode(earlier), inputs(), SOURCES, CANDIDATES, {}) == earlier
