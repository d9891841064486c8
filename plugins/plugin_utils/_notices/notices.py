# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of one task: on disk before the record is written, sent beside the work, and left to the next task where the receiver is not there."""

from __future__ import annotations

import contextlib
import os
import typing as t
from collections.abc import Callable, Iterator

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, KvmfleetError, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._ledger.locate import state_path
from .._ledger.store import Body, Ledger, Witness
from .._settings import Settings
from .config import VARIABLE, Config, config_of
from .events import event_of, events_of, has_happened
from .post import Poster
from .sender import Sender
from .spool import Kept, Spool, waiting_in

Reopen = Callable[[], Ledger]


class Notices(Witness):
    """What a ledger tells of its records, and what becomes of it.

    :arg reopen: gives the ledger a second time, for a thread of its own.
    """

    def __init__(self, config: Config, ledger_id: str, reopen: Reopen) -> None:
        self._config = config
        self._ledger_id = ledger_id
        self._reopen = reopen
        self._warnings: list[str] = []
        self._spool = self._opened(_folder(config, ledger_id))
        self._sender = Sender(Poster(config).post, config.retries, self._drop, self._left)
        if self._spool and self._spool.names():
            self._sender.start()

    @contextlib.contextmanager
    def change(self, before: Body | None, after: Body) -> Iterator[None]:
        """Keep the events of the change, and send them once it was made; those of a change that was not are dropped."""
        kept = [self._keep(event, sure=False) for event in events_of(before, after, self._ledger_id)]
        try:
            yield
        except Conflict:
            for one in kept:
                self._drop(one)
            raise
        # After any other error nobody knows: the next task asks the ledger.
        for one in kept:
            self._sender.add(one)

    def tell(self, record: Body, event: str, by: str, detail: str = "") -> None:
        """Send an event that is no line of the record's history."""
        line = {"at": utc_now(), "status": record["status"], "by": by, "detail": detail}
        self._sender.add(self._keep(event_of(record, event, line, self._ledger_id), sure=True))

    def finish(self) -> list[str]:
        """End the sending, after a bounded wait; return sentences on what was not sent, for warnings."""
        unsent = self._sender.finish(self._config.wait_seconds)
        receiver, told = self._config.receiver, list(self._warnings)
        if unsent:
            kept = f"They are kept in {self._spool.path}, and the next task tries again" if self._spool else "They are lost: there is no folder to keep them"
            told.append(f"Notices that were not sent to {receiver}: {unsent} ({self._sender.failure or 'it has not answered yet'}). {kept}.")
        if self._sender.refused:
            told.append(f"Notices that {receiver} refused: {len(self._sender.refused)} ({self._sender.refused[-1]}). They are not sent again.")
        if self._spool:
            if self._spool.dropped:
                told.append(f"Notices for {receiver} that were too old, too many or damaged, and are dropped: {self._spool.dropped}.")
            self._spool.close()
        return told

    def _opened(self, folder: str) -> Spool | None:
        try:
            return Spool(folder)
        except OSError as error:
            self._warnings.append(f"Notices cannot be kept in {folder} ({error.strerror or error}): what is not sent within the task is lost.")
            return None

    def _keep(self, event: Body, sure: bool) -> Kept:
        if self._spool:
            try:
                return self._spool.keep(event, sure)
            except OSError as error:
                self._warnings.append(f"A notice could not be kept in {self._spool.path} ({error.strerror or error}).")
        return Kept(event, None, sure)

    def _drop(self, kept: Kept) -> None:
        if self._spool:
            with contextlib.suppress(OSError):
                self._spool.drop(kept)

    def _left(self) -> Iterator[Kept]:
        """Yield what earlier tasks left, without what the ledger says has not happened."""
        ledger: Ledger | None = None
        with contextlib.suppress(OSError, KvmfleetError):
            for kept in self._spool.left() if self._spool else ():
                if not kept.sure:
                    ledger = ledger or self._reopen()
                    if not _is_true(kept, ledger):
                        self._drop(kept)
                        continue
                yield kept


def notices_of(settings: Settings, host: str, ledger: Ledger, reopen: Reopen) -> tuple[Notices | None, tuple[str, ...]]:
    """Return the notices of a task, where the host's C(kvmfleet_notices) wants any; a value that cannot be used ends no task, but is a warning."""
    try:
        value = settings.of(host, VARIABLE)
        return (Notices(config_of(value), ledger.ledger_id, reopen), ()) if value else (None, ())
    except InvalidArgument as error:
        return None, (f"No notices are sent for {host}. {error}",)
    except AnsibleError:
        # Its words may show what was templated.
        return None, (f"No notices are sent for {host}. {VARIABLE} cannot be templated.",)


def waiting(settings: Settings, host: str, ledger_id: str) -> int | None:
    """Return how many notices of that ledger wait on this control node; None where the host's C(kvmfleet_notices) wants none or cannot be used."""
    try:
        value = settings.of(host, VARIABLE)
        return waiting_in(_folder(config_of(value), ledger_id)) if value else None
    except (InvalidArgument, AnsibleError):
        return None


def _folder(config: Config, ledger_id: str) -> str:
    return os.path.join(config.spool or state_path("notices"), ledger_id)


def _is_true(kept: Kept, ledger: Ledger) -> bool:
    try:
        return has_happened(kept.event, ledger.get(t.cast(str, kept.event["data"]["record"])).record)
    except NotFound:
        return False
