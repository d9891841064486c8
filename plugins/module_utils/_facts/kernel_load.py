# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the kernel of this host knows of its load: pressure stall information, CPU time, memory, bytes of networks and disks.

Sources: Documentation/accounting/psi.rst and Documentation/admin-guide/cgroup-v2.rst of Linux, proc(5).
"""

from __future__ import annotations

import os
import re
import typing as t

from .._dataclass import dataclass
from .._proc_files import parse_number, parse_start_ticks
from .measurements import ProcessorTimes, sum_processor_times

RESOURCES = ("cpu", "memory", "io")
_PRESSURE = re.compile(r"^some avg10=[0-9.]+ avg60=[0-9.]+ avg300=([0-9]{1,3}\.[0-9]{2}) total=([0-9]{1,20})$", re.ASCII | re.MULTILINE)
_SECTOR_BYTES = 512
_MIB = 1024**2
# The control group of a domain: as systemd names the scope that libvirt requests, and as libvirt names its own where systemd does not run.
_OWN_GROUP = re.compile(r"machine-qemu.*\.scope|.*\.libvirt-qemu")
# Where control groups of version 2 are mounted; the second one where version 1 is in use beside it.
_GROUP_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")


class Pressure(t.NamedTuple):
    """Pressure stall information of one resource, its line "some": microseconds since the boot, and the share of the last 300 s, 0 to 1."""

    total_us: int
    recent_share: float


class CpuTimes(t.NamedTuple):
    """CPU time of all processors of the host since its boot, in clock ticks. Guests are in C(used), idle time is only in C(total)."""

    used: int
    steal: int
    total: int


@dataclass(frozen=True)
class HostKernelLoad:
    """What the kernel reports of the host. Null is what this kernel does not have, or what cannot be read.

    :arg pressures: by resource.
    """

    pressures: t.Mapping[str, t.Optional[Pressure]]
    cpu: t.Optional[CpuTimes]
    memory_used_mib: t.Optional[int]
    ksm_saved_mib: t.Optional[int]
    network_bytes: t.Optional[int]
    disk_bytes: t.Optional[int]


@dataclass(frozen=True)
class ProcessKernelLoad:
    """What the kernel reports of the process of a domain.

    :arg process: identifies the process: its ID and its start.
    :arg has_group: whether the domain has a control group of its own.
    """

    process: str
    has_group: bool
    pressures: t.Mapping[str, t.Optional[Pressure]]
    processors: t.Optional[ProcessorTimes]


def parse_pressure(text: str) -> t.Optional[Pressure]:
    """Return what a file of pressure stall information contains; null if it has no line "some"."""
    found = _PRESSURE.search(text)
    return Pressure(int(found[2]), min(float(found[1]) / 100, 1.0)) if found else None


def parse_cpu_times(text: str) -> t.Optional[CpuTimes]:
    """Return the times of all processors in C(/proc/stat); null if they are not there."""
    fields = next((line.split()[1:] for line in text.splitlines() if line.startswith("cpu ")), [])
    numbers = [parse_number(field) for field in fields[:8]]
    if len(numbers) < 8 or None in numbers:
        return None
    user, nice, system, idle, waiting, interrupts, soft_interrupts, steal = t.cast(t.List[int], numbers)
    used = user + nice + system + interrupts + soft_interrupts
    return CpuTimes(used, steal, used + idle + waiting + steal)


def parse_used_memory_mib(text: str) -> t.Optional[int]:
    """Return the memory in C(/proc/meminfo) that is not available, in MiB; null if it is not there."""
    lines = {name: value.split() for name, _colon, value in (line.partition(":") for line in text.splitlines())}
    total, available = (parse_number(lines[name][0]) if lines.get(name) else None for name in ("MemTotal", "MemAvailable"))
    return None if total is None or available is None else max(0, total - available) // 1024


def parse_network_bytes(text: str) -> t.Dict[str, int]:
    """Return how many bytes each network interface in C(/proc/net/dev) has received and sent."""
    sums = {}
    for name, _colon, value in (line.rpartition(":") for line in text.splitlines()):
        fields = [parse_number(field) for field in value.split()]
        if len(fields) >= 9 and fields[0] is not None and fields[8] is not None:
            sums[name.strip()] = fields[0] + fields[8]
    return sums


def parse_disk_bytes(text: str) -> t.Dict[str, int]:
    """Return how many bytes were read from and written to each block device in C(/proc/diskstats)."""
    sums = {}
    for fields in (line.split() for line in text.splitlines()):
        sectors = [parse_number(fields[5]), parse_number(fields[9])] if len(fields) >= 10 else []
        if sectors and None not in sectors:
            sums[fields[2]] = sum(t.cast(t.List[int], sectors)) * _SECTOR_BYTES
    return sums


def find_own_group(text: str) -> t.Optional[str]:
    """Return the control group of a domain from C(/proc/PID/cgroup) of its process, as a path below the root of version 2; null if it has none of its own."""
    path = next((line[len("0::") :] for line in text.splitlines() if line.startswith("0::/")), "")
    parts = path.strip("/").split("/")
    own = next((number for number, part in enumerate(parts) if _OWN_GROUP.fullmatch(part)), None)
    return None if own is None or ".." in parts else "/".join(parts[: own + 1])


class KernelFiles:
    """Reads C(/proc) and C(/sys) of this host. A file that cannot be read counts as missing.

    :arg root: the folder that contains them.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def read_host(self) -> HostKernelLoad:
        """Return what the kernel reports of the host."""
        return HostKernelLoad(
            pressures={resource: parse_pressure(self._read(f"proc/pressure/{resource}")) for resource in RESOURCES},
            cpu=parse_cpu_times(self._read("proc/stat")),
            memory_used_mib=parse_used_memory_mib(self._read("proc/meminfo")),
            ksm_saved_mib=self._read_ksm(),
            network_bytes=self._sum_physical(parse_network_bytes(self._read("proc/net/dev")), "sys/class/net"),
            disk_bytes=self._sum_physical(parse_disk_bytes(self._read("proc/diskstats")), "sys/block"),
        )

    def read_process(self, name: str) -> t.Optional[ProcessKernelLoad]:
        """Return what the kernel reports of the process of a domain; null if this user cannot read it, or if the domain has stopped."""
        pid = parse_number(self._read(f"run/libvirt/qemu/{name}.pid").strip())
        started = parse_start_ticks(self._read(f"proc/{pid}/stat")) if pid else None
        if started is None:
            return None
        group = find_own_group(self._read(f"proc/{pid}/cgroup"))
        pressures = {resource: self._read_group_pressure(group, resource) for resource in RESOURCES}
        return ProcessKernelLoad(f"{pid}-{started}", group is not None, pressures, self._read_processors(pid))

    def _read_group_pressure(self, group: t.Optional[str], resource: str) -> t.Optional[Pressure]:
        texts = (self._read(f"{folder}/{group}/{resource}.pressure") for folder in _GROUP_ROOTS) if group else ()
        return next((found for found in map(parse_pressure, texts) if found), None)

    def _read_processors(self, pid: t.Optional[int]) -> t.Optional[ProcessorTimes]:
        try:
            return sum_processor_times(os.path.join(self._root, f"proc/{pid}/task"))
        except (OSError, ValueError, IndexError):
            return None

    def _read_ksm(self) -> t.Optional[int]:
        pages = parse_number(self._read("sys/kernel/mm/ksm/pages_sharing").strip())
        return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE") // _MIB

    def _sum_physical(self, counters: t.Mapping[str, int], folder: str) -> t.Optional[int]:
        """Return the sum over devices with hardware behind them: bridges, bonds and mapped disks would count the same bytes again. Null if there are none."""
        physical = [count for name, count in counters.items() if os.path.exists(os.path.join(self._root, folder, name, "device"))]
        return sum(physical) if physical else None

    def _read(self, path: str) -> str:
        try:
            with open(os.path.join(self._root, path), encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except (OSError, ValueError):
            return ""
