# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Saves a host's domains in the ledger: reads the ledger, asks the host, judges, writes by compare and set; again for those that changed meanwhile."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.leases import is_kept
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import lockable

from .._ledger.store import Body, Ledger
from . import known as known_module
from .answer import Outcome, entry, shown
from .documents import CONFLICT, SAVED, SKIPPED, Judgement, judge, missing
from .known import Known
from .proof import proved, unproved

TRIES = 3

Ask = t.Callable[[t.Optional[list[str]]], Body]


@dataclass(frozen=True)
class Saving:
    """:arg here: the host as a place of records; without host_id in check mode, where it would get one now.

    :arg ask: asks the host for the domains of these UUIDs, or for all.
    :arg write: false in check mode.
    """

    ledger: t.Optional[Ledger]
    here: Body
    ask: Ask
    by: str
    write: bool

    def run(self) -> Outcome:
        """Return what became of every domain. A failure on the way says in its C(changed) whether some were written before."""
        outcome = Outcome()
        try:
            self._rounds(outcome)
        except KvmfleetError as error:
            error.result["changed"] = bool(self.write and outcome.saved)
            raise
        return outcome

    def _rounds(self, outcome: Outcome) -> None:
        pending: t.Optional[list[str]] = None
        for dummy in range(TRIES):
            known = known_module.read(self.ledger)
            answer = self.ask(pending)
            if pending is None:
                outcome.missing = [entry(body) for body in missing(known, self.here, _present(answer))]
                outcome.skipped += [{"uuid": uuid, "name": _name(known, uuid), "reason": "it is still moving to this host"} for uuid in answer["arriving"]]
                outcome.skipped += [{"uuid": one["uuid"], "name": one["name"], "reason": one["why"]} for one in answer["unreadable"]]
            late = [said for said in answer["domains"] if not self._settled(said, known, outcome)]
            pending = [said["uuid"] for said in late]
            if not late:
                return
        outcome.skipped += [
            {"uuid": said["uuid"], "name": said["name"], "reason": "its document is being changed by others; the next run saves it"} for said in late
        ]

    def _settled(self, said: Body, known: Known, outcome: Outcome) -> bool:
        """Judge one domain and write it; return false where another process wrote its document since it was read."""
        disks = proved(said["disks"], self.here["host_id"], known.hosts)
        said = {**said, "files": proved(said.get("files") or [], self.here["host_id"], known.hosts)}
        judgement = judge(said, known, self.here, disks, self.by)
        if judgement.kind == SAVED and self.write and self.ledger and not self._written(self.ledger, known, judgement):
            return False
        self._note(said, known, judgement, outcome)
        if judgement.body:
            for disk in filter(is_kept, disks):
                if lockable([disk]):
                    outcome.kept_locks.setdefault(str((disk.get("mount") or {}).get("store")), []).append(said["name"])
            own = next((host for host in known.hosts if host.get("host_id") == self.here["host_id"]), {})
            outcome.unproved += unproved({**said, "disks": disks}, self.here["host_id"], own)
        return True

    def _written(self, ledger: Ledger, known: Known, judgement: Judgement) -> bool:
        document = known.documents.get(judgement.body["uuid"])
        try:
            ledger.put_domain(judgement.body, document.version if document else None)
        except Conflict:
            return False
        return True

    def _note(self, said: Body, known: Known, judgement: Judgement, outcome: Outcome) -> None:
        uuid, name = said["uuid"], said["name"]
        if judgement.kind == CONFLICT:
            outcome.conflicts.append({"uuid": uuid, "name": name, "msg": judgement.why})
        elif judgement.kind == SKIPPED:
            outcome.skipped.append({"uuid": uuid, "name": name, "reason": judgement.why})
        elif judgement.kind == SAVED:
            outcome.saved.append({**entry(judgement.body), "changes": list(judgement.changed)})
            before = known.documents[uuid].body if uuid in known.documents else None
            outcome.before[name] = shown(before, judgement)
            outcome.after[name] = shown(judgement.body, judgement)
        else:
            outcome.unchanged.append(entry(judgement.body))


def _present(answer: Body) -> set[str]:
    return {one["uuid"] for one in [*answer["domains"], *answer["unreadable"]]} | set(answer["arriving"])


def _name(known: Known, uuid: str) -> str:
    return str(known.documents[uuid].body["name"]) if uuid in known.documents else uuid
