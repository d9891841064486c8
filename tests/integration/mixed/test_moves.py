# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves between libvirt 9.0 with QEMU 7.2 and libvirt 11.3 with QEMU 10.0, in both directions. To the older QEMU only with force."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import written
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

Make = t.Callable[..., str]

WRITER = ("--mib", "96", "--dirty-mib", "32", "--rate", "2000", "--integrity")
ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000", "--integrity")
OLD_TYPE = ("--machine", m.OLD_MACHINE)
WAYS = [pytest.param(m.OLD, m.NEW, id="to-newer"), pytest.param(m.NEW, m.OLD, id="to-older")]
KINDS = {
    "post-copy": {"post_copy": True, "timeout_seconds": 2, "on_timeout": "force_complete", **HELD},
    "auto-converge": {"auto_converge": True, "bandwidth_mib": 40},
    "parallel": {"parallel_connections": 2},
    "xbzrle": {"compression": "xbzrle"},
    "forced": {"timeout_seconds": 2, "on_timeout": "force_complete", **HELD},
}
FORCED = {"post-copy": ["post_copy"], "forced": ["bandwidth", "downtime", "suspend"]}


def test_a_guest_moves_to_the_newer_release_and_back_with_its_policy_and_records(lab: Lab, control: m.Mixed, guest: Make) -> None:
    name = guest("web", *WRITER)
    uuid, policy = lab.uuid(name), {"timeout_seconds": "300", "downtime_ms": "400"}
    control.set_policy(name, timeout_seconds=300, downtime_ms=400)
    assert m.machine_of(lab, name, m.OLD) == m.OLD_MACHINE

    there = control.migrate(name, m.OLD, m.NEW)
    m.check_moved(lab, there, name, m.NEW)
    assert (lab.uuid(name, m.NEW), m.machine_of(lab, name, m.NEW)) == (uuid, m.OLD_MACHINE)
    assert [written(lab, name, scope, on=m.NEW) for scope in ("live", "config")] == [policy, policy]
    assert there.record["policy"]["downtime_ms"] == {"value": 400, "source": "domain"}

    refused = control.migrate(name, m.NEW, m.OLD)
    assert (refused.refused(), refused.ended()[0]) == ("conflict", "conflict"), refused.text
    assert f"Its QEMU is older: {m.OLD_QEMU}" in refused.msg
    assert f"{name} runs on {m.NEW_QEMU}" in refused.msg
    m.check_stayed(lab, name, m.NEW)

    back = control.migrate(name, m.NEW, m.OLD, force=True)
    m.check_moved(lab, back, name, m.OLD)
    assert back.record["forced"] == "FORCED_MIGRATE"
    assert [written(lab, name, scope, on=m.OLD) for scope in ("live", "config")] == [policy, policy]
    assert [record["status"] for record in control.records()] == ["completed", "conflict", "completed"]
    assert lab.info(name, m.OLD)["Persistent"] == "yes"


@pytest.mark.parametrize(("source", "destination"), WAYS)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_move_works_between_releases(lab: Lab, control: m.Mixed, guest: Make, kind: str, source: int, destination: int) -> None:
    name = guest("web", *(ENDLESS if kind in FORCED else WRITER), *OLD_TYPE, on=source)
    before = lab.check(name)["increments"]
    done = control.migrate(name, source, destination, force=destination == m.OLD, **KINDS[kind])
    m.check_moved(lab, done, name, destination)
    assert done.record["result"].get("rung") in FORCED.get(kind, [None])
    assert (done.record["result"]["mode"] == "post-copy") == (kind == "post-copy")
    assert lab.check(name)["increments"] > before


def test_post_copy_between_two_of_the_newer_release(lab: Lab, control: m.Mixed, guest: Make) -> None:
    """Both libvirts know postcopy-preempt, and turn it on."""
    name = guest("web", *ENDLESS, on=m.NEW)
    done = control.migrate(name, m.NEW, m.NEWER, **KINDS["post-copy"])
    m.check_moved(lab, done, name, m.NEWER)
    assert done.record["result"]["rung"] == "post_copy"


@pytest.mark.parametrize(
    ("source", "destination", "image_format"), [pytest.param(m.NEW, m.NEWER, "sparse", id="both-newer"), pytest.param(m.OLD, m.NEW, "raw", id="to-newer")]
)
def test_memory_is_saved_in_the_best_format_of_both_releases(lab: Lab, control: m.Mixed, guest: Make, source: int, destination: int, image_format: str) -> None:
    name = guest("web", *WRITER, on=source)
    folder = str(lab.layout.shared)
    done = control.task(source, "cold_migrate", {"name": name, "destination": lab.host(destination), "method": "save", "save_folder": folder})
    m.check_moved(lab, done, name, destination)
    assert done.record["cold"]["image_format"] == image_format
    assert list(lab.path(destination, folder).glob("kvmfleet-*")) == []


@pytest.mark.parametrize("disk", [(), ("--storage", "shared")], ids=["no-disk", "disk"])
def test_a_managed_save_image_crosses_between_two_of_the_newer_release(lab: Lab, control: m.Mixed, guest: Make, disk: tuple[str, ...]) -> None:
    name = guest("web", *WRITER, *disk, on=m.NEW)
    lab.virsh(m.NEW, "managedsave", name)
    # The folder that the hosts of the lab share is on no network file system.
    done = control.task(m.NEW, "cold_migrate", {"name": name, "destination": lab.host(m.NEWER), "method": "offline", "unsafe": bool(disk)})
    assert done.ended() == ("completed", None), done.text
    assert lab.places(name) == {m.NEWER: "shut off"}
    lab.virsh(m.NEWER, "start", name)
    assert lab.places(name) == {m.NEWER: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.parametrize(("source", "destination"), WAYS)
def test_a_move_with_nothing_to_copy_passes_no_disks_to_libvirt(lab: Lab, control: m.Mixed, guest: Make, source: int, destination: int) -> None:
    """The older one would ignore a list of disks, the newer one refuse it."""
    name = guest("shared", *WRITER, *OLD_TYPE, "--storage", "bindfs", on=source)
    done = control.migrate(name, source, destination, copy_storage="auto", force=destination == m.OLD)
    m.check_moved(lab, done, name, destination)
    assert "storage" not in done.record


@pytest.mark.parametrize(("source", "destination"), WAYS)
def test_storage_is_copied_between_releases(lab: Lab, control: m.Mixed, guest: Make, source: int, destination: int) -> None:
    name = guest("local", *WRITER, *OLD_TYPE, "--storage", "local", on=source)
    done = control.migrate(name, source, destination, copy_storage="auto", force=destination == m.OLD)
    m.check_moved(lab, done, name, destination)
    (copy,) = done.record["storage"]["disks"]
    assert (copy["target"], copy["made"]) == ("vda", True)
    assert lab.on(destination, "test", "-s", f"/var/lib/libvirt/images/{name}.qcow2") == ""


@pytest.mark.parametrize(("source", "destination"), WAYS)
def test_an_endless_move_is_listed_with_its_progress_and_aborted(lab: Lab, control: m.Mixed, guest: Make, source: int, destination: int) -> None:
    name = guest("endless", *ENDLESS, *OLD_TYPE, on=source)
    running = control.begin_migration(name, source, destination, force=destination == m.OLD, bandwidth_mib=8, downtime_ms=50)
    lab.under_way(lab.uuid(name, source), source)
    (listed,) = control.act(source, "migration_info", name=name).records
    assert (listed["domain"]["name"], listed["status"], listed["watched"]) == (name, "running", True)
    assert listed["progress"]["memory_total_bytes"] >= 96 * 1024**2
    assert listed["progress"]["memory_processed_bytes"] > 0
    aborted = control.act(source, "migration_abort", name=name)
    assert aborted.code == 0, aborted.text
    done = running.wait()
    assert done.ended() == ("cancelled", "operator"), done.text
    m.check_stayed(lab, name, source)
    assert eventually(lambda: destination not in lab.places(name), "nothing is left at the destination")


@pytest.mark.parametrize(("source", "destination"), WAYS)
def test_a_move_whose_control_node_died_is_followed_by_the_next_run(lab: Lab, control: m.Mixed, guest: Make, source: int, destination: int) -> None:
    name = guest("endless", *ENDLESS, *OLD_TYPE, on=source)
    wanted = {"force": destination == m.OLD, "bandwidth_mib": 8, "downtime_ms": 50}
    running = control.begin_migration(name, source, destination, **wanted)
    lab.under_way(lab.uuid(name, source), source)
    running.kill()
    before = m.runs(lab, source)
    again = control.begin_migration(name, source, destination, **wanted)
    eventually(lambda: m.runs(lab, source) - before, "a second run follows it")
    lab.hurry(name, number=source)
    done = again.wait()
    m.check_moved(lab, done, name, destination)
    assert control.only_record()["id"] == done.record["id"]
