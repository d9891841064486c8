# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of hosts and of their guests, from the host itself and over a remote connection."""

from __future__ import annotations

import time
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.tests.integration.facts.conftest import Connect
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Facts, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

MIB = 1024**2
Make = t.Callable[..., str]
# What only a host itself can tell.
OF_ITSELF = ["host_id", "machine_id", "boot_id", "ledger_id", "mounts", "bridges", "interfaces", "interface_details", "firmware_files"]


def domain_of(facts: Facts, name: str) -> Facts:
    (found,) = [domain for domain in facts["domains"] if domain["name"] == name]
    return t.cast("Facts", found)


def disk_of(facts: Facts, name: str) -> Facts:
    (found,) = domain_of(facts, name)["request"]["disks"]
    return t.cast("Facts", found)


def test_facts_of_a_host_are_complete(lab: Lab, control: Control) -> None:
    facts = control.facts(1)
    assert (facts["hostname"], facts["arch"], facts["unverified"]) == (lab.host(1), "x86_64", [])
    assert len(facts["cpu_ids"]) == facts["cpus"] > 0
    assert facts["numa_cells"]
    assert {cpu for cell in facts["numa_cells"] for cpu in cell["cpus"]} == {*facts["cpu_ids"]}
    assert all(0 < cell["free_mib"] <= cell["total_mib"] for cell in facts["numa_cells"])
    assert 4 not in {page["size_kib"] for cell in facts["numa_cells"] for page in cell["pages"]}
    assert {"br0", "lo"} <= {*facts["interfaces"]}
    assert "br0" in facts["bridges"]
    assert "lo" not in facts["bridges"]
    # The lab's hosts have a network of their own, of which udev does not know; what it tells are the machine's interfaces.
    assert "lo" in facts["net_devices"]
    kinds = {mount["kind"] for mount in facts["mounts"]}
    assert "fuse.glusterfs" in kinds
    assert "proc" not in kinds
    (pool,) = [pool for pool in facts["pools"] if pool["name"] == "default"]
    assert (pool["type"], pool["active"], pool["path"]) == ("dir", True, "/var/lib/libvirt/images")
    assert 0 < pool["available_bytes"] <= pool["capacity_bytes"]


def test_facts_list_the_machines_and_cpu_models_a_host_can_run(lab: Lab, control: Control, guest: Make) -> None:
    facts = control.facts(1)
    (emulated,) = [one for one in facts["platforms"] if (one["arch"], one["virt_type"]) == ("x86_64", "qemu")]
    machine = ElementTree.fromstring(lab.virsh(1, "dumpxml", guest("web", "--mib", "32"))).find("os/type").get("machine")  # type: ignore[union-attr]
    assert {machine, "pc", "q35"} <= {*emulated["machines"]}
    assert {"cx16", "sse2"} <= {*emulated["cpu"]["features"]}
    assert "qemu64" in emulated["cpu"]["usable_models"]
    assert emulated["max_vcpus"] >= 255
    assert "sse2" in facts["host_cpu"]["features"]
    assert [one["cpu"] for one in facts["platforms"] if one["arch"] == "i686"] in ([None], [None, None])


def test_saved_memory_is_known_after_the_daemon_of_libvirt_was_restarted(lab: Lab, control: Control, guest: Make) -> None:
    """libvirt forgets then why the domain is off."""
    saved, off = guest("saved", "--mib", "32"), guest("off", "--mib", "32")
    lab.virsh(1, "managedsave", saved)
    lab.virsh(1, "destroy", off)
    lab("libvirtd", lab.host(1), "restart")
    eventually(lambda: lab.rows()[lab.host(1)]["libvirtd"], "libvirtd answers")
    facts = control.facts(1)
    found = [domain_of(facts, name) for name in (saved, off)]
    assert [(one["state"], one["reason"], one["managed_save"]) for one in found] == [("shut off", "", True), ("shut off", "", False)]
    lab.virsh(1, "managedsave-remove", saved)


def test_facts_list_domains_in_every_state_with_their_requests(lab: Lab, control: Control, guest: Make) -> None:
    guest("web", "--mib", "48", "--bridge", "br0", "--autostart")
    guest("held", "--mib", "32", "--paused", "--transient")
    guest("off", "--mib", "32", "--off")
    facts = control.facts(1)
    seen = {name: domain_of(facts, name) for name in ("web", "held", "off")}
    states = {name: tuple(domain[key] for key in ("state", "active", "persistent", "autostart", "job")) for name, domain in seen.items()}
    assert states == {
        "web": ("running", True, True, True, "none"),
        "held": ("paused", True, False, False, "none"),
        "off": ("shut off", False, True, False, "none"),
    }
    needs = seen["web"]["request"]
    assert seen["web"]["uuid"] == lab.uuid("web")
    assert {key: needs[key] for key in ("memory_mib", "vcpus", "arch", "virt_type", "blockers", "pinning", "numa", "hugepages", "devices", "tpm")} == {
        "memory_mib": 48,
        "vcpus": 1,
        "arch": "x86_64",
        "virt_type": "qemu",
        "blockers": [],
        "pinning": None,
        "numa": None,
        "hugepages": [],
        "devices": [],
        "tpm": False,
    }
    assert needs["networks"] == [{"type": "bridge", "source": "br0"}]
    assert needs["hypervisor"] == facts["versions"]["hypervisor"]
    assert (needs["cpu"]["mode"], needs["cpu"]["model"]) == ("custom", "qemu64")


def test_disks_are_shared_or_local_by_their_store(control: Control, guest: Make) -> None:
    for kind in ("shared", "bindfs", "nbd", "local"):
        guest(kind, "--mib", "32", "--storage", kind)
    facts = control.facts(1)
    disks = {kind: disk_of(facts, kind) for kind in ("shared", "bindfs", "nbd", "local")}
    assert {kind: disk["shared"] for kind, disk in disks.items()} == {"shared": False, "bindfs": True, "nbd": True, "local": False}
    assert disks["nbd"]["store"].startswith("nbd:")
    assert all(disks[kind]["bytes"] > 0 for kind in ("shared", "bindfs", "local"))


def test_facts_over_a_remote_connection_lack_only_what_the_host_alone_knows(control: Control, guest: Make, connect: Connect) -> None:
    guest("web", "--mib", "32", "--storage", "shared")
    own = control.facts(1)
    found, warnings = gather_facts(connect(1))
    seen = encode(found)
    assert warnings == []
    assert [seen[key] for key in OF_ITSELF] == [None] * len(OF_ITSELF)
    assert seen["unverified"] == OF_ITSELF
    # When the control node received them is added there.
    assert set(seen) == set(own) - {"received"}
    for key in ("host_uuid", "hostname", "versions", "arch", "cpu_ids", "platforms", "host_cpu", "networks", "devices", "traits"):
        assert seen[key] == own[key]
    web, same = domain_of(own, "web"), domain_of(seen, "web")
    assert (disk_of(seen, "web")["shared"], disk_of(seen, "web")["bytes"]) == (None, None)
    for domain in (web, same):
        domain["request"].pop("disks")
    # Only the host itself sees how much memory the process of a guest has.
    assert web.pop("used_mib") >= 0
    assert same == web


def test_snapshots_are_reported_as_blockers(lab: Lab, control: Control, guest: Make) -> None:
    guest("kept", "--mib", "32", "--storage", "shared", "--off")
    lab.virsh(1, "snapshot-create-as", "kept", "before")
    try:
        (blocker,) = domain_of(control.facts(1), "kept")["request"]["blockers"]
        assert "snapshots" in blocker
    finally:
        lab.virsh(1, "snapshot-delete", "kept", "before")


def test_facts_list_two_hundred_domains(lab: Lab, control: Control, connect: Connect) -> None:
    names = [f"many{number:03d}" for number in range(200)]
    xml = "<domain type='qemu'><name>{}</name><memory unit='MiB'>16</memory><os><type arch='x86_64'>hvm</type></os></domain>"
    connection = connect(1)._connection
    try:
        for name in names:
            connection.defineXML(xml.format(name))
        facts = control.facts(1)
        assert {domain["name"] for domain in facts["domains"]} >= {*names}
        assert {domain_of(facts, name)["request"]["memory_mib"] for name in names} == {16}
    finally:
        for domain in connection.listAllDomains():
            if domain.name() in names:
                domain.undefine()


def test_the_dirty_rate_is_measured_on_request(control: Control, guest: Make) -> None:
    guest("busy", "--mib", "96", "--dirty-mib", "64", "--rate", "8000")
    guest("held", "--mib", "32", "--paused")
    assert domain_of(control.facts(1), "busy")["dirty_rate_mib"] is None
    facts = control.facts(1, dirty_rate_seconds=1)
    assert domain_of(facts, "busy")["dirty_rate_mib"] > 0
    assert domain_of(facts, "held")["dirty_rate_mib"] is None


def test_dirty_rates_are_started_and_read_without_waiting(lab: Lab, guest: Make, connect: Connect) -> None:
    guest("busy", "--mib", "96", "--dirty-mib", "64", "--rate", "8000")
    guest("idle", "--mib", "32")
    guest("off", "--mib", "32", "--off")
    host, uuids = connect(1), [lab.uuid(name) for name in ("busy", "idle", "off")]
    assert host.read_dirty_rates(uuids) == {}
    host.start_dirty_rates([*uuids, "00000000-0000-4000-8000-000000000001"], 1)
    assert host.read_dirty_rates(uuids[:1]) == {}
    time.sleep(2)
    rates = host.read_dirty_rates(uuids)
    assert {*rates} == {*uuids[:2]}
    assert rates[uuids[0]] >= 8 * MIB > rates[uuids[1]]
    lab.virsh(1, "destroy", "busy")
    assert {*host.read_dirty_rates(uuids)} == {uuids[1]}


def test_used_memory_is_what_a_guest_has_written(lab: Lab, control: Control, guest: Make) -> None:
    guest("idle", "--mib", "256")
    guest("full", "--mib", "256", "--dirty-mib", "200")
    eventually(lambda: domain_of(control.facts(1), "full")["used_mib"] > 195, "the guest has written its memory")
    facts = control.facts(1)
    assert domain_of(facts, "idle")["used_mib"] < 8
    assert 195 < domain_of(facts, "full")["used_mib"] < 215
    lab.virsh(1, "migrate", "--live", "--p2p", "--persistent", "--undefinesource", "full", f"qemu+tcp://{lab.host(2)}/system")
    assert 195 < domain_of(control.facts(2), "full")["used_mib"] < 215


def test_a_link_is_probed_at_its_rate_and_a_silent_host_is_omitted(lab: Lab, control: Control) -> None:
    lab("slow", lab.host(1), "--mbit", "128")
    try:
        links = control.facts(1, link_to=[lab.host(2), "qemu+tcp://192.0.2.1/system"])["links"]
    finally:
        lab("heal", lab.host(1))
    # 128 Mbit/s are 15 MiB/s, headers included; what the cable takes at once is sent faster.
    assert {*links} == {lab.host(2)}
    assert 5 < links[lab.host(2)] < 60
    assert control.facts(1, link_to=[lab.host(2)])["links"][lab.host(2)] > 60


@pytest.mark.long
def test_the_dirty_rate_of_a_moving_guest_is_not_measured(lab: Lab, control: Control, endless: str) -> None:
    running = control.begin_move(endless, **HELD)
    lab.under_way(lab.uuid(endless))
    domain = domain_of(control.facts(1, dirty_rate_seconds=1), endless)
    assert (domain["job"], domain["dirty_rate_mib"]) == ("outgoing migration", None)
    arriving = domain_of(control.facts(2), endless)
    assert (arriving["active"], arriving["job"], arriving["request"]["memory_mib"]) == (True, "incoming migration", 96)
    lab.virsh(1, "domjobabort", endless)
    running.wait()
    assert lab.places(endless) == {1: "running"}


@pytest.mark.long
def test_a_dirty_rate_time_out_of_range_is_refused(lab: Lab, control: Control) -> None:
    for seconds in (-1, 61):
        module = ["-m", "kvmfleet.migration.host_facts", "-a", f"dirty_rate_seconds={seconds}"]
        assert Running(control.popen(["ansible", "-i", control.inventory, lab.host(1), *module])).wait().refused() == "invalid_argument"
