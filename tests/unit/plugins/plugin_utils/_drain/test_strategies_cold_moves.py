# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves of a plan after it was made: the share of each host, what has changed since, and the verdict about the result."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import ColdMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.drift import apply_saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import build_host_result, describe_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.shares import Share, build_shares
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import HostDrain, result_lines
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, host_facts, record

OPTIONS: dict[str, t.Any] = {"save_folder": "/srv/images/saved", "shut_off": "move", "restart": True}
SAVED, STOPPED = domain("saved", policy={"drain": "save"}), domain("stopped", policy={"drain": "shutdown"})
OFF = domain("off", state="shut off", reason="shutdown")
GUESTS = (SAVED, STOPPED, OFF)


def plan_of(*guests: dict[str, t.Any], **given: t.Any) -> DrainPlan:
    inputs = DrainInputs({"kvm1": facts("kvm1", *guests), "kvm2": facts("kvm2"), "kvm3": facts("kvm3", gib=1)})
    return make_plan(inputs, ["kvm1"], ["kvm2", "kvm3"], DrainOptions.from_values(**{**OPTIONS, **given}))


PLAN = plan_of(*GUESTS)
TO = {move.name: move.destination for move in PLAN.cold_moves or ()}


def cold_record(name: str, status: str = "completed", method: str = "save", destination: str = "kvm2") -> MoveRecord:
    return dataclasses.replace(record(name, "kvm1", destination, status), type="cold-migration", method=method, cold=ColdMove(method == "shutdown"))


def shares_of(plan: DrainPlan, *records: MoveRecord, check_mode: bool = False) -> Share:
    return build_shares(plan, records, lambda name: True, check_mode)["kvm1"]


def test_the_share_of_a_host_has_its_cold_moves_and_their_destinations_are_queried_afterwards() -> None:
    share = shares_of(PLAN)
    assert [(move["method"], move["start"]) for move in share.cold_moves] == [("save", True), ("shutdown", True), ("offline", False)]
    assert [move["uuid"] for move in share.cold_moves] == [guest["uuid"] for guest in GUESTS]
    assert set(share.ends) == {"kvm1", *TO.values()}
    assert shares_of(PLAN, check_mode=True).ends == ("kvm1",)


def test_no_guest_is_stopped_on_a_host_that_cannot_be_emptied_and_definitions_still_move() -> None:
    plan = plan_of(*GUESTS, domain("huge", 99999))
    assert [entry.name for entry in plan.unplaced] == ["huge"]
    assert [move["method"] for move in shares_of(plan).cold_moves] == ["offline"]


def test_a_cold_move_that_has_left_its_source_is_settled_with_the_share() -> None:
    begun = cold_record("gone", "running", "shutdown", "kvm3")
    (move,) = shares_of(plan_of(), begun).cold_moves
    assert move == {"uuid": begun.domain.uuid, "destination": "kvm3", "method": "shutdown", "start": True}
    assert shares_of(plan_of(), begun).moves == ()


def result_of(at_kvm1: t.Sequence[dict[str, t.Any]], at_kvm2: t.Sequence[dict[str, t.Any]], *records: MoveRecord, **more: t.Any) -> HostDrain:
    plan = dataclasses.replace(PLAN, cold_moves=tuple(dataclasses.replace(move, destination="kvm2") for move in PLAN.cold_moves or ()))
    answered = {"kvm1": host_facts("kvm1", *at_kvm1), "kvm2": host_facts("kvm2", *at_kvm2), "kvm3": host_facts("kvm3", *more.pop("at_kvm3", ()))}
    return build_host_result("kvm1", plan, answered, records, more.pop("unsettled", ()), **more)


def test_domains_on_their_destination_alone_are_moved_and_the_host_is_empty() -> None:
    result = result_of((), GUESTS, cold_record("saved"))
    assert [(entry.name, entry.method, entry.status) for entry in result.moved] == [
        ("saved", "save", "completed"),
        ("stopped", "shutdown", "completed"),
        ("off", "offline", "completed"),
    ]
    assert (result.failed, result.safe_to_reboot, result.empty) == ((), True, True)
    assert result_lines({"kvm1": result})[-1] == "kvm1: 3 moved, 0 failed, 0 left as they were. Safe to reboot. Nothing is left on it."


@pytest.mark.parametrize(
    ("at_kvm1", "at_kvm2", "at_kvm3", "words"),
    [
        ((SAVED,), (STOPPED, OFF), (), "It is running (booted) on kvm1."),
        ((), (STOPPED, OFF), (), "It is not defined on kvm2."),
        ((), (domain("saved", state="shut off", reason=""), STOPPED, OFF), (), "It is shut off on kvm2."),
        ((domain("saved", state="shut off", reason=""),), GUESTS, (), "It is shut off on kvm1, and running (booted) on kvm2."),
        ((), GUESTS, (SAVED,), "It is running (booted) on kvm3, and running (booted) on kvm2."),
    ],
)
def test_a_domain_that_is_elsewhere_or_on_two_hosts_is_failed(at_kvm1: t.Any, at_kvm2: t.Any, at_kvm3: t.Any, words: str) -> None:
    result = result_of(at_kvm1, at_kvm2, at_kvm3=at_kvm3)
    assert [entry.name for entry in result.failed] == ["saved"]
    assert words in str(result.failed[0].error)
    assert result.empty is (not at_kvm1)


def test_an_unsettled_cold_move_prevents_the_reboot() -> None:
    begun = cold_record("saved", "running")
    result = result_of((), GUESTS, begun, unsettled=[begun])
    assert "its record is not settled" in str(result.failed[0].error)
    assert (result.safe_to_reboot, result.blockers) == (False, (f"Record {begun.id} of saved is unsettled (running).",))


def test_a_refused_definition_is_left_with_the_reason_and_the_drain_succeeds() -> None:
    result = result_of((OFF,), (SAVED, STOPPED), refusals={OFF["uuid"]: "It has a managed-save image."})
    assert (result.failed, result.safe_to_reboot, result.empty) == ((), True, False)
    assert [(entry.name, entry.reason) for entry in result.skipped] == [("off", "It is shut off (shutdown) on kvm1. It has a managed-save image.")]
    assert describe_problems({"kvm1": result}, nothing_done=False) == {}
    checked = result_of(GUESTS, (), refusals={OFF["uuid"]: "It has a managed-save image."}, check_mode=True)
    assert [entry.name for entry in checked.skipped] == ["off"]


def test_a_definition_whose_move_was_undone_is_failed() -> None:
    result = result_of((OFF,), (SAVED, STOPPED), cold_record("off", "failed", "offline"))
    assert [entry.name for entry in result.failed] == ["off"]
    assert "ended failed" in str(result.failed[0].error)


def apply_to(*guests: dict[str, t.Any], at_kvm2: t.Sequence[dict[str, t.Any]] = (), plan: DrainPlan = PLAN, **given: t.Any) -> DrainPlan:
    now = {"kvm1": facts("kvm1", *guests), "kvm2": facts("kvm2", *at_kvm2), "kvm3": facts("kvm3", gib=1)}
    return apply_saved_plan(encode(plan), DrainInputs(now), ["kvm1"], ["kvm2", "kvm3"], given)


def test_an_unchanged_plan_with_cold_moves_applies_also_when_a_part_of_it_is_done() -> None:
    assert apply_to(*GUESTS) == PLAN
    assert set(TO.values()) == {"kvm2"}
    assert apply_to(STOPPED, at_kvm2=(SAVED, OFF)) == PLAN


@pytest.mark.parametrize(
    ("guests", "given", "words"),
    [
        ((SAVED, STOPPED, domain("off")), {}, "off is active on kvm1, but was not when the plan was made"),
        ((SAVED, STOPPED), {}, "off is no longer on kvm1"),
        ((domain("saved"), STOPPED, OFF), {}, "saved was to move to kvm2 by the method save. It is to be moved now"),
        ((domain("saved", policy={"drain": "save"}, state="shut off"), STOPPED, OFF), {}, "saved was to move to kvm2 by the method save"),
        ((SAVED, domain("stopped", 512, policy={"drain": "shutdown"}), OFF), {}, "stopped has 512 MiB of memory now"),
        (GUESTS, {"save_folder": "/srv/images/other"}, "The option save_folder is '/srv/images/other' now"),
    ],
)
def test_what_has_changed_about_a_cold_move_is_named(guests: t.Any, given: dict[str, t.Any], words: str) -> None:
    with pytest.raises(Conflict, match=words):
        apply_to(*guests, **given)


def test_a_strategy_that_was_not_possible_is_not_tried_again_when_the_plan_applies() -> None:
    blocked = domain("web", policy={"drain": ["migrate", "shutdown"]}, request={"memory_mib": 256, "vcpus": 1, "blockers": ["It has a device of its host."]})
    plan = plan_of(blocked, restart=False, shut_off="leave")
    assert [entry.name for entry in plan.shutdowns] == ["web"]
    assert apply_to(blocked, plan=plan) == plan
