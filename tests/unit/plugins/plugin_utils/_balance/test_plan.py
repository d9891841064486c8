# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a balance in the form of all plans."""

from __future__ import annotations

import json

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import describe_options, make_balance_plan, restore_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import pack_plan, read_plan
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import guest, host, hosts, inputs_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.test_decision import APART, draw_fleet


def test_the_options_of_a_plan_are_those_that_it_was_made_with() -> None:
    options = BalanceOptions(goal="even", max_moves=3, weights={"cpu": 2}, tolerated_pressure=0.2, cooldown_seconds=60.0)
    restored = restore_options(describe_options(options))
    assert {**vars(restored), "weights": restored.weight_vector} == {**vars(options), "weights": options.weight_vector}


def test_every_plan_is_read_back_as_it_was_written() -> None:
    for seed in range(40):
        facts = draw_fleet(seed)
        plan = make_balance_plan(inputs_of(facts), [*facts], BalanceOptions(goal="even"), empty=1)
        document = json.loads(json.dumps(encode(plan)))
        check_document("drain-plan.json", document)
        assert read_plan(document) == read_plan(pack_plan(plan)) == plan
        assert sum(len(moves) for moves in ([move for move in plan.moves if move.source == source] for source in plan.sources)) == len(plan.moves)
        assert [move.order for move in plan.moves] == [*range(1, len(plan.moves) + 1)]


def test_a_repair_says_what_it_repairs_and_what_cannot_be_repaired_is_named() -> None:
    apart = [guest(name, 0.1, group=APART) for name in ("a", "b", "c")]
    facts = hosts(host("kvm1", *apart), host("kvm2"))
    plan = make_balance_plan(inputs_of(facts), [*facts], BalanceOptions())
    assert plan.balance
    (move,) = plan.moves
    assert move.repairs == f"Its group {APART['name']} must be apart."
    assert move.reason.startswith(str(move.repairs))
    assert len(plan.balance.broken) == 1


def test_a_plan_says_which_host_could_be_emptied_and_why_another_could_not() -> None:
    facts = hosts(host("kvm1", guest("a", 0.1)), host("kvm2", guest("b", 0.1, drain="leave")), host("kvm3"), host("kvm4"))
    plan = make_balance_plan(inputs_of(facts), [*facts], BalanceOptions(), empty=3)
    assert plan.balance
    assert plan.balance.emptying
    assert [(one.host, one.moves) for one in plan.balance.emptying.hosts] == [("kvm3", ()), ("kvm4", ())]
    assert plan.balance.emptying.refused == {
        "kvm1": "Without it, the loss of kvm2 could not be compensated: its domains would have no place.",
        "kvm2": "b cannot leave it.",
    }
