# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A reader of a guide whose hosts are whole machines, and whose ledger is in an etcd at the control node.

What a guide says of the lease of one host is done for each, and times are those of emulation. Used within the network of the fleet.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import re
import typing as t

import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LEASES_FOLDER
from ansible_collections.kvmfleet.migration.tests.integration.guides.support import guide as g
from ansible_collections.kvmfleet.migration.tests.integration.guides.support.reader import Reader
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.etcd import PREFIX, Cluster
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.etcddata import access_environment
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import bmc
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import CONTROL_ADDRESS

from .leased import LEASE, list_uris
from .machines import Machines, eventually
from .site import AGENT, PLAY_SECONDS

GONE_AFTER_SECONDS = 60
# The host, and its ID, of which the guide speaks where it means each one.
_EXAMPLE, _EXAMPLE_ID = "kvm2", "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"
_EXAMPLE_KEYS, _KEYS = f"/kvmfleet/{LEASES_FOLDER}/", f"{PREFIX}/{LEASES_FOLDER}/"
_LEDGER, _STATE = "etcd://10.0.0.21:2379,10.0.0.22:2379,10.0.0.23:2379/kvmfleet", "$HOME/.local/state"
_SECOND_ADDRESS = "kvmfleet_second_address"
# Of each host and each group, the guide has one file; the reader has what is needed to reach the machines beside it.
_VARIABLES = re.compile(r"(group_vars|host_vars)/(\w+)\.yml")
_UNTIL = re.compile(r"drill_until=\S+")
_WINDOW = datetime.timedelta(hours=6)
# What is shown is that a drill works; its seconds are those of emulation.
_DRILL = "-e drill_limit_seconds=1800 -e drill_deadline_seconds=3600"


class MachineReader(Reader):
    """A reader whose hosts are machines.

    :arg cluster: an etcd with certificates and users, among them the ledger's.
    """

    place = g.ON_MACHINES
    limit_seconds = 4 * PLAY_SECONDS

    def __init__(self, machines: Machines, folder: pathlib.Path, cluster: Cluster) -> None:
        self.machines, self.cluster = machines, cluster
        hosts = machines.fleet.hosts
        super().__init__(folder, "m", {str(number): machine.address for number, machine in zip(machines.numbers, hosts, strict=True)})
        group = yaml.safe_load(pathlib.Path(machines("inventory").strip()).read_text(encoding="utf-8"))["all"]["children"]["kvmfleet_hosts"]
        self._uris = list_uris(group)
        passwords = {f"{host}_lease_password": os.urandom(12).hex() for host in ("kvm1", "kvm2", "kvm3")}
        fencing = {machine.name: {"agent": AGENT, "options": bmc.fence_options(machine), "timeout_seconds": 120} for machine in hosts}
        variables = {"kvmfleet_fencing": "{{ reader_fencing[inventory_hostname] }}", "reader_fencing": fencing}
        vault = {f"vault_{name}": password for name, password in passwords.items()}
        self.write("inventory/group_vars/kvmfleet_hosts/reader.json", json.dumps({**group["vars"], **variables, **vault}))
        self.environment.update(access_environment(cluster), ETCDCTL_USER=f"root:{cluster.settings['root_password']}")
        self.environment.update({name.upper(): password for name, password in passwords.items()})

    def follow(self, steps: t.Iterable[g.Step]) -> None:
        super().follow(one for step in steps for one in self._of_each_host(step))

    def _of_each_host(self, step: g.Step) -> list[g.Step]:
        if f"lease-{_EXAMPLE}" not in step.text:
            return [step]
        return [dataclasses.replace(step, argument=self._of(number, step.argument), text=self._of(number, step.text)) for number in self.machines.numbers]

    def _of(self, number: int, text: str) -> str:
        host = f"kvm{number}"
        own = text.replace(_EXAMPLE, host).replace(_EXAMPLE.upper(), host.upper())
        if _EXAMPLE_ID not in own:
            return own
        return own.replace(_EXAMPLE_KEYS, _KEYS).replace(_EXAMPLE_ID, self.machines.on(number, "cat /var/lib/kvmfleet/host-id").strip())

    def translate(self, text: str) -> str:
        return super().translate(text.replace(_LEDGER, self.cluster.location()).replace(_STATE, self.environment["XDG_STATE_HOME"]))

    def adapt(self, path: str, values: dict[str, t.Any]) -> dict[str, t.Any]:
        own: dict[str, t.Any] = {name: self.cluster.options for name in ("kvmfleet_etcd", "kvmfleet_events_etcd") if name in values}
        if "kvmfleet_lease" in values:
            tls = {name: self.cluster.options[name] for name in ("cert_file", "key_file")}
            times = {name: LEASE[name] for name in ("lease_seconds", "renew_seconds")}
            own["kvmfleet_lease"] = {**values["kvmfleet_lease"], **tls, **times}
        if "kvmfleet_events_hosts" in values:
            own.update(kvmfleet_events_hosts=self._uris, kvmfleet_events_gone_after_seconds=GONE_AFTER_SECONDS)
        is_of_another = _SECOND_ADDRESS in values and pathlib.PurePath(path).stem != _EXAMPLE
        return {name: own.get(name, value) for name, value in values.items() if not (is_of_another and name == _SECOND_ADDRESS)}

    def write(self, name: str, text: str) -> None:
        super().write(_VARIABLES.sub(r"\1/\2/guide.yml", name), text)

    def run(self, command: str) -> int:
        until = (datetime.datetime.now(datetime.timezone.utc) + _WINDOW).strftime("%Y-%m-%dT%H:%M:%SZ")
        return super().run(_UNTIL.sub(f"drill_until={until} {_DRILL}", command))

    def act(self, verb: str, *arguments: str) -> None:
        if verb == "guest":
            name, _host, host, *_options = arguments
            self.guests.append(name)
            self.machines(verb, name, "--host", host, "--mib", "24")
        elif verb == "second-address":
            self._add_second_address(*arguments)
        elif verb == "armed":
            eventually(lambda: "Evacuation on events is armed for m1, m2, m3" in self.read_beside(), "the rulebook is armed")
        else:
            raise AssertionError(f"Machines have no verb {verb}.")

    def _add_second_address(self, host: str, address: str) -> None:
        """Give a machine an address on another network, in which the control node has one, too."""
        device = f"$(ip -o -4 address show to {CONTROL_ADDRESS} | cut -d ' ' -f 2)"
        assert self.run(f"ip address add {address.rpartition('.')[0]}.254/24 dev {device}") == 0, self.printed
        number = int(host[-1])
        self.machines.on(number, f"ip address add {address}/24 dev $(ip -o -4 route get {CONTROL_ADDRESS} | sed 's/.* dev \\([^ ]*\\).*/\\1/')")
