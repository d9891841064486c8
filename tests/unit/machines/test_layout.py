# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names, addresses and identities of a fleet's machines."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError, UsageError
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import qemu
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import Fleet, plan_machines


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    fleet = Fleet("kvf", tmp_path)
    fleet.state.mkdir(parents=True)
    machines = [dataclasses.asdict(machine) for machine in plan_machines(3, {3: "trixie"}, "bookworm")]
    return fleet.write_settings({"machines": machines, "images": {"bookworm": "/b", "trixie": "/t"}, "accelerator": "tcg"})


@pytest.mark.parametrize("prefix", ["", "KVF", "1kvf", "kvf-a", "../x", "toolongprefix", "kvf\n"])
def test_an_invalid_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="prefix"):
        Fleet.named(prefix, "/c")


def test_a_cache_too_long_for_unix_sockets_is_refused() -> None:
    with pytest.raises(UsageError, match="too long"):
        Fleet.named("kvf", "/" + "x" * 80)


def test_a_fleet_that_is_not_up_names_the_up_command(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match="machines --prefix kvf up"):
        assert Fleet("kvf", tmp_path).machines


@pytest.mark.parametrize("hosts", [0, 5, -1])
def test_an_invalid_number_of_hosts_is_refused(hosts: int) -> None:
    with pytest.raises(UsageError, match="1 to 4 hosts"):
        plan_machines(hosts, {}, "bookworm")


def test_the_last_of_several_hosts_has_no_uuid_in_its_firmware() -> None:
    assert [machine.has_uuid for machine in plan_machines(3, {}, "bookworm")] == [True, True, False, True]
    assert [machine.has_uuid for machine in plan_machines(1, {}, "bookworm")] == [True, True]


def test_each_machine_has_its_own_name_address_and_identity(fleet: Fleet) -> None:
    assert [(machine.name, machine.address, machine.release) for machine in fleet.machines] == [
        ("m1", "10.178.0.11", "bookworm"),
        ("m2", "10.178.0.12", "bookworm"),
        ("m3", "10.178.0.13", "trixie"),
        ("nfs", "10.178.0.250", "bookworm"),
    ]
    assert [machine.name for machine in fleet.hosts] == ["m1", "m2", "m3"]
    assert len({machine.mac for machine in fleet.machines} | {str(machine.uuid) for machine in fleet.machines}) == 8


def test_an_unknown_machine_is_refused_with_the_known_ones(fleet: Fleet) -> None:
    with pytest.raises(UsageError, match="m1, m2, m3, nfs"):
        fleet.require_machine("m4")


def test_qemu_gets_a_uuid_only_for_machines_that_have_one(fleet: Fleet) -> None:
    first, third = (qemu.command(fleet, fleet.require_machine(name)) for name in ("m1", "m3"))
    assert first[first.index("-uuid") + 1] == str(fleet.require_machine("m1").uuid)
    assert "-uuid" not in third
    assert "-smbios" not in third


def test_kernel_arguments_have_name_address_and_nfs_role(fleet: Fleet) -> None:
    words = qemu.kernel_arguments(fleet.require_machine("m2")).split()
    assert {"systemd.hostname=m2", "machine.nfs=client", "ip=10.178.0.12::10.178.0.254:255.255.255.0:m2:eth0:none"} <= set(words)
    assert "machine.nfs=server" in qemu.kernel_arguments(fleet.require_machine("nfs")).split()


def test_an_upgrade_changes_release_and_image_of_a_machine_but_not_the_settings(fleet: Fleet) -> None:
    before = fleet.settings_file.read_text()
    (m1, m2, _m3, _nfs) = fleet.machines
    for machine in (m1, m2):
        fleet.folder(machine).mkdir()
    fleet.set_release(m2, "trixie", pathlib.Path("/t2"))
    assert [(fleet.release(machine), str(fleet.image(machine))) for machine in (m1, m2)] == [("bookworm", "/b"), ("trixie", "/t2")]
    assert fleet.settings_file.read_text() == before
