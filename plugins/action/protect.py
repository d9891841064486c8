# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(protect): writes the answers of the host to the ledger, and never returns a definition."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, protect_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_line
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import VARIABLE, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.reset_watch import check_watchdog
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import missing_text, remembered_by_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_domains import ProtectOutcome, list_notes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_steps import ProtectSteps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, TaskSettings, read_port

LEAVE, READ, SAVE = "leave", "read", "save"
# The phase whose answer holds definitions.
_SECRET_PHASE = "save"  # noqa: S105 - it names a phase
_SSH_PORT = 22


@dataclass(frozen=True)
class _ProtectWork:
    """The one step that the role selects."""

    step: Maybe[str] = ABSENT


@dataclass(frozen=True)
class _ProtectTask:
    """The options of C(protect)."""

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"work": "_work"}

    uri: str
    ledger: t.Optional[str]
    guard: bool
    clean_shutdown_token: bool
    work: t.Optional[_ProtectWork]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "protect"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return protect_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Do all steps, or the one that the role selects."""
        with readable_results():
            task = decode(_ProtectTask, args)
        if task.clean_shutdown_token and not task.guard:
            raise InvalidArgument("clean_shutdown_token releases the boot guard, and guard is false.", "Set guard: true. Nothing was changed.")
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)
        # A host that was protected refuses an empty ledger, which would hide that the right one is missing.
        allow_new = functools.partial(self._run_protect_phase, "identify", {"ledger_id": None}, task.uri, task_vars)
        ledger = open_if_any(*location, create=not self._task.check_mode, allow_new=allow_new)
        only = (task.work.step or None) if task.work else None
        if ledger and only in (None, SAVE):
            ledger = self.attach_notifier(ledger, settings, target_host, location)
        steps = ProtectSteps(
            target_host,
            ledger,
            lambda phase, work: self._run_protect_phase(phase, work, task.uri, task_vars),
            describe_actor(task_vars),
            self._task.check_mode,
            tuple(remembered_by_fleet(settings, target_host, None)),
            settings.resource_maps,
            settings.fleet(),
        )
        results: list[JsonObject] = []
        notes: list[str] = []
        warnings: list[str] = []
        if only in (None, LEAVE):
            left = steps.leave_tokens(_host_addresses(settings, target_host))
            notes += left.uuid_notes
            results.append(encode(left))
        if only in (None, READ):
            read = steps.read_tokens()
            notes += read.notes
            results.append({"changed": read.changed, "sees": encode(read.sees)})
        if only in (None, SAVE):
            saved, warnings = self._save_domains(steps, task, notes)
            results += [saved, _settings_error(settings, target_host, ledger, steps.find_entry())]
        merged = {key: value for result in results for key, value in result.items() if key != "uuid_notes"}
        merged["changed"] = any(bool(result.get("changed")) for result in results)
        all_warnings = [*notes, *warnings, *(ledger.problems if ledger else [])]
        return {**merged, "warnings": all_warnings} if all_warnings else merged

    def _save_domains(self, steps: ProtectSteps, task: _ProtectTask, notes: list[str]) -> tuple[JsonObject, list[str]]:
        """Return the result of the last step, and its warnings.

        :arg notes: about UUIDs, which grow.
        """
        outcome = steps.save_domains()
        guard = steps.set_up_guard(task.guard, task.clean_shutdown_token, outcome.left_over)
        notes += steps.list_shared_uuid_notes()
        entry = steps.find_entry()
        all_notes = [*list_notes(outcome, guard.guard.note, (entry.unwritable or {}) if entry else {}), *map(printable_line, notes)]
        result: Result = {**outcome.as_result(), **encode(guard), "changed": outcome.is_changed or guard.changed, "notes": all_notes}
        if self._task.diff:
            result["diff"] = _diff_domains(outcome, steps.name)
        conflicts = [conflict.msg for conflict in outcome.conflicts]
        return result, [*conflicts, *outcome.refused, *map(missing_text, outcome.missing_records), *outcome.list_lock_warnings()]

    def _run_protect_phase(self, phase: str, work: JsonObject, uri: str, task_vars: Result) -> JsonObject:
        return self.run_phase(phase, work, uri, task_vars, is_secret=phase == _SECRET_PHASE)


def _host_addresses(settings: Settings, target_host: str) -> JsonObject:
    """Return the addresses of the host, so that it can be queried when it is dead and the inventory has changed since."""
    return {
        "ansible_host": str(settings.of(target_host, "ansible_host", target_host)),
        "ssh_port": read_port(settings.of(target_host, "ansible_port", _SSH_PORT), f"ansible_port of {target_host}"),
        "libvirt_uri": settings.libvirt_uri(target_host, target_host),
    }


def _settings_error(settings: TaskSettings, target_host: str, ledger: t.Optional[Ledger], entry: t.Optional[HostEntry]) -> JsonObject:
    """Return the error if the host's fencing or its scheduling cannot be used, which otherwise only an evacuation would detect; else nothing."""
    try:
        settings.scheduler(target_host)
        config = parse_fencing(settings.of(target_host, VARIABLE), target_host)
        if config and config.watchdog_seconds is not None and ledger and entry:
            check_watchdog(config, entry, has_leases=ledger.open_leases() is not None)
    except InvalidArgument as error:
        next_step = f"{error.next_step or ''} The domains were saved nevertheless.".strip()
        return {"failed": True, **InvalidArgument(error.message, next_step).as_result()}
    return {}


def _diff_domains(outcome: ProtectOutcome, name: str) -> JsonObject:
    return {"before": outcome.before, "after": outcome.after, "before_header": f"domains of {name} in the ledger", "after_header": f"domains of {name}"}
