# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a seed draws: the same each time, and no fault without an end."""

from __future__ import annotations

import itertools
import json

import pytest

from ansible_collections.kvmfleet.migration.tests.soak.actions import SETTLE, VERBS, Action, from_json
from ansible_collections.kvmfleet.migration.tests.soak.draw import MOST_STEPS, WEIGHTS, Drawing

GUESTS = ("ada", "bob")
SEEDS = range(20)
ENDS = {
    "cut": "heal",
    "slow": "heal",
    "stop libvirtd": "start libvirtd",
    "fill ledger": "make room",
    "clock": "right clock",
    "power off": "power on",
    "hang storage": "let storage answer",
}


def draw_actions(seed: int, count: int = 600) -> list[Action]:
    return list(itertools.islice(Drawing(seed, GUESTS), count))


def target_of(action: Action) -> tuple[str, object]:
    return (ENDS.get(action.verb, action.verb), action.given.get("host", action.given.get("on")))


def test_a_seed_draws_the_same_actions_each_time_and_another_seed_others() -> None:
    assert draw_actions(7) == draw_actions(7)
    assert draw_actions(7) != draw_actions(8)


def test_every_action_is_drawn_and_is_a_known_verb() -> None:
    seen = {action.verb for seed in SEEDS for action in draw_actions(seed)}
    assert set(WEIGHTS) <= seen <= VERBS
    assert {"evacuate", "recover", "enable", "again", SETTLE, *ENDS.values()} <= seen


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_ends_before_the_settling_run(seed: int) -> None:
    faulty: dict[tuple[str, object], int] = {}
    for action in draw_actions(seed):
        if action.verb in ENDS:
            assert target_of(action) not in faulty
            faulty[target_of(action)] = 0
        elif action.verb in ENDS.values():
            del faulty[target_of(action)]
        elif action.verb == SETTLE:
            assert not faulty
        elif action.verb in WEIGHTS:
            faulty = {key: steps + 1 for key, steps in faulty.items()}
            assert max(faulty.values(), default=0) <= MOST_STEPS


@pytest.mark.parametrize("seed", SEEDS)
def test_one_host_at_most_is_off(seed: int) -> None:
    off = 0
    for action in draw_actions(seed):
        off += {"power off": 1, "power on": -1}.get(action.verb, 0)
        assert off in (0, 1)


def test_an_action_survives_its_line_in_the_journal() -> None:
    for action in draw_actions(3):
        assert from_json(json.loads(json.dumps(action.as_json()))) == action


@pytest.mark.parametrize("line", [{}, {"verb": "explode", "given": {}, "gap": 0}, {"verb": "move", "gap": 1}, {"verb": "move", "given": {}, "gap": "1"}])
def test_an_invalid_line_of_the_journal_is_refused(line: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no action"):
        from_json(line)
