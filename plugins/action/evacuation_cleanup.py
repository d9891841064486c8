# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(evacuation_cleanup): reads the tombstones of the host in the ledger, and completes those whose work was verified."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, evacuation_cleanup_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef, IdentityAnswer
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.cleanup import CleanupOutcome, HostCleanup
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, find_own_entry, list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    find_left_behind,
    find_left_under_others,
    find_missing_records,
    missing_text,
    remembered_by_fleet,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, read_reported_domains

_MAX_RETENTION_DAYS = 3650


@dataclass(frozen=True)
class _CleanupTask:
    """The options of C(evacuation_cleanup)."""

    uri: str
    ledger: t.Optional[str]
    storage: str
    retention_days: SignedInt
    extra: JsonObject = dataclasses.field(default_factory=dict)


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "evacuation_cleanup"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return evacuation_cleanup_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the identity of the host, and clean up what the records of exactly that host list."""
        with readable_results():
            task = decode(_CleanupTask, args)
        if not 0 <= task.retention_days <= _MAX_RETENTION_DAYS:
            raise InvalidArgument(f"retention_days is {task.retention_days}.", f"Give 0 to {_MAX_RETENTION_DAYS}. Nothing was changed.")
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)
        ledger = open_if_any(*location)

        def phase(name: str, work: JsonObject) -> JsonObject:
            return self.run_phase(name, work, task.uri, task_vars)

        answer = decode(IdentityAnswer, phase("identify", {"ledger_id": ledger.ledger_id if ledger else None}))
        identity = _read_identity(target_host, answer)
        outcome = CleanupOutcome()
        if ledger and _has_identity(ledger, identity, settings):
            self.attach_notifier(ledger, settings, target_host, location)
            me = HostRef(target_host, identity.host_id, identity.host_uuid)
            uris = _list_other_uris(settings, target_host, ledger, identity)
            reports = list(remembered_by_fleet(settings, target_host, answer.remembered or None))
            left = [
                *find_left_behind(ledger, reports, identity.host_id),
                *find_left_under_others(ledger, reports, identity.host_id, _Places(settings, target_host).is_elsewhere),
            ]
            memory = find_missing_records(ledger, reports), left
            cleanup = HostCleanup(ledger, me, phase, uris, task.storage, task.retention_days, describe_actor(task_vars), self._task.check_mode, *memory)
            outcome = cleanup.clean_host()
        return self._build_result(outcome, target_host, ledger)

    def _build_result(self, outcome: CleanupOutcome, target_host: str, ledger: Ledger | None) -> JsonObject:
        result = outcome.as_result()
        refused = {entry.uuid for entry in outcome.refused}
        warnings = [f"Domain {entry.name} was not cleaned from {target_host}: {entry.reason}" for entry in outcome.refused]
        warnings += [missing_text(one) for one in outcome.missing_records if one.domain.uuid not in refused]
        warnings += ledger.problems if ledger else []
        if self._task.diff:
            result["diff"] = _diff_cleanup(outcome, target_host)
        return {**result, "warnings": warnings} if warnings else result


def _read_identity(target_host: str, answer: IdentityAnswer) -> HostIdentity:
    identifiers = answer.identity
    if answer.libvirt_error:
        raise Unreachable(f"Libvirt on {target_host} did not answer, so nothing was cleaned: {answer.libvirt_error}")
    return HostIdentity(target_host, identifiers.host_id, identifiers.host_uuid, identifiers.machine_id)


def _has_identity(ledger: Ledger, identity: HostIdentity, settings: Settings) -> bool:
    """Whether records can belong to this host at all. Raises L(Conflict) if it is not certainly the host in the ledger."""
    find_own_entry(ledger, identity, settings.fleet())
    return identity.host_id is not None


def _list_other_uris(settings: Settings, target_host: str, ledger: Ledger, identity: HostIdentity) -> dict[str, str]:
    """Return the URI of each other host: of the inventory's fleet, and of the ledger, by the saved address, if the inventory does not have it."""
    uris = {name: settings.libvirt_uri(name, target_host) for name in settings.fleet()}
    for entry in list_entries(ledger):
        if entry.host_id == identity.host_id or entry.name in uris:
            continue
        saved = (entry.addresses or {}).get("libvirt_uri")
        uris[entry.name] = str(saved) if saved and not settings.is_known(entry.name) else settings.libvirt_uri(entry.name, target_host)
    uris.pop(target_host, None)
    return uris


class _Places:
    """The domains of all hosts by their facts, which are read for the first question only: in a large fleet, that takes as long as everything else."""

    def __init__(self, settings: Settings, target_host: str) -> None:
        self._settings, self._target_host = settings, target_host

    def is_elsewhere(self, uuid: str) -> bool:
        """Whether the facts of another host have the domain, and those of this one do not have it active."""
        having = {name: listed[uuid] for name, listed in self._domains.items() if uuid in listed}
        own = having.pop(self._target_host, None)
        return bool(having) and not (own and own.active)

    @functools.cached_property
    def _domains(self) -> dict[str, dict[str, DomainFacts]]:
        names = {*self._settings.fleet(), self._target_host}
        return {name: {one.uuid: one for one in read_reported_domains(self._settings.facts(name)) or ()} for name in names}


def _diff_cleanup(outcome: CleanupOutcome, target_host: str) -> JsonObject:
    before: Result = {entry.name: {"defined": entry.undefined, "files": [file.path for file in entry.quarantined]} for entry in outcome.cleaned}
    after: Result = {entry.name: {"defined": False, "files": []} for entry in outcome.cleaned}
    return {"before": before, "after": after, "before_header": f"evacuated domains on {target_host}", "after_header": f"evacuated domains on {target_host}"}
