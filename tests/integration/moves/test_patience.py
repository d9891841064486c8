# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What shows only after a minute: a destination silent for longer than it is asked, and a run that is not heard from any more.

Both minutes pass at the same time.
"""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

LOST, FIRST, SECOND = "lost", "first", "second"
BUSY = ("--mib", "48", "--dirty-mib", "16", "--rate", "6000")
SILENT, ABANDONED = 2, 3


class Minute(t.NamedTuple):
    """What was found after it: the control nodes, how the move to a silent host ended, and the state files of an abandoned run."""

    patient: Control
    silent: Outcome
    gone: Control
    in_flight: Record
    queued: Record


@pytest.fixture(scope="module")
def minute(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Minute]:
    for name in (LOST, FIRST, SECOND):
        lab("guest", name, "--host", lab.host(1), *BUSY)
    yield spend(lab, tmp_path_factory.mktemp("patient"), tmp_path_factory.mktemp("gone"))
    lab("libvirtd", lab.host(SILENT), "start")
    for name in (LOST, FIRST, SECOND):
        lab("rmguest", name)


def spend(lab: Lab, one: pathlib.Path, other: pathlib.Path) -> Minute:
    patient, gone = Control(lab, one), Control(lab, other)
    abandoned = gone.begin_moves([(FIRST, ABANDONED), (SECOND, ABANDONED)], parallel=1, bandwidth_mib=4, timeout_seconds=600)
    in_flight = lab.under_way(lab.uuid(FIRST))
    abandoned.kill()
    waiting = patient.begin_move(LOST, SILENT, bandwidth_mib=4)
    lab.under_way(lab.uuid(LOST))
    lab("libvirtd", lab.host(SILENT), "stop")
    silent = waiting.wait()
    uuid = lab.uuid(SECOND)
    queued = eventually(lambda: (found := lab.state_file(uuid)) and found["status"] != "queued" and found, "the queued move is given up", 60)
    return Minute(patient, silent, gone, in_flight, queued)


def test_a_destination_that_is_silent_at_the_end_is_settled_later(lab: Lab, minute: Minute) -> None:
    assert minute.silent.refused() == "internal"
    assert minute.silent.ended() == ("error", "unreachable")
    assert minute.patient.only_record()["status"] == "error"
    assert lab.places(LOST) == {1: "running"}
    lab("libvirtd", lab.host(SILENT), "start")
    again = minute.patient.move(LOST, SILENT)
    assert (again.code, again.changed, again.ended()) == (0, True, ("completed", None)), again.text
    assert again.record["id"] != minute.silent.record["id"]
    assert [record["status"] for record in minute.patient.records()] == ["failed", "completed"]
    assert lab.places(LOST) == {SILENT: "running"}


def test_what_was_queued_does_not_start_without_its_run(lab: Lab, minute: Minute) -> None:
    assert (minute.queued["status"], minute.queued["reason"]) == ("cancelled", "controller_lost")
    assert minute.queued["acts"] == []
    assert lab.places(SECOND) == {1: "running"}
    assert lab.has_job(FIRST), "the move in flight is watched to its end"
    before = lab.runs()
    following = minute.gone.begin_moves([(FIRST, ABANDONED), (SECOND, ABANDONED)])
    eventually(lambda: lab.runs() - before, "a second run follows what is in flight")
    lab.virsh(1, "domjobabort", FIRST)
    again = following.wait()
    assert [record["status"] for record in again.records] == ["cancelled", "completed"], again.text
    assert again.records[0]["id"] == minute.in_flight["id"]
    assert again.records[0]["reason"] == "operator"
    assert lab.places(FIRST) == {1: "running"}
    assert lab.places(SECOND) == {ABANDONED: "running"}
    of_second = [(record["status"], record["reason"]) for record in minute.gone.records() if record["domain"]["name"] == SECOND]
    assert sorted(of_second) == [("cancelled", "controller_lost"), ("completed", None)]
