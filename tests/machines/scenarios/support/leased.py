# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of machines whose ledger is in an etcd at the control node, whose hosts renew leases there, and whose watchdogs reset them without one."""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LEASES_FOLDER, HostLease, LeaseWatchdog
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import make_reader
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.etcd import PREFIX, Cluster
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import CONTROL_ADDRESS
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.sockets import Monitor

from .machines import Machines, eventually
from .site import Site

ALL = "kvmfleet_hosts"
_LISTEN_SECONDS = 24 * 3600.0
# Under emulation a renewal takes seconds, and so does a test.
LEASE: dict[str, t.Any] = {"lease_seconds": 45, "renew_seconds": 5, "watchdog": {"seconds": 20}}


class LeasedSite(Site):
    """The control node of such a fleet. The test is in the network of the fleet as long as the site is used."""

    def __init__(self, machines: Machines, folder: pathlib.Path, cluster: Cluster) -> None:
        super().__init__(machines, folder)
        self.cluster = cluster
        self.where = cluster.location()
        self.variables: dict[str, t.Any] = {"kvmfleet_ledger": self.where, "kvmfleet_etcd": cluster.options}
        self.set_variables(self.variables)
        self._reader = make_reader(self.where, read_options(cluster.options, parse_address(self.where)))

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.where, self.cluster.options)

    def _ledger_if_any(self) -> Ledger:
        return self.ledger

    def do_everywhere(self, module: str, **arguments: t.Any) -> None:
        """Run one module on all hosts; it has to end well."""
        begun = time.monotonic()
        command = self.ad_hoc_command(1, module, arguments)
        command[command.index(self.name(1))] = ALL
        process = self.popen(command)
        text = self.finish(process)
        print(f"{module} everywhere: {process.returncode} after {time.monotonic() - begun:.0f} s", flush=True)
        assert process.returncode == 0, text

    def lease_hosts(self) -> None:
        """Protect all hosts, give each a user of etcd, a lease and a watchdog, and protect them again, which records the watchdogs."""
        self.do_everywhere("protect", guard=True)
        tls = {name: self.cluster.options[name] for name in ("cert_file", "key_file")}
        for number in self.machines.numbers:
            user = f"lease-{self.name(number)}"
            password = self.cluster.add_writer(user, f"{PREFIX}/{LEASES_FOLDER}/{self.identity(number)}")
            self.set_host_variable(number, "kvmfleet_lease", {"user": user, "password": password, **tls, **LEASE})
        self.do_everywhere("host_lease")
        eventually(lambda: len(self.bound()) == len(self.machines.numbers), "all leases are bound to watchdogs")
        self.do_everywhere("protect", guard=True)

    def identity(self, number: int) -> str:
        return self.machines.on(number, "cat /var/lib/kvmfleet/host-id").strip()

    def leases(self) -> dict[str, HostLease]:
        """Return the leases as etcd has them, by the name of the host."""
        return {seen.lease.name: seen.lease for seen in self._reader.read_leases().leases.values()}

    def watchdog(self, number: int) -> LeaseWatchdog | None:
        return self.leases()[self.name(number)].watchdog or None

    def bound(self) -> set[str]:
        """Return the hosts whose leases are held and bound."""
        return {name for name, lease in self.leases().items() if lease.held_since and lease.watchdog and lease.watchdog.bound and lease.watchdog.nowayout}

    def refused(self, number: int, module: str, **arguments: t.Any) -> Outcome:
        outcome = self.do(number, module, **arguments)
        assert outcome.code, outcome.text
        return outcome

    def daemon(self, number: int) -> str:
        """Return the process of the watchdog daemon of a host."""
        return self.machines.on(number, "cat /run/watchdog.pid").strip()


def list_uris(group: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return where events of each host are followed: over SSH, with the key of the fleet.

    :arg group: the hosts in the inventory of the fleet.
    """
    query = f"no_tty=1&no_verify=1&keyfile={group['vars']['ansible_ssh_private_key_file']}"
    return {name: f"qemu+ssh://root@{one['ansible_host']}/system?{query}" for name, one in group["hosts"].items()}


def begin_cluster(folder: pathlib.Path) -> Cluster:
    """Begin an etcd of three members with users, which the machines reach; called within the network of the fleet."""
    cluster = Cluster(folder)
    cluster.up(3, tls=True, prefix=PREFIX, address=CONTROL_ADDRESS)
    return cluster


class Resets:
    """The resets of all hosts from now on: QEMU announces each at its moment.

    Entries are the name of the machine, C(WATCHDOG) or C(RESET), and the monotonic time.
    """

    def __init__(self, machines: Machines) -> None:
        self.seen: list[tuple[str, str, float]] = []
        self._over = threading.Event()
        fleet = machines.fleet
        for machine in fleet.hosts:
            # A machine that is off now may be switched on later.
            monitor = Monitor(fleet.folder(machine) / "monitor.sock", _LISTEN_SECONDS)
            threading.Thread(target=self._listen, args=(machine.name, monitor), daemon=True).start()

    def _listen(self, name: str, monitor: Monitor) -> None:
        while not self._over.is_set():
            with contextlib.suppress(LabError):
                for event in monitor.events():
                    if event["event"] in ("WATCHDOG", "RESET"):
                        self.seen.append((name, event["event"], time.monotonic()))
                    if self._over.is_set():
                        return
            self._over.wait(1)

    def of(self, name: str) -> list[float]:
        """Return when a machine was reset by its watchdog."""
        return [at for one, event, at in self.seen if one == name and event == "WATCHDOG"]

    def end(self) -> None:
        """Let others talk to the monitors again."""
        self._over.set()


def write_figures(figures: t.Mapping[str, object]) -> None:
    """Print what was measured."""
    print(f"figures: {json.dumps(figures)}", flush=True)
