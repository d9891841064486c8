# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import measurements as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import MAX_LINKS
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

GONE = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_rates_are_those_of_the_domains_that_could_be_measured(fleet: FakeFleet, clock: FakeClock) -> None:
    fleet.guest(dirty_rate_bytes=40 * MIB)
    rates = m.DirtyRates(fleet.open(LOCAL_URI), [UUID, GONE], 2, clock, clock.sleep)
    begun = clock()
    assert rates.collect_rates() == {UUID: 40.0}
    assert clock() - begun == 2


def test_a_rate_that_never_comes_is_waited_for_a_few_seconds_only(fleet: FakeFleet, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest()
    monkeypatch.setattr(FakeHost, "read_dirty_rates", lambda self, uuids: {})
    rates = m.DirtyRates(fleet.open(LOCAL_URI), [UUID], 1, clock, clock.sleep)
    begun = clock()
    assert rates.collect_rates() == {}
    assert 3 < clock() - begun < 5


def test_nothing_is_measured_and_waited_for_without_seconds(fleet: FakeFleet, clock: FakeClock) -> None:
    fleet.guest()
    begun = clock()
    assert m.DirtyRates(fleet.open(LOCAL_URI), [UUID], 0, clock, clock.sleep).collect_rates() == {}
    assert clock() == begun


STATUS = "Name:\tqemu\nVmRSS:\t  300000 kB\nRssAnon:\t  122880 kB\nRssFile:\t  40960 kB\nRssShmem:\t  1024 kB\nVmSwap:\t  1024 kB\nHugetlbPages:\t  2048 kB\n"


@pytest.fixture
def process(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str, str], None]:
    monkeypatch.setattr(m, "_PID_FILE", str(tmp_path / "{}.pid"))
    monkeypatch.setattr(m, "_STATUS_FILE", str(tmp_path / "{}.status"))

    def write(pid: str, status: str) -> None:
        (tmp_path / "web1.pid").write_text(pid)
        (tmp_path / "4711.status").write_text(status)

    return write


def test_used_memory_is_what_the_process_has_beyond_qemu_itself(process: t.Callable[[str, str], None]) -> None:
    process("4711\n", STATUS)
    assert m.read_used_mib("web1", 512) == 124 - 20
    assert m.read_used_mib("web1", 64) == 64
    process("4711", "RssAnon:\t 2048 kB\n")
    assert m.read_used_mib("web1", 64) == 0


@pytest.mark.parametrize(("pid", "status"), [("none", STATUS), ("4712", STATUS), ("4711", "RssAnon:\n"), ("4711", "RssAnon:\tmany kB\n")])
def test_used_memory_is_unknown_if_the_process_cannot_be_read(process: t.Callable[[str, str], None], pid: str, status: str) -> None:
    process(pid, status)
    assert m.read_used_mib("web1", 512) is None
    assert m.read_used_mib("web2", 512) is None


URI = "qemu+tcp://kvm2/system"


class Link:
    """A link of so many MiB/s to the other host; both hosts work at 500 MiB/s."""

    def __init__(self, fleet: FakeFleet, clock: FakeClock, mib: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.carried: t.List[int] = []

        def carry(host: FakeHost, length: int) -> None:
            is_remote = host.uri != LOCAL_URI
            clock.sleep(length / MIB / 500 + (length / MIB / mib if is_remote else 0))
            if is_remote:
                self.carried.append(length)

        monkeypatch.setattr(FakeHost, "carry_padding", carry)
        self.rates = m.probe_links(fleet.open(LOCAL_URI), [URI], lambda uri, seconds=None: fleet.open(uri), clock)


@pytest.mark.parametrize("mib", [0.5, 7.0, 60.0, 112.0, 1100.0])
def test_the_rate_of_a_link_does_not_include_the_work_of_libvirt(fleet: FakeFleet, clock: FakeClock, mib: float, monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(fleet, clock, mib, monkeypatch)
    assert link.rates == {URI: pytest.approx(mib, rel=0.05)}
    assert sum(link.carried) <= 12.75 * MIB


def test_a_slow_link_is_probed_with_few_bytes(fleet: FakeFleet, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(Link(fleet, clock, 2.0, monkeypatch).carried) == 1.5 * MIB


def test_a_link_that_is_faster_than_can_be_measured_has_the_fastest_rate_that_can_be(
    fleet: FakeFleet, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Link(fleet, clock, 1e6, monkeypatch).rates[URI] == pytest.approx(2000, rel=0.05)


@pytest.mark.parametrize("error", [Unreachable("gone"), Internal("odd")])
def test_a_host_that_does_not_answer_is_omitted(fleet: FakeFleet, error: Exception) -> None:
    fleet.destination.refuse["carry_padding"] = error
    assert m.probe_links(fleet.open(LOCAL_URI), [URI], lambda uri, seconds=None: fleet.open(uri)) == {}


def test_hosts_that_are_off_take_a_few_seconds_together(fleet: FakeFleet, clock: FakeClock) -> None:
    opened: t.List[str] = []

    def open_host(uri: str, timeout_seconds: t.Optional[float] = None) -> FakeHost:
        opened.append(uri)
        clock.sleep(timeout_seconds or 60)
        raise Unreachable("off")

    begun = clock()
    assert m.probe_links(fleet.open(LOCAL_URI), [f"qemu+tcp://kvm{number}/system" for number in range(2, 9)], open_host, clock) == {}
    assert clock() - begun == pytest.approx(6)
    assert len(opened) == 2


def test_only_a_few_links_are_probed(fleet: FakeFleet) -> None:
    opened: t.List[str] = []

    def open_host(uri: str, timeout_seconds: t.Optional[float] = None) -> FakeHost:
        opened.append(uri)
        return fleet.open(URI)

    m.probe_links(fleet.open(LOCAL_URI), [f"qemu+tcp://kvm{number}/system" for number in range(2, 99)], open_host)
    assert len(opened) == MAX_LINKS


def test_facts_have_the_links_only_if_they_were_requested(fleet: FakeFleet) -> None:
    fleet.guest()
    assert not {"links", "dirty_rate_seconds"} & {*encode(gather_facts(fleet.open(LOCAL_URI))[0])}
    facts = encode(gather_facts(fleet.open(LOCAL_URI), 0, [URI], lambda uri, seconds=None: fleet.open(uri))[0])
    assert facts["links"][URI] > 0
    assert facts["domains"][0]["used_mib"] is None


class Processors:
    """The threads of a QEMU; C(used) is what each virtual processor has used, in milliseconds."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "web1.pid").write_text("4711\n")

    def use(self, *used: float) -> None:
        for number, milliseconds in enumerate(used):
            self._write(str(number), f"CPU {number}/KVM", milliseconds)
        self._write("99", "IO mon_iothread", 5000 + used[0] * 10)

    def _write(self, task: str, name: str, milliseconds: float) -> None:
        folder = self.folder / "4711" / task
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "schedstat").write_text(f"{milliseconds * 1_000_000:.0f} 7 8\n")


@pytest.fixture
def processors(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Processors:
    monkeypatch.setattr(m, "_PID_FILE", str(tmp_path / "{}.pid"))
    monkeypatch.setattr(m, "_TASKS_FOLDER", str(tmp_path / "{}"))
    return Processors(tmp_path)


# A halted guest is woken now and then, which takes up to 0.12 % of a core.
@pytest.mark.parametrize(("later", "rates", "seconds"), [((20.1, 30.4), {UUID: 0.0}, 0.2), ((20.2, 30.5), {UUID: 40.0}, 1)])
def test_a_guest_whose_processors_hardly_run_is_not_waited_for(
    later: tuple[float, float], rates: dict[str, float], seconds: float, fleet: FakeFleet, clock: FakeClock, processors: Processors
) -> None:
    fleet.guest(dirty_rate_bytes=40 * MIB)
    processors.use(20, 30)
    measured = m.DirtyRates(fleet.open(LOCAL_URI), [UUID], 1, clock, clock.sleep, {UUID: "web1"})
    begun = clock()
    processors.use(*later)
    assert measured.collect_rates() == rates
    assert clock() - begun == pytest.approx(seconds)


@pytest.mark.parametrize("name", ["comm", "schedstat"])
def test_a_guest_whose_processors_cannot_be_read_is_measured(name: str, fleet: FakeFleet, clock: FakeClock, processors: Processors) -> None:
    fleet.guest(dirty_rate_bytes=40 * MIB)
    processors.use(20)
    (processors.folder / "4711/0" / name).write_text("")
    assert m.DirtyRates(fleet.open(LOCAL_URI), [UUID], 1, clock, clock.sleep, {UUID: "web1", GONE: "gone"}).collect_rates() == {UUID: 40.0}


def test_the_processors_of_a_guest_on_another_host_are_not_read_here(fleet: FakeFleet, processors: Processors, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest(dirty_rate_bytes=40 * MIB)
    processors.use(20)
    host = fleet.open(LOCAL_URI)
    monkeypatch.setattr(host, "uri", "qemu+ssh://kvm9/system", raising=False)
    facts, _warnings = gather_facts(host, 1)
    assert [domain.dirty_rate_mib for domain in facts.domains or ()] == [40.0]
