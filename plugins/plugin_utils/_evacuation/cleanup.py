# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(evacuation_cleanup): what the records say is asked of the host, done there, and written only when it was verified."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup import ALARM, REFUSE, SUPERSEDED
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._hosts.places import lock_of
from .._ledger.rules import describe
from .._ledger.store import Body, Ledger
from .._memory.missing import sentence, sentence_on_copy
from .cleanup_retention import judge_retention
from .cleanup_tombstones import Tombstone, ending, question, tombstones, unfinished

DELETE = "delete"
REASON_SUPERSEDED = "superseded"
_STOP = "Find out at once which copy is the right one, and stop the other; until then nothing of any domain is removed here."

Phase = t.Callable[[str, Body], Body]


class DoubleRunAlarm(Unsafe):
    """A domain runs on the host from which it was evacuated."""


@dataclass
class Outcome:
    """What became of the domains, as the module returns it."""

    cleaned: list[Body] = field(default_factory=list)
    kept: list[Body] = field(default_factory=list)
    refused: list[Body] = field(default_factory=list)
    superseded: list[Body] = field(default_factory=list)
    deleted: list[Body] = field(default_factory=list)
    missing_records: list[Body] = field(default_factory=list)

    def as_result(self) -> Body:
        """Return the lists, and whether any of them says of a change."""
        return {**self.__dict__, "changed": bool(self.cleaned or self.superseded or self.deleted)}


@dataclass(frozen=True)
class Cleanup:
    """:arg here: the host as a place of records; its C(host_id) is the one that was read from its own file.

    :arg phase: runs a phase on the host.
    :arg uris: name of each other host of the fleet to its libvirt URI.
    :arg storage: C(quarantine), C(keep) or C(delete).
    :arg check: to change nothing.
    :arg missing: what hosts remember and the ledger does not, see L(missing_records).
    :arg left: evacuations from here among that, also where the ledger has found the domain by itself since, see L(left_behind).
    """

    ledger: Ledger
    here: Body
    phase: Phase
    uris: t.Mapping[str, str]
    storage: str
    retention_days: int
    by: str
    check: bool
    missing: Sequence[Body] = ()
    left: Sequence[Body] = ()

    def run(self) -> Outcome:
        """Return what became of each domain. Raises L(DoubleRunAlarm) for a domain that runs here although it was evacuated: then nothing more is touched."""
        outcome = Outcome(missing_records=list(self.missing))
        try:
            self._run(outcome)
        except KvmfleetError as error:
            error.result.update(outcome.as_result())
            raise
        return outcome

    def _run(self, outcome: Outcome) -> None:
        found = tombstones(self.ledger, self.here["host_id"])
        waiting = [tombstone for tombstone in found if not self._is_busy(tombstone, outcome) and not self._is_outdated(tombstone, outcome)]
        told = {tombstone.uuid for tombstone in found}
        for begun in [begun for begun in unfinished(self.ledger, self.here["host_id"]) if begun.uuid not in told]:
            self._is_busy(begun, outcome)
        lost = [Tombstone(one) for one in self.left if one["domain"]["uuid"] not in told]
        plans = self._survey([*waiting, *lost])
        self._leave_lost(lost, plans, outcome)
        self._raise_alarm([plans[tombstone.record["id"]] for tombstone in waiting if plans[tombstone.record["id"]]["kind"] == ALARM])
        if self.storage == DELETE:
            self._expire(outcome)
        for tombstone in waiting:
            plan = plans[tombstone.record["id"]]
            if plan["kind"] == REFUSE:
                self._refuse(tombstone, plan["reason"], outcome)
            elif self.check:
                _predict(tombstone, plan, self.storage, outcome)
            else:
                self._act(tombstone, outcome)

    def _is_busy(self, tombstone: Tombstone, outcome: Outcome) -> bool:
        unsettled = self.ledger.unsettled_of(tombstone.uuid)
        if unsettled is not None:
            self._refuse(tombstone, f"{describe(unsettled.record)} is not settled ('{unsettled.record['status']}')", outcome)
        return unsettled is not None

    def _is_outdated(self, tombstone: Tombstone, outcome: Outcome) -> bool:
        """Whether hosts know of something newer than the tombstone, which is no truth then."""
        newer = next((one for one in self.missing if one["domain"]["uuid"] == tombstone.uuid), None)
        if newer is not None:
            self._refuse(tombstone, sentence(newer), outcome)
        return newer is not None

    def _leave_lost(self, lost: list[Tombstone], plans: Mapping[str, Body], outcome: Outcome) -> None:
        """Tell of evacuations from here that the ledger has lost, as long as a person has something to do about them."""
        missing = {one["id"] for one in self.missing}
        for tombstone in lost:
            record, plan = tombstone.record, plans[tombstone.record["id"]]
            if record["id"] in missing:
                told = sentence(record)
            elif plan["present"]:
                told = sentence_on_copy(record)
                outcome.missing_records.append(record)
            else:
                continue
            outcome.refused.append({**tombstone.said(), "reason": f"{plan['reason']}. {told}" if plan["kind"] == ALARM else told})

    def _refuse(self, tombstone: Tombstone, reason: str, outcome: Outcome) -> None:
        outcome.refused.append({**tombstone.said(), "reason": reason})
        self.ledger.witness.tell(tombstone.record, "cleanup.refused", self.by, reason)

    def _survey(self, waiting: list[Tombstone]) -> dict[str, Body]:
        if not waiting:
            return {}
        asked = [question(tombstone, self.ledger, self.here) for tombstone in waiting]
        answer = self.phase("survey", {"host_id": self.here["host_id"], "uris": dict(self.uris), "domains": asked})
        return {plan["record"]: plan for plan in answer["plans"]}

    def _raise_alarm(self, plans: list[Body]) -> None:
        if plans:
            for plan in plans:
                self.ledger.witness.tell(self.ledger.get(plan["record"]).record, "cleanup.refused", self.by, plan["reason"])
            told = " ".join(f"Domain {plan['name']} ({plan['uuid']}): {plan['reason']}." for plan in plans)
            raise DoubleRunAlarm(f"{told} Nothing was touched on {self.here['host']}.", _STOP)

    def _expire(self, outcome: Outcome) -> None:
        """Delete what was put aside long enough ago by the records; the host's clock is not asked."""
        told = self.phase("quarantined", {"host_id": self.here["host_id"]})
        due, kept = judge_retention(told["quarantined"], self.ledger, self.here["host_id"], self.retention_days)
        kept += told["kept"]
        if due:
            answer = self.phase("expire", {"host_id": self.here["host_id"], "due": due, "check": self.check})
            outcome.deleted += answer["deleted"]
            kept += answer["kept"]
        outcome.kept += [{"uuid": None, "name": None, "target": None, "path": None, "only_copy": True, **entry} for entry in kept]

    def _act(self, tombstone: Tombstone, outcome: Outcome) -> None:
        """Clean one domain while no move can be booked towards this host; what one domain fails with stops no other one."""
        try:
            with self.ledger.locked(lock_of(self.here)):
                if self._is_still_open(tombstone) and not self._is_busy(tombstone, outcome):
                    self._clean(tombstone, outcome)
        except DoubleRunAlarm:
            raise
        except KvmfleetError as error:
            self.ledger.witness.tell(tombstone.record, "cleanup.failed", self.by, str(error))
            if isinstance(error, Unreachable):
                raise
            outcome.refused.append({**tombstone.said(), "reason": str(error)})

    def _is_still_open(self, tombstone: Tombstone) -> bool:
        """A second task that cleans the same host may have been faster: what it did is not ours to tell."""
        return bool(self.ledger.get(tombstone.record["id"]).record["status"] == tombstone.record["status"])

    def _clean(self, tombstone: Tombstone, outcome: Outcome) -> None:
        asked = question(tombstone, self.ledger, self.here)
        self.ledger.witness.tell(tombstone.record, "cleanup.started", self.by)
        answer = self.phase("clean", {"host_id": self.here["host_id"], "uris": dict(self.uris), "domains": [asked], "storage": self.storage})
        plan = answer["plan"]
        if plan["kind"] == ALARM:
            self._raise_alarm([plan])
        elif plan["kind"] == REFUSE:
            self._refuse(tombstone, plan["reason"], outcome)
        elif plan["kind"] == SUPERSEDED:
            # One that was given up says that the domain is not here: that is left to a person.
            came_back = [record for record in (tombstone.record, *tombstone.older) if record["status"] == s.DONE]
            self._complete(came_back, plan["reason"], REASON_SUPERSEDED)
            outcome.superseded.append({**tombstone.said(), "reason": plan["reason"]})
        else:
            self._complete([tombstone.record], _detail(answer["done"], plan), None)
            self._complete(tombstone.older, f"the record {tombstone.record['id']} is newer, and was cleaned", REASON_SUPERSEDED)
            _tell(tombstone, plan, answer["done"], outcome)

    def _complete(self, records: list[Body], detail: str, reason: t.Optional[str]) -> None:
        for record in records:
            stored = self.ledger.get(record["id"])
            changed = schema.copied(stored.record)
            schema.advance(changed, ending(changed), self.by, detail, reason)
            self.ledger.update(stored, changed)


def _detail(done: Body, plan: Body) -> str:
    acts = ["undefined here" if done["undefined"] else "it was not defined here"]
    acts += [f"{len(done['quarantined'])} files put aside"] if done["quarantined"] else []
    acts += [f"{len(done['kept'])} disks kept"] if done["kept"] else []
    return f"The domain is on {plan['where']}. Cleanup of its source: {', '.join(acts)}."


def _tell(tombstone: Tombstone, plan: Body, done: Body, outcome: Outcome) -> None:
    said = {key: plan[key] for key in ("where", "nvram", "tpm")}
    told = {key: done[key] for key in ("undefined", "quarantined", "restore")}
    outcome.cleaned.append({**tombstone.said(), **said, **told, "superseded": [record["id"] for record in tombstone.older]})
    outcome.kept += [{**tombstone.said(), **disk} for disk in done["kept"]]


def _predict(tombstone: Tombstone, plan: Body, storage: str, outcome: Outcome) -> None:
    """Say what L(Cleanup) would do; where files would be put, and the command to restore them, are known only then."""
    if plan["kind"] == SUPERSEDED:
        outcome.superseded.append({**tombstone.said(), "reason": plan["reason"]})
        return
    moving = [disk for disk in plan["disks"] if disk["quarantine"] and storage != "keep"]
    files = [{"target": disk["target"], "path": disk["path"], "quarantine": None} for disk in moving]
    files += [{"target": None, "path": plan["managed_save"], "quarantine": None}] if plan["managed_save"] else []
    staying = [disk for disk in plan["disks"] if disk not in moving]
    kept = [{**{key: disk[key] for key in ("target", "path", "only_copy")}, "reason": disk["reason"] or "storage is 'keep'"} for disk in staying]
    _tell(tombstone, plan, {"undefined": plan["present"], "quarantined": files, "restore": None, "kept": kept}, outcome)
