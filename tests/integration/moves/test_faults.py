# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Daemons, hypervisors and cables that fail in the middle of a move: the record says what both hosts say."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually


@pytest.fixture(autouse=True)
def repaired(lab: Lab) -> t.Iterator[None]:
    """Undo what a scenario did to the hosts, before the next one, and before its guests are removed."""
    yield
    for number in (1, 2):
        lab("heal", lab.host(number))
        lab("libvirtd", lab.host(number), "start")
        eventually(lambda: lab.rows()[lab.host(number)]["libvirtd"], "libvirtd answers")  # noqa: B023 - asked at once


def kill_hypervisor(lab: Lab, number: int, guest: str) -> None:
    lab.on(number, "sh", "-c", f"kill -9 $(cat /run/libvirt/qemu/{guest}.pid)")


def check_stayed(lab: Lab, control: Control, done: Outcome, name: str) -> None:
    """The move failed, and its guest runs on the source alone."""
    assert done.refused() == "migration_failed"
    assert done.ended() == ("failed", None)
    eventually(lambda: lab.places(name) == {1: "running"}, f"{name} runs on its source alone")
    assert control.only_record() == done.record


def test_the_hypervisor_at_the_destination_dies(lab: Lab, control: Control, slow: str) -> None:
    running = control.begin_move(slow, bandwidth_mib=2)
    lab.under_way(lab.uuid(slow))
    kill_hypervisor(lab, 2, slow)
    check_stayed(lab, control, running.wait(), slow)
    assert control.move(slow).ended() == ("completed", None)


def test_libvirtd_at_the_destination_dies(lab: Lab, control: Control, slow: str) -> None:
    running = control.begin_move(slow, bandwidth_mib=2)
    lab.under_way(lab.uuid(slow))
    lab("libvirtd", lab.host(2), "kill")
    check_stayed(lab, control, running.wait(), slow)


def test_libvirtd_at_the_source_dies(lab: Lab, control: Control, slow: str) -> None:
    running = control.begin_move(slow, bandwidth_mib=2)
    lab.under_way(lab.uuid(slow))
    lab("libvirtd", lab.host(1), "kill")
    done = running.wait()
    status = done.record["status"]
    assert status in ("failed", "completed"), done.text
    where = 2 if status == "completed" else 1
    eventually(lambda: lab.places(slow) == {where: "running"}, f"the guest is where the record ({status}) says")
    assert control.only_record() == done.record
    assert lab.check(slow)["intact"]


def test_a_cut_cable_is_a_stall(lab: Lab, control: Control, slow: str) -> None:
    running = control.begin_move(slow, bandwidth_mib=2, stall_seconds=4)
    lab.under_way(lab.uuid(slow))
    lab("cut", lab.host(1), "--data", "--out", "--peer", lab.host(2))
    done = running.wait()
    assert done.refused() == "timeout"
    assert done.ended() == ("cancelled", "stalled")
    assert "network" in done.msg
    eventually(lambda: lab.places(slow) == {1: "running"}, "the guest runs on its source alone")
    assert not lab.has_job(slow)
    assert control.only_record() == done.record


def test_the_guest_dies_in_the_move(lab: Lab, control: Control, slow: str) -> None:
    running = control.begin_move(slow, bandwidth_mib=2)
    lab.under_way(lab.uuid(slow))
    kill_hypervisor(lab, 1, slow)
    done = running.wait()
    assert done.refused() == "internal"
    assert done.ended() == ("error", "guest_died")
    assert lab.places(slow) == {1: "shut off"}
    assert control.only_record()["status"] == "error"
    lab.virsh(1, "start", slow)
    again = control.move(slow)
    assert again.ended() == ("completed", None), again.text
    assert [record["status"] for record in control.records()] == ["failed", "completed"]
