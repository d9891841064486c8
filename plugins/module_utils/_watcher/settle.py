# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Finding out where the guest is when a move has ended, and the few acts that the answer may ask for."""

from __future__ import annotations

import dataclasses
import typing as t

from .._errors import Aborted, KvmfleetError
from .._migration import hypervisor as h
from .._migration import outcome
from .._records import statuses as s
from .._records.schema import did
from .._storage.ports import StorageHost
from .._storage.targets import has_made, remove_targets
from .journal import MIGRATE_ACT, Journal
from .pilot import ABORT_PREFIX, SUSPEND_ACT
from .unanswered import DESTINATION, SOURCE, Unanswered

# Libvirt removes what it was receiving within 30 s of a cut connection.
WAIT_SECONDS = 45.0
POLL_SECONDS = 0.25
# The event with the source's figures comes on another connection than the call that ended.
_EVENT_ATTEMPTS = 8

REASON_POST_COPY = "post_copy_failed"

# Opens a host. The argument is how many seconds connecting may take.
Opener = t.Callable[[float], h.Host]
Readings = t.Tuple[h.GuestView, h.GuestView]


class Settlement:
    """Asks source, destination, and the source again, until the answers agree and say something; then writes the outcome."""

    def __init__(
        self,
        source: Opener,
        destination: Opener,
        journal: Journal,
        figures: t.Callable[[], t.Optional[h.JobStats]],
        clock: t.Callable[[], float],
        sleep: t.Callable[[float], None],
    ) -> None:
        self._open = {SOURCE: source, DESTINATION: destination}
        self._hosts: t.Dict[str, h.Host] = {}
        self._journal = journal
        self._figures = figures
        self._clock = clock
        self._sleep = sleep
        self._unanswered = Unanswered(journal, clock, sleep)
        record = journal.record
        self._uuid: str = record["domain"]["uuid"]
        self._move = outcome.Move(
            was_paused=record["before"].get("state") == h.PAUSED,
            post_copy=any(line["status"] == s.RUNNING_POST_COPY for line in record["history"]),
            paused_by_us=did(record, SUSPEND_ACT),
            job_started=did(record, MIGRATE_ACT) or record["status"] in (s.RUNNING, s.RUNNING_POST_COPY, s.ERROR),
        )

    def settle(self, error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int], silent_seconds: float = 0.0) -> bool:
        """Write the record's last status. C(error) is what the migrate call raised, if it did: it never decides where the guest is.

        :arg silent_seconds: for how long the source had been silent when the following of the move ended.

        A silent host is asked for minutes (L(Unanswered)). Answers that do not say where the guest is are waited out for C(WAIT_SECONDS), counted from the
        last time a host was silent. Returns false, and writes nothing, where post-copy has to be recovered first.
        """
        self._unanswered = Unanswered(self._journal, self._clock, self._sleep, silent_seconds)
        try:
            return self._settle(error, elapsed_ms)
        finally:
            self._close()

    def _settle(self, error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int]) -> bool:
        deadline = self._clock() + WAIT_SECONDS
        confirmed: t.Optional[t.Tuple[str, Readings]] = None
        while True:
            readings = self._read()
            if readings and outcome.runs(readings[1]):
                # Also if it is gone at the next reading: what it wrote since must not meet its older memory on the source.
                self._move = dataclasses.replace(self._move, ran_there=True)
            verdict = outcome.judge(*readings, self._move) if readings else outcome.Verdict(outcome.WAIT, otherwise=outcome.REASON_UNCLEAR)
            if readings and verdict.reason == outcome.REASON_UNREACHABLE and self._unanswered.wait(*readings, self._move):
                deadline, confirmed = self._clock() + WAIT_SECONDS, None
                continue
            self._unanswered.ended()
            if self._finish(verdict, readings, error, elapsed_ms):
                return True
            if verdict.act == outcome.RECOVER:
                return False
            if verdict.act in (outcome.DESTROY_SOURCE, outcome.RESUME_SOURCE) and readings:
                if confirmed == (verdict.act, readings):
                    self._do(verdict.act)
                confirmed = (verdict.act, readings)
            if verdict.reason == outcome.REASON_UNREACHABLE or self._clock() >= deadline:
                self._give_up(verdict, readings)
                return True
            self._sleep(POLL_SECONDS)

    def give_up(self, why: str) -> None:
        """Write that post-copy could not be recovered. Both copies are left as they are."""
        self._journal.advance(s.ERROR, f"{why} Neither copy was touched.", REASON_POST_COPY)

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self) -> t.Optional[Readings]:
        """Return what both hosts say; null where the source's second answer differs from its first."""
        before = self._view("source")
        destination = self._view("destination")
        return (before, destination) if self._view("source") == before else None

    def _view(self, side: str) -> h.GuestView:
        try:
            return self._host(side).view(self._uuid)
        except KvmfleetError as error:
            # An answer that cannot be read is none.
            self._unanswered.failed(side, error)
            lost = self._hosts.pop(side, None)
            if lost is not None:
                lost.close()
            return h.NO_ANSWER

    def _host(self, side: str) -> h.Host:
        if side not in self._hosts:
            self._hosts[side] = self._open[side](self._unanswered.open_seconds(side))
        return self._hosts[side]

    # -- ends ----------------------------------------------------------------------------------------------------

    def _finish(self, verdict: outcome.Verdict, readings: t.Optional[Readings], error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int]) -> bool:
        if readings is None:
            return False
        if verdict.act == outcome.COMPLETED:
            self._completed(readings, elapsed_ms)
        elif verdict.act == outcome.NOT_MOVED:
            self._not_moved(readings, error, elapsed_ms)
        elif verdict.act == outcome.ERROR and verdict.reason != outcome.REASON_UNREACHABLE:
            self._error(verdict.reason, readings)
        else:
            return False
        return True

    def _completed(self, readings: Readings, elapsed_ms: t.Optional[int]) -> None:
        source, destination = readings
        kept = source.present and not self._try("undefine_source", lambda: self._host("source").undefine(self._uuid))
        left = "definition_left" if kept else None
        if self._journal.record["before"].get("autostart"):
            self._try("autostart_destination", lambda: self._host("destination").set_autostart(self._uuid, True))
        self._journal.completed(self._completed_job(), elapsed_ms, f"{destination.describe()} on the destination, {source.describe()} on the source.", left)

    def _completed_job(self) -> t.Optional[h.JobStats]:
        """Return the figures of the end: the source's own where it told them, for after post-copy only the source has any."""
        try:
            for _attempt in range(_EVENT_ATTEMPTS if self._move.post_copy else 1):
                stats = self._figures()
                if stats is not None:
                    return stats
                self._sleep(POLL_SECONDS)
            return self._host("destination").completed_job(self._uuid)
        except KvmfleetError as error:
            self._journal.note("figures_lost", str(error))
            return None

    def _not_moved(self, readings: Readings, error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int]) -> None:
        source, destination = readings
        self._journal.record["result"]["elapsed_ms"] = elapsed_ms
        if destination.present and not self._journal.record["before"].get("at_destination", True):
            self._try("undefine_destination", lambda: self._host("destination").undefine(self._uuid))
        if has_made(self._journal.record):
            self._try("remove_targets", self._remove_targets)
        self._restore_downtime(source)
        cause = f"{error.message} " if error else ""
        detail = f"{cause}The guest is {source.describe()} on the source, {destination.describe()} on the destination."
        reason = self._cancel_reason(error)
        if did(self._journal.record, ABORT_PREFIX + s.REASON_OPERATOR):
            self._journal.note("abort_end", f"The guest is {source.describe()} on the source.")
        if reason:
            self._journal.advance(s.CANCELLED, detail, reason)
        else:
            self._journal.advance(s.FAILED, detail)

    def _remove_targets(self) -> None:
        remove_targets(self._journal.record, t.cast(StorageHost, self._host("destination")))

    def _restore_downtime(self, source: h.GuestView) -> None:
        """Give the domain back the downtime of its own: libvirt restores only what it was when the job began, and that was the ramp's first step."""
        milliseconds = self._journal.record["before"].get("max_downtime_ms")
        if not source.active or milliseconds is None:
            return
        try:
            self._host("source").set_max_downtime_ms(self._uuid, milliseconds)
        except KvmfleetError as error:
            self._journal.note("downtime_not_restored", str(error))

    def _cancel_reason(self, error: t.Optional[KvmfleetError]) -> t.Optional[str]:
        acts: t.List[str] = [entry["act"] for entry in self._journal.record["acts"]]
        ours = [act[len(ABORT_PREFIX) :] for act in acts if act.startswith(ABORT_PREFIX)]
        if ours:
            return ours[-1]
        if not self._move.job_started and error is None:
            return s.REASON_CONTROLLER_LOST
        # Somebody cancelled the job through libvirt: nobody but a person does that.
        return s.REASON_OPERATOR if isinstance(error, Aborted) else None

    def _error(self, reason: t.Optional[str], readings: t.Optional[Readings]) -> None:
        if readings:
            source, destination = readings
            detail = f"The guest is {source.describe()} on the source, {destination.describe()} on the destination. Nothing was touched."
            detail += self._unanswered.explain(source, destination)
        else:
            detail = "The source's answers kept changing. Nothing was touched."
        self._journal.advance(s.ERROR, detail, reason)

    def _give_up(self, verdict: outcome.Verdict, readings: t.Optional[Readings]) -> None:
        self._error(verdict.otherwise or verdict.reason or outcome.REASON_UNCLEAR, readings)

    # -- acts ----------------------------------------------------------------------------------------------------

    def _do(self, act: str) -> None:
        if act == outcome.DESTROY_SOURCE:
            self._try("destroy_source", lambda: self._host("source").destroy(self._uuid))
        else:
            self._try("resume_source", lambda: self._host("source").resume(self._uuid))

    def _try(self, act: str, call: t.Callable[[], None]) -> bool:
        """Write the act down, then do it; what fails is noted, and the next reading shows what it left."""
        self._journal.intend(act)
        try:
            call()
        except KvmfleetError as error:
            self._journal.note(f"{act}_failed", str(error))
            return False
        return True

    def _close(self) -> None:
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()
