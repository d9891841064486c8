# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves between machines: a drain that leaves nothing on its host, across a real reboot; and a source that loses its power while it saves memory."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

FOLDER = "/srv/images/saved"
# The memory then takes a minute to reach the NFS server.
SLOW_MBIT = "4"


def set_policy(site: Site, name: str, **fields: t.Any) -> None:
    process = site.popen(site.ad_hoc_command(1, "domain_policy", {"name": name, **fields}, ledger=False))
    text = site.finish(process)
    assert process.returncode == 0, text


def saved(machines: Machines) -> list[str]:
    """Return the files in the folder of saved memory."""
    return machines.on(2, f"ls {FOLDER}").split()


def autostart(machines: Machines, name: str, number: int) -> str:
    return machines.on(number, f"virsh -q dominfo {name} | sed -n 's/^Autostart: *//p'").strip()


def test_nothing_is_left_on_a_drained_host_before_and_after_its_reboot(machines: Machines, site: Site) -> None:
    machines.on(1, f"mkdir {FOLDER}")
    machines("guest", "memory", "--host", "m1", "--mib", "32", "--dirty-mib", "8", "--rate", "50")
    machines("guest", "polite", "--host", "m1", "--mib", "24", "--acpi")
    machines("guest", "archive", "--host", "m1", "--mib", "24", "--off", "--autostart")
    site.succeed("protect", target="kvmfleet_hosts")
    set_policy(site, "memory", drain="save")
    set_policy(site, "polite", drain="shutdown")

    site.succeed("drain", target="m1", drain_host_shut_off="move", drain_host_restart=True, drain_host_save_folder=FOLDER)
    drained = machines.known()
    assert drained[1] == {}
    machines("reboot", "m1")
    assert machines.known() == drained
    (where,) = [number for number in (2, 3) if "archive" in drained[number]]
    assert sorted((*drained[2].items(), *drained[3].items())) == [("archive", "shut off"), ("memory", "running"), ("polite", "running")]
    assert (autostart(machines, "archive", where), saved(machines)) == ("enable", [])
    assert {record["domain"]["name"]: record["method"] for record in site.records()} == {"archive": "offline", "memory": "save", "polite": "shutdown"}
    assert {record["status"] for record in site.records()} == {"completed"}


def test_a_source_that_loses_its_power_while_it_saves_memory_keeps_its_guest(machines: Machines, site: Site) -> None:
    machines.on(1, f"mkdir {FOLDER}")
    machines("guest", "busy", "--host", "m1", "--mib", "64", "--dirty-mib", "40", "--rate", "50", "--autostart")
    site.succeed("protect", target="kvmfleet_hosts")
    task = site.begin_task(1, "cold_migrate", name="busy", destination="m2", method="save", save_folder=FOLDER)
    eventually(lambda: machines.known()[2].get("busy"), "m2 has the definition")
    machines("netem", "m1", "--rate-mbit", SLOW_MBIT)
    eventually(lambda: "saving" in machines.run(1, "virsh", "-q", "domstate", "--reason", "busy").out, "the memory is being saved")
    machines("poweroff", "m1")
    text = site.finish(task)
    assert task.returncode != 0, text
    (record,) = site.records()
    assert record["status"] == "running", text

    machines("heal", "m1")
    machines("poweron", "m1")
    # Neither host may start it: it is not decided yet where it belongs.
    assert machines.known() == {1: {"busy": "shut off"}, 2: {"busy": "shut off"}, 3: {}}
    assert {autostart(machines, "busy", number) for number in (1, 2)} == {"disable"}

    settled = site.do(1, "host", settle={"id": record["id"], "status": "failed"}, reason="its source lost its power")
    assert settled.code == 0, settled.text
    (record,) = site.records()
    assert record["status"] == "failed"
    assert "Its guest ended before its memory was saved, and will start from its disks." in record["history"][-1]["detail"]
    assert machines.known() == {1: {"busy": "shut off"}, 2: {}, 3: {}}
    assert (autostart(machines, "busy", 1), saved(machines)) == ("enable", [])
    # The host is in service again, and starts what belongs to it.
    site.succeed("recover", target="m1")
    site.check_end_state({1: {"busy"}, 2: set(), 3: set()}, ("busy", "failed", record["reason"], "m1", "m2"))
