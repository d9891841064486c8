# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain moves: what they do, what they record, and that the second run finds nothing to do."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
WRITER = ("--mib", "96", "--dirty-mib", "32", "--rate", "2000", "--integrity")
WAY = ["accepted", "scheduled", "queued", "preparing", "running", "completed"]


def statuses(record: Record) -> list[str]:
    """Return the changes of status in a record's history, in their order."""
    return [line["status"] for line in record["history"] if line["status"] in [*WAY, "cancelled", "failed", "error", "conflict"]]


def test_a_busy_guest_moves_once_and_keeps_its_memory(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("busy", *WRITER)
    uuid, before = lab.uuid(name), lab.check(name)
    moved = control.move(name)
    assert (moved.code, moved.changed, moved.ended()) == (0, True, ("completed", None)), moved.text
    assert lab.places(name) == {2: "running"}
    after = lab.check(name)
    assert after["intact"]
    assert after["increments"] > before["increments"]
    assert control.only_record() == moved.record
    check_completed(lab, moved.record, name, uuid)
    again_from_the_source(control, moved.record, name, uuid)
    again_from_the_destination(lab, control, name, uuid)


def check_completed(lab: Lab, record: Record, name: str, uuid: str) -> None:
    assert statuses(record) == WAY
    assert record["domain"] == {"uuid": uuid, "name": name}
    assert (record["source"]["host"], record["destination"]["host"]) == (lab.host(1), lab.host(2))
    assert record["source"]["host_uuid"] != record["destination"]["host_uuid"]
    assert {act["act"] for act in record["acts"]} == {"migrate"}
    assert record["before"]["state"] == "running"
    assert record["generation"] >= 1
    check_figures(record)


def check_figures(record: Record) -> None:
    assert {field["source"] for field in record["policy"].values()} == {"default"}
    assert record["policy"]["downtime_ms"]["value"] == 500
    assert (record["progress"]["percent"], record["progress"]["memory_remaining_bytes"]) == (100, 0)
    assert 1 <= len(record["samples"]) <= 60
    result = record["result"]
    for figure in ("elapsed_ms", "downtime_ms", "setup_ms", "bytes", "iterations"):
        assert isinstance(result[figure], int), (figure, result)
    assert 0 < result["downtime_ms"] < result["elapsed_ms"] < 600_000
    assert result["bytes"] > 32 * 1024**2
    assert result["mode"] == "pre-copy"


def again_from_the_source(control: Control, record: Record, name: str, uuid: str) -> None:
    """The old source has no such domain any more: the ledger knows the name, and the UUID needs no ledger."""
    for wanted in ({"name": name}, {"name": None, "uuid": uuid}):
        again = control.move(**{"name": name, **wanted})
        assert (again.code, again.changed) == (0, False), again.text
        assert again.record["id"] == record["id"]
    assert len(control.records()) == 1


def again_from_the_destination(lab: Lab, control: Control, name: str, uuid: str) -> None:
    back = control.task(2, "live_migrate", {"uuid": uuid, "destination": lab.host(1)})
    assert (back.code, back.changed, back.ended()) == (0, True, ("completed", None)), back.text
    assert lab.places(name) == {1: "running"}
    assert back.record["generation"] > min(record["generation"] for record in control.records())


@pytest.mark.long
def test_a_domain_that_runs_on_the_destination_already_is_no_change(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("elsewhere", on=2)
    found = control.move(None, uuid=lab.uuid(name, 2))
    assert (found.code, found.changed, found.record["id"]) == (0, False, None), found.text
    assert control.records() == []


def test_without_a_destination_the_scheduler_chooses(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("anywhere")
    moved = control.move(name, None)
    assert moved.ended() == ("completed", None)
    assert lab.places(name) in ({2: "running"}, {3: "running"})
    assert not control.move(name, None).changed


@pytest.mark.long
def test_each_policy_value_of_a_record_names_its_source(control: Control, guest: Make) -> None:
    name = guest("policy")
    record = control.move(name, timeout_seconds=60, downtime_ms=300, auto_converge=False).record
    assert record["policy"]["timeout_seconds"] == {"value": 60, "source": "task"}
    assert record["policy"]["downtime_ms"] == {"value": 300, "source": "task"}
    assert record["policy"]["auto_converge"] == {"value": False, "source": "task"}
    assert record["policy"]["stall_seconds"] == {"value": 60, "source": "default"}


@pytest.mark.long
def test_a_move_by_the_ssh_transport_completes(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("wrapped")
    moved = control.move(name, transport="ssh")
    assert moved.ended() == ("completed", None), moved.text
    assert moved.record["connection"]["destination_uri"].startswith("qemu+ssh://")
    assert lab.places(name) == {2: "running"}
