# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Following moves on their source host until each has ended, been settled, or lost its watcher."""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import record_in
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import SourceHost, State
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.turns import Turns
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.queue import TURN

# Between two polls, each of which waits on the host for news.
POLL_SECONDS = 0.2
UNREACHABLE_SECONDS = 120.0


class ControllerGone(SystemExit):
    """The process that runs the play has ended: this one must not act any more."""


class Follower:
    """Polls the state files of one run's moves, and mirrors them.

    :arg turns: of the moves that wait for theirs.
    :arg show: is given each state as it was read, for progress lines; of one that waits for its turn, with what it waits for.
    """

    def __init__(self, source: SourceHost, turns: Turns, run_id: str, show: t.Callable[[State], None], sleep: t.Callable[[float], None] = time.sleep) -> None:
        self._source = source
        self._turns = turns
        self._run_id = run_id
        self._show = show
        self._sleep = sleep
        self._parent = os.getppid()
        self._counter = 0
        self._answered_at = time.monotonic()

    def seen(self, watchers: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, t.Any] | None:
        """Return, by libvirt URI, what this run's watcher has found on the hosts of its moves when they had ended; None where it has not, or not alone."""
        ours = {uuid: watcher for uuid, watcher in watchers.items() if watcher["run_id"] == self._run_id}
        if not ours or len(ours) < len(watchers):
            return None
        if self._source.seen is None:
            self._poll(ours)
        return self._source.seen

    def follow(self, mirrors: dict[str, Mirror], watchers: dict[str, t.Mapping[str, t.Any]], lost: dict[str, KvmfleetError]) -> list[str]:
        """Return when every move is settled in the ledger or has lost its watcher; those that lost it are returned (domain UUIDs).

        :arg mirrors: domain UUID to the ledger's record of its move.
        :arg watchers: domain UUID to the watcher of its move; replaced by what its state file says.
        :arg lost: is given the error of each move whose record the ledger could not keep; the others are followed on.
        """
        orphans: list[str] = []
        open_moves = set(mirrors)
        while open_moves:
            self.stop_if_orphaned()
            self._turns.ask()
            states = self._poll({uuid: watchers[uuid] for uuid in sorted(open_moves)})
            if states is not None:
                open_moves -= {uuid for uuid in sorted(open_moves) if self._is_done(uuid, states.get(uuid), mirrors[uuid], watchers, orphans, lost)}
            if open_moves:
                self._sleep(POLL_SECONDS)
        return orphans

    def _is_done(
        self,
        uuid: str,
        state: State | None,
        mirror: Mirror,
        watchers: dict[str, t.Mapping[str, t.Any]],
        orphans: list[str],
        lost: dict[str, KvmfleetError],
    ) -> bool:
        try:
            return self._is_over(uuid, state, mirror, watchers, orphans)
        except KvmfleetError as error:
            lost[uuid] = self._not_kept(error, state, mirror)
            return True

    def _not_kept(self, error: KvmfleetError, state: State | None, mirror: Mirror) -> KvmfleetError:
        """Return the ledger's error with the move that it is about, and what becomes of that."""
        record = record_in(state) if state else mirror.record
        ends = f"{record['source']['host']} to {record['destination']['host']}"
        return type(error)(
            f"The ledger cannot keep the record of the move of domain {record['domain']['name']} from {ends}. Its watcher on {self._source.name} "
            f"goes on without it and says '{record['status']}'. {error.message}",
            " ".join(filter(None, [error.next_step, "Then run the same task again."])),
            migrations=[record],
        )

    def _is_over(self, uuid: str, state: State | None, mirror: Mirror, watchers: dict[str, t.Mapping[str, t.Any]], orphans: list[str]) -> bool:
        if state is None or state["id"] != mirror.record["id"]:
            # Another move of the domain has begun since, or the host was started anew: the ledger knows more than the file.
            mirror.refresh()
            if not mirror.is_settled:
                orphans.append(uuid)
            return True
        watchers[uuid] = state["watcher"]
        self._show({**state, TURN: mirror.record.get(TURN)})
        mirror.follow(state)
        if mirror.is_settled:
            return True
        if not state["alive"] and state["status"] not in s.FINAL:
            orphans.append(uuid)
            return True
        return False

    def _poll(self, watchers: dict[str, t.Mapping[str, t.Any]]) -> dict[str, State] | None:
        self._counter += 1
        try:
            states = self._source.poll(self._run_id, self._counter, watchers, self._turns.told)
        except Unreachable as error:
            if time.monotonic() - self._answered_at > UNREACHABLE_SECONDS:
                raise Unreachable(
                    f"{self._source.name} has not answered for {UNREACHABLE_SECONDS:.0f} s while {len(watchers)} moves were in flight. "
                    f"They are watched on that host and end by their own limits. {error.message}",
                    "Run the same task again when the host can be reached: it follows what is in flight and settles what has ended.",
                ) from error
            return None
        self._answered_at = time.monotonic()
        return states

    def stop_if_orphaned(self) -> None:
        """Raise L(ControllerGone) where the process that started this one has ended.

        Workers of ansible-core outlive a killed ansible-playbook; from then on a newer run may own the moves.
        """
        if os.getppid() != self._parent:
            raise ControllerGone(1)
