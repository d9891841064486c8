# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A death without a person, for the demo: the leases of the hosts, the variables of the rulebook, and waiting until the guests run elsewhere."""

from __future__ import annotations

import json
import pathlib
import sys
import time
import typing as t

import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import range_end, range_read
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.timeline import read_timeline

GONE_AFTER_SECONDS = 20
BEGIN_SECONDS = 180
WAIT_SECONDS = 600


def read(path: str) -> t.Any:
    return yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))


def lease_variables(ledger: str, users: str) -> dict[str, t.Any]:
    """Return an inventory that gives each host its user of etcd, and the certificate that all have.

    :arg ledger: the file with the variables of the ledger.
    :arg users: the file with the users that the lab has made.
    """
    etcd = read(ledger)["all"]["vars"]["kvmfleet_etcd"]
    certificate = {name: etcd[name] for name in ("cert_file", "key_file")}
    return {"kvmfleet_hosts": {"hosts": {host: {"kvmfleet_lease": {**user, **certificate}} for host, user in read(users).items()}}}


def event_variables(hosts: str, ledger: str) -> dict[str, t.Any]:
    """Return the variables of an armed rulebook.

    :arg hosts: the inventory of the lab.
    """
    variables = read(ledger)["all"]["vars"]
    found = read(hosts)["all"]["children"]["kvmfleet_hosts"]["hosts"]
    return {
        "kvmfleet_events_hosts": {name: f"qemu+tcp://{host['ansible_host']}/system" for name, host in found.items()},
        "kvmfleet_events_gone_after_seconds": GONE_AFTER_SECONDS,
        "kvmfleet_events_evacuate": True,
        "kvmfleet_events_ledger": variables["kvmfleet_ledger"],
        "kvmfleet_events_etcd": variables["kvmfleet_etcd"],
    }


def wait_for_rulebook(ledger: str) -> str:
    """Wait until a rulebook takes part in the election of the one that acts. Raises C(TimeoutError)."""
    variables = read(ledger)["all"]["vars"]
    address = parse_address(variables["kvmfleet_ledger"])
    client = Client(address, read_options(variables["kvmfleet_etcd"], address))
    start, deadline = f"{address.prefix}locks/events-host_gone/", time.monotonic() + BEGIN_SECONDS
    while time.monotonic() < deadline:
        if client.read_range(range_read(start, range_end(start))).found:
            return "The rulebook listens."
        time.sleep(1)
    raise TimeoutError(f"The rulebook does not listen after {BEGIN_SECONDS} s.")


def wait_for_guests(ledger: str, source: str, count: int) -> list[str]:
    """Wait until that many guests of the host run elsewhere, and return a line for each of them. Raises C(TimeoutError)."""
    variables = read(ledger)["all"]["vars"]
    known, deadline = open_ledger(variables["kvmfleet_ledger"], variables["kvmfleet_etcd"]), time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        records = [record for record in known.list_records(types=[s.EVACUATION], statuses=[s.DONE]) if record.source.host == source]
        if len(records) >= count:
            return [f"{record.domain.name} -> {record.destination.host}  {timeline.text}" for record in records if (timeline := read_timeline(record))]
        time.sleep(1)
    raise TimeoutError(f"Not all of {count} guests of {source} run elsewhere after {WAIT_SECONDS} s.")


if __name__ == "__main__":
    verb, *given = sys.argv[1:]
    if verb == "wait":
        print("\n".join(wait_for_guests(given[0], given[1], int(given[2]))))
    elif verb == "listen":
        print(wait_for_rulebook(*given))
    else:
        print(json.dumps(lease_variables(*given) if verb == "leases" else event_variables(*given)))
