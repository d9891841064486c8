# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Drops the moves that later ones have made needless: of all that were chosen, always the one that the plan loses least without."""

from __future__ import annotations

from collections.abc import Sequence

from .state import BalanceState, UnitMove


def drop_needless_moves(state: BalanceState) -> None:
    """Take back the moves that do not pay for themselves once all others are carried out. Repairs are kept."""
    options = state.options
    while True:
        needless = [
            (loss * options.horizon_seconds - cost, number)
            for number, move in enumerate(state.unit_moves)
            if not move.why and ((loss := state.loss(move)) * options.horizon_seconds <= (cost := state.cost_seconds(move)) or loss < options.min_gain)
        ]
        if not needless:
            return
        state.take_back(state.unit_moves[min(needless)[1]])


def carry_out_again(moves: Sequence[UnitMove], state: BalanceState) -> None:
    """Carry these moves out on a new state, each as soon as others have made room for it.

    One that needed the room which a dropped move made is dropped, too, and so is one that would raise the score.
    """
    waiting, before = list(moves), len(moves) + 1
    while len(waiting) < before:
        before = len(waiting)
        waiting = [move for move in waiting if not _carry_out(move, state)]


def _carry_out(move: UnitMove, state: BalanceState) -> bool:
    """Carry a move out if it is possible now and does not raise the score."""
    is_good = bool(move.why) or state.gain(move.unit, move.source, move.destination) > 0.0
    if not is_good or not state.permits(move.leavers, move.destination):
        return False
    state.carry_out(move)
    return True
