# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.strategies import NO_RECEIVER
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record, uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

CANDIDATES = ["kvm2", "kvm3"]


def fleet(*on_kvm1: dict[str, t.Any], kvm2: tuple[dict[str, t.Any], ...] = (), kvm3: tuple[dict[str, t.Any], ...] = ()) -> dict[str, t.Any]:
    return {"kvm1": facts("kvm1", *on_kvm1), "kvm2": facts("kvm2", *kvm2), "kvm3": facts("kvm3", *kvm3, gib=6)}


def destinations_of(plan: DrainPlan) -> dict[str, str]:
    return {move.name: move.destination for move in plan.moves}


def test_active_domains_are_placed_and_inactive_ones_skipped() -> None:
    plan = make_plan(
        DrainInputs(fleet(domain("web1"), domain("paused1", state="paused", reason="user"), domain("off1", state="shut off", reason="shutdown"))),
        ["kvm1"],
        CANDIDATES,
    )
    assert destinations_of(plan) == {"paused1": "kvm2", "web1": "kvm2"}
    assert [entry.name for entry in plan.skipped] == ["off1"]
    assert plan.unplaced == ()
    assert plan.predicted_seconds["kvm1"] > 0


def test_each_move_has_its_reason_and_those_of_rejected_hosts() -> None:
    entries = [host_entry({"name": "kvm3", "host_uuid": uuid_of("kvm3"), "state": "maintenance", "reason": "new disks"})]
    known = DrainInputs({**fleet(domain("web1")), "kvm4": facts("kvm4", gib=4)}, entries, unreachable={"kvm5": "No route to host"})
    move = make_plan(known, ["kvm1"], ["kvm2", "kvm3", "kvm4", "kvm5"]).moves[0]
    assert move.reason == "It has the highest weight, 1.00, of the 2 hosts that pass all filters."
    reasons = {entry.host: entry.reason for entry in move.rejected}
    assert reasons == {
        "kvm3": "It is in maintenance (new disks).",
        "kvm4": "It could accept the domain too, and has a lower weight, 0.00.",
        "kvm5": "It did not answer: No route to host.",
    }


def test_a_host_of_another_ledger_is_no_destination() -> None:
    """A move to it would be refused, and the host would not be empty."""
    ours, theirs = uuid_of("ours"), uuid_of("theirs")
    answers = fleet(domain("web1"))
    answers = {**answers, "kvm2": {**answers["kvm2"], "ledger_id": theirs}, "kvm3": {**answers["kvm3"], "ledger_id": ours}}
    assert destinations_of(make_plan(DrainInputs(answers), ["kvm1"], CANDIDATES)) == {"web1": "kvm2"}
    move = make_plan(DrainInputs(answers, ledger_id=ours), ["kvm1"], CANDIDATES).moves[0]
    assert move.destination == "kvm3"
    assert [entry.reason for entry in move.rejected] == [f"It was protected under another ledger ({theirs})."]


def test_hosts_that_are_drained_together_are_not_destinations() -> None:
    known = DrainInputs({"kvm1": facts("kvm1", domain("a"), gib=64), "kvm2": facts("kvm2", domain("b"), gib=64), "kvm3": facts("kvm3", gib=2)})
    plan = make_plan(known, ["kvm1", "kvm2"], ["kvm1", "kvm2", "kvm3"])
    assert destinations_of(plan) == {"a": "kvm3", "b": "kvm3"}
    assert plan.candidates == ("kvm3",)


def test_a_domain_that_fits_nowhere_is_unplaced_with_the_reason_of_each_host() -> None:
    plan = make_plan(DrainInputs(fleet(domain("huge", 7000), domain("large", 7600))), ["kvm1"], CANDIDATES)
    assert destinations_of(plan) == {"large": "kvm2"}
    unplaced = plan.unplaced[0]
    assert unplaced.name == "huge"
    assert "kvm2: It is 6920 MiB short of memory" in unplaced.reason
    assert {entry.host for entry in unplaced.rejected} == {"kvm2", "kvm3"}


def test_a_plan_without_candidates_leaves_every_domain_unplaced() -> None:
    plan = make_plan(DrainInputs({"kvm1": facts("kvm1", domain("web1"))}), ["kvm1"], [])
    assert plan.unplaced[0].reason == "There is no other host."


def test_records_to_a_candidate_count_in_its_memory() -> None:
    known = DrainInputs(fleet(domain("web1", 1000)), records=[record("other", "kvm3", "kvm2", "queued", 7000)])
    assert destinations_of(make_plan(known, ["kvm1"], CANDIDATES)) == {"web1": "kvm3"}


def test_a_move_in_flight_keeps_its_destination_even_one_in_maintenance() -> None:
    known = DrainInputs(
        fleet(domain("web1", job="outgoing migration")),
        entries=[host_entry({"name": "kvm3", "host_uuid": uuid_of("kvm3"), "state": "maintenance"})],
        records=[record("web1", "kvm1", "kvm3")],
    )
    assert destinations_of(make_plan(known, ["kvm1"], CANDIDATES)) == {"web1": "kvm3"}


def test_a_move_in_post_copy_without_a_record_goes_where_the_domain_is_received() -> None:
    leaving = domain("web1", state="paused", reason="post-copy", job="outgoing migration")
    known = DrainInputs(fleet(leaving, kvm3=(domain("web1", reason="post-copy"),)))
    assert destinations_of(make_plan(known, ["kvm1"], CANDIDATES)) == {"web1": "kvm3"}


def test_a_move_in_flight_to_an_unknown_destination_is_unplaced() -> None:
    plan = make_plan(DrainInputs(fleet(domain("web1", job="outgoing migration"))), ["kvm1"], CANDIDATES)
    assert plan.moves == ()
    assert plan.unplaced[0].reason == NO_RECEIVER


def test_a_reserved_move_keeps_its_destination_while_the_filters_permit_it() -> None:
    booked = [record("web1", "kvm1", "kvm3", "queued")]
    assert destinations_of(make_plan(DrainInputs(fleet(domain("web1")), records=booked), ["kvm1"], CANDIDATES)) == {"web1": "kvm3"}
    closed = [host_entry({"name": "kvm3", "state": "maintenance"})]
    assert destinations_of(make_plan(DrainInputs(fleet(domain("web1")), closed, booked), ["kvm1"], CANDIDATES)) == {"web1": "kvm2"}


@pytest.mark.parametrize(
    ("guest", "words"),
    [
        (domain("web1", state="paused", reason="migration", job="incoming migration"), "still arriving"),
        (domain("web1", state="crashed", reason="panicked"), "It is crashed"),
        (domain("web1", state="other", reason=""), "only a running or a paused domain"),
    ],
)
def test_a_domain_that_cannot_be_migrated_live_is_unplaced_with_the_reason(guest: dict[str, t.Any], words: str) -> None:
    plan = make_plan(DrainInputs(fleet(guest)), ["kvm1"], CANDIDATES)
    assert plan.moves == ()
    assert words in plan.unplaced[0].reason


def test_a_domain_that_runs_twice_is_unplaced() -> None:
    plan = make_plan(DrainInputs(fleet(domain("web1"), kvm2=(domain("web1"),))), ["kvm1"], CANDIDATES)
    assert plan.moves == ()
    assert "active on kvm2 as well" in plan.unplaced[0].reason


def test_a_second_copy_is_found_on_hosts_that_share_a_uuid() -> None:
    known = fleet(domain("web1"), kvm2=(domain("web1"),))
    for name, told in known.items():
        told.update(host_id=uuid_of(f"id of {name}"), host_uuid=uuid_of("board"))
    assert "active on kvm2 as well" in make_plan(DrainInputs(known), ["kvm1"], CANDIDATES).unplaced[0].reason


def test_a_reservation_under_an_old_uuid_of_the_host_counts() -> None:
    known = fleet(domain("web1", 1000))
    for name, told in known.items():
        told.update(host_id=uuid_of(f"id of {name}"))
    booked = record("other", "kvm3", "kvm2", "queued", 7000)
    booked = dataclasses.replace(booked, destination=HostRef("kvm2", uuid_of("id of kvm2"), uuid_of("long ago")))
    assert destinations_of(make_plan(DrainInputs(known, records=[booked]), ["kvm1"], CANDIDATES)) == {"web1": "kvm3"}


def test_a_source_without_facts_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no facts for kvm9"):
        make_plan(DrainInputs(fleet()), ["kvm1", "kvm9"], CANDIDATES)


def test_the_same_input_gives_the_same_plan() -> None:
    guests = [domain(f"g{number}", 100 + number) for number in range(9)]
    first = make_plan(DrainInputs(fleet(*guests)), ["kvm1"], CANDIDATES)
    second = make_plan(DrainInputs(fleet(*reversed(guests))), ["kvm1"], list(reversed(CANDIDATES)))
    assert first.moves == second.moves
