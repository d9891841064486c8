# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that renew leases in a real etcd: a thread stands for the service of each. The view that it has of its lease is that of the service."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.view import OwnView
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet, LeaseWatchdog, ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import put_key

LEASE_SECONDS, RESET_SECONDS = 2, 1
_PAUSE_SECONDS = 0.2
FLEET = LeaseFleet("f" * 64, 3)
WATCHDOG = LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 1, nowayout=True, bound=True, reset_seconds=RESET_SECONDS)


def protected_watchdog(boot_id: str = "boot 1", **changes: t.Any) -> ProtectedWatchdog:
    """Return what C(protect) saw of a host."""
    seen = {"held_at_boot": True, "armed": True, "device": "/dev/watchdog0", "identity": "i6300ESB timer", "timeout_seconds": 1}
    return ProtectedWatchdog(boot_id=boot_id, **{**seen, "nowayout": True, "bound": True, "reset_seconds": RESET_SECONDS, **changes})


class RenewingHost:
    """One host, from its start until L(die)."""

    def __init__(self, location: str, host_id: str, name: str, boot_id: str = "boot 1", fleet: LeaseFleet = FLEET) -> None:
        self._client = Client(parse_address(location), EtcdOptions())
        self._client.patience_seconds = 1.0
        self._made = (host_id, name, boot_id)
        self._fleet = fleet
        self._count = 0
        self._view = OwnView()
        self._revision = 0
        self._over = threading.Event()
        self.renew()
        self.renew()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Renew the lease once."""
        self._count += 1
        sent = time.monotonic()
        host_id, name, boot_id = self._made
        told = (host_id, name, boot_id, self._count, self._view.since(sent), LEASE_SECONDS, 1, self._fleet, "direct", "")
        lease = HostLease(*told, self._revision, WATCHDOG)
        done = self._client.run_transaction([], [put_key(f"{self._client.address.prefix}leases/{host_id}", json.dumps(encode(lease)))], [])
        self._revision = done.revision
        self._view = self._view.acknowledge(self._count, sent, time.monotonic(), LEASE_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            with contextlib.suppress(KvmfleetError):
                self.renew()

    def die(self) -> None:
        """End it: when this returns, nothing is renewed any more."""
        self._over.set()
        self._thread.join()
