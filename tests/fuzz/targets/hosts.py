# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What libvirt and the kernel of a host tell: statistics of jobs, tables of mounts, XML of devices."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.qemu_locks import probe_lock
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.identity import _parse_kernel, _read_setting
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.kernel_load import (
    RESOURCES,
    HostKernelLoad,
    find_own_group,
    parse_cpu_times,
    parse_disk_bytes,
    parse_network_bytes,
    parse_pressure,
    parse_used_memory_mib,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.load_means import NO_EARLIER_READING, count_host, describe_host_load
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.load_readings import ReadingStore
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import identify_store, innermost_mount, read_mounts
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.reading import job_stats, job_words, state_words
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import downtime
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import AdaptiveSchedule
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Limits, MonitorState, Samples, decide_actions, measure_progress
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import parse_ids
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.load_signals import LoadReading

from .. import sandbox
from ..mutation import mutated
from ..target import Target

_JOB = {
    "type": 2,
    "operation": 5,
    "time_elapsed": 1200,
    "downtime": 30,
    "setup_time": 2,
    "data_processed": 1000,
    "memory_total": 2**30,
    "memory_processed": 2**29,
    "memory_remaining": 2**28,
    "memory_bps": 2**26,
    "memory_dirty_rate": 100,
    "memory_page_size": 4096,
    "memory_iteration": 3,
    "disk_total": 0,
    "disk_processed": 0,
    "disk_remaining": 0,
    "auto_converge_throttle": 20,
}
_MOST = 2**64
_LIMITS = Limits(AdaptiveSchedule(30, 500), timeout_seconds=2, stall_seconds=60)


def check_job(stats: t.Any) -> None:
    """Read statistics of a job: libvirt's binding gives whole numbers of 64 bits, but any of them, and leaves out what it does not know."""
    if not isinstance(stats, dict) or not all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST for key, value in stats.items() if key in _JOB
    ):
        return
    assert job_words(stats) in (domain_states.JOB_NONE, domain_states.JOB_INCOMING, domain_states.JOB_OUTGOING, domain_states.JOB_OTHER)
    state_words(stats.get("type", 0), stats.get("operation", 0))
    read = job_stats(stats)
    progress = measure_progress(read, 0, 2**28)
    assert 0 <= progress.percent <= 99
    Samples().add_sample(read, read.elapsed_ms, 30)
    downtime.read_iterations(read, 500, downtime.read_iterations(read, 30, downtime.Iterations()))
    _actions, watched = decide_actions(read, 1.0, _LIMITS, MonitorState())
    decide_actions(read, 3.0, _LIMITS, watched)
    json.dumps(encode(progress))


_MOUNTS = (
    b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
    b"40 35 0:50 / /srv/with\\040blank rw shared:7 - nfs4 nas:/export rw\n41 35 0:51 /a /x rw - ceph b,a:/x rw\n",
)


def check_tables(data: bytes) -> None:
    """Read tables of the kernel, a configuration of libvirt's, and an image whose locks are asked for."""
    root = sandbox.laid_out("tables", {"mountinfo": data})
    mounts = read_mounts(str(root / "mountinfo"))
    for mount in mounts:
        identify_store(mount)
    innermost_mount("/srv/a/b", {mount.path for mount in mounts})
    text = data.decode("utf-8", "replace")
    _parse_kernel(text)
    _read_setting(text, "namespaces")
    parse_ids(text)
    probe_lock(str(root / "mountinfo"))


_PRESSURE = b"some avg10=73.62 avg60=90.56 avg300=79.60 total=1059109492\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
_BOOT_ID = "7d4d5b8e-e2f3-46d4-a53e-8ff89d6c581e"
_LOAD = (
    _PRESSURE + b"cpu  100 20 30 1000 40 5 6 7 90 3\n",
    b"MemTotal:       4096 kB\nMemAvailable:   1024 kB\n  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n",
    b"   8       0 sda 10 0 100 5 20 0 300 6 0 7 8\n0::/machine.slice/machine-qemu\\x2d1\\x2dweb1.scope/libvirt/emulator\n",
    b'{"at": {"boot_id": "' + _BOOT_ID.encode() + b'", "seconds": 100.5}, "host": {"cpu_used_ticks": 5}, "domains": {"a": {"process": "1-2", "cpu_ns": 3}}}',
)


def check_load(data: bytes) -> None:
    """Read tables of the load, and a stored reading; a mean is a share or null, and a value that is null has a reason."""
    text = data.decode("utf-8", "replace")
    group = find_own_group(text)
    assert group is None or ".." not in group.split("/")
    network, disks = (sum(counters.values()) if counters else None for counters in (parse_network_bytes(text), parse_disk_bytes(text)))
    kernel = HostKernelLoad(dict.fromkeys(RESOURCES, parse_pressure(text)), parse_cpu_times(text), parse_used_memory_mib(text), None, network, disks)
    now = LoadReading(BootMoment(_BOOT_ID, 200.0), count_host(kernel), {})
    earlier = ReadingStore(str(sandbox.laid_out("load", {"100.json": data}))).find_earlier(now.at, 300)
    load = describe_host_load(kernel, now, earlier, NO_EARLIER_READING)
    assert all(share is None or 0 <= t.cast(float, share) <= 1 for share in (load.cpu_pressure, load.memory_pressure, load.io_pressure))
    assert {name for name, value in encode(load).items() if value is None} == {*(load.unknown or {})}
    json.dumps(encode(load))


TARGETS = [
    Target.of_bytes("load", check_load, *_LOAD),
    Target("job_statistics", check_job, mutated(_JOB)),
    Target.of_bytes("host_tables", check_tables, *_MOUNTS, b"5.10.0-9-amd64\n", b'namespaces = [ "mount" ]\n# x\n', b"0-3,^2,8"),
]
