# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the kernel of a host, as parsers read them and as a tree of files below a folder."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import kernel_load as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.measurements import ProcessorTimes

PRESSURE = "some avg10=73.62 avg60=90.56 avg300=79.60 total=1059109492\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
STAT = "cpu  100 20 30 1000 40 5 6 7 90 3\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
SCOPE = "machine.slice/machine-qemu\\x2d1\\x2dweb1.scope"
NETWORK = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n  br0: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
DISKS = "   8       0 sda 10 0 100 5 20 0 300 6 0 7 8\n 253       0 dm-0 1 0 100 5 20 0 300 6 0 7 8\n   8  1 short\n"


def test_pressure_is_that_of_some_tasks() -> None:
    assert m.parse_pressure(PRESSURE) == m.Pressure(1059109492, pytest.approx(0.796))


@pytest.mark.parametrize("text", ["", "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", "some avg10=1 avg60=1 avg300=x total=1\n", "some\n"])
def test_what_is_no_pressure_is_unknown(text: str) -> None:
    assert m.parse_pressure(text) is None


def test_guest_time_is_counted_once_and_steal_is_not_in_use() -> None:
    assert m.parse_cpu_times(STAT) == m.CpuTimes(used=161, steal=7, total=1208)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu  100 20 30 -1 40 5 6 7\n", "cpu0 1 2 3 4 5 6 7 8\n"])
def test_incomplete_processor_times_are_unknown(text: str) -> None:
    assert m.parse_cpu_times(text) is None


def test_used_memory_is_what_is_not_available() -> None:
    assert m.parse_used_memory_mib("MemTotal:       4096 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n") == 3
    assert m.parse_used_memory_mib("MemTotal:       4096 kB\nMemAvailable:\n") is None


def test_counters_of_interfaces_and_disks_are_read_by_name() -> None:
    assert m.parse_network_bytes(NETWORK) == {"eth0": 1500, "br0": 18}
    assert m.parse_disk_bytes(DISKS) == {"sda": 400 * 512, "dm-0": 400 * 512}


@pytest.mark.parametrize(
    ("path", "group"),
    [
        (f"/{SCOPE}/libvirt/emulator", SCOPE),
        (f"/{SCOPE}", SCOPE),
        ("/machine/qemu-1-web1.libvirt-qemu/emulator", "machine/qemu-1-web1.libvirt-qemu"),
        ("/system.slice/libvirtd.service", None),
        ("/", None),
        (f"/../{SCOPE}", None),
    ],
)
def test_only_the_own_control_group_of_a_domain_counts(path: str, group: str | None) -> None:
    assert m.find_own_group(f"9:name=systemd:/other\n0::{path}\n") == group


def test_a_host_without_version_two_has_no_group() -> None:
    assert m.find_own_group("4:memory:/machine/qemu-1-web1.libvirt-qemu\n") is None


class Tree:
    """A folder with files of the kernel."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def put(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    return Tree(tmp_path)


def test_a_host_without_any_of_the_files_knows_nothing(tree: Tree) -> None:
    nothing = m.HostKernelLoad(dict.fromkeys(("cpu", "memory", "io")), None, None, None, None, None)
    assert m.KernelFiles(str(tree.root)).read_host() == nothing


def test_only_devices_with_hardware_behind_them_are_counted(tree: Tree) -> None:
    for path, text in {"proc/net/dev": NETWORK, "proc/diskstats": DISKS, "proc/pressure/io": PRESSURE, "proc/stat": STAT}.items():
        tree.put(path, text)
    tree.put("sys/class/net/eth0/device/vendor")
    tree.put("sys/class/net/br0/mtu", "1500")
    tree.put("sys/block/sda/device/model")
    tree.put("sys/kernel/mm/ksm/pages_sharing", "2560\n")
    read = m.KernelFiles(str(tree.root)).read_host()
    assert (read.network_bytes, read.disk_bytes) == (1500, 400 * 512)
    assert read.ksm_saved_mib == 2560 * os.sysconf("SC_PAGE_SIZE") // 1024**2
    assert [resource for resource, pressure in read.pressures.items() if pressure] == ["io"]


def put_process(tree: Tree, group: str) -> None:
    tree.put("run/libvirt/qemu/web1.pid", "4711\n")
    tree.put("proc/4711/stat", f"4711 (qemu (x) y) S {' '.join(['1'] * 18)} 8899 0\n")
    tree.put("proc/4711/cgroup", f"0::/{group}/libvirt/emulator\n")
    tree.put("proc/4711/task/1/comm", "CPU 0/KVM\n")
    tree.put("proc/4711/task/1/schedstat", "1000 200 3\n")


def test_the_process_of_a_domain_has_the_pressure_of_its_group(tree: Tree) -> None:
    put_process(tree, SCOPE)
    tree.put(f"sys/fs/cgroup/{SCOPE}/cpu.pressure", PRESSURE)
    read = m.KernelFiles(str(tree.root)).read_process("web1")
    assert read
    assert (read.process, read.has_group, read.processors) == ("4711-8899", True, ProcessorTimes(1000, 200))
    assert read.pressures == {"cpu": m.parse_pressure(PRESSURE), "memory": None, "io": None}


def test_a_group_is_also_found_where_version_one_is_in_use_beside_it(tree: Tree) -> None:
    put_process(tree, SCOPE)
    tree.put(f"sys/fs/cgroup/unified/{SCOPE}/io.pressure", PRESSURE)
    read = m.KernelFiles(str(tree.root)).read_process("web1")
    assert read
    assert read.pressures["io"]


def test_a_group_that_is_not_the_own_one_has_no_pressure(tree: Tree) -> None:
    put_process(tree, "system.slice/libvirtd.service")
    tree.put("sys/fs/cgroup/system.slice/libvirtd.service/cpu.pressure", PRESSURE)
    read = m.KernelFiles(str(tree.root)).read_process("web1")
    assert read
    assert (read.has_group, set(read.pressures.values())) == (False, {None})


@pytest.mark.parametrize("pid", ["", "x", "4712"])
def test_a_process_that_cannot_be_found_is_unknown(tree: Tree, pid: str) -> None:
    put_process(tree, SCOPE)
    tree.put("run/libvirt/qemu/web1.pid", pid)
    assert m.KernelFiles(str(tree.root)).read_process("web1") is None
