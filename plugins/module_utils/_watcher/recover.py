# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Bringing a broken post-copy to its end (libvirt.md, section 3): wait where the hypervisors' own link has survived, resume where it has not.

Neither side is ever destroyed, resumed or suspended: each has memory that the other lacks.
"""

from __future__ import annotations

import typing as t

from .._errors import InvalidState, KvmfleetError, NotSupported, Unreachable
from .._migration import hypervisor as h
from .._migration import outcome
from .call import MigrateCall
from .journal import Journal
from .order import Order

# How long to try; then the record is an error, and the next run tries again.
RECOVER_SECONDS = 900.0
# How long a link that may have survived is given to move a byte.
UNATTENDED_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0

RECOVER_PREFIX = "recover: "

# Resuming makes these destinations' daemon crash, and the guest's last link with it.
_CRASHES_FROM = 11002000
_CRASHES_UNTIL = 11004000

Opener = t.Callable[[], h.Host]


class Recovery:
    """Tries until the two hosts no longer say that post-copy is under way or broken, or until the time is up."""

    def __init__(
        self, order: Order, journal: Journal, source: Opener, destination: Opener, clock: t.Callable[[], float], sleep: t.Callable[[float], None]
    ) -> None:
        self._order = order
        self._journal = journal
        self._open = {"source": source, "destination": destination}
        self._clock = clock
        self._sleep = sleep
        self._processed: t.Optional[int] = None
        self._moved_at = clock()
        self._trouble = ""

    def recover(self) -> t.Optional[str]:
        """Return null when there is nothing left to recover, else why it was given up."""
        deadline = self._clock() + RECOVER_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while self._clock() < deadline:
            try:
                if not self._is_broken():
                    return None
                if self._step():
                    pause = _FIRST_PAUSE_SECONDS
            except NotSupported as error:
                return str(error)
            except Unreachable:
                pass  # the link that broke the migration is often the one we ask over: asked again
            except KvmfleetError as error:
                # A migration that ends by itself meanwhile refuses too, and a lock that is held is free the next time.
                self._note_once("recover_refused", error)
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return f"Post-copy could not be recovered within {RECOVER_SECONDS:.0f} s."

    def _is_broken(self) -> bool:
        source = self._view("source")
        if source.reason not in (h.POST_COPY, h.POST_COPY_FAILED):
            return False
        return outcome.judge(source, self._view("destination"), outcome.Move(post_copy=True)).act in (outcome.RECOVER, outcome.WAIT)

    def _step(self) -> bool:
        """Wait, or try to resume; returns whether anything has moved."""
        source = self._connected("source")
        try:
            if source.view(self._order.uuid).reason == h.POST_COPY:
                return self._wait(source)
        finally:
            source.close()
        return self._resume()

    def _wait(self, source: h.Host) -> bool:
        """Watch a stream that nobody is in charge of; after too long without a byte make it break, so that it can be resumed."""
        stats = source.job(self._order.uuid)
        processed = stats.data_processed_bytes if stats else None
        if processed != self._processed:
            self._processed, self._moved_at = processed, self._clock()
            return True
        if self._clock() - self._moved_at > UNATTENDED_SECONDS:
            self._journal.intend(RECOVER_PREFIX + "pause")
            source.pause_post_copy(self._order.uuid)
            self._moved_at = self._clock()
        return False

    def _resume(self) -> bool:
        self._check_destination()
        self._journal.intend(RECOVER_PREFIX + "resume")
        flags = [*self._order.flags, *(flag for flag in ("POSTCOPY", "POSTCOPY_RESUME") if flag not in self._order.flags)]
        call = MigrateCall(self._connected("source"), self._order, flags)
        call.start()
        self._attend(call)
        if call.error is None:
            return True
        self._journal.note("resume_refused", str(call.error))
        if isinstance(call.error, InvalidState):
            self._let_it_run()
        return False

    def _attend(self, call: MigrateCall) -> None:
        """Wait for the end of a resumed call; a stream that stands still again is broken again, for its call would never end."""
        self._moved_at = self._clock()
        while call.is_alive():
            self._sleep(_FIRST_PAUSE_SECONDS)
            try:
                source = self._connected("source")
            except Unreachable:
                continue
            try:
                if call.is_alive():
                    self._wait(source)
            except KvmfleetError as error:
                self._note_once("watch_refused", error)
            finally:
                source.close()

    def _note_once(self, event: str, error: KvmfleetError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._journal.note(event, self._trouble)

    def _let_it_run(self) -> None:
        """The hypervisor says that its own link is alive: it gets the time to show it, then it is paused for the next attempt."""
        source = self._connected("source")
        try:
            until = self._clock() + UNATTENDED_SECONDS
            while self._clock() < until:
                if source.view(self._order.uuid).reason not in (h.POST_COPY, h.POST_COPY_FAILED):
                    return
                stats = source.job(self._order.uuid)
                processed = stats.data_processed_bytes if stats else None
                if processed is not None and processed != self._processed:
                    self._processed, until = processed, self._clock() + UNATTENDED_SECONDS
                self._sleep(_FIRST_PAUSE_SECONDS)
            self._journal.intend(RECOVER_PREFIX + "pause")
            source.pause_post_copy(self._order.uuid)
        except Unreachable:
            raise
        except KvmfleetError as error:
            self._journal.note("pause_refused", str(error))
        finally:
            source.close()

    def _check_destination(self) -> None:
        destination = self._connected("destination")
        try:
            version = destination.versions()["libvirt"]
        finally:
            destination.close()
        if _CRASHES_FROM <= version < _CRASHES_UNTIL:
            raise NotSupported(
                "The destination's libvirt (11.2 or 11.3) crashes when a post-copy migration is resumed.",
                "Update libvirt there to 11.4 or newer without restarting the guest, then run the task again.",
            )

    def _view(self, side: str) -> h.GuestView:
        host = self._connected(side)
        try:
            return host.view(self._order.uuid)
        finally:
            host.close()

    def _connected(self, side: str) -> h.Host:
        return self._open[side]()
