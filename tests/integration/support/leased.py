# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet whose ledger is in the lab's etcd, and whose hosts renew their leases there."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReader, SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, PLAY_SECONDS, Site

SETTINGS = "etcd.json"


class LeasedSite(Site):
    """A site on etcd; L(begin_cluster) was called for its lab. The hosts have leases once L(lease_hosts) was called."""

    options = ("-e", f"@{SETTINGS}")

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        super().__init__(lab, folder)
        self.etcd: dict[str, t.Any] = json.loads(lab("etcd", "variables"))
        (folder / SETTINGS).write_text(json.dumps(self.etcd), encoding="utf-8")
        self.where = str(self.etcd["kvmfleet_ledger"])
        address = parse_address(self.where)
        self.client = Client(address, read_options(self.etcd["kvmfleet_etcd"], address))
        self.reader = LeaseReader(self.client)

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.where, self.etcd["kvmfleet_etcd"])

    def _ledger_if_any(self) -> Ledger:
        return self.ledger

    def lease_hosts(self, **settings: t.Any) -> None:
        """Protect all hosts, which makes their identities; make their users of etcd; and give them leases.

        :arg settings: further keys of C(kvmfleet_lease).
        """
        self.protect()
        tls = {name: self.etcd["kvmfleet_etcd"][name] for name in ("cert_file", "key_file")}
        users = json.loads(self.lab("etcd", "host-users"))
        for number in HOSTS:
            self.variable(number, "kvmfleet_lease", {**users[self.lab.host(number)], **tls, **settings})
        command = ["ansible", "-i", self.inventory, "kvmfleet_hosts", "-m", "kvmfleet.migration.host_lease", *self.options]
        process = self.popen(command)
        text, dummy = process.communicate(timeout=PLAY_SECONDS)
        assert process.returncode == 0, text
        eventually(lambda: all(lease.held_since for lease in self.leases().values()) and len(self.leases()) == len(HOSTS), "all hosts have leases")

    def leases(self) -> dict[int, HostLease]:
        """Return the leases as etcd has them, by the number of the host."""
        return {number: seen.lease for number, seen in self.seen_leases().items()}

    def seen_leases(self) -> dict[int, SeenLease]:
        """Return the leases with the revisions at which they were renewed."""
        found = self.reader.read_leases().leases
        return {number: found[self.identity(number)] for number in HOSTS if self.identity(number) in found}

    def may_run(self, number: int) -> tuple[bool, str]:
        """Ask what the watchdog of a host would ask: whether it may keep running, and why."""
        done = self.lab.try_("lease", self.lab.host(number), "test")
        assert done.returncode in (0, 254), done
        return done.returncode == 0, done.stdout

    def state(self, number: int) -> dict[str, t.Any]:
        """Return what the service of a host says of itself."""
        return t.cast("dict[str, t.Any]", json.loads(self.lab("lease", self.lab.host(number), "status")))


def begin_cluster(lab: Lab) -> None:
    """Begin a new etcd of three members with certificates and users, which the hosts of the lab reach."""
    lab("etcd", "down")
    lab("etcd", "up", "--tls", "--users", "--network")
