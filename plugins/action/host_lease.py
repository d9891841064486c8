# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(host_lease): makes the configuration of the host from inventory, ledger and etcd."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from collections.abc import Callable, Iterable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, host_lease_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LEASES_FOLDER, ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import delete_key
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries, read_hosts, withdraw_watchdog
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.lease_config import connect, plan_lease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import LedgerLocation


@dataclass(frozen=True)
class _LeaseTask:
    """The options of C(host_lease)."""

    uri: str
    ledger: t.Optional[str]
    state: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "host_lease"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return host_lease_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Install the service with the configuration for this host, or remove it."""
        task = decode(_LeaseTask, args)
        location = self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger)
        return self._install(task, location, task_vars) if task.state == "present" else self._remove(task, location, task_vars)

    def _install(self, task: _LeaseTask, location: LedgerLocation, task_vars: Result) -> JsonObject:
        client, options = connect(location)
        ledger = open_ledger(*location, create=False)
        plan = plan_lease(self.target_host(task_vars), self.settings(task_vars), ledger, client, options)
        outdated = [] if self._task.check_mode else _list_outdated(ledger, self.target_host(task_vars), plan.keeps_reset)
        watchdog = encode(plan.watchdog) if plan.watchdog else None
        work: JsonObject = {
            "config": encode(plan.config),
            "tls": dict(plan.tls),
            "least_count": plan.least_count,
            "watchdog": watchdog,
            "ledger_id": ledger.ledger_id,
            "check": bool(self._task.check_mode),
        }
        if outdated:
            self.run_phase("install", {**work, "check": True}, task.uri, task_vars, is_secret=True)
            _withdraw_evidence(ledger, outdated)
        done = self.run_phase("install", work, task.uri, task_vars, is_secret=True)
        warnings = [*plan.warnings, *t.cast("list[str]", done.get("warnings") or ()), *ledger.problems]
        result: Result = {key: done[key] for key in ("changed", "files", "systemd")}
        result["fleet"] = [peer.name for peer in plan.config.fleet]
        return {**result, "warnings": warnings} if warnings else result

    def _remove(self, task: _LeaseTask, location: LedgerLocation, task_vars: Result) -> JsonObject:
        host = self.target_host(task_vars)
        with _removal_errors(host):
            ledger = open_if_any(*location)
            outdated = _list_outdated(ledger, host) if ledger and not self._task.check_mode else []
        work: JsonObject = {"ledger_id": ledger.ledger_id if ledger else None, "check": bool(self._task.check_mode)}
        if ledger and outdated:
            self.run_phase("remove", {**work, "check": True}, task.uri, task_vars)
            with _removal_errors(host):
                _withdraw_evidence(ledger, outdated)
        done = self.run_phase("remove", work, task.uri, task_vars)
        result: Result = {key: done[key] for key in ("changed", "files", "systemd")}
        warnings = list(t.cast("list[str]", done.get("warnings") or ()))
        if not self._task.check_mode:
            warnings += _forget_lease_if_any(location, self.target_host(task_vars))
        return {**result, "warnings": warnings} if warnings else result


def _list_outdated(ledger: Ledger, host: str, still_counts: Callable[[ProtectedWatchdog], bool] = lambda seen: False) -> list[HostEntry]:
    """Return the host's entries with evidence of a watchdog that will not count any more.

    Raises L(Conflict) if the document that has it cannot be read now, but may be later.
    """
    hosts, named = read_hosts(ledger), HostRef(host, None, None)
    own = [entry for entry in hosts.entries if entry.name == host]
    lost = next((one for one in hosts.unreadable if one.is_host(named) or not (own or one.newer)), None)
    if lost:
        raise Conflict(
            f"The ledger has no entry of {host} that can be read, so what it has of the watchdog of {host} cannot be withdrawn. {lost.problem}",
            f"Nothing was changed on {host}.",
        )
    return [entry for entry in own if entry.protected and entry.protected.watchdog and not still_counts(entry.protected.watchdog)]


def _withdraw_evidence(ledger: Ledger, outdated: Iterable[HostEntry]) -> None:
    """Withdraw what the watchdog was seen to do, before the host does less: its last renewal in etcd may say for ever that the watchdog is bound.

    To be called when the host was found to accept the change. One that cannot be reached may have been reset just now, and is never protected again.
    """
    for entry in outdated:
        withdraw_watchdog(ledger, str(entry.host_key))


@contextlib.contextmanager
def _removal_errors(host: str) -> Iterator[None]:
    """Raise L(Unreachable) with a sentence if the ledger does not answer before the watchdog of a host is unbound."""
    try:
        yield
    except Unreachable as error:
        raise Unreachable(
            f"The service of the lease of {host} was not removed: the ledger, which may take a later silence of {host} for a reset by its watchdog, does not"
            f" answer. {error.message}",
            "Run the task again when the ledger answers. Nothing was changed.",
        ) from error


def _forget_lease_if_any(location: LedgerLocation, host: str) -> list[str]:
    """Remove the key; return a warning if it stays in etcd."""
    try:
        _forget_lease(location, host)
    except InvalidArgument:
        # A ledger in a folder has no leases.
        return []
    except KvmfleetError as error:
        return [f"The lease of the host stays in etcd: {error}"]
    return []


def _forget_lease(location: LedgerLocation, host: str) -> None:
    """Remove the key of a host that renews it no more."""
    client, _options = connect(location)
    entries = list_entries(open_ledger(*location, create=False))
    for host_id in (entry.host_id for entry in entries if entry.name == host and entry.host_id):
        client.run_transaction([], [delete_key(f"{client.address.prefix}{LEASES_FOLDER}/{host_id}")], [])
