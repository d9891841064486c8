# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load between two readings."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import load_means as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.kernel_load import RESOURCES, CpuTimes, HostKernelLoad, Pressure, ProcessKernelLoad
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.measurements import ProcessorTimes
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import DomainUse
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import NOT_REPORTED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.load_signals import DomainCounters, DomainLoad, HostCounters, HostLoad, LoadReading

BOOT = "7d4d5b8e-e2f3-46d4-a53e-8ff89d6c581e"
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
SILENT = "libvirt is silent"
SECOND = 10**9
MEANS = ("cpu_used_share", "cpu_steal_share", "network_bytes_per_second", "disk_bytes_per_second")


def pressures(total_us: int = 30_000_000, recent: float = 0.2) -> t.Dict[str, t.Optional[Pressure]]:
    return dict.fromkeys(RESOURCES, Pressure(total_us, recent))


KERNEL = HostKernelLoad(pressures(), CpuTimes(used=6000, steal=200, total=20000), 4096, 12, 5000, 9000)
BEFORE = HostCounters(24_000_000, 30_000_000, 15_000_000, 2000, 100, 10000, 2000, 9000)
PROCESS = ProcessKernelLoad("4711-8899", True, pressures(), ProcessorTimes(50 * SECOND, 9 * SECOND))
USE = DomainUse(UUID, "web1", 3, cpu_ns=100 * SECOND, network_bytes=700, disk_bytes=60, resident_mib=300, available_in_guest_mib=128, reported_at=1000)
GUEST = m.GuestFigures(UUID, USE, PROCESS, 256, 10)
GUEST_BEFORE = DomainCounters("4711-8899", 40 * SECOND, 6 * SECOND, 100, 0, 0, 30_000_000, 24_000_000)


def reading(seconds: float, host: HostCounters, domains: t.Optional[t.Mapping[str, DomainCounters]] = None, boot_id: str = BOOT) -> LoadReading:
    return LoadReading(BootMoment(boot_id, seconds), host, domains or {})


def host_load(kernel: HostKernelLoad = KERNEL, earlier: t.Optional[LoadReading] = None) -> HostLoad:
    load = m.describe_host_load(kernel, reading(130, m.count_host(kernel)), earlier, m.NO_EARLIER_READING)
    assert decode(HostLoad, encode(load)) == load
    return load


def domain_load(guest: m.GuestFigures = GUEST, earlier: t.Optional[LoadReading] = None, clock: float = 1005.0) -> DomainLoad:
    load = m.describe_domain_load(guest, reading(130, HostCounters(), {UUID: guest.count()}), earlier, SILENT, clock)
    assert decode(DomainLoad, encode(load)) == load
    return load


def test_the_load_of_a_host_is_the_mean_between_two_readings() -> None:
    load = host_load(earlier=reading(100, BEFORE))
    assert (load.cpu_pressure, load.memory_pressure, load.io_pressure) == (0.2, 0.0, 0.5)
    assert (load.cpu_used_share, load.cpu_steal_share) == (0.4, 0.01)
    assert (load.network_bytes_per_second, load.disk_bytes_per_second) == (100.0, 0.0)
    assert (load.memory_used_mib, load.ksm_saved_mib, load.interval_seconds, load.unknown) == (4096, 12, 30.0, {})


def test_the_first_reading_has_what_the_kernel_averages() -> None:
    load = host_load()
    assert (load.cpu_pressure, load.memory_pressure, load.io_pressure, load.interval_seconds) == (0.2, 0.2, 0.2, 300.0)
    assert [getattr(load, name) for name in MEANS] == [None] * 4
    assert load.unknown == dict.fromkeys(MEANS, m.NO_EARLIER_READING)
    assert load.memory_used_mib == 4096


def test_a_host_without_pressure_information_says_so_and_has_its_processor_time() -> None:
    kernel = dataclasses.replace(KERNEL, pressures=dict.fromkeys(RESOURCES))
    load = host_load(kernel, reading(100, dataclasses.replace(BEFORE, cpu_pressure_us=None, memory_pressure_us=None, io_pressure_us=None)))
    assert (load.cpu_pressure, load.cpu_used_share, load.interval_seconds) == (None, 0.4, 30.0)
    assert load.unknown == dict.fromkeys(("cpu_pressure", "memory_pressure", "io_pressure"), m.NO_PRESSURE)
    first = host_load(kernel)
    assert first.interval_seconds is None
    assert "interval_seconds" in (first.unknown or {})


def test_a_counter_of_the_host_that_began_anew_is_unknown() -> None:
    load = host_load(dataclasses.replace(KERNEL, network_bytes=10, disk_bytes=None), reading(100, BEFORE))
    assert (load.network_bytes_per_second, load.disk_bytes_per_second) == (None, None)
    assert load.unknown == {"network_bytes_per_second": m.BEGAN_ANEW, "disk_bytes_per_second": m.NO_DEVICE}


def test_pressure_is_never_more_than_the_whole_time() -> None:
    assert host_load(earlier=reading(129, dataclasses.replace(BEFORE, cpu_pressure_us=0))).cpu_pressure == 1.0


def test_the_load_of_a_domain_is_the_mean_between_two_readings() -> None:
    load = domain_load(earlier=reading(100, BEFORE, {UUID: GUEST_BEFORE}))
    assert (load.cpu_cores_used, load.cpu_cores_waiting) == (2.0, 0.1)
    assert (load.network_bytes_per_second, load.disk_bytes_per_second) == (20.0, 2.0)
    assert (load.cpu_pressure, load.memory_pressure, load.io_pressure) == (1.0, 0.0, 0.2)
    assert (load.memory_used_mib, load.available_in_guest_mib, load.unknown) == (256, 128, {})


def test_the_first_reading_at_a_domain_has_no_means_and_leaves_the_reason_to_its_host() -> None:
    load = domain_load()
    assert (load.cpu_cores_used, load.network_bytes_per_second, load.cpu_pressure) == (None, None, 0.2)
    assert load.unknown == {}


@pytest.mark.parametrize("before", [{}, {UUID: dataclasses.replace(GUEST_BEFORE, process="1-2")}])
def test_a_domain_that_started_after_the_earlier_reading_has_no_means(before: t.Dict[str, DomainCounters]) -> None:
    load = domain_load(earlier=reading(100, BEFORE, before))
    assert (load.cpu_cores_used, load.cpu_pressure) == (None, 0.2)
    assert set((load.unknown or {}).values()) == {m.JUST_STARTED}


def test_without_its_process_the_start_that_libvirt_counts_identifies_a_domain() -> None:
    guest = dataclasses.replace(GUEST, process=None)
    before = dataclasses.replace(GUEST_BEFORE, process="start 3")
    load = domain_load(guest, reading(100, BEFORE, {UUID: before}))
    assert (load.cpu_cores_used, load.cpu_pressure, load.cpu_cores_waiting) == (2.0, None, None)
    assert set((load.unknown or {}).values()) == {NOT_REPORTED}
    assert domain_load(guest, reading(100, BEFORE, {UUID: GUEST_BEFORE})).cpu_cores_used is None


@pytest.mark.parametrize(("has_group", "why"), [(True, m.NO_GROUP_PRESSURE), (False, m.NO_GROUP)])
def test_a_domain_without_pressure_says_why(has_group: bool, why: str) -> None:
    load = domain_load(dataclasses.replace(GUEST, process=dataclasses.replace(PROCESS, has_group=has_group, pressures=dict.fromkeys(RESOURCES))))
    assert load.unknown == dict.fromkeys(("cpu_pressure", "memory_pressure", "io_pressure"), why)


@pytest.mark.parametrize(
    ("period", "reported_at", "clock", "why"),
    [
        (10, 1000, 1000.2, None),
        (10, 1000, 999.5, None),
        (10, 1000, 1030.0, None),
        (10, 1000, 1030.5, m.NOT_RECENT),
        (10, 1000, 900.0, m.NOT_RECENT),
        (10, None, 1000.0, m.NOT_RECENT),
        (0, 1000, 1000.0, m.NO_PERIOD),
    ],
)
def test_what_a_guest_reported_counts_only_if_it_does_so_regularly(period: int, reported_at: t.Optional[int], clock: float, why: t.Optional[str]) -> None:
    guest = dataclasses.replace(GUEST, period_seconds=period, use=dataclasses.replace(USE, reported_at=reported_at))
    load = domain_load(guest, clock=clock)
    assert (load.available_in_guest_mib, (load.unknown or {}).get("available_in_guest_mib")) == (None if why else 128, why)


def test_the_memory_of_the_process_counts_where_that_of_the_guest_is_not_known() -> None:
    assert domain_load(dataclasses.replace(GUEST, used_mib=None)).memory_used_mib == 300


def test_a_silent_libvirt_is_the_reason_for_what_it_would_have_reported() -> None:
    load = domain_load(dataclasses.replace(GUEST, use=None, used_mib=None), reading(100, BEFORE, {UUID: GUEST_BEFORE}))
    silent = {"memory_used_mib", "available_in_guest_mib", "cpu_cores_used", "network_bytes_per_second", "disk_bytes_per_second"}
    assert load.unknown == dict.fromkeys(silent, SILENT)
    assert (load.cpu_cores_waiting, load.io_pressure) == (0.1, 0.2)
