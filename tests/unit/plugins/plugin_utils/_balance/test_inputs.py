# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.decision import decide_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.inputs import BalanceInputs, find_last_moves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import (
    NOW,
    Document,
    crowded,
    decide,
    host,
    hosts,
    inputs_of,
    states_of,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record


def refusal(inputs: BalanceInputs, **options: t.Any) -> str:
    """The sentence by which a plan is refused."""
    with pytest.raises((InvalidArgument, Conflict)) as caught:
        decide_balance(states_of(inputs), inputs, BalanceOptions(**options))
    return str(caught.value)


def without_load(facts: Document) -> Document:
    """Facts of an earlier version."""
    domains = [{key: value for key, value in domain.items() if key != "load"} for domain in facts["domains"]]
    return {**{key: value for key, value in facts.items() if key != "load"}, "domains": domains}


def test_an_empty_fleet_is_refused() -> None:
    assert refusal(inputs_of({})).startswith("The fleet has no hosts.")


def test_one_host_is_refused() -> None:
    assert "Only kvm1 is in service and answered: a balance needs two hosts" in refusal(inputs_of(hosts(host("kvm1"))))


@pytest.mark.parametrize("age", [601.0, None])
def test_old_facts_are_refused_by_host(age: float | None) -> None:
    inputs = inputs_of(crowded())
    text = refusal(replace(inputs, ages={**inputs.ages, "kvm2": age}))
    assert "The facts of kvm2 are older than 600 s, or their age is not known." in text
    assert "Nothing was planned." in text


def test_hosts_without_signals_are_refused_by_name() -> None:
    facts = crowded()
    assert "The facts of kvm1 do not say how busy the host is" in refusal(inputs_of({**facts, "kvm1": without_load(facts["kvm1"])}))


def test_a_host_whose_clock_differs_is_refused() -> None:
    facts = crowded()
    late = (NOW + datetime.timedelta(seconds=90)).isoformat()
    assert "The clock of kvm3 and of this control node differ by more than 60 s." in refusal(
        inputs_of({**facts, "kvm3": {**facts["kvm3"], "gathered_at": late}})
    )


def test_facts_that_are_a_while_old_come_from_no_other_clock() -> None:
    facts = crowded()
    then = (NOW - datetime.timedelta(seconds=300)).isoformat()
    inputs = replace(inputs_of({name: {**one, "gathered_at": then} for name, one in facts.items()}), ages=dict.fromkeys(facts, 300.0))
    assert decide_balance(states_of(inputs), inputs, BalanceOptions()).moves


def test_a_move_in_the_future_is_refused() -> None:
    inputs = inputs_of(crowded(), {f.uuid_of("g0"): NOW + datetime.timedelta(seconds=61)})
    assert "the clocks of control nodes differ" in refusal(inputs)


def test_a_host_in_maintenance_refuses_the_plan_unless_it_is_allowed() -> None:
    entry = HostEntry("kvm2", None, f.uuid_of("kvm2"), "maintenance")
    assert "kvm2 is not in service (maintenance)." in refusal(inputs_of(crowded(), entries=[entry]))
    balance = decide(crowded(), drain={"entries": [entry]}, maintenance_allowed=True)
    assert {move.destination for move in balance.moves} == {"kvm3"}
    assert [one.name for one in balance.hosts] == ["kvm1", "kvm3"]


def test_a_host_of_another_ledger_takes_no_part() -> None:
    answers = crowded()
    balance = decide({**answers, "kvm2": {**answers["kvm2"], "ledger_id": f.uuid_of("theirs")}}, drain={"ledger_id": f.uuid_of("ours")})
    assert {move.destination for move in balance.moves} == {"kvm3"}
    assert [one.name for one in balance.hosts] == ["kvm1", "kvm3"]


def test_a_host_that_did_not_answer_takes_no_part() -> None:
    balance = decide(crowded(), drain={"unreachable": {"kvm2": "timed out"}})
    assert balance.silent == ("kvm2",)
    assert {move.destination for move in balance.moves} == {"kvm3"}


def test_the_last_of_several_moves_counts() -> None:
    first = record("web1", "kvm1", "kvm2", "completed", updated_at="2026-11-20T10:00:00.000Z")
    last = record("web1", "kvm2", "kvm1", "completed", updated_at="2026-11-21T01:00:00.000Z")
    assert find_last_moves([last, first], DrainInputs({})) == {f.uuid_of("web1"): datetime.datetime(2026, 11, 21, 1, tzinfo=datetime.UTC)}


@pytest.mark.parametrize(("active_on", "has_moved"), [(("kvm1",), False), (("kvm1", "kvm2"), False), (("kvm2",), True), ((), False)])
def test_a_move_that_nobody_has_settled_counts_once_the_domain_has_arrived(active_on: tuple[str, ...], has_moved: bool) -> None:
    begun = record("web1", "kvm1", "kvm2", "running", updated_at="2026-11-21T01:00:00.000Z")
    facts = {name: f.host(name, domains=[f.domain("web1")] if name in active_on else []) for name in ("kvm1", "kvm2")}
    assert (f.uuid_of("web1") in find_last_moves([], DrainInputs(facts, records=[begun]))) is has_moved
