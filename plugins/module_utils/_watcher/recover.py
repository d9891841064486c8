# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Recovering a failed post-copy migration (docs/libvirt.md, "Post-copy"): wait if the connection between the QEMU processes has survived, otherwise resume.

Neither side is ever destroyed, resumed or suspended: each has memory that the other lacks.
"""

from __future__ import annotations

import contextlib
import typing as t

from .._libvirt.interface import Host
from .._migration import outcome
from .._migration.flags import format_version
from .._model import domain_states
from .._model.errors import InvalidState, KvmfleetError, NotSupported, Unreachable
from .._model.watched_moves import StartOrder
from .calls import MigrateCall
from .journal import NOT_PAUSED_NOTE, Journal

# How long to try; then the record is an error, and the next run tries again.
RECOVER_SECONDS = 900.0
# The time in which a link that may have survived must move a byte.
UNATTENDED_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0

RECOVER_PREFIX = "recover: "

_RESUMES_SINCE = 8005000
# Resuming crashes the daemon of these destinations, and with it the guest's last connection.
_CRASHES_FROM = 11002000
_CRASHES_UNTIL = 11004000

Opener = t.Callable[[], Host]


def check_resume(open_destination: Opener) -> None:
    """Raise L(NotSupported) if the destination's libvirt cannot resume a post-copy migration, L(Unreachable) if it does not answer.

    A migration that cannot be resumed must not be paused: its stream can only continue by itself, when the network works again.
    """
    with contextlib.closing(open_destination()) as destination:
        version = destination.read_versions()["libvirt"]
    if version < _RESUMES_SINCE:
        raise NotSupported(
            f"The destination's libvirt {format_version(version)} cannot resume a post-copy migration.",
            "Update libvirt there to 8.5 or newer, but not to 11.2 or 11.3, without restarting the guest, then run the task again.",
        )
    if _CRASHES_FROM <= version < _CRASHES_UNTIL:
        raise NotSupported(
            "The destination's libvirt (11.2 or 11.3) crashes when a post-copy migration is resumed.",
            "Update libvirt there to 11.4 or newer without restarting the guest, then run the task again.",
        )


class Recovery:
    """Tries until neither host reports an active or failed post-copy migration, or until the time limit."""

    def __init__(
        self, order: StartOrder, journal: Journal, source: Opener, destination: Opener, clock: t.Callable[[], float], sleep: t.Callable[[float], None]
    ) -> None:
        self._order = order
        self._journal = journal
        self._open = {"source": source, "destination": destination}
        self._clock = clock
        self._sleep = sleep
        self._processed: t.Optional[int] = None
        self._moved_at = clock()
        self._trouble = ""

    def recover_post_copy(self) -> t.Optional[str]:
        """Return null if nothing is left to recover, otherwise why the recovery was given up."""
        deadline = self._clock() + RECOVER_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while self._clock() < deadline:
            try:
                if not self._is_broken():
                    return None
                if self._try_step():
                    pause = _FIRST_PAUSE_SECONDS
            except NotSupported as error:
                return str(error)
            except Unreachable:
                pass  # the link that broke the migration often also carries this query: try again
            except KvmfleetError as error:
                # libvirt also refuses if the migration has ended in the meantime, or if a lock is held that is free at the next try.
                self._note_once("recover_refused", error)
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return f"Post-copy could not be recovered within {RECOVER_SECONDS:.0f} s."

    def _is_broken(self) -> bool:
        source = self._view_domain("source")
        if source.reason not in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED):
            return False
        return outcome.judge_outcome(source, self._view_domain("destination"), outcome.MoveState(post_copy=True)).act in (outcome.RECOVER, outcome.WAIT)

    def _try_step(self) -> bool:
        """Wait, or try to resume; returns whether anything has moved."""
        source = self._connect_host("source")
        try:
            if source.view_domain(self._order.uuid).reason == domain_states.POST_COPY:
                return self._watch_stream(source)
        finally:
            source.close()
        return self._resume_job()

    def _watch_stream(self, source: Host) -> bool:
        """Watch a migration that no daemon controls. If it moves no byte for too long, pause it, so that it can be resumed."""
        stats = source.read_job(self._order.uuid)
        processed = stats.data_processed_bytes if stats else None
        if processed != self._processed:
            self._processed, self._moved_at = processed, self._clock()
            return True
        if self._clock() - self._moved_at > UNATTENDED_SECONDS:
            self._pause_stream(source)
            self._moved_at = self._clock()
        return False

    def _pause_stream(self, source: Host) -> None:
        try:
            check_resume(self._open["destination"])
        except NotSupported as error:
            self._note_once(NOT_PAUSED_NOTE, error)
            return
        self._journal.intend_act(RECOVER_PREFIX + "pause")
        source.pause_post_copy(self._order.uuid)

    def _resume_job(self) -> bool:
        check_resume(self._open["destination"])
        self._journal.intend_act(RECOVER_PREFIX + "resume")
        flags = [*self._order.flags, *(flag for flag in ("POSTCOPY", "POSTCOPY_RESUME") if flag not in self._order.flags)]
        call = MigrateCall(self._connect_host("source"), self._order, flags)
        call.start()
        self._attend_call(call)
        if call.error is None:
            return True
        self._journal.note_event("resume_refused", str(call.error))
        if isinstance(call.error, InvalidState):
            self._await_own_link()
        return False

    def _attend_call(self, call: MigrateCall) -> None:
        """Wait for the end of a resumed call. A migration that stalls again is paused again, because its call would never end."""
        self._moved_at = self._clock()
        while call.is_alive():
            self._sleep(_FIRST_PAUSE_SECONDS)
            try:
                source = self._connect_host("source")
            except Unreachable:
                continue
            try:
                if call.is_alive():
                    self._watch_stream(source)
            except KvmfleetError as error:
                self._note_once("watch_refused", error)
            finally:
                source.close()

    def _note_once(self, event: str, error: KvmfleetError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._journal.note_event(event, self._trouble)

    def _await_own_link(self) -> None:
        """QEMU reports that its connection is alive: wait for progress, then pause the migration for the next attempt."""
        source = self._connect_host("source")
        try:
            until = self._clock() + UNATTENDED_SECONDS
            while self._clock() < until:
                if source.view_domain(self._order.uuid).reason not in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED):
                    return
                stats = source.read_job(self._order.uuid)
                processed = stats.data_processed_bytes if stats else None
                if processed is not None and processed != self._processed:
                    self._processed, until = processed, self._clock() + UNATTENDED_SECONDS
                self._sleep(_FIRST_PAUSE_SECONDS)
            self._pause_stream(source)
        except Unreachable:
            raise
        except KvmfleetError as error:
            self._journal.note_event("pause_refused", str(error))
        finally:
            source.close()

    def _view_domain(self, side: str) -> domain_states.DomainView:
        host = self._connect_host(side)
        try:
            return host.view_domain(self._order.uuid)
        finally:
            host.close()

    def _connect_host(self, side: str) -> Host:
        return self._open[side]()
