# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.reading import job_stats, job_words, parse_definition, state_words
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal

XML = """
<domain type='kvm'>
  <name>web1</name>
  <memory unit='KiB'>1048576</memory>
  <vcpu placement='static' current='1'>2</vcpu>
  <os><type>hvm</type>{os}</os>
  <devices>{devices}</devices>
</domain>
"""
DISKS = """
<disk type='file' device='disk'><source file='/images/a &amp; b.qcow2' index='1'/><target dev='vda'/></disk>
<disk type='block' device='disk'><source dev='/dev/vg/b'/><target dev='vdb'/><shareable/></disk>
<disk type='network' device='disk'><source protocol='nbd' name='export'><host name='10.0.0.9'/></source><target dev='vdc'/></disk>
<disk type='file' device='cdrom'><target dev='sda'/></disk>
<disk type='volume' device='disk'><source pool='default' volume='v'/><target dev='vdd'/><readonly/></disk>
<disk type='nvme'><source type='pci' namespace='1'><address domain='0' bus='0x01' slot='0' function='0'/></source><target dev='vde'/></disk>
<disk type='vhostuser'><source type='unix' path='/run/disk.sock'/><target dev='vdf'/></disk>
"""


def parsed(xml: str = XML, os: str = "", devices: str = "") -> t.Dict[str, t.Any]:
    return parse_definition(xml.format(os=os, devices=devices))


def test_memory_and_vcpus_are_parsed() -> None:
    assert (parsed()["memory_bytes"], parsed()["vcpus"]) == (1024**3, 1)
    assert parsed("<domain><vcpu>2</vcpu></domain>")["vcpus"] == 2


@pytest.mark.parametrize(("unit", "memory"), [("unit='MiB'", 512 * 1024**2), ("unit='GB'", 512 * 1000**3), ("unit='bytes'", 512), ("", 512 * 1024)])
def test_units_of_memory_are_converted_to_bytes(unit: str, memory: int) -> None:
    assert parsed(f"<domain><memory {unit}>512</memory></domain>")["memory_bytes"] == memory


def test_disks_of_every_kind_are_parsed() -> None:
    assert parsed(devices=DISKS)["disks"] == (
        domain_states.Disk("vda", "file", "/images/a & b.qcow2"),
        domain_states.Disk("vdb", "block", "/dev/vg/b", shareable=True),
        domain_states.Disk("vdc", "network", "export"),
        domain_states.Disk("sda", "file", "", readonly=True),
        domain_states.Disk("vdd", "volume", "v", readonly=True),
        domain_states.Disk("vde", "nvme", "pci:0000:01:00.0/1"),
        domain_states.Disk("vdf", "vhostuser", "/run/disk.sock"),
    )


def test_a_floppy_is_writable_unless_it_is_readonly() -> None:
    floppy = "<disk type='file' device='floppy'><source file='/a.img'/><target dev='fda'/>{}</disk>"
    assert parsed(devices=floppy.format(""))["disks"] == (domain_states.Disk("fda", "file", "/a.img"),)
    assert parsed(devices=floppy.format("<readonly/>"))["disks"] == (domain_states.Disk("fda", "file", "/a.img", readonly=True),)


@pytest.mark.parametrize(
    ("os", "devices", "nvram", "tpm"),
    [
        ("", "", False, False),
        ("<nvram>/var/lib/n.fd</nvram>", "", True, False),
        ("", "<tpm><backend type='emulator'/></tpm>", False, True),
        ("", "<tpm><backend type='passthrough'/></tpm>", False, False),
    ],
)
def test_nvram_and_an_emulated_tpm_are_found(os: str, devices: str, nvram: bool, tpm: bool) -> None:
    found = parsed(os=os, devices=devices)
    assert (found["has_nvram"], found["has_tpm"]) == (nvram, tpm)


def test_an_empty_definition_has_defaults() -> None:
    assert parsed("<domain/>") == {"memory_bytes": 0, "vcpus": 1, "disks": (), "has_nvram": False, "has_tpm": False, "policy_xml": ""}


def test_a_definition_that_is_not_xml_is_an_internal_error() -> None:
    with pytest.raises(Internal, match="not XML"):
        parsed("<domain>")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((1, 1), (domain_states.RUNNING, "booted")),
        ((1, 10), (domain_states.RUNNING, domain_states.POST_COPY)),
        ((1, 11), (domain_states.RUNNING, domain_states.POST_COPY_FAILED)),
        ((2, 0), (domain_states.RUNNING, "")),
        ((3, 2), (domain_states.PAUSED, domain_states.MIGRATION)),
        ((3, 11), (domain_states.PAUSED, domain_states.STARTING_UP)),
        ((3, 12), (domain_states.PAUSED, domain_states.POST_COPY)),
        ((3, 13), (domain_states.PAUSED, domain_states.POST_COPY_FAILED)),
        ((3, 14), (domain_states.PAUSED, "API error")),
        ((3, 99), (domain_states.PAUSED, "")),
        ((5, 4), (domain_states.SHUTOFF, "migrated")),
        ((6, 1), (domain_states.CRASHED, "panicked")),
        ((4, 0), (domain_states.OTHER_STATE, "in shutdown")),
        ((4, 1), (domain_states.OTHER_STATE, "in shutdown")),
        ((7, 0), (domain_states.OTHER_STATE, "pmsuspended")),
        ((99, 99), (domain_states.OTHER_STATE, "")),
        ((1, 99), (domain_states.RUNNING, "")),
    ],
)
def test_states_and_reasons_are_translated_to_words(numbers: t.Tuple[int, int], words: t.Tuple[str, str]) -> None:
    assert state_words(*numbers) == words


@pytest.mark.parametrize(
    ("stats", "word"),
    [
        ({"type": 2, "operation": 5}, domain_states.JOB_OUTGOING),
        ({"type": 1, "operation": 5}, domain_states.JOB_OUTGOING),
        ({"type": 2, "operation": 4}, domain_states.JOB_INCOMING),
        ({"type": 2, "operation": 9}, domain_states.JOB_OTHER),
        ({"type": 2}, domain_states.JOB_OTHER),
        ({"type": 0, "operation": 5}, domain_states.JOB_NONE),
        ({"type": 3, "operation": 5}, domain_states.JOB_NONE),
        ({"type": 5, "operation": 5}, domain_states.JOB_NONE),
        ({}, domain_states.JOB_NONE),
    ],
)
def test_the_kind_of_a_job_follows_type_and_operation(stats: t.Dict[str, int], word: str) -> None:
    assert job_words(stats) == word


def test_statistics_of_a_job_are_in_bytes_including_the_dirty_rate() -> None:
    stats = job_stats({"time_elapsed": 1500, "memory_dirty_rate": 100, "memory_page_size": 4096, "memory_bps": 7, "auto_converge_throttle": 20})
    assert (stats.elapsed_ms, stats.dirty_rate_bytes, stats.bandwidth_bytes, stats.throttle_percent) == (1500, 409600, 7, 20)
    assert job_stats({"memory_dirty_rate": 1, "memory_page_size": 16384}).dirty_rate_bytes == 16384


def test_missing_statistics_of_a_job_have_defaults() -> None:
    assert job_stats({}) == domain_states.JobStats()


def test_statistics_of_later_versions_are_ignored() -> None:
    assert job_stats({"vfio_data_transferred": 4096, "memory_bps": 7}) == job_stats({"memory_bps": 7})


@pytest.mark.parametrize("vcpu", ["many", "-1", "4294967295", "9" * 5000])
def test_an_invalid_number_of_vcpus_is_an_error(vcpu: str) -> None:
    with pytest.raises(Internal):
        parse_definition(f"<domain><memory>1</memory><vcpu>{vcpu}</vcpu></domain>")


def test_xml_nested_deeper_than_libvirt_writes_it_is_refused() -> None:
    with pytest.raises(Internal, match="nested more than 256 times"):
        parse_definition("<a>" * 300 + "</a>" * 300)
    parse_definition("<a>" * 256 + "</a>" * 256)
