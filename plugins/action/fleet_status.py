# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(fleet_status) puts the ledger and the answers of the hosts together on one screen, and writes what others have done to domains.

The playbook runs it three times: C(note) returns the versions of the documents, C(look) asks one host for its domains, and the last one uses both. It works
with whatever has answered, and states what has not: a silent host and a ledger that cannot be read or written are findings, and not errors.
"""

from __future__ import annotations

import os
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, fleet_status_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import to_plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import find_missing_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake_folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.fleet_scan import FoundAct, name_hosts, record_foreign_acts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._status.content import LedgerContent, StatusWork, read_content
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._status.report import StatusReport

NOTE, LOOK = "note", "look"


@dataclass(frozen=True)
class _StatusTask:
    """The options of C(fleet_status)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    uri: str
    ledger: t.Optional[str]
    fleet: tuple[str, ...]
    protect_max_hours: SignedInt
    work: Json


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "fleet_status"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return fleet_status_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the ledger, and describe the fleet. Raises L(InvalidArgument) for a location that cannot be a ledger."""
        task = decode(_StatusTask, to_plain(args))
        if task.protect_max_hours < 1:
            raise InvalidArgument(f"protect_max_hours is {task.protect_max_hours}.", "Give a number of hours from 1.")
        with readable_results():
            work = decode(StatusWork, task.work or {}, "_work")
        if work.step == LOOK:
            return {"changed": False, "seen": self.run_phase(LOOK, {}, task.uri, task_vars)}
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)

        content = read_content(lambda: open_ledger(*location, create=False))
        if work.step == NOTE:
            return {"changed": False, "versions": {uuid: document.version for uuid, document in content.documents.items()}}
        if content.ledger:
            self.attach_notifier(content.ledger, settings, target_host, location)
        acts = self._record_acts(content, work, describe_actor(task_vars))
        remembered = [(host, look.seen.remembered or None) for host, look in (work.looks or {}).items() if look.seen]
        lost = find_missing_records(content.ledger if content.error is None else None, remembered)
        folder = os.path.expanduser(str(settings.of(target_host, "kvmfleet_events_folder") or brake_folder.default_folder()))
        report = StatusReport(task.fleet, work, content, task.protect_max_hours, settings.is_known, acts, lost, folder)
        changed = any(not found.problem for found in acts)
        return {"changed": changed, "at": utc_now(), "ledger": content.name, **report.as_json()}

    def _record_acts(self, content: LedgerContent, work: StatusWork, by: str) -> list[FoundAct]:
        """Write what others have done to domains, and return it. In check mode, nothing is written."""
        looks = {name: one.seen for name, one in (work.looks or {}).items() if one.seen}
        documents = {uuid: document for uuid, document in content.documents.items() if (work.versions or {}).get(uuid) == document.version}
        if content.ledger is None:
            return []
        busy = frozenset(record.domain.uuid for record in content.records)
        return record_foreign_acts(content.ledger, documents, busy, name_hosts(content.hosts, looks), by, write=not self._task.check_mode)
