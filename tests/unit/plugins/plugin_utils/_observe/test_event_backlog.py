# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The events that wait for a rulebook that is busy."""

from __future__ import annotations

import asyncio
import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_backlog import Backlog


def event(name: str, number: int = 0) -> dict[str, t.Any]:
    return {"event": name, "number": number}


def told(size: int, events: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return what a rulebook gets that was busy while these events came."""

    async def ask() -> list[dict[str, t.Any]]:
        backlog = Backlog(size, lambda: "now")
        for one in events:
            backlog.put(one)
        backlog.put(event("end"))
        found = [await backlog.get()]
        while found[-1]["event"] != "end":
            found.append(await backlog.get())
        return found[:-1]

    return asyncio.run(asyncio.wait_for(ask(), 30))


def test_events_are_delivered_in_order_below_the_limit() -> None:
    events = [event("started", number) for number in range(9)]
    assert told(10, events) == events


def test_the_least_important_events_are_dropped_first_and_counted() -> None:
    events = [event("host_gone"), event("stopped"), *(event("migration_iteration", number) for number in range(20)), event("post_copy_failed")]
    found = told(10, events)
    assert (found[0]["event"], found[0]["count"]) == ("events_lost", 14)
    assert [one["event"] for one in found[1:3]] == ["host_gone", "stopped"]
    assert [one["number"] for one in found[3:9]] == [14, 15, 16, 17, 18, 19]
    assert found[9]["event"] == "post_copy_failed"


def test_host_and_post_copy_events_are_kept_longer_than_lifecycle_events() -> None:
    events = [event("host_gone", 1), event("post_copy_failed", 2), *(event("stopped", number) for number in range(50)), event("host_back", 3)]
    found = told(10, events)
    assert [one["event"] for one in found if one["event"] not in ("stopped", "events_lost")] == ["host_gone", "post_copy_failed", "host_back"]


def test_a_reader_waits_for_the_next_event() -> None:
    async def ask() -> str:
        backlog = Backlog(10, lambda: "now")
        reading = asyncio.create_task(backlog.get())
        await asyncio.sleep(0)
        assert not reading.done()
        backlog.put(event("started"))
        return str((await reading)["event"])

    assert asyncio.run(asyncio.wait_for(ask(), 30)) == "started"
