# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cable between two hosts is cut for a while: no guest is lost, none runs twice, and each is where its record says."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.phases import POST_COPY, await_post_copy
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session, acts, check_completed
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]

pytestmark = pytest.mark.usefixtures("mended")

CALM = ("--mib", "64", "--dirty-mib", "40", "--rate", "500")


def check_where(lab: Lab, name: str, record: Record) -> None:
    """The guest runs where its record says, there alone, and nothing of its memory is lost."""
    assert record["status"] in ("completed", "failed"), record
    where = 2 if record["status"] == "completed" else 1
    eventually(lambda: lab.places(name) == {where: "running"}, f"{name} is where the record says: {record['status']}")
    assert lab.check(name)["intact"]


@pytest.mark.parametrize("seconds", [10, pytest.param(30, marks=pytest.mark.long), pytest.param(60, marks=pytest.mark.long)])
def test_cut_in_pre_copy_and_in_post_copy(lab: Lab, control: Session, guest: Make, seconds: int) -> None:
    before, after = guest("before", *CALM), guest("after", *CALM)
    moves = [
        {"name": before, "destination": lab.host(2), "bandwidth_mib": 3, "stall_seconds": 90},
        {"name": after, "destination": lab.host(2), **POST_COPY},
    ]
    running = control.begin(1, "live_migrate", {"moves": moves})
    lab.under_way(lab.uuid(before))
    await_post_copy(lab, after)
    lab("cut", lab.host(1), "--peer", lab.host(2))
    time.sleep(seconds)
    lab("heal", lab.host(1))
    done = running.wait()
    first, second = done.records
    assert (second["status"], second["result"]["mode"]) == ("completed", "post-copy"), done.text
    for name, record in ((before, first), (after, second)):
        check_where(lab, name, record)
    # Half a minute is what the hypervisors' daemons allow each other; what is shorter than that only costs its time.
    assert first["status"] == "completed" or seconds >= 30, done.text
    assert sorted(record["id"] for record in control.records()) == sorted([first["id"], second["id"]])
    assert done.code == 0 or done.result["error_code"] == "migration_failed"
    if first["status"] == "failed":
        assert control.move(before).ended() == ("completed", None)


def test_only_the_data_is_cut_in_post_copy(lab: Lab, control: Session, guest: Make) -> None:
    """A stream that stands still is broken, and resumed when there is a way again."""
    name = guest("after", *CALM)
    running = control.begin_move(name, **POST_COPY, stall_seconds=4)
    await_post_copy(lab, name)
    lab("cut", lab.host(1), "--data", "--peer", lab.host(2))
    eventually(lambda: "recover: pause" in acts(lab.state_file(lab.uuid(name)) or {"acts": []}), "the stream is broken")
    lab("heal", lab.host(1))
    done = running.wait()
    check_completed(lab, control, done, name)
    assert acts(done.record).index("recover: pause") < acts(done.record).index("recover: resume")
    assert done.record["result"]["mode"] == "post-copy"
    assert lab.check(name)["intact"]
