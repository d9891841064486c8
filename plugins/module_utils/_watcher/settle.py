# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Determines where the guest is after a move has ended, and carries out the few acts that this may require."""

from __future__ import annotations

import dataclasses
import typing as t

from .._libvirt.interface import Host
from .._migration import outcome
from .._model import domain_states
from .._model import statuses as s
from .._model.codec import ABSENT, Absent
from .._model.errors import Aborted, KvmfleetError, Unreachable
from .._model.records import MoveRecord
from .._model.references import HostRef
from .backups import redefine_checkpoints
from .calls import has_made, remove_targets
from .journal import ABORT_PREFIX, ARRIVED_NOTE, MIGRATE_ACT, SUSPEND_ACT, Journal
from .silent_hosts import DESTINATION, SOURCE, SilentHosts

# Libvirt removes what it was receiving within 30 s of a cut connection.
WAIT_SECONDS = 45.0
POLL_SECONDS = 0.25
# The event with the source's figures comes on another connection than the call that ended.
_EVENT_ATTEMPTS = 8

REASON_POST_COPY = "post_copy_failed"
_MAY_HAVE_RUN = (
    " The guest may have run on the destination. Its disks are then newer than its memory on the source. Look into its log on the destination (its console, "
    "/var/log/libvirt/qemu): if it ran there, destroy the copy on the source, and start the domain on the destination; otherwise resume the copy on the source "
    "(virsh resume). Then run the task again."
)
_MAY_HAVE_BEGUN = (
    " No job of the move is known, and the source does not show that the guest was stopped. If the source was booted since the move was queued, the state of "
    "the move is lost, and its job may have begun. If the destination has the domain, look into its log there (/var/log/libvirt/qemu) before you start the "
    "guest on either host."
)
CHECKPOINTS_ACT = "redefine_checkpoints"


def has_job_begun(record: MoveRecord) -> bool:
    """Whether the job of that move was requested, as far as its record can tell."""
    return record.has_begun(MIGRATE_ACT) or record.status in (s.RUNNING, s.RUNNING_POST_COPY, s.ERROR)


# Opens a host. The argument is how many seconds connecting may take.
Opener = t.Callable[[float], Host]
Readings = t.Tuple[domain_states.DomainView, domain_states.DomainView]


class Settlement:
    """Queries source, destination, and the source again until the answers agree and are conclusive; then writes the outcome."""

    def __init__(
        self,
        source: Opener,
        destination: Opener,
        journal: Journal,
        figures: t.Callable[[], t.Optional[domain_states.JobStats]],
        clock: t.Callable[[], float],
        sleep: t.Callable[[float], None],
    ) -> None:
        self._open = {SOURCE: source, DESTINATION: destination}
        self._hosts: t.Dict[str, Host] = {}
        self._is_identified = False
        self._journal = journal
        self._figures = figures
        self._clock = clock
        self._sleep = sleep
        self._unanswered = SilentHosts(journal, clock, sleep)
        record = journal.record
        self._uuid = record.domain.uuid
        self._move = outcome.MoveState(
            was_paused=record.before.state == domain_states.PAUSED,
            post_copy=record.has_status(s.RUNNING_POST_COPY),
            ran_there=record.has_status(ARRIVED_NOTE),
            paused_by_us=record.has_begun(SUSPEND_ACT),
            job_started=has_job_begun(record),
            was_at_destination=self._was_at_destination,
        )

    def settle_move(self, error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int], silent_seconds: float = 0.0) -> bool:
        """Write the record's last status. C(error) is what the migrate call raised, if it did: it does not prove where the guest is.

        :arg silent_seconds: for how long the source had been silent when the following of the move ended.

        A silent host is queried for minutes (L(SilentHosts)). If the answers do not show where the guest is, the queries are repeated for C(WAIT_SECONDS),
        counted from the last time a host was silent. Returns false, and writes nothing, if post-copy has to be recovered first.
        """
        self._unanswered = SilentHosts(self._journal, self._clock, self._sleep, silent_seconds)
        self._move = dataclasses.replace(self._move, leaves_nothing=error is None and self._journal.record.before.persistent is False)
        try:
            return self._ask_until_settled(error, elapsed_ms)
        finally:
            self._close_hosts()

    def _ask_until_settled(self, error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int]) -> bool:
        deadline = self._clock() + WAIT_SECONDS
        confirmed: t.Optional[t.Tuple[str, Readings]] = None
        while True:
            readings = self._read_hosts()
            if readings and outcome.is_running(readings[1]):
                # Also if the guest is gone at the next query: its newer writes must not be combined with its older memory on the source.
                self._move = dataclasses.replace(self._move, ran_there=True)
            verdict = outcome.judge_outcome(*readings, self._move) if readings else outcome.Verdict(outcome.WAIT, otherwise=outcome.REASON_UNCLEAR)
            if verdict.act != outcome.COMPLETED:
                self._remember_arrival()
            if readings and verdict.reason == outcome.REASON_UNREACHABLE and self._unanswered.wait_for_answer(*readings, self._move):
                deadline, confirmed = self._clock() + WAIT_SECONDS, None
                continue
            self._unanswered.end_wait()
            if self._finish_move(verdict, readings, error, elapsed_ms):
                return True
            if verdict.act == outcome.RECOVER:
                return False
            if verdict.act in (outcome.DESTROY_SOURCE, outcome.RESUME_SOURCE) and readings:
                if confirmed == (verdict.act, readings):
                    self._do_act(verdict.act)
                confirmed = (verdict.act, readings)
            if verdict.reason == outcome.REASON_UNREACHABLE or self._clock() >= deadline:
                self._give_up(verdict, readings)
                return True
            self._sleep(POLL_SECONDS)

    def _remember_arrival(self) -> None:
        """Note that the guest ran at its destination: a later settlement may find it off there."""
        if self._move.ran_there and not self._move.post_copy and not self._journal.record.has_status(ARRIVED_NOTE):
            self._journal.note_event(ARRIVED_NOTE)

    def give_up(self, why: str) -> None:
        """Write that post-copy could not be recovered. Both copies are left as they are."""
        self._journal.advance_status(s.ERROR, f"{why} Neither copy was touched.", REASON_POST_COPY)

    # -- reading -------------------------------------------------------------------------------------------------

    def _read_hosts(self) -> t.Optional[Readings]:
        """Return the answers of both hosts; null if the source's second answer differs from its first."""
        before = self._view_domain("source")
        destination = self._view_domain("destination")
        if self._move.job_started and before.answered and not (destination.active or outcome.is_running_as_before(before, self._move)):
            destination = self._require_destination(destination)
        return (before, destination) if self._view_domain("source") == before else None

    def _require_destination(self, view: domain_states.DomainView) -> domain_states.DomainView:
        """Return the view, or none if another host has the address of the destination, or its system was installed anew: what that lacks may run elsewhere."""
        end = self._journal.record.destination
        known = end.host_id or end.host_uuid
        if not (view.answered and known) or self._is_identified:
            return view
        try:
            host = self._connect_host(DESTINATION)
            # A host whose libvirt has no storage driver cannot show its ID.
            shown = HostRef(None, host.host_id(), host.host_uuid())
            if not end.is_same(shown):
                raise Unreachable(
                    f"What answers as {end.label} is not the host to which the domain was moved: its ID is {shown.label}, not {known}. If that host no longer "
                    "exists, find out where the guest is, and settle the record with kvmfleet.migration.host."
                )
        except KvmfleetError as error:
            self._forget_host(DESTINATION, error)
            return domain_states.NO_ANSWER
        self._is_identified = True
        return view

    def _view_domain(self, side: str) -> domain_states.DomainView:
        try:
            return self._connect_host(side).view_domain(self._uuid)
        except KvmfleetError as error:
            # An unreadable answer counts as none.
            self._forget_host(side, error)
            return domain_states.NO_ANSWER

    def _forget_host(self, side: str, error: KvmfleetError) -> None:
        self._unanswered.note_failure(side, error)
        lost = self._hosts.pop(side, None)
        self._is_identified = self._is_identified and side != DESTINATION
        if lost is not None:
            lost.close()

    def _connect_host(self, side: str) -> Host:
        if side not in self._hosts:
            self._hosts[side] = self._open[side](self._unanswered.open_seconds(side))
        return self._hosts[side]

    # -- ends ----------------------------------------------------------------------------------------------------

    def _finish_move(self, verdict: outcome.Verdict, readings: t.Optional[Readings], error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int]) -> bool:
        if readings is None:
            return False
        if verdict.act == outcome.COMPLETED:
            return self._complete_move(readings, elapsed_ms)
        if verdict.act == outcome.NOT_MOVED:
            self._write_not_moved(readings, error, elapsed_ms)
        elif verdict.act == outcome.ERROR and verdict.reason != outcome.REASON_UNREACHABLE:
            self._write_error(verdict.reason, readings, _MAY_HAVE_RUN if verdict.reason == outcome.REASON_UNCLEAR else "")
        else:
            return False
        return True

    def _complete_move(self, readings: Readings, elapsed_ms: t.Optional[int]) -> bool:
        """Bring what belongs to the guest to its destination and write the end; return false if the destination is silent in the meantime.

        Checkpoints come before the source's definition is removed. Everything can be repeated by another process.
        """
        source, destination = readings
        try:
            is_lost = not self._redefine_checkpoints()
        except Unreachable as error:
            self._forget_host(DESTINATION, error)
            return False
        kept = source.present and not self._try_act("undefine_source", lambda: self._connect_host("source").undefine_domain(self._uuid))
        before = self._journal.record.before
        # libvirt keeps the mark of a definition that the destination had before. One that was not there before is a person's.
        is_kept = before.autostart is False and before.persistent is True and before.autostart_at_destination is True
        if before.autostart or is_kept:
            self._try_act("autostart_destination", lambda: self._connect_host("destination").set_autostart(self._uuid, bool(before.autostart)))
        reason = s.REASON_DEFINITION_LEFT if kept else s.REASON_CHECKPOINTS_LOST if is_lost else None
        self._journal.write_completed(
            self._read_completed_job(), elapsed_ms, f"{destination.describe()} on the destination, {source.describe()} on the source.", reason
        )
        return True

    def _redefine_checkpoints(self) -> bool:
        """Define the checkpoints of the guest at its destination, where libvirt compares them with the images. Return whether all of them can be used."""
        checkpoints = self._journal.record.before.checkpoints or ()
        if not checkpoints:
            return True
        try:
            self._journal.intend_act(CHECKPOINTS_ACT, ", ".join(one.name for one in checkpoints))
            redefine_checkpoints(self._connect_host(DESTINATION), self._uuid, checkpoints)
        except Unreachable:
            raise
        except KvmfleetError as error:
            self._journal.note_event(f"{CHECKPOINTS_ACT}_failed", str(error))
            return False
        return True

    def _read_completed_job(self) -> t.Optional[domain_states.JobStats]:
        """Return the figures of the end: those of the source if it has them, because after post-copy only the source does."""
        try:
            for _attempt in range(_EVENT_ATTEMPTS if self._move.post_copy else 1):
                stats = self._figures()
                if stats is not None:
                    return stats
                self._sleep(POLL_SECONDS)
            return self._connect_host("destination").completed_job(self._uuid)
        except KvmfleetError as error:
            self._journal.note_event("figures_lost", str(error))
            return None

    def _write_not_moved(self, readings: Readings, error: t.Optional[KvmfleetError], elapsed_ms: t.Optional[int]) -> None:
        source, destination = readings
        self._journal.keep_elapsed(elapsed_ms)
        if not self._move.ran_there:
            self._remove_copy(destination)
        if source.active:
            self._restore_limits()
        cause = f"{error.message} " if error else ""
        detail = f"{cause}The guest is {source.describe()} on the source, {destination.describe()} on the destination."
        detail += " It ran there, so nothing was removed from the destination." if self._move.ran_there else ""
        if error is None and not (self._move.job_started or source.active or source.reason in domain_states.STOPPED_REASONS):
            detail += _MAY_HAVE_BEGUN
        reason = self._cancel_reason(error)
        if self._journal.record.has_begun(ABORT_PREFIX + s.REASON_OPERATOR):
            self._journal.note_event(s.ABORT_END, f"The guest is {source.describe()} on the source.")
        if reason:
            self._journal.advance_status(s.CANCELLED, detail, reason)
        else:
            self._journal.advance_status(s.FAILED, detail)

    def _remove_copy(self, destination: domain_states.DomainView) -> None:
        """Remove what the move has left at a destination where the guest never ran."""
        if destination.present and not self._was_at_destination:
            self._try_act("undefine_destination", lambda: self._connect_host("destination").undefine_if_inactive(self._uuid))
        if has_made(self._journal.record):
            self._try_act("remove_targets", self._remove_targets)

    @property
    def _was_at_destination(self) -> bool:
        """Whether the destination had a definition before the move; if that is not known, it is assumed to have had one."""
        known = self._journal.record.before.at_destination
        return True if known is ABSENT else bool(known)

    def _remove_targets(self) -> None:
        remove_targets(self._journal, self._connect_host("destination"))

    def _restore_limits(self) -> None:
        """Restore the domain's own downtime and bandwidth: libvirt keeps the last values for the next migration of a domain that runs on."""
        before = self._journal.record.before
        self._restore_limit("downtime", before.max_downtime_ms, lambda value: self._connect_host("source").set_max_downtime_ms(self._uuid, value))
        self._restore_limit("bandwidth", before.bandwidth_mib, lambda value: self._connect_host("source").set_bandwidth_mib(self._uuid, value))

    def _restore_limit(self, name: str, value: t.Union[int, Absent, None], restore: t.Callable[[int], None]) -> None:
        if not isinstance(value, int):
            return
        try:
            restore(value)
        except KvmfleetError as error:
            self._journal.note_event(f"{name}_not_restored", str(error))

    def _cancel_reason(self, error: t.Optional[KvmfleetError]) -> t.Optional[str]:
        ours = self._journal.record.reasons_of(ABORT_PREFIX)
        if ours:
            return ours[-1]
        if not self._move.job_started and error is None:
            return s.REASON_CONTROLLER_LOST
        # The job was cancelled through libvirt: only a person does that.
        return s.REASON_OPERATOR if isinstance(error, Aborted) else None

    def _write_error(self, reason: t.Optional[str], readings: t.Optional[Readings], advice: str = "") -> None:
        if readings:
            source, destination = readings
            if outcome.is_running_as_before(source, self._move):
                self._restore_limits()
            detail = f"The guest is {source.describe()} on the source, {destination.describe()} on the destination. Neither copy was touched.{advice}"
            detail += self._unanswered.explain_silence(source, destination)
        else:
            detail = "The source's answers kept changing. Neither copy was touched."
        self._journal.advance_status(s.ERROR, detail, reason)

    def _give_up(self, verdict: outcome.Verdict, readings: t.Optional[Readings]) -> None:
        self._write_error(verdict.otherwise or verdict.reason or outcome.REASON_UNCLEAR, readings)

    # -- acts ----------------------------------------------------------------------------------------------------

    def _do_act(self, act: str) -> None:
        if act == outcome.DESTROY_SOURCE:
            self._try_act("destroy_source", lambda: self._connect_host("source").destroy_domain(self._uuid))
        else:
            self._try_act("resume_source", lambda: self._connect_host("source").resume_domain(self._uuid))

    def _try_act(self, act: str, call: t.Callable[[], None]) -> bool:
        """Write the act, then do it. A failure is noted, and the next query shows the resulting state."""
        self._journal.intend_act(act)
        try:
            call()
        except KvmfleetError as error:
            self._journal.note_event(f"{act}_failed", str(error))
            return False
        return True

    def _close_hosts(self) -> None:
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()
        self._is_identified = False
