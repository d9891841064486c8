# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One reading at the load of a host: libvirt, the kernel, and the counters of an earlier reading."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import load as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.kernel_load import KernelFiles
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.load_means import NO_EARLIER_READING, NO_PRESSURE
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.load_readings import ReadingStore
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Definition, DomainUse
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import FROM_AFAR, NOT_READABLE, HostFacts
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

BOOT = "7d4d5b8e-e2f3-46d4-a53e-8ff89d6c581e"
OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
SECOND = 10**9


class Site:
    """A host with one guest, and readings at its load."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.fleet = FakeFleet()
        self.guest = self.fleet.guest()
        self.folder = folder / "run" / "load"
        self.root = folder / "kernel"
        self.now = 1000.0

    def use(self, seconds: float) -> None:
        self.guest.use = DomainUse(UUID, "web1", 1, cpu_ns=int(seconds * SECOND), network_bytes=0, disk_bytes=0, resident_mib=40)

    def reading(self, seconds: int = 300, keeps: bool = True, open_host: t.Any = None) -> m.LoadReport:
        reading = m.LoadMeasurement(
            LOCAL_URI,
            open_host or self.open,
            seconds,
            keeps,
            KernelFiles(str(self.root)),
            ReadingStore(str(self.folder)),
            lambda: BootMoment(BOOT, self.now),
        )
        return reading.finish([m.ActiveGuest(UUID, "web1")])

    def open(self, uri: str, timeout_seconds: t.Optional[float] = None) -> FakeHost:
        return self.fleet.open(uri)


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


def test_a_second_reading_reports_the_mean_since_the_first(site: Site) -> None:
    site.use(10)
    first = site.reading()
    site.use(40)
    site.now += 20
    second = site.reading()
    assert (first.domains[UUID].cpu_cores_used, second.domains[UUID].cpu_cores_used) == (None, 1.5)
    assert (second.host.interval_seconds, second.warnings) == (20.0, ())


def test_the_counters_of_a_domain_that_nobody_wanted_are_kept_too(site: Site) -> None:
    site.use(10)
    m.LoadMeasurement(LOCAL_URI, site.open, 300, True, KernelFiles(str(site.root)), ReadingStore(str(site.folder)), lambda: BootMoment(BOOT, 1000)).finish(())
    site.use(40)
    site.now += 20
    assert site.reading().domains[UUID].cpu_cores_used == 1.5


def test_a_reading_that_keeps_nothing_leaves_no_folder(site: Site) -> None:
    site.reading(keeps=False)
    assert not site.folder.exists()


def test_counters_that_cannot_be_stored_are_a_warning(site: Site) -> None:
    site.folder.parent.mkdir(parents=True)
    site.folder.write_text("")
    report = site.reading()
    assert report.host.unknown
    (warning,) = report.warnings
    assert "were not stored" in warning


def test_counters_that_only_root_can_read_are_the_reason(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ReadingStore, now: BootMoment, seconds: int) -> None:
        raise PermissionError

    monkeypatch.setattr(ReadingStore, "find_earlier", refuse)
    assert (site.reading(keeps=False).host.unknown or {})["network_bytes_per_second"] != NO_EARLIER_READING
    assert (site.reading(keeps=False).host.unknown or {})["interval_seconds"].startswith(NOT_READABLE)


def test_a_reading_without_domains_is_not_stored(site: Site) -> None:
    site.fleet.source.refuse["list_use"] = Internal("odd")
    (warning,) = site.reading().warnings
    assert m.NO_ANSWER in warning
    assert not site.folder.exists()


def test_a_libvirt_that_refuses_leaves_the_rest(site: Site) -> None:
    site.fleet.source.refuse["list_use"] = Internal("odd")
    site.root.joinpath("proc").mkdir(parents=True)
    site.root.joinpath("proc/meminfo").write_text("MemTotal: 4096 kB\nMemAvailable: 1024 kB\n")
    report = site.reading()
    assert report.host.memory_used_mib == 3
    assert (report.domains[UUID].unknown or {})["disk_bytes_per_second"] == m.NO_ANSWER


def test_a_guest_whose_qemu_hangs_does_not_hold_the_reading(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(uri: str, timeout_seconds: t.Optional[float] = None) -> FakeHost:
        released.wait(60)
        return site.fleet.open(uri)

    monkeypatch.setattr(m, "USE_SECONDS", 0.05)
    try:
        report = site.reading(open_host=hang)
    finally:
        released.set()
    assert (report.domains[UUID].unknown or {})["cpu_cores_used"] == m.NO_ANSWER


@pytest.mark.parametrize(("stats", "period"), [("<stats period='10'/>", 10), ("<stats period='x'/>", 0), ("<stats/>", 0), ("", 0)])
def test_the_period_of_a_balloon_is_in_its_definition(site: Site, stats: str, period: int) -> None:
    root = ElementTree.fromstring(f"<domain><devices><memballoon model='virtio'>{stats}</memballoon></devices></domain>")
    assert m.read_balloon_period(Definition(site.guest.info(), root)) == period
    assert m.read_balloon_period(Definition(site.guest.info(), None)) == 0


@pytest.fixture
def gathering(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Facts are gathered of this host, whose kernel knows nothing."""
    monkeypatch.setattr(m, "KernelFiles", lambda: KernelFiles(str(site.root)))
    monkeypatch.setattr(m, "ReadingStore", lambda: ReadingStore(str(site.folder)))
    return site


def facts_of(site: Site, uri: str = LOCAL_URI, **options: t.Any) -> HostFacts:
    return gather.gather_facts(site.fleet.open(uri), open_host=site.open, **options)[0]


def test_facts_have_a_load_only_if_it_was_requested(gathering: Site) -> None:
    assert (facts_of(gathering).load, facts_of(gathering, uri="qemu+tcp://kvm1/system").load) == (ABSENT, ABSENT)
    assert "load" not in encode(facts_of(gathering))
    assert not gathering.folder.exists()


def test_facts_have_the_load_of_the_host_and_of_active_domains(gathering: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "is_root", lambda: True)
    gathering.use(10)
    gathering.fleet.guest("off", OTHER, state=domain_states.SHUTOFF)
    facts = facts_of(gathering, load_seconds=300)
    assert facts.load
    assert {domain.name: bool(domain.load) for domain in facts.domains or ()} == {"web1": True, "off": False}
    assert {"load.cpu_pressure", "load.ksm_saved_mib"} <= {*(facts.unverified or ())}
    assert (facts.load.unknown or {})["cpu_pressure"] == NO_PRESSURE
    assert "load.interval_seconds" not in (facts.unverified or ())
    assert facts.unverified_reasons is ABSENT
    assert len(list(gathering.folder.iterdir())) == 1
    assert facts_of(gathering, load_seconds=300, keeps_counters=False).load
    assert len(list(gathering.folder.iterdir())) == 1


def test_the_facts_of_a_user_state_why_a_signal_is_missing_and_keep_nothing(gathering: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "is_root", lambda: False)
    facts = facts_of(gathering, load_seconds=300)
    assert (facts.unverified_reasons or {})["load.cpu_pressure"] == NO_PRESSURE
    assert set(facts.unverified_reasons or ()) == {*(facts.unverified or ())}
    assert not gathering.folder.exists()


def test_the_load_of_a_host_behind_a_remote_uri_is_unknown(gathering: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "is_root", lambda: False)
    facts = facts_of(gathering, uri="qemu+tcp://kvm1/system", load_seconds=300)
    assert (facts.load, (facts.unverified_reasons or {})["load"]) == (None, FROM_AFAR)
    assert [domain.load for domain in facts.domains or ()] == [ABSENT]


def test_facts_with_a_load_are_read_and_written_back(gathering: Site) -> None:
    facts = facts_of(gathering, load_seconds=300, keeps_counters=False)
    assert dataclasses.replace(facts) == facts
    assert encode(facts)["domains"][0]["load"]["unknown"]
