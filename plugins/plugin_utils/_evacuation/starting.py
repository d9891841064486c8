# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starting booked domains on their host and closing their records, the fence agent being asked again before each handful."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    KvmfleetError,
    MigrationFailed,
    NotSupported,
    Unreachable,
    Unsafe,
    error_for_code,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import restart as r
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body
from .._moves.follow import ControllerGone
from .evidence import Proofs
from .image_locks import Acceptance, is_fenced
from .job import Context, Job
from .renewal import Renewal

# An answer of the fence agent holds for 15 s: for so long starts are begun on it, the way to the host included.
GOOD_FOR_SECONDS = 10
# So long before a handful of starts is over, the source is knocked at for the next one: it is given up after 3 to 5 s.
_AHEAD_SECONDS = 4
# How often a host that was lost while it started domains is asked again before its records are left to the next run.
ASKED_AGAIN = 3
_PAUSE_SECONDS = 5.0
# How often in turn it may be too early for any start: a host that answered before is in the middle of one, and says nothing meanwhile.
IDLE_ROUNDS = 10
# With these the host's half ended before it touched anything.
_CERTAIN = (Forbidden, NotSupported, InvalidArgument, Conflict, Unsafe)


@dataclass
class Starting:
    """:arg ask: URIs of the hosts that answered, by name: none of them may have a domain active at its start.

    :arg host_id: of the host that starts them.
    :arg tokens: UUID to host ID and tokens of the host that the domain was saved on.
    :arg silent_at: when the source was found silent last, by the monotonic clock.
    """

    context: Context
    proofs: Proofs
    ask: Mapping[str, str]
    host_id: str
    tokens: Mapping[str, Body]
    silent_at: float = float("-inf")
    acceptance: Acceptance | None = None
    sleep: Callable[[float], None] = time.sleep
    silence: Renewal = field(init=False)

    def __post_init__(self) -> None:
        self.silence = Renewal(self.proofs.check_silence, self.silent_at)

    def carry_out(self, jobs: Sequence[Job]) -> None:
        """Start all of them; each has its record closed at the end, or its error."""
        try:
            self._carry_out(jobs)
        finally:
            self.silence.drop()

    def _carry_out(self, jobs: Sequence[Job]) -> None:
        rest, lost, idle = list(jobs), 0, 0
        elsewhere: Body | None = None
        while rest:
            try:
                self._prove()
            except KvmfleetError as error:
                # The host was told nothing in this round: whatever the error is, it is not about that host.
                self._not_started(rest, error, is_certain=True)
                return
            try:
                results, answer = self._start(rest, elsewhere)
                # After a round that came too late for any start, the other hosts' answers are used again, with a new proof that the source is off.
                is_idle = all(result["outcome"] == r.DEFERRED for result in results.values())
                idle, elsewhere = (idle + 1, answer["elsewhere"]) if is_idle else (0, None)
                if idle > IDLE_ROUNDS:
                    waits_for = " ".join(answer["waits_for"]) or "they answer too late."
                    raise Unsafe(f"Cannot verify what is running on other hosts: {waits_for}", "Run the task again.")
            except Unreachable as error:
                lost, elsewhere = lost + 1, None
                if lost > ASKED_AGAIN:
                    self._leave(rest, error)
                    return
                self.sleep(_PAUSE_SECONDS)
                # What was asked for may have been done: from now on the host is asked before it is told.
                for job in rest:
                    job.rejoin = True
                continue
            except KvmfleetError as error:
                self._not_started(rest, error, is_certain=isinstance(error, _CERTAIN))
                return
            for job in rest:
                self._settle(job, results[job.uuid])
            rest = [job for job in rest if results[job.uuid]["outcome"] == r.DEFERRED]

    def _prove(self) -> None:
        """Prove that the source is silent and off, for the starts that follow. Raises what speaks against that."""
        self.silence.insist()
        self.proofs.confirm()
        self.silence.begin(GOOD_FOR_SECONDS - _AHEAD_SECONDS)

    def settle(self, jobs: Sequence[Job]) -> None:
        """Close the records of what an earlier run has begun, by asking alone; nothing is started, and what is there unfinished is taken away."""
        results, _answer = self._start(jobs, None, settle_only=True)
        for job in jobs:
            self._settle(job, results[job.uuid])

    def _start(self, jobs: Sequence[Job], elsewhere: Body | None, settle_only: bool = False) -> tuple[dict[str, Body], Body]:
        """Return the results by UUID, and the host's whole answer: C(waits_for), which hosts have to answer before anything can be started, and C(elsewhere).

        :arg elsewhere: what the last round returned under that name, where it may be used again.
        """
        self._stop_if_orphaned()
        work = {
            "orders": [{**self._order(job), "settle_only": settle_only} for job in jobs],
            "parallel": self.context.wish.parallel,
            "good_for_seconds": GOOD_FOR_SECONDS,
            "ask": {} if settle_only else self.ask,
            "host_id": self.host_id,
            "elsewhere": elsewhere,
        }
        answer = self.context.phase("start", work)
        self._stop_if_orphaned()
        return {result["uuid"]: result for result in answer["results"]}, answer

    def _stop_if_orphaned(self) -> None:
        """Workers of ansible-core outlive a killed ansible-playbook; from then on a newer run may own the records."""
        if not self.context.in_parent():
            raise ControllerGone(1)

    def _order(self, job: Job) -> Body:
        saved, record = job.saved, t.cast("Body", job.record)
        return {
            "record": record["id"],
            "note": {**record, "ledger_id": self.context.ledger.ledger_id},
            "generation": record["generation"],
            "rejoin": job.rejoin,
            "uuid": job.uuid,
            "name": job.name,
            "definition": saved["definition"],
            "persistent": saved["persistent"],
            "autostart": bool(saved["autostart"]),
            "wanted": record["wanted_state"],
            "sources": [[disk["target"], disk["source"]] for disk in saved["request"].get("disks") or ()],
            "disks": job.disks,
            "files": job.files,
            "fresh": [file["path"] for file in job.fresh],
            "accepted_locks": self.acceptance.of(job) if self.acceptance and is_fenced(self.proofs.of_source) else [],
            "tokens": self.tokens[job.uuid],
        }

    def _settle(self, job: Job, result: Body) -> None:
        job.changed = job.changed or result["changed"]
        outcome, error = result["outcome"], _error_of(result)
        if outcome == r.DEFERRED:
            return
        if outcome == r.STARTED:
            how = {"shut off": "is defined"}.get(job.stored.record["wanted_state"], f"is {job.stored.record['wanted_state']}") if job.stored else ""
            self._write(job, s.DONE, f"It {how} on {self.context.here}.", result["generation"])
        elif outcome == r.FAILED:
            job.error = error
            self._write(job, s.FAILED, str(error), result["generation"])
        elif outcome == r.OVERTAKEN:
            self._look_again(job, error)
        else:
            job.error = error
            self._write(job, None, f"Not settled: {error}", result["generation"])

    def _write(self, job: Job, status: t.Optional[str], detail: str, generation: int) -> None:
        """Write the record, with its next status or a note; where another run was faster, its word counts."""
        stored = job.stored
        if stored is None:
            return
        record = schema.copied(stored.record)
        record["generation"] = max(record["generation"], generation)
        if status:
            schema.advance(record, status, self.context.by, detail)
        else:
            schema.note(record, "unsettled", self.context.by, detail)
        try:
            job.stored = self.context.ledger.update(stored, record)
        except Conflict as error:
            self._look_again(job, error)
        except KvmfleetError as error:
            job.error = error

    def _look_again(self, job: Job, error: KvmfleetError) -> None:
        """Take over what another run wrote."""
        if job.stored is None:
            return
        job.stored = self.context.ledger.get(job.stored.record["id"])
        job.error = None if job.stored.record["status"] in (s.DONE, s.COMPLETED) else error

    def _not_started(self, jobs: Sequence[Job], error: KvmfleetError, is_certain: bool) -> None:
        """Close the records of what was certainly not begun; the others stay as they are.

        :arg is_certain: nothing was begun in this round. Of a record that was C(pre-migrating) before this task, or before the host was lost, it says nothing.
        """
        for job in jobs:
            job.error = error
            if is_certain and not job.rejoin and job.stored:
                self._write(job, s.FAILED, f"Nothing was started: {error}", job.stored.record["generation"])

    def _leave(self, jobs: Sequence[Job], error: KvmfleetError) -> None:
        for job in jobs:
            job.error = Unreachable(
                f"Whether domain {job.name} was started on {self.context.here} is not known: {error.message}",
                f"Its record stays 'pre-migrating', and nobody else may start it. Run the task on {self.context.here} again: it asks.",
            )


def _error_of(result: Body) -> KvmfleetError:
    cls = error_for_code(result["error_code"]) if result["error_code"] else MigrationFailed
    return cls(result["msg"])
