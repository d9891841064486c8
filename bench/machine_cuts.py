# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power cuts of whole machines from seeds, with a real ansible-rulebook, leases that are bound to watchdogs, and BMCs.

Under emulation everything takes several times as long; what counts is that no guest runs twice. A fleet of machines has to be up.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

import yaml

from ansible_collections.kvmfleet.migration.bench.power_cuts import REPEATED, Cuts, make_parser, make_section, report, run_cuts
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.namespaces import entered_network
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.leased import LeasedSite, begin_cluster, list_uris
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually

GUESTS = ("g0", "g1", "g2")
_NOTE = """The same on three whole Debian machines under emulation, where all takes several times as long, and a silent host counts as gone after {seconds} s;
with BMCs (ipmi_sim) and with watchdogs that are bound to the leases. What counts is that no guest runs twice. `make machine-cuts`."""


class MachineCuts(Cuts):
    """Power cuts of machines; one that was cut off is fenced by its BMC, or reset by its watchdog before."""

    def __init__(self, site: LeasedSite, gone_after: int) -> None:
        super().__init__(site, site.cluster.options, gone_after)
        self._machines, self._leased_site = site.machines, site
        site.set_variables({**site.variables, **REPEATED})
        for number, name in zip(self._machines.numbers, GUESTS, strict=True):
            self._machines("guest", name, "--host", self._machines.host(number), "--mib", "24")
        site.lease_hosts()
        inventory = yaml.safe_load((pathlib.Path(self._site.inventory) / "hosts.yml").read_text(encoding="utf-8"))
        self.events = {"kvmfleet_events_hosts": list_uris(inventory["all"]["children"]["kvmfleet_hosts"])}

    def list_active(self) -> dict[int, set[str]]:
        return self._machines.active()

    def list_running(self) -> list[str]:
        # The machines are asked without a network.
        return [name for guests in self._machines.active().values() for name in guests]

    def kill(self, number: int) -> None:
        self._machines("poweroff", self._machines.host(number))

    def isolate(self, number: int) -> None:
        self._machines("cut", self._machines.host(number))

    def restore(self, number: int) -> None:
        host = self._machines.host(number)
        self._machines("heal", host)
        self._machines("poweron", host)
        eventually(lambda: number in self.list_active(), "the host answers")
        # A move home takes minutes under emulation, and is shown elsewhere.
        self._leased_site.succeed("recover", target=host, recover_host_bring_home=False)
        self._forget_incident()
        self._leased_site.do_everywhere("protect", guard=True)
        eventually(lambda: len(self._leased_site.bound()) == len(GUESTS), "all leases are bound to watchdogs")


def main() -> int:
    """Cut, and report the figures."""
    wanted = make_parser(__doc__).parse_args()
    machines = Machines(os.environ["KVMFLEET_MACHINES_PREFIX"])
    machines("reset")
    with tempfile.TemporaryDirectory() as folder, entered_network(machines.fleet.namespace):
        (pathlib.Path(folder) / "site").mkdir()
        cluster = begin_cluster(pathlib.Path(folder) / "etcd")
        try:
            done = run_cuts(MachineCuts(LeasedSite(machines, pathlib.Path(folder) / "site", cluster), wanted.gone_after), wanted)
        finally:
            cluster.down()
    return report(make_section("Power cuts of whole machines", _NOTE.format(seconds=wanted.gone_after), done, None), wanted.page, "machine-cuts")


if __name__ == "__main__":
    sys.exit(main())
