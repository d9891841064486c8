# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a drain wants of its moves: the options they get, how many run at a time, and whether a lost host has to be absorbed afterwards."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import NO_COPY

from .shapes import plain, short

# What a plan says of each move itself.
_OF_THE_PLAN = ("name", "uuid", "destination", "destination_uri")
_LOWEST = {"bandwidth_mib": 0, "link_mib": 1}


@dataclass(frozen=True)
class Wish:
    """What the operator asks for.

    :arg moves: options of C(live_migrate).
    """

    parallel: int = 4
    n_plus_one: bool = False
    moves: Mapping[str, t.Any] = field(default_factory=dict)

    @classmethod
    def of(cls, parallel: t.Any = 4, n_plus_one: t.Any = False, options: t.Any = None) -> Wish:
        """Return the wish. Raises L(InvalidArgument) for what cannot be one."""
        if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
            raise InvalidArgument(f"parallel is {short(parallel)}.", "Give how many moves of one source run at a time, 1 or more.")
        if not isinstance(n_plus_one, bool):
            raise InvalidArgument(f"n_plus_one is {short(n_plus_one)}, which is neither true nor false.")
        if options is not None and not isinstance(options, Mapping):
            raise InvalidArgument(f"options is {short(options)}, which is no dictionary of options of live_migrate.")
        return cls(parallel, n_plus_one, _validated(options or {}))

    @property
    def copies(self) -> bool:
        """Whether disks are copied that are not shared."""
        return (self.moves.get("copy_storage") or NO_COPY) != NO_COPY

    @property
    def unsafe(self) -> bool:
        """Whether the operator says that disks are the same bytes on all hosts."""
        return self.moves.get("unsafe") is True

    def as_json(self) -> dict[str, t.Any]:
        """Return it as the plan keeps it."""
        return {"parallel": self.parallel, "n_plus_one": self.n_plus_one, "moves": dict(self.moves)}


def _validated(moves: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options in their own types, as C(live_migrate) would take them."""
    given = plain(moves)
    result = ArgumentSpecValidator({name: spec for name, spec in move_spec().items() if name not in _OF_THE_PLAN}).validate(given)
    if result.error_messages:
        raise InvalidArgument(f"The options of the moves are not what live_migrate takes: {'; '.join(result.error_messages)}.")
    checked = {name: value for name, value in result.validated_parameters.items() if name in given}
    for name, lowest in _LOWEST.items():
        if checked.get(name) is not None and checked[name] < lowest:
            raise InvalidArgument(f"The option {name} of the moves is {checked[name]}.", f"Give MiB/s, a whole number from {lowest}.")
    return checked
