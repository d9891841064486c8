# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices of a move, an abort, an evacuation and a cleanup on real hosts; a receiver that does not answer changes nothing."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import put_to_sleep, wake
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import BEFORE
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver, silence
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

Make = t.Callable[..., str]
SECRET = "open sesame of the receiver"
ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000")


@pytest.fixture
def receiver(site: Site) -> Iterator[Receiver]:
    with Receiver() as receiver:
        for number in HOSTS:
            site.variable(number, "kvmfleet_notices", {"url": receiver.url, "secret": SECRET, "timeout_seconds": 2})
        yield receiver


def told(receiver: Receiver, number: int) -> list[tuple[str, str, str, str]]:
    """Return the events after that number of them: what, which domain, from where to where."""
    for event in receiver.events():
        check_document("notice.json", event)
    data = [event["data"] for event in receiver.events()[number:]]
    kinds = receiver.kinds()[number:]
    return [(kind, one["domain"]["name"], one["source"]["host"], one["destination"]["host"]) for kind, one in zip(kinds, data, strict=True)]


@pytest.mark.long
def test_notices_of_a_move_an_abort_an_evacuation_and_a_cleanup_are_received(site: Site, guest: Make, receiver: Receiver) -> None:
    guest("web")
    guest("endless", *ENDLESS)
    one, two, three = (site.name(number) for number in HOSTS)

    moved = site.task(1, "live_migrate", {"name": "web", "destination": two, "unsafe": True})
    assert moved.code == 0, moved.text
    assert told(receiver, 0) == [("move.started", "web", one, two), ("move.completed", "web", one, two)]
    last = receiver.events()[-1]["data"]
    assert (last["record"], last["result"]["downtime_ms"]) == (moved.record["id"], moved.record["result"]["downtime_ms"])

    running = site.begin(1, "live_migrate", {"name": "endless", "destination": two, "unsafe": True, **HELD})
    site.lab.under_way(site.lab.uuid("endless"))
    # It has to wait for the destination, and is told of before it is over.
    put_to_sleep(site.lab, 2)
    aborting = Running(site.popen(site.ad_hoc_command(1, "migration_abort", {"name": "endless"})))
    receiver.await_requests(4)
    ends = ("endless", one, two)
    assert told(receiver, 2) == [("move.started", *ends), ("abort_start", *ends)]
    assert site.records()[-1]["status"] == "running"
    wake(site.lab, 2)
    aborted = aborting.wait()
    assert aborted.code == 0, aborted.text
    assert running.wait().ended() == ("cancelled", "operator")
    assert told(receiver, 4) == [("abort_end", *ends), ("move.cancelled", *ends)]
    assert receiver.events()[-1]["data"]["reason"] == "operator"

    site.protect()
    assert told(receiver, 6) == []
    site.lose(1)
    site.hooks[3].hold(BEFORE, "endless")
    evacuating = site.begin_evacuation(3)
    receiver.await_requests(7)
    ends = ("endless", one, three)
    assert told(receiver, 6) == [("evacuation.started", *ends)]
    site.hooks[3].let_go(BEFORE, "endless")
    assert evacuating.wait().code == 0
    assert told(receiver, 7) == [("evacuation.completed", *ends)]

    site.bring_back(1)
    assert site.clean(1, "--check").changed
    assert told(receiver, 8) == []
    cleaned = site.clean()
    assert cleaned.code == 0, cleaned.text
    assert told(receiver, 8) == [("cleanup.started", *ends), ("cleanup.completed", *ends)]
    for record in site.records():
        check_document("record.json", record)
    assert len({request.event["id"] for request in receiver.requests}) == len(receiver.requests) == 10


@pytest.mark.long
def test_a_silent_receiver_does_not_stop_a_move_and_gets_its_notices_later(site: Site, guest: Make, receiver: Receiver) -> None:
    guest("web")
    guest("db")
    two = site.name(2)
    receiver.answers.extend([silence] * 1000)
    moved = site.task(1, "live_migrate", {"name": "web", "destination": two, "unsafe": True}, "-vvvvv")
    assert (moved.code, moved.ended()) == (0, ("completed", None)), moved.text
    assert "not sent to http://127.0.0.1" in moved.warnings
    assert SECRET not in moved.text
    assert "confidential-path" not in moved.text
    assert site.lab.places("web") == {2: "running"}

    receiver.answers.clear()
    assert site.task(1, "live_migrate", {"name": "db", "destination": two, "unsafe": True}).code == 0
    eventually(lambda: not list((site.folder / "state").rglob("*.json")), "all notices were sent")
    assert sorted(receiver.kinds()) == sorted(["move.started", "move.completed"] * 2)
