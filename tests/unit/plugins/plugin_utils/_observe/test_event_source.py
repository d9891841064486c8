# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Following several hosts: links that answer, end and hang, and a clock that is set."""

from __future__ import annotations

import asyncio
import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import event_source
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_options import parse_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_source import HostFollower
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.libvirt_events import Event, EventWords
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.signs_of_life import ProbeAnswer

LIMIT_SECONDS = 120
TICK_SECONDS = 0.005
LEASE = HostLease("1", "kvm1", "b", 1, 1, 15, 3, LeaseFleet("a", 3), "direct", "2026-11-26T20:00:00.000Z", 0)


@pytest.fixture(autouse=True)
def fast_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_source, "_TICK_SECONDS", TICK_SECONDS)


class FakeLink:
    """A link that does what a test says."""

    def __init__(self, uri: str, words: EventWords, reporter: t.Any) -> None:
        self.uri, self.words, self.reporter = uri, words, reporter
        self.begun = self.stopped = self.hangs = False

    def start(self) -> None:
        self.begun = True

    def stop(self) -> None:
        self.stopped = True

    def is_alive(self) -> bool:
        return self.hangs or not self.stopped


class Gate:
    """The queue of a rulebook that is busy until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.queue: asyncio.Queue[Event] = asyncio.Queue()

    async def put(self, event: Event) -> None:
        self.entered.set()
        await self.opened.wait()
        await self.queue.put(event)


class Stage:
    """A following under way."""

    def __init__(self, services: t.Any = None, ports: t.Collection[str] = (), **options: t.Any) -> None:
        self.now = 1000.0
        self.ports = ports
        self.links: list[FakeLink] = []
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        given = parse_options({"hosts": {"kvm1": "qemu+tcp://kvm1/system", "kvm2": "qemu+tcp://hangs/system"}, **options})
        self.following = HostFollower(given, t.cast("t.Any", self._link), lambda: self.now, services, self._probe)

    async def _probe(self, address: str, port: int) -> ProbeAnswer:
        return ProbeAnswer(f"{address}:{port}" in self.ports, "no answer")

    def _link(self, uri: str, words: EventWords, reporter: t.Any) -> FakeLink:
        self.links.append(FakeLink(uri, words, reporter))
        return self.links[-1]

    async def pass_time(self, seconds: int) -> None:
        """Let time pass, with a tick in each second."""
        for _second in range(seconds):
            self.now += 1
            await asyncio.sleep(3 * TICK_SECONDS)

    async def link(self, host: str, number: int = 0) -> FakeLink:
        """Wait for a host's link, the first or a later one."""
        while True:
            found = [link for link in self.links if link.begun and link.uri.startswith(f"qemu+tcp://{host}/")]
            if len(found) > number:
                return found[number]
            await asyncio.sleep(0.01)

    async def next(self) -> tuple[str, str]:
        event = await self.next_event()
        return event["host"], event["event"]

    async def next_event(self) -> dict[str, t.Any]:
        """Return the next event but the first one, and suspicions, which depend on when links are made."""
        while (event := await self.queue.get())["event"] in ("source_started", "host_suspect"):
            pass
        return dict(event)

    def read_leases(self, **revisions: int) -> None:
        """Let the leases be read, with these revisions by the name of the host."""
        self.following.note_leases({name: SeenLease(revision, dataclasses.replace(LEASE, name=name)) for name, revision in revisions.items()})


class FakeServices:
    """Of a ledger in etcd, whose election ends as a test says."""

    def __init__(self) -> None:
        self.is_leader = False
        self.said: list[str] = []

    def start(self) -> None:
        self.said.append("start")

    def stop(self) -> None:
        self.said.append("stop")

    def is_alive(self) -> bool:
        return False


def play(story: t.Callable[[Stage], t.Coroutine[t.Any, t.Any, None]], **options: t.Any) -> Stage:
    async def run() -> Stage:
        stage = Stage(**options)
        task = asyncio.create_task(stage.following.run(stage.queue))
        try:
            await asyncio.wait_for(story(stage), LIMIT_SECONDS)
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=LIMIT_SECONDS)
        assert task.cancelled()
        return stage

    return asyncio.run(run())


def test_a_host_that_hangs_is_reported_gone_without_delaying_others() -> None:
    async def story(stage: Stage) -> None:
        one = await stage.link("kvm1")
        one.reporter.connected(one)
        one.reporter.event(one, one.words.lifecycle_event("web1", "", 2, 0))
        assert await stage.next() == ("kvm1", "started")
        hanging = await stage.link("hangs")
        hanging.hangs = True
        await stage.pass_time(31)
        assert await stage.next() == ("kvm2", "host_gone")
        one.reporter.event(one, one.words.lifecycle_event("web1", "", 5, 2))
        assert await stage.next() == ("kvm1", "stopped")
        assert hanging.stopped
        again = await stage.link("hangs", 1)
        hanging.reporter.connected(hanging)
        again.reporter.connected(again)
        assert await stage.next() == ("kvm2", "host_back")
        assert stage.queue.empty()

    play(story)


def test_host_gone_is_reported_once_for_several_attempts() -> None:
    async def story(stage: Stage) -> None:
        one = await stage.link("kvm1")
        one.reporter.connected(one)
        one.reporter.ended(one, "it stopped answering", 20.0)
        await asyncio.sleep(0)
        for number in range(1, 4):
            await stage.pass_time(12)
            link = await stage.link("kvm1", number)
            link.reporter.ended(link, "no route", 0.0)
            await asyncio.sleep(0)
        await stage.pass_time(12)
        last = await stage.link("kvm1", 4)
        last.reporter.connected(last)
        found = [await stage.next() for _event in range(3)]
        assert sorted(found) == [("kvm1", "host_back"), ("kvm1", "host_gone"), ("kvm2", "host_gone")]
        assert stage.queue.empty()

    play(story)


def test_a_host_that_was_gone_is_tried_while_it_boots_although_earlier_tries_hang() -> None:
    async def story(stage: Stage) -> None:
        (await stage.link("kvm1")).hangs = True
        while len(stage.links) < 4:
            await stage.pass_time(1)
            stage.links[-1].hangs = True
        await stage.pass_time(22)
        assert not stage.following._hosts[0].retries.wants_to_try(stage.now + 30)
        stage.ports, begun = ["10.0.0.11:22"], len(stage.links)
        await stage.pass_time(12)
        assert len(stage.links) == begun + 1
        stage.links[-1].reporter.connected(stage.links[-1])
        found = [await stage.next_event() for _event in range(2)]
        assert [(event["event"], event["was"]) for event in found] == [("host_gone", "suspect"), ("host_back", "gone")]

    play(story, hosts={"kvm1": "qemu+tcp://kvm1/system"}, ssh_ports={"kvm1": "10.0.0.11"})


def test_only_selected_events_are_delivered() -> None:
    async def story(stage: Stage) -> None:
        one = await stage.link("kvm1")
        one.reporter.connected(one)
        one.reporter.event(one, one.words.iteration("web1", "", 1))
        one.reporter.event(one, one.words.lifecycle_event("web1", "", 3, 8))
        assert await stage.next() == ("kvm1", "post_copy_failed")

    play(story, events=["post_copy_failed"])


def test_all_links_are_stopped_at_the_end_also_one_that_hangs() -> None:
    async def story(stage: Stage) -> None:
        await stage.link("kvm1")
        (await stage.link("hangs")).hangs = True

    assert all(link.stopped for link in play(story).links)


def test_a_gone_host_names_the_hosts_that_are_silent_at_that_moment() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.link("kvm1"), await stage.link("hangs")
        for link in (one, two):
            link.reporter.connected(link)
        await asyncio.sleep(0)
        one.reporter.ended(one, "it stopped answering", 20.0)
        await asyncio.sleep(0)
        await stage.pass_time(11)
        first = await stage.next_event()
        assert (first["host"], first["event"], first["silent"], first["was"]) == ("kvm1", "host_gone", ["kvm1"], "suspect")
        two.reporter.ended(two, "it stopped answering", 20.0)
        await asyncio.sleep(0)
        await stage.pass_time(11)
        second = await stage.next_event()
        assert (second["host"], second["silent"]) == ("kvm2", ["kvm1", "kvm2"])
        assert second["signals"]["libvirt"].endswith("(it stopped answering)")
        assert second["silent_since"] < second["time"]

    play(story, hosts={"kvm1": "qemu+tcp://kvm1/system", "kvm2": "qemu+tcp://hangs/system"})


def test_a_host_whose_port_answers_is_isolated() -> None:
    async def story(stage: Stage) -> None:
        one = await stage.link("kvm1")
        one.reporter.connected(one)
        one.reporter.ended(one, "the connection broke", 0.0)
        await asyncio.sleep(0)
        await stage.pass_time(31)
        found = [await stage.next_event(), await stage.next_event()]
        (isolated,) = [event for event in found if event["host"] == "kvm1"]
        assert isolated["event"] == "host_isolated"
        assert "but ssh: answered" in isolated["detail"]
        assert "kvm1" not in isolated["silent"]

    play(story, ports=["10.0.0.11:22"], ssh_ports={"kvm1": "10.0.0.11"})


def test_only_a_leader_reports_hosts_and_a_new_one_reports_gone_and_returned_hosts_again() -> None:
    services = FakeServices()

    async def story(stage: Stage) -> None:
        one = await stage.link("kvm1")
        one.reporter.connected(one)
        one.reporter.event(one, one.words.lifecycle_event("web1", "", 2, 0))
        assert await stage.next() == ("kvm1", "started")
        await stage.link("hangs")
        await stage.pass_time(31)
        assert stage.following._hosts[1].detection.state == "gone"
        assert stage.queue.empty()
        await stage.pass_time(100)
        services.is_leader = True
        again = await stage.next_event()
        assert (again["host"], again["event"], again["was"], again["seconds"]) == ("kvm2", "host_gone", "gone", 131)
        services.is_leader = False
        while (newest := stage.following._hosts[1].link) is None:
            await stage.pass_time(1)
        newest.reporter.connected(newest)  # type: ignore[attr-defined]
        await stage.pass_time(60)
        assert stage.queue.empty()
        services.is_leader = True
        returned = await stage.next_event()
        assert (returned["host"], returned["event"], returned["was"]) == ("kvm2", "host_back", "gone")

    play(story, services=services)
    assert services.said == ["start", "stop"]


def test_what_a_leader_has_not_delivered_when_it_loses_its_lock_is_dropped() -> None:
    services = FakeServices()

    async def run() -> None:
        stage = Stage(services=services)
        busy = Gate()
        task = asyncio.create_task(stage.following.run(busy))
        stage.queue = busy.queue
        try:
            services.is_leader = True
            one = await stage.link("kvm1")
            one.reporter.connected(one)
            one.reporter.event(one, one.words.lifecycle_event("web0", "", 2, 0))
            await busy.entered.wait()
            await stage.pass_time(31)
            assert stage.following._hosts[1].detection.state == "gone"
            services.is_leader = False
            one.reporter.event(one, one.words.lifecycle_event("web1", "", 2, 0))
            await asyncio.sleep(0.1)
            busy.opened.set()
            found = [await asyncio.wait_for(busy.queue.get(), LIMIT_SECONDS) for _event in range(3)]
            assert [(event["event"], event["domain"]) for event in found] == [("source_started", ""), ("started", "web0"), ("started", "web1")]
            assert found[0]["hosts"] == ["kvm1", "kvm2"]
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=LIMIT_SECONDS)

    asyncio.run(run())


def test_a_host_that_is_no_longer_gone_when_the_rulebook_is_free_is_not_handed_over() -> None:
    """The rulebook is busy with the evacuation of another host, or a person lets it wait."""

    async def run() -> None:
        stage = Stage(ports=["10.0.0.11:22"])
        busy = Gate()
        task = asyncio.create_task(stage.following.run(busy))
        stage.queue = busy.queue
        try:
            await busy.entered.wait()
            one, hanging = await stage.link("kvm1"), await stage.link("hangs")
            hanging.reporter.connected(hanging)
            one.reporter.connected(one)
            one.reporter.ended(one, "it was disconnected", 0)
            await asyncio.sleep(0.01)
            await stage.pass_time(31)
            assert stage.following._hosts[0].detection.state == "gone"
            hanging.reporter.ended(hanging, "it was disconnected", 0)
            await asyncio.sleep(0.01)
            await stage.pass_time(31)
            assert stage.following._hosts[1].detection.state == "gone"
            while (back := stage.following._hosts[0].link) is None:
                await stage.pass_time(1)
            back.reporter.connected(back)  # type: ignore[attr-defined]
            while stage.following._hosts[0].detection.state != "up":
                await asyncio.sleep(0.01)
            busy.opened.set()
            found = [await asyncio.wait_for(stage.next(), LIMIT_SECONDS) for _event in range(2)]
            assert found == [("kvm2", "host_gone"), ("kvm1", "host_back")]
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=LIMIT_SECONDS)

    asyncio.run(run())


def test_a_host_whose_lease_is_renewed_is_isolated_and_leases_that_are_not_read_say_nothing() -> None:
    async def story(stage: Stage) -> None:
        for revision in range(1, 32):
            stage.read_leases(kvm1=revision)
            await stage.pass_time(1)
        found = {(await stage.next_event())["host"]: stage.following._hosts[0].detection.state}
        assert found == {"kvm2": "isolated"} or found == {"kvm1": "isolated"}
        await stage.next_event()
        await stage.pass_time(11)
        assert "lease" not in stage.following._hosts[0].detection.describe_signals(stage.now)
        assert stage.queue.empty()
        await stage.pass_time(31)
        assert await stage.next() == ("kvm1", "host_gone")

    play(story)


@pytest.mark.parametrize("stalled_seconds", [31, 3000])
def test_an_isolated_host_is_not_gone_because_the_source_was_stalled(stalled_seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    """The management network of the host is dead, its second address answers, and the control node is stunned."""

    async def story(stage: Stage) -> None:
        await stage.pass_time(40)
        assert await stage.next() == ("kvm1", "host_isolated")
        stage.now += stalled_seconds
        await stage.pass_time(40)
        assert stage.following._hosts[0].detection.state == "isolated"
        assert stage.queue.empty()
        stage.ports = ()
        await stage.pass_time(40)
        assert await stage.next() == ("kvm1", "host_gone")

    play(story, ports=["10.0.1.11:22"], hosts={"kvm1": "qemu+tcp://kvm1/system"}, second_addresses={"kvm1": "10.0.1.11:22"})
    assert [record.getMessage() for record in caplog.records] == [
        f"The event source did not run for {stalled_seconds + 1} s. This time does not count as silence of a host."
    ]


def test_an_isolated_host_with_a_lease_is_not_gone_because_the_source_was_stalled() -> None:
    async def story(stage: Stage) -> None:
        for revision in range(1, 41):
            stage.read_leases(kvm1=revision)
            await stage.pass_time(1)
        assert await stage.next() == ("kvm1", "host_isolated")
        stage.now += 300
        await stage.pass_time(3)
        for revision in range(100, 120):
            stage.read_leases(kvm1=revision)
            await stage.pass_time(1)
        assert stage.following._hosts[0].detection.state == "isolated"
        assert stage.queue.empty()

    play(story, hosts={"kvm1": "qemu+tcp://kvm1/system"})


def test_a_try_that_was_begun_before_the_source_was_stalled_is_not_abandoned() -> None:
    async def story(stage: Stage) -> None:
        one = await stage.link("kvm1")
        stage.now += 300
        await stage.pass_time(3)
        assert not one.stopped
        await stage.pass_time(20)
        assert one.stopped

    play(story, hosts={"kvm1": "qemu+tcp://kvm1/system"})
