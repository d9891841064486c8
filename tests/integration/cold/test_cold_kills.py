# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves whose process on the source is killed: the next run, or a person, settles them by what both hosts show."""

from __future__ import annotations

import os
import signal
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.tasks import descendants
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]
# Only the first host has it.
BRIDGE = "cold0"
BIG = ("--mib", "256", "--dirty-mib", "160", "--rate", "20000", "--integrity")


def kill_at(lab: Lab, control: Control, name: str, act: str, meanwhile: t.Callable[[], None] = lambda: None, **arguments: t.Any) -> Outcome:
    """Begin a cold move, kill its process on the source as soon as this act has begun, and return how the task ended."""
    uuid = lab.uuid(name)
    running = control.begin(1, "cold_migrate", {"name": name, "destination": lab.host(2), **arguments})

    def acting() -> int | None:
        state = lab.state_file(uuid)
        begun = state is not None and act in [one["act"] for one in state["acts"]]
        return int(state["watcher"]["pid"]) if state is not None and begun else None

    pid = eventually(acting, f"{act} of {name}")
    meanwhile()
    lab.on(1, "kill", "-KILL", str(pid))
    return running.wait()


@pytest.mark.long
@pytest.mark.parametrize("act", ["hold_image", "start_paused", "move_live", "save_at_destination"])
def test_a_move_that_was_killed_while_a_managed_save_image_crosses_is_finished(lab: Lab, control: Control, guest: Make, act: str) -> None:
    name = guest("asleep", *BIG, "--autostart")
    lab.virsh(1, "managedsave", name)
    killed = kill_at(lab, control, name, act, method="offline")
    assert killed.code != 0, killed.text
    settled = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "offline"})
    assert (settled.code, settled.ended()) == (0, ("completed", None)), settled.text
    assert (lab.places(name), lab.info(name, 2)["Managed save"]) == ({2: "shut off"}, "yes")
    assert list(lab.path(1, "/var/lib/libvirt/qemu/save").glob("*.memory")) == []
    lab.virsh(2, "start", name)
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_memory_outlasts_a_guest_that_is_lost_while_it_crosses(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("asleep", *BIG)
    lab.virsh(1, "managedsave", name)
    killed = kill_at(lab, control, name, "start_paused", method="offline")
    assert killed.code != 0, killed.text
    # libvirt ends the start without its client, and uses the image up.
    eventually(lambda: lab.places(name).get(1) == "paused" and lab.info(name, 1)["Managed save"] == "no", "the guest is restored")
    lab.virsh(1, "destroy", name)
    settled = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "offline"})
    held = f"/var/lib/libvirt/qemu/save/kvmfleet-{killed.record['id']}.memory"
    assert (settled.ended()[0], held in settled.msg) == ("error", True), settled.text
    lab.virsh(1, "restore", "--paused", held)
    assert lab.places(name)[1] == "paused"
    # The record is settled by what the hosts show now: the guest crosses after all.
    again = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "offline"})
    assert again.ended() == ("completed", None), again.text
    lab.virsh(2, "start", name)
    assert lab.check(name)["intact"]


def test_a_move_that_was_killed_while_memory_is_saved_is_finished(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("busy", *BIG)
    folder = str(lab.layout.shared)
    killed = kill_at(lab, control, name, "save", method="save", save_folder=folder)
    assert (killed.code != 0, killed.result["error_code"], killed.ended()) == (True, "internal", ("running", None)), killed.text
    settled = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "save", "save_folder": folder})
    assert (settled.code, settled.changed, settled.ended()) == (0, True, ("completed", None)), settled.text
    assert settled.record["id"] == killed.record["id"]
    assert lab.places(name) == {2: "running"}
    assert lab.check(name)["intact"]
    assert list(lab.path(1, folder).glob("kvmfleet-*")) == []


@pytest.mark.long
def test_a_person_settles_a_move_that_was_killed_while_memory_is_saved(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("busy", *BIG, "--autostart")
    killed = kill_at(lab, control, name, "save", method="save", save_folder=str(lab.layout.shared))
    decision = {"settle": {"id": killed.record["id"], "status": "completed"}, "reason": "its task was killed"}
    settled = control.task(1, "host", decision)
    assert (settled.code, settled.changed) == (0, True), settled.text
    assert settled.result["records"][0]["status"] == "completed"
    assert (lab.places(name), lab.info(name, 2)["Autostart"]) == ({2: "running"}, "enable")
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_a_move_that_was_killed_while_its_guest_shuts_down_is_undone_and_begun_anew(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("deaf", "--autostart")

    def abort_in_vain() -> None:
        assert control.task(1, "migration_abort", {"name": name}).refused() == "not_supported"
        assert control.task(1, "live_migrate", {"name": name, "destination": lab.host(2)}).refused() == "conflict"

    killed = kill_at(lab, control, name, "shut_down", abort_in_vain, method="shutdown")
    assert lab.places(name) == {1: "running", 2: "shut off"}
    assert (lab.info(name, 1)["Autostart"], lab.info(name, 2)["Autostart"]) == ("disable", "disable")
    again = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(3), "method": "save", "save_folder": str(lab.layout.shared)})
    assert (again.code, again.ended()) == (0, ("completed", None)), again.text
    assert lab.places(name) == {3: "running"}
    assert [(record["id"] == killed.record["id"], record["status"]) for record in control.records()] == [(True, "failed"), (False, "completed")]


@pytest.mark.long
def test_memory_is_restored_on_the_source_if_the_destination_cannot_restore_it(lab: Lab, control: Control, guest: Make) -> None:
    lab.on(1, "sh", "-c", f"ip link show {BRIDGE} > /dev/null 2>&1 || ip link add {BRIDGE} up type bridge")
    name = guest("busy", "--mib", "96", "--dirty-mib", "32", "--rate", "2000", "--integrity", "--bridge", BRIDGE, "--autostart")
    moved = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "save", "save_folder": str(lab.layout.shared), "force": True})
    assert (moved.code != 0, moved.ended()) == (True, ("failed", None)), moved.text
    assert (lab.places(name), lab.info(name, 1)["Autostart"]) == ({1: "running"}, "enable")
    assert lab.check(name)["intact"]
    assert list(lab.path(1, str(lab.layout.shared)).glob("kvmfleet-*")) == []


@pytest.mark.long
def test_moves_that_wait_for_their_turn_do_not_begin_after_their_task_was_cancelled(lab: Lab, control: Control, guest: Make) -> None:
    deaf, last = [guest(f"deaf{number}") for number in range(4)], guest("last", "--off")
    moves = [{"name": name, "method": "shutdown", "destination": lab.host(2), "shutdown_wait_seconds": 20} for name in deaf]
    running = control.begin(1, "cold_migrate", {"moves": [*moves, {"name": last, "method": "offline", "destination": lab.host(2)}]})
    for name in deaf:
        uuid = lab.uuid(name)
        eventually(lambda uuid=uuid: "shut_down" in [one["act"] for one in (lab.state_file(uuid) or {"acts": []})["acts"]], f"{name} is asked to shut down")
    # As AWX cancels a job: all processes of its container are killed, those of SSH among them.
    for pid in [running.process.pid, *descendants(running.process.pid)]:
        os.kill(pid, signal.SIGKILL)
    running.process.wait()
    for name in deaf:
        uuid = lab.uuid(name)
        eventually(lambda uuid=uuid: t.cast("dict[str, t.Any]", lab.state_file(uuid))["status"] == "failed", f"{name} stays", 60)
    assert (lab.places(last), lab.state_file(lab.uuid(last))) == ({1: "shut off"}, None)
    again = control.task(1, "cold_migrate", {"name": last, "method": "offline", "destination": lab.host(2)})
    assert (again.code, again.ended(), lab.places(last)) == (0, ("completed", None), {2: "shut off"}), again.text
