# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Following several hosts: links that answer, end and hang, and a clock that is set."""

from __future__ import annotations

import asyncio
import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_source import HostFollower, parse_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.libvirt_events import Event, EventWords

LIMIT_SECONDS = 120


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


class Stage:
    """A following under way."""

    def __init__(self, **options: t.Any) -> None:
        self.now = 1000.0
        self.links: list[FakeLink] = []
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        given = parse_options({"hosts": {"kvm1": "qemu+tcp://kvm1/system", "kvm2": "qemu+tcp://hangs/system"}, **options})
        self.following = HostFollower(given, t.cast("t.Any", self._link), lambda: self.now)

    def _link(self, uri: str, words: EventWords, reporter: t.Any) -> FakeLink:
        self.links.append(FakeLink(uri, words, reporter))
        return self.links[-1]

    async def link(self, host: str, number: int = 0) -> FakeLink:
        """Wait for a host's link, the first or a later one."""
        while True:
            found = [link for link in self.links if link.begun and link.uri.startswith(f"qemu+tcp://{host}/")]
            if len(found) > number:
                return found[number]
            await asyncio.sleep(0.01)

    async def next(self) -> tuple[str, str]:
        event = await self.queue.get()
        return event["host"], event["event"]


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
        stage.now += 31
        assert await stage.next() == ("kvm2", "host_gone")
        one.reporter.event(one, one.words.lifecycle_event("web1", "", 5, 2))
        assert await stage.next() == ("kvm1", "stopped")
        assert hanging.stopped
        stage.now += 60
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
            stage.now += 70
            link = await stage.link("kvm1", number)
            link.reporter.ended(link, "no route", 0.0)
            await asyncio.sleep(0)
        stage.now += 70
        last = await stage.link("kvm1", 4)
        last.reporter.connected(last)
        found = [await stage.next() for _event in range(3)]
        assert sorted(found) == [("kvm1", "host_back"), ("kvm1", "host_gone"), ("kvm2", "host_gone")]
        assert stage.queue.empty()

    play(story)


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
