# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of one task: events (CloudEvents 1.0) that notify a receiver of changes of records.

They are written to disk before the record, sent during the task, and left to the next task if the receiver does not answer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, KvmfleetError, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.brake_document import BrakeDocument
from .._ledger.documents import DomainEntry, HostEntry
from .._ledger.ledger import Ledger, Witness
from .._ledger.locate import state_path
from .._settings.variables import Settings
from .brake_notices import BRAKE_KINDS, is_in_brake, make_brake_events
from .cloud_events import data_of_event, kind_of_event
from .host_notices import FENCING_KIND, is_in_entry, make_host_events
from .notice_delivery import Sender, Spool, SpooledNotice, count_spooled
from .record_notices import events_of_change, has_act, has_happened, make_domain_event, make_event
from .run_notices import is_in_run, make_run_events
from .webhook import NOTICES_VARIABLE, Poster, WebhookConfig, parse_config

Reopen = Callable[[], Ledger]


class Notices(Witness):
    """Sends the changes of a ledger's records, and keeps the unsent ones.

    :arg reopen: opens the ledger a second time, for the thread.
    """

    def __init__(self, config: WebhookConfig, ledger_id: str, reopen: Reopen) -> None:
        self._config = config
        self._ledger_id = ledger_id
        self._reopen = reopen
        self._warnings: list[str] = []
        self._spool = self._open_spool(_spool_folder(config, ledger_id))
        self._sender = Sender(Poster(config).post_event, config.retries, self._drop_notice, self._left_notices)
        if self._spool and self._spool.names():
            self._sender.start()

    @contextlib.contextmanager
    def watch_change(self, before: MoveRecord | None, after: MoveRecord) -> Iterator[None]:
        """Keep the events of the change, and send them after it was made; those of a failed change are dropped."""
        with self._keep_events(events_of_change(before, after, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def watch_foreign_act(self, domain: DomainEntry, act: ForeignAct) -> Iterator[None]:
        """Keep the event of the act, and send it after the act was written."""
        with self._keep_events([make_domain_event(domain, act, self._ledger_id)]):
            yield

    @contextlib.contextmanager
    def watch_run(self, before: MaintenanceRun | None, after: MaintenanceRun) -> Iterator[None]:
        """Keep the events of a change of a maintenance run, and send them after it was written."""
        with self._keep_events(make_run_events(before, after, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def watch_host(self, after: HostEntry, detail: str) -> Iterator[None]:
        """Keep the event of the host, and send it after its document was written."""
        with self._keep_events(make_host_events(after, detail, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def watch_brake(self, before: BrakeDocument | None, after: BrakeDocument) -> Iterator[None]:
        """Keep the events of new incidents of the brake, and send them after it was written."""
        with self._keep_events(make_brake_events(before, after, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def _keep_events(self, events: list[JsonObject]) -> Iterator[None]:
        kept = [self._spool_event(event, sure=False) for event in events]
        try:
            yield
        except Conflict:
            for one in kept:
                self._drop_notice(one)
            raise
        # After any other error the result is unknown: the next task checks the ledger.
        for one in kept:
            self._sender.add(one)

    def report_event(self, record: MoveRecord, event: str, by: str, detail: str = "") -> None:
        """Send an event that is not a line of the record's history."""
        line = HistoryLine(utc_now(), record.status, by, detail)
        self._sender.add(self._spool_event(make_event(record, event, line, self._ledger_id), sure=True))

    def finish(self) -> list[str]:
        """Stop sending after a bounded wait; return warnings about unsent notices."""
        unsent = self._sender.finish(self._config.wait_seconds)
        receiver, warnings = self._config.receiver, list(self._warnings)
        if unsent:
            kept = f"They are kept in {self._spool.path}, and the next task tries again" if self._spool else "They are lost: there is no folder to keep them"
            warnings.append(f"Notices that were not sent to {receiver}: {unsent} ({self._sender.failure or 'it has not answered yet'}). {kept}.")
        if self._sender.refused:
            warnings.append(f"Notices that {receiver} refused: {len(self._sender.refused)} ({self._sender.refused[-1]}). They are not sent again.")
        if self._spool:
            if self._spool.dropped:
                warnings.append(f"Notices for {receiver} that were too old, too many or damaged, and are dropped: {self._spool.dropped}.")
            self._spool.close()
        return warnings

    def _open_spool(self, folder: str) -> Spool | None:
        try:
            return Spool(folder)
        except OSError as error:
            self._warnings.append(f"Notices cannot be kept in {folder} ({error.strerror or error}): what is not sent within the task is lost.")
            return None

    def _spool_event(self, event: JsonObject, sure: bool) -> SpooledNotice:
        if self._spool:
            try:
                return self._spool.keep_event(event, sure)
            except OSError as error:
                self._warnings.append(f"A notice could not be kept in {self._spool.path} ({error.strerror or error}).")
        return SpooledNotice(event, None, sure)

    def _drop_notice(self, kept: SpooledNotice) -> None:
        if self._spool:
            with contextlib.suppress(OSError):
                self._spool.remove_notice(kept)

    def _left_notices(self) -> Iterator[SpooledNotice]:
        """Yield the notices that earlier tasks left, without those whose change is not in the ledger."""
        ledger: Ledger | None = None
        with contextlib.suppress(OSError, KvmfleetError):
            for kept in self._spool.left_notices() if self._spool else ():
                if not kept.sure:
                    ledger = ledger or self._reopen()
                    if not self._confirm_notice(kept, ledger):
                        continue
                yield kept

    def _confirm_notice(self, kept: SpooledNotice, ledger: Ledger) -> bool:
        """Whether the change of the notice is in the ledger; otherwise the notice is dropped. What only a later version can judge is left to a task of it."""
        try:
            is_confirmed = _is_confirmed(kept, ledger)
        except (NotSupported, InvalidArgument, KeyError):
            return False
        if not is_confirmed:
            self._drop_notice(kept)
        return is_confirmed


def open_notices(settings: Settings, host: str, ledger: Ledger, reopen: Reopen) -> tuple[Notices | None, tuple[str, ...]]:
    """Return the notices of a task if the host's C(kvmfleet_notices) enables them; an invalid value is a warning, and does not end the task."""
    try:
        value = settings.of(host, NOTICES_VARIABLE)
        return (Notices(parse_config(value), ledger.ledger_id, reopen), ()) if value else (None, ())
    except InvalidArgument as error:
        return None, (f"No notices are sent for {host}. {error}",)
    except AnsibleError:
        # The text of the error may contain templated values.
        return None, (f"No notices are sent for {host}. {NOTICES_VARIABLE} cannot be templated.",)


def count_waiting(settings: Settings, host: str, ledger_id: str) -> int | None:
    """Return how many notices of that ledger wait on this control node; None without a valid C(kvmfleet_notices), and if they cannot be read."""
    try:
        value = settings.of(host, NOTICES_VARIABLE)
        return count_spooled(_spool_folder(parse_config(value), ledger_id)) if value else None
    except (InvalidArgument, AnsibleError, OSError):
        return None


def _spool_folder(config: WebhookConfig, ledger_id: str) -> str:
    return os.path.join(config.spool or state_path("notices"), ledger_id)


def _is_confirmed(kept: SpooledNotice, ledger: Ledger) -> bool:
    event, data, kind = kept.event, data_of_event(kept.event), kind_of_event(kept.event)
    at, subject = str(event["time"]), str(event["subject"])
    try:
        if "run" in data:
            return is_in_run(data, at, kind, ledger.read_maintenance_run(str(data["run"])).maintenance_run)
        if kind == FENCING_KIND:
            host = ledger.read_host(subject)
            return host is not None and is_in_entry(at, host.host)
        if kind in BRAKE_KINDS:
            brake = ledger.read_brake()
            return brake is not None and is_in_brake(kind, at, brake.brake)
        record_id = data["record"]
        if record_id is not None:
            return has_happened(event, ledger.read_record(str(record_id)).record)
        document = ledger.read_domain(subject)
    except NotFound:
        return False
    return document is not None and has_act(event, document.domain)
