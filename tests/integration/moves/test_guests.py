# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that are not plain: paused, transient, with autostart, and with each kind of storage."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]
WRITER = ("--mib", "64", "--dirty-mib", "16", "--integrity")


def test_a_paused_guest_arrives_paused(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("paused", "--paused")
    moved = control.move(name)
    assert moved.ended() == ("completed", None), moved.text
    assert moved.record["before"]["state"] == "paused"
    assert lab.places(name) == {2: "paused"}


def test_a_guest_that_arrived_paused_moves_on_only_after_it_has_run(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("waiting", "--paused", *WRITER, "--storage", "bindfs")
    assert control.move(name).ended() == ("completed", None)
    back = {"name": name, "destination": lab.host(1)}
    refused = control.task(2, "live_migrate", back)
    assert (refused.refused(), "It arrived here paused, and has not run since" in refused.msg) == ("conflict", True), refused.text
    assert lab.places(name) == {2: "paused"}
    lab.virsh(2, "resume", name)
    time.sleep(2)
    lab.virsh(2, "suspend", name)
    moved = control.task(2, "live_migrate", back)
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {1: "paused"}
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_a_paused_guest_stays_paused_when_its_move_times_out(lab: Lab, control: Control, endless: str) -> None:
    lab.virsh(1, "suspend", endless)
    done = control.move(endless, timeout_seconds=2, **HELD)
    assert done.refused() == "timeout"
    assert lab.places(endless) == {1: "paused"}
    assert "resume_source" not in [act["act"] for act in done.record["acts"]]


@pytest.mark.long
def test_a_transient_guest_arrives_transient(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("transient", "--transient")
    moved = control.move(name)
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {2: "running"}
    assert lab.info(name, 2)["Persistent"] == "no"
    assert moved.record["before"]["persistent"] is False


def test_autostart_is_set_at_the_destination_only_if_it_was_set_before(lab: Lab, control: Control, guest: Make) -> None:
    starts, rests = guest("starts", "--autostart"), guest("rests")
    done = control.moves([(starts, 2), (rests, 2)])
    assert done.code == 0, done.text
    assert (lab.info(starts, 2)["Autostart"], lab.info(rests, 2)["Autostart"]) == ("enable", "disable")
    assert (lab.info(starts, 2)["Persistent"], lab.info(rests, 2)["Persistent"]) == ("yes", "yes")
    assert "autostart_destination" in [act["act"] for act in done.records[0]["acts"]]
    assert "autostart_destination" not in [act["act"] for act in done.records[1]["acts"]]


@pytest.mark.long
def test_an_old_definition_at_the_destination_gives_the_guest_neither_its_memory_nor_its_autostart(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("returned")
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=lab.virsh(1, "dumpxml", "--inactive", name))
    lab.virsh(1, "destroy", name)
    lab.virsh(2, "start", name)
    lab.virsh(2, "managedsave", name)
    lab.virsh(2, "autostart", name)
    lab.virsh(1, "start", name)
    done = control.move(name)
    assert (done.refused(), f"{lab.host(2)} has a managed-save image of domain {name}" in done.msg) == ("conflict", True), done.text
    lab.virsh(2, "managedsave-remove", name)
    moved = control.move(name)
    assert moved.ended() == ("completed", None), moved.text
    assert (lab.places(name), lab.info(name, 2)["Autostart"]) == ({2: "running"}, "disable")


@pytest.mark.parametrize("kind", ["nbd", pytest.param("bindfs", marks=pytest.mark.long)])
def test_a_guest_on_shared_storage_keeps_its_memory(lab: Lab, control: Control, guest: Make, kind: str) -> None:
    name = guest(f"on-{kind}", *WRITER, "--storage", kind)
    moved = control.move(name)
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {2: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["shared", "local"])
def test_storage_that_is_not_proved_to_be_shared_is_unsafe(lab: Lab, control: Control, guest: Make, kind: str) -> None:
    name = guest(f"on-{kind}", *WRITER, "--storage", kind)
    for options in (["--check"], []):
        assert control.records() == []
        done = control.move(name, 2, *options)
        assert done.refused() == "unsafe"
        assert "vda" in done.msg
        assert "unsafe: true" in done.msg
    assert lab.places(name) == {1: "running"}
    assert control.only_record() == done.record
    assert done.ended() == ("conflict", None)


@pytest.mark.long
def test_unsafe_permits_a_move_on_storage_that_is_not_proved_to_be_shared(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("known", *WRITER, "--storage", "shared")
    moved = control.move(name, unsafe=True)
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {2: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "connections", "why"),
    [
        ({}, 2, "2 connections carry the memory, because the link carries 4000 MiB/s."),
        ({"post_copy": True}, None, "the guest is lost when such a move switches over"),
    ],
)
def test_a_fast_link_is_filled_by_several_connections(
    lab: Lab, control: Control, guest: Make, options: dict[str, t.Any], connections: int | None, why: str
) -> None:
    """The hosts of the lab have two CPUs each, and an older QEMU, for which post-copy forbids it."""
    name = guest("fast", *WRITER)
    moved = control.move(name, link_mib=4000, **options)
    assert moved.ended() == ("completed", None), moved.text
    used = moved.record["connection"]
    assert ("PARALLEL" in used["flags"], used["parameters"].get("parallel.connections")) == (bool(connections), connections)
    assert any(why in line["detail"] for line in moved.record["history"])
    assert lab.places(name) == {2: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_a_guest_moves_over_parallel_connections(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("wide", *WRITER)
    moved = control.move(name, parallel_connections=2)
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {2: "running"}
    assert lab.check(name)["intact"]
