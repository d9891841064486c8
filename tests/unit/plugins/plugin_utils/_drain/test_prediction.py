# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the prediction of a plan is made from."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.prediction import PAYLOAD, SCAN_MIB, SETUP_SECONDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import prediction as p
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record

MIB = 1024**2


def done(mib: float, seconds: float, ended: str = "03:00:00", cap_mib: int = 0, to: str = "kvm2") -> MoveRecord:
    made = record("web1", "kvm1", to, "completed")
    result = dataclasses.replace(made.result, elapsed_ms=int(seconds * 1000), bytes=int(mib * MIB))
    return dataclasses.replace(made, result=result, updated_at=f"2026-11-21T{ended}.000Z", connection=Connection(bandwidth_mib=cap_mib))


def plan_of(*domains: dict[str, t.Any], options: dict[str, t.Any] | None = None, history: t.Sequence[MoveRecord] = (), **changes: t.Any) -> DrainPlan:
    known = {"kvm1": {**facts("kvm1", *domains, gib=64), "cpus": 64, **changes}, "kvm2": {**facts("kvm2", gib=64), "cpus": 64}}
    return make_plan(DrainInputs(known, history=history), ["kvm1"], ["kvm2"], DrainOptions.from_values(parallel=1, options=options))


def seconds_of(*domains: dict[str, t.Any], **known: t.Any) -> float:
    return plan_of(*domains, **known).moves[0].predicted_seconds


def test_the_used_memory_counts_and_not_the_size() -> None:
    link = {"link_mib": 100}
    alone = SETUP_SECONDS + 950 / (100 * PAYLOAD)
    assert seconds_of(domain("web", 8192, used_mib=950), options=link) == pytest.approx(alone + (8192 - 950) / SCAN_MIB, abs=0.1)
    assert seconds_of(domain("web", 950), options=link) == pytest.approx(alone, abs=0.1)
    assert seconds_of(domain("web", 950, used_mib=None), options=link) == pytest.approx(alone, abs=0.1)


def test_moves_and_drains_have_a_range_and_moves_what_they_send() -> None:
    plan = plan_of(domain("web", 8192, used_mib=950), domain("db", 512, used_mib=95), options={"link_mib": 100})
    (low, high) = plan.predicted_ranges["kvm1"]  # type: ignore[index]
    assert low < plan.predicted_seconds["kvm1"] < high
    assert high / low == pytest.approx(2, rel=0.05)
    assert plan.predicted_seconds["kvm1"] > sum(move.predicted_seconds for move in plan.moves)
    assert [(move.name, move.sends_mib) for move in plan.moves] == [("web", 950), ("db", 95)]


def test_a_move_that_has_begun_keeps_its_own_cap() -> None:
    moving = dataclasses.replace(record("web", "kvm1", "kvm2"), connection=Connection(bandwidth_mib=10))
    known = {"kvm1": {**facts("kvm1", domain("web", 500, job="outgoing migration"), gib=64), "cpus": 64}, "kvm2": {**facts("kvm2", gib=64), "cpus": 64}}
    for options, seconds in (({}, 50), ({"bandwidth_mib": 50}, 50)):
        plan = make_plan(DrainInputs(known, records=[moving]), ["kvm1"], ["kvm2"], DrainOptions.from_values(options=options))
        assert (plan.moves[0].reason, plan.moves[0].predicted_seconds) == ("The domain is already moving there.", pytest.approx(seconds, rel=0.1))


def test_a_plan_without_moves_takes_no_time() -> None:
    plan = plan_of()
    assert (plan.predicted_seconds, plan.predicted_ranges) == ({"kvm1": 0.0}, {"kvm1": (0.0, 0.0)})


@pytest.mark.parametrize(
    ("link", "known"),
    [
        (p.DEFAULT_LINK_MIB, {}),
        (50, {"links": {"kvm2": 50.0}}),
        (50, {"links": {"kvm9": 70.0, "kvm8": 50.0}}),
        (30, {"options": {"link_mib": 30}, "links": {"kvm2": 50.0}, "history": [done(600 * PAYLOAD, 10 + SETUP_SECONDS)]}),
        (60, {"history": [done(600 * PAYLOAD, 10 + SETUP_SECONDS)]}),
        (60, {"history": [done(600 * PAYLOAD, 10 + SETUP_SECONDS)], "links": {"kvm2": 100.0}}),
        (20, {"history": [done(600 * PAYLOAD, 10 + SETUP_SECONDS)], "links": {"kvm2": 20.0}}),
        (600, {"history": [done(600 * PAYLOAD, 10 + SETUP_SECONDS)], "links": {"kvm2": 600.0}}),
        (60, {"history": [done(600 * PAYLOAD, 10 + SETUP_SECONDS, to="kvm7")]}),
        (60, {"history": [done(900 * PAYLOAD, 10 + SETUP_SECONDS, to="kvm7"), done(600 * PAYLOAD, 10 + SETUP_SECONDS)]}),
        (2 * p.CPU_MIB, {"links": {"kvm2": 5000.0}, "cpus": 2}),
    ],
)
def test_the_link_is_set_or_learned_or_probed(link: float, known: dict[str, t.Any]) -> None:
    found = seconds_of(domain("web", 10_000), **known)
    assert found == pytest.approx(SETUP_SECONDS + 10_000 / (link * PAYLOAD), rel=0.01)


def test_moves_that_ran_together_teach_the_whole_link() -> None:
    together = [done(200, 4 + SETUP_SECONDS, "03:00:04"), done(200, 4 + SETUP_SECONDS, "03:00:04"), done(100, 1 + SETUP_SECONDS, "03:00:09")]
    assert p.learn_link_mib(together) == pytest.approx(100 / PAYLOAD)


def test_moves_that_waited_for_their_share_do_not_make_the_link_faster() -> None:
    first, second, third = (done(100, 2 * number + SETUP_SECONDS, f"03:00:0{2 * number}") for number in (1, 2, 3))
    assert p.learn_link_mib([first, second, third]) == pytest.approx(50 / PAYLOAD)


def test_short_and_capped_moves_teach_nothing() -> None:
    assert p.learn_link_mib([done(10, 2), done(500, 20, cap_mib=32), record("web1", "kvm1", "kvm2", "completed")]) is None


def test_the_setup_is_learned_from_moves_that_sent_nearly_nothing() -> None:
    assert p.learn_setup_seconds([done(1, 1.5), done(1, 1.6)]) == SETUP_SECONDS
    assert p.learn_setup_seconds([done(2, 1.5), done(2, 1.6), done(1, 4.0), done(500, 1)]) == 1.5
    assert p.learn_setup_seconds([done(1, 60), done(1, 60), done(1, 60)]) == 2.5


def test_a_domain_under_way_is_predicted_like_the_others() -> None:
    moving = domain("web", 950, used_mib=95, job="outgoing migration")
    known = {"kvm1": facts("kvm1", moving, gib=64), "kvm2": facts("kvm2", domain("web", 950, job="incoming migration", state="paused"), gib=64)}
    (move,) = make_plan(DrainInputs(known), ["kvm1"], ["kvm2"], DrainOptions.from_values(options={"link_mib": 100})).moves
    assert move.sends_mib == 95
