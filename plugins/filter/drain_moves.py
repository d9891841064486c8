# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_moves). Documentation is in drain_moves.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

_OWN = ("name", "uuid", "destination", "moves", "parallel")


def drain_moves(plan: Mapping[str, t.Any], source: str, options: t.Optional[Mapping[str, t.Any]] = None) -> list[dict[str, t.Any]]:
    """Return the C(moves) of C(live_migrate) for one source of the plan."""
    taken = [option for option in _OWN if option in (options or {})]
    if taken:
        raise AnsibleFilterError(f"drain_moves: the plan says {', '.join(taken)}; leave that out of the options.")
    try:
        share = [move for move in plan["moves"] if move["source"] == source]
        return [{"uuid": move["uuid"], "destination": move["destination"], **(options or {})} for move in share]
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"drain_moves: this is not a drain's plan ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"drain_moves": drain_moves}
