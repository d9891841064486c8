# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Drops the moves that later ones have made needless: of all that were chosen, always the one that the plan loses least without."""

from __future__ import annotations

from collections.abc import Sequence

from .state import BalanceState, UnitMove


def drop_needless_moves(state: BalanceState) -> list[UnitMove]:
    """Return the moves of the state that still pay for themselves if all others are carried out. Repairs are kept.

    The state is changed: the dropped moves are undone in its goal, and nowhere else.
    """
    kept, options = list(state.unit_moves), state.options
    while True:
        losses = [(_loss(state, move), number) for number, move in enumerate(kept) if not move.why]
        needless = [
            (loss * options.horizon_seconds - state.cost_seconds(kept[number]), number)
            for loss, number in losses
            if loss < options.min_gain or loss * options.horizon_seconds <= state.cost_seconds(kept[number])
        ]
        if not needless:
            return kept
        _undo(state, kept.pop(min(needless)[1]))


def _loss(state: BalanceState, move: UnitMove) -> float:
    """Return by how much the score would rise without the move."""
    leaves, arrives = state.shares(move.unit, move.source, move.destination)
    return -state.goal.gain(move.destination, move.source, arrives, leaves)


def _undo(state: BalanceState, move: UnitMove) -> None:
    leaves, arrives = state.shares(move.unit, move.source, move.destination)
    state.goal.move(move.destination, move.source, arrives, leaves)


def carry_out_again(moves: Sequence[UnitMove], state: BalanceState) -> None:
    """Carry these moves out on a new state. One that needed the room that a dropped move made is dropped, too, and so is one that would raise the score."""
    for move in moves:
        is_good = bool(move.why) or state.gain(move.unit, move.source, move.destination) > 0.0
        if is_good and state.permits(move.leavers, move.destination):
            state.carry_out(move)
