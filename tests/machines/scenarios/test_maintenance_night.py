# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A night over three hosts: QEMU is upgraded from an older build of the archive to the newest by the example tasks of the collection, libvirt is reinstalled,
and each host really reboots.

The second host hangs in its first boot. Its BMC switches it off and on.
"""

from __future__ import annotations

import json
import pathlib

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Run
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support import qemu_builds
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.upgrade import REINSTALL

# For hangs only: under emulation, a host takes ten to twenty minutes.
NIGHT_SECONDS = 3 * 3600
# Under emulation a reboot takes three minutes, and beside other work some times as long. A host that is only slow must not be fenced.
REBOOT_SECONDS = 1200
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# A boot that waits before the network is up, until somebody switches the machine off. Only the next one does.
HANG_ONCE = """
cat >/etc/systemd/system/hang-once.service <<'END'
[Unit]
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target network-pre.target
ConditionPathExists=/var/lib/hang-once
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'rm /var/lib/hang-once; sync; exec sleep infinity'
[Install]
WantedBy=sysinit.target
END
systemctl -q enable hang-once.service
touch /var/lib/hang-once
sync
"""
GUESTS = {"web": 1, "db": 1, "mail": 2}


def test_a_night_upgrades_three_hosts_and_brings_one_back_that_hangs(machines: Machines, site: Site, tmp_path: pathlib.Path) -> None:
    qemu_builds.share_builds(site, tmp_path)
    for number in machines.numbers:
        qemu_builds.install_old_build(machines, number)
    for name, number in GUESTS.items():
        machines("guest", name, "--host", machines.host(number), "--mib", "24")
    machines.on(2, HANG_ONCE)
    site.succeed("protect", target="kvmfleet_hosts")
    before = {number: machines.on(number, BOOT_ID) for number in machines.numbers}

    run = carry_out_night(site, tmp_path)
    assert run.code == 0, run.text
    assert run.stats["rolling_maintenance_result"] == {machines.host(number): "done" for number in machines.numbers}

    newest = qemu_builds.list_versions()[0]
    assert {qemu_builds.installed_version(machines, number) for number in machines.numbers} == {newest}
    assert [number for number in machines.numbers if machines.on(number, BOOT_ID) == before[number]] == []
    (night,) = [document.maintenance_run for document in site.ledger.list_maintenance_runs()]
    assert night.state == "finished"
    assert [line.host for line in night.history if line.event == "host_fenced"] == [machines.host(2)]
    assert {document.host.state for document in site.ledger.list_hosts()} == {"enabled"}
    assert {name: number for number, names in machines.active().items() for name in names} == GUESTS
    assert {record["status"] for record in site.records()} == {"completed"}
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [host["status"] for host in report["maintenance_runs"][0]["hosts"]] == ["done"] * 3
    site.verify_audit()


def carry_out_night(site: Site, folder: pathlib.Path) -> Run:
    """Run the night and write its report."""
    examples = pathlib.Path(site.environment["ANSIBLE_COLLECTIONS_PATH"]) / "ansible_collections/kvmfleet/migration/playbooks/tasks"
    upgrade = {"name": "Upgrade QEMU", "ansible.builtin.include_tasks": str(examples / "upgrade_hypervisor.yml")}
    reinstall = {"name": "Install libvirt again", "ansible.builtin.shell": REINSTALL, "changed_when": True}
    tasks = folder / "upgrade.yml"
    tasks.write_text(json.dumps([upgrade, reinstall]), encoding="utf-8")
    process = site.begin_book(
        "rolling_maintenance",
        target="kvmfleet_hosts",
        rolling_maintenance_tasks=str(tasks),
        rolling_maintenance_verify_tasks=str(examples / "verify_hypervisor.yml"),
        verify_hypervisor_qemu="7.2",
        verify_hypervisor_libvirt="9.0",
        rolling_maintenance_reboot=True,
        rolling_maintenance_reboot_timeout_seconds=REBOOT_SECONDS,
        rolling_maintenance_home=True,
        rolling_maintenance_one_more=True,
        recover_host_timeout_seconds=REBOOT_SECONDS,
    )
    text = process.communicate(timeout=NIGHT_SECONDS)[0]
    print(text, flush=True)
    site.succeed("report", report_dest=str(folder), report_formats=["json"])
    return Run(process.returncode, text)
