# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(boot_guard): reads the ledger before a host is released."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, boot_guard_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import IdentityAnswer, canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import TOMBSTONE, UNSETTLED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import check_not_discarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import (
    HostIdentity,
    check_own_ledger,
    find_host_entry,
    find_own_entry,
    withdraw_watchdog,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    Remembered,
    find_left_behind,
    find_missing_records,
    missing_text,
    remembered_by_fleet,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import describe_record
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.release import CleanedHost, GuardAnswer, Obstacles
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results


@dataclass(frozen=True)
class _GuardWork:
    """C(recover): of a recovery, the result of the cleanup before the release."""

    recover: t.Union[Json, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class _GuardTask:
    """The options of C(boot_guard)."""

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"work": "_work"}

    uri: str
    ledger: t.Optional[str]
    state: t.Optional[str]
    forget: tuple[str, ...]
    work: t.Optional[_GuardWork]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "boot_guard"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return boot_guard_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the guard's state, remove notes of domains that are not to be started, and release the host if the ledger permits it."""
        with readable_results():
            task = decode(_GuardTask, args)
        unwanted = [canonical_uuid(uuid) for uuid in task.forget]
        target_host = self.target_host(task_vars)
        cleaned = _read_cleanup(target_host, task, bool(self._task.check_mode))
        settings = self.settings(task_vars)
        ledger = open_if_any(*settings.ledger(target_host, task.ledger))
        reported = self._run_guard_phase("read", {}, task, task_vars)
        answer, who = decode(GuardAnswer, reported), decode(IdentityAnswer, reported)
        identity = HostIdentity(target_host, who.identity.host_id, who.identity.host_uuid, who.identity.machine_id)
        obstacles = _find_obstacles(ledger, identity, list(remembered_by_fleet(settings, target_host, who.remembered or None)), cleaned is not None)
        is_wanted = cleaned.can_release(answer.has_guard) if cleaned else task.state is not None
        if is_wanted or cleaned:
            _check_newer(ledger, target_host)
        if cleaned:
            cleaned.check_guarded(answer.has_guard, obstacles.withheld_by)
        if is_wanted:
            check_own_ledger(target_host, who.identity.ledger_id, ledger)
            _check_permitted(ledger, identity, settings.fleet(), obstacles)
        if ledger and (is_wanted or cleaned) and not self._task.check_mode:
            _withdraw_earlier_boots(ledger, identity, answer)
        changed, forgotten = False, {}
        if unwanted:
            done = self._run_guard_phase("forget", {"uuids": unwanted}, task, task_vars)
            changed, forgotten = bool(done["changed"]), {"forgotten": done["forgotten"]}
        if is_wanted or unwanted:
            # The ledger was read after the host had named its boot.
            phase, work = ("release", {"boot_id": answer.guard.boot_id or None}) if is_wanted else ("read", {})
            answer = decode(GuardAnswer, self._run_guard_phase(phase, work, task, task_vars))
        open_records = cleaned.without_predicted(obstacles.open_records) if cleaned else obstacles.open_records
        result: Result = {
            "changed": changed or answer.changed,
            "withheld_by": encode(obstacles.withheld_by),
            "open_records": encode(open_records),
            **forgotten,
            "guard": encode(answer.guard),
            "to_start": [encode(note) for note in answer.to_start if note.uuid not in unwanted],
        }
        warnings = [f"{path} on {target_host} is damaged: for one domain it is not known whether to start it again." for path in answer.damaged]
        warnings += ledger.problems if ledger else []
        return {**result, "warnings": warnings} if warnings else result

    def _run_guard_phase(self, phase: str, work: JsonObject, task: _GuardTask, task_vars: Result) -> Result:
        return self.run_phase(phase, {**work, "check": bool(self._task.check_mode)}, task.uri, task_vars)


def _read_cleanup(target_host: str, task: _GuardTask, check_mode: bool) -> CleanedHost | None:
    """Return the role's result of the host's cleanup, None for other tasks. Raises L(Unsafe) if the host must not be released after it."""
    if task.work is None or task.work.recover is ABSENT:
        return None
    cleaned = CleanedHost.from_cleanup(target_host, task.work.recover, check_mode)
    cleaned.check_nothing_lost()
    return cleaned


def _find_obstacles(ledger: Ledger | None, identity: HostIdentity, reports: Remembered, is_cleaned: bool) -> Obstacles:
    """:arg reports: what hosts remember.

    :arg is_cleaned: whether a cleanup has just looked for the copies of the evacuations that the ledger has lost.
    """
    if ledger is None:
        return Obstacles.from_records([], [], identity)
    records = ledger.list_records(statuses=sorted(UNSETTLED | TOMBSTONE))
    left = [] if is_cleaned else find_left_behind(ledger, reports, identity.host_id)
    missing = {one.id: one for one in [*left, *find_missing_records(ledger, reports)]}
    return Obstacles.from_records(records, missing.values(), identity)


def _check_newer(ledger: Ledger | None, host: str) -> None:
    """Raise L(NotSupported) if records that cannot be read may show that guests of the host run elsewhere."""
    newer = ledger.list_newer_records() if ledger else []
    if newer:
        raise NotSupported(
            f"{host} cannot be released: open records of the ledger were written by a later version, and may be of its guests: {', '.join(newer)}. "
            "Nothing was released or started there.",
            "Update the collection on this control node.",
        )


def _check_permitted(ledger: Ledger | None, identity: HostIdentity, fleet: t.Collection[str], obstacles: Obstacles) -> None:
    """Raise the error that forbids the release; the host then stays held."""
    found = find_own_entry(ledger, identity, fleet) if ledger else None
    if found is None:
        raise NotFound(
            f"The ledger does not know {identity.name}, so it cannot say whether its guests were started elsewhere.",
            "Use the ledger that the host was protected under, or protect it first (protect_host). Nothing was released.",
        )
    check_not_discarded(found.host)
    if obstacles.lost:
        raise Unsafe(
            f"{identity.name} cannot be released: {' '.join(map(missing_text, obstacles.lost))}",
            "The guests of the host stay held.",
            withheld_by=encode(obstacles.withheld_by),
        )
    if obstacles.withheld:
        why = "; ".join(f"{describe_record(record)} is '{record.status}'" for record in obstacles.withheld)
        raise Unsafe(
            f"{identity.name} cannot be released: {why}.",
            "Run evacuation_cleanup on the host, or settle the records with the module host. The guests of the host stay held.",
            withheld_by=encode(obstacles.withheld_by),
        )


def _withdraw_earlier_boots(ledger: Ledger, identity: HostIdentity, answer: GuardAnswer) -> None:
    """Withdraw what the watchdog of the host was seen to do in another boot than this one, in which guests are started from now on.

    This boot may never have a lease. The last lease would then be of the boot before, and look like that of a host which its watchdog has reset.
    """
    found = find_host_entry(ledger, identity)
    if found is not None:
        withdraw_watchdog(ledger, str(found.host.host_key), lambda seen: seen.boot_id == answer.guard.boot_id)
