# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_moves). Documentation is in drain_moves.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.policy import LEAVE

_OWN = ("name", "uuid", "destination", "moves", "parallel")


Body = Mapping[str, t.Any]


def drain_moves(plan: Body, source: str, options: t.Optional[Body] = None, records: Sequence[Body] = ()) -> list[dict[str, t.Any]]:
    """Return the C(moves) of C(live_migrate) for one source of the plan, and for those of these unsettled records whose domain has left it already."""
    if options is not None and not isinstance(options, Mapping):
        raise AnsibleFilterError(f"drain_moves: the options are a {type(options).__name__}; give a dictionary of options of live_migrate.")
    taken = [option for option in _OWN if option in (options or {})]
    if taken:
        raise AnsibleFilterError(f"drain_moves: the plan says {', '.join(taken)}; leave that out of the options.")
    try:
        share = [move for move in plan["moves"] if move["source"] == source]
        moves = [{"uuid": move["uuid"], "destination": move["destination"], **(options or {})} for move in share]
        return moves + _begun(plan, source, records)
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"drain_moves: this is not a drain's plan ({type(error).__name__}: {error}).") from error


def _begun(plan: Body, source: str, records: Sequence[Body]) -> list[dict[str, t.Any]]:
    """Return the moves that a run before this one has begun, and of which nothing is left on the source: the same task again settles their records."""
    away = {record["domain"]["uuid"]: record["destination"]["host"] for record in records if record["source"]["host"] == source}
    if not away:
        return []
    here = {entry["uuid"] for key in ("moves", "shutdowns", "unplaced") for entry in plan[key]}
    here |= {entry["uuid"] for entry in plan["skipped"] if entry["drain"] == LEAVE}
    return [{"uuid": uuid, "destination": destination} for uuid, destination in away.items() if uuid not in here]


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"drain_moves": drain_moves}
