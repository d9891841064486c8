# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are on one host alone, copied on the way; and all that is refused before a byte of a disk was touched."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

from .conftest import DISK_MIB, ELSEWHERE, IMAGES, WEB, Disks

MIB = 1024**2
Make = t.Callable[..., str]


def move(control: Control, name: str, mode: str = "auto", *options: str, **arguments: t.Any) -> t.Any:
    return control.move(name, 2, *options, transport="tcp", copy_storage=mode, **arguments)


def test_a_local_disk_is_copied_and_kept_on_the_source(lab: Lab, control: Control, disks: Disks, web: str) -> None:
    before = disks.content(WEB, 1)
    outcome = move(control, web)
    assert outcome.ended() == ("completed", None), outcome.text
    assert lab.places(web) == {2: "running"}
    assert disks.content(WEB, 2) == before == disks.content(WEB, 1)
    (copy,) = outcome.record["storage"]["disks"]
    assert (copy["target"], copy["action"], copy["made"]) == ("vdb", "create", True)
    assert outcome.record["progress"]["disk_total_bytes"] == DISK_MIB * MIB
    assert outcome.record["request"]["copied_disk_bytes"] == {copy["target"]: copy["bytes"]}
    assert DISK_MIB * MIB <= copy["bytes"] <= (DISK_MIB + 2) * MIB


def test_check_mode_predicts_the_copy_and_creates_no_file(lab: Lab, control: Control, disks: Disks, web: str) -> None:
    outcome = move(control, web, "auto", "--check")
    assert outcome.changed
    assert outcome.record["storage"]["disks"][0]["path"] == WEB
    assert not disks.exists(WEB, 2)
    assert lab.places(web) == {1: "running"}


def test_only_disks_proved_to_be_local_are_copied(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("mixed", "--mib", "64", "--storage", "bindfs")
    disks.attach(name, disks.create(f"{IMAGES}/mixed-data.qcow2"))
    outcome = move(control, name)
    assert outcome.ended() == ("completed", None), outcome.text
    assert [copy["target"] for copy in outcome.record["storage"]["disks"]] == ["vdb"]
    assert outcome.record["progress"]["disk_total_bytes"] == DISK_MIB * MIB
    assert lab.places(name) == {2: "running"}


@pytest.mark.long
def test_a_guest_without_local_disks_moves_without_a_copy(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("shared", "--mib", "64", "--storage", "bindfs")
    outcome = move(control, name)
    assert outcome.ended() == ("completed", None), outcome.text
    assert "storage" not in outcome.record
    assert outcome.record["progress"]["disk_total_bytes"] == 0
    bare = guest("bare", "--mib", "64")
    assert move(control, bare, "full").ended() == ("completed", None)


@pytest.mark.long
def test_an_encrypted_disk_is_refused_because_its_target_would_not_be_encrypted(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("locked", "--mib", "64")
    disks.attach_encrypted(name, f"{IMAGES}/locked.img")
    outcome = move(control, name)
    assert outcome.refused() == "not_supported", outcome.text
    assert "is encrypted" in outcome.msg
    assert lab.places(name) == {1: "running"}


@pytest.mark.parametrize("mode", ["full", pytest.param("incremental", marks=pytest.mark.long)])
def test_a_shared_disk_is_never_copied_onto_itself(lab: Lab, control: Control, guest: Make, mode: str) -> None:
    name = guest("shared", "--mib", "64", "--storage", "bindfs")
    outcome = move(control, name, mode, unsafe=True, copy_storage_overwrite=["vda"])
    assert outcome.refused() == "unsafe"
    assert "with itself" in outcome.msg
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_a_folder_under_two_mounts_is_recognised_as_shared_by_its_token(lab: Lab, control: Control, guest: Make) -> None:
    """The folder is one file system under two mounts: only the token tells."""
    name = guest("local", "--mib", "64", "--storage", "shared")
    outcome = move(control, name, "full")
    assert outcome.refused() == "unsafe"
    assert "with itself" in outcome.msg
    assert move(control, name, "auto").refused() == "unsafe"
    assert move(control, name, "auto", unsafe=True).ended() == ("completed", None)


@pytest.mark.long
def test_a_link_into_a_shared_store_is_followed(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    """The image stands in a folder of the source alone, but as a link into a folder that the destination has under that path."""
    name = guest("linked", "--mib", "64")
    shared = disks.create(f"{_shared_folder(lab)}/linked-data.qcow2")
    disks.made.append(f"{IMAGES}/linked.qcow2")
    lab.on(1, "ln", "-s", shared, f"{IMAGES}/linked.qcow2")
    lab.on(2, "mount", "--bind", _shared_folder(lab), IMAGES)
    try:
        disks.attach(name, f"{IMAGES}/linked.qcow2")
        outcome = move(control, name, "full")
        assert outcome.refused() == "unsafe", outcome.text
        assert "with itself" in outcome.msg
    finally:
        lab.on(2, "umount", IMAGES)
        lab.virsh(2, "pool-refresh", "default")


def _shared_folder(lab: Lab) -> str:
    inventory = lab("inventory").strip()
    return f"{inventory.rsplit('/', 1)[0]}/shared"


@pytest.mark.long
def test_storage_proved_neither_shared_nor_local_is_unsafe(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("lost", "--mib", "64")
    lab.on(1, "mkdir", "-p", f"{ELSEWHERE}/only-here")
    disks.attach(name, disks.create(f"{ELSEWHERE}/only-here/lost.qcow2"))
    for mode in ("auto", "full"):
        outcome = move(control, name, mode)
        assert outcome.refused() == "unsafe"
        assert f"no folder {ELSEWHERE}/only-here" in outcome.msg
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_a_disk_in_a_folder_without_a_pool_is_copied(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("raw", "--mib", "64")
    path = disks.create(f"{ELSEWHERE}/raw.img", image_format="raw")
    disks.attach(name, path, image_format="raw")
    outcome = move(control, name, "full")
    assert outcome.ended() == ("completed", None), outcome.text
    assert disks.content(path, 2, "raw") == disks.content(path, 1, "raw")
    assert disks.size(path, 2) == DISK_MIB * MIB


@pytest.mark.long
def test_an_existing_file_is_overwritten_only_when_its_disk_is_named(lab: Lab, control: Control, disks: Disks, web: str) -> None:
    disks.create(WEB, on=2, mib=4)
    there = disks.content(WEB, 2)
    outcome = move(control, web)
    assert outcome.refused() == "conflict"
    assert "copy_storage_overwrite" in outcome.msg
    assert disks.content(WEB, 2) == there
    assert move(control, web, copy_storage_overwrite=["vdz"]).refused() == "invalid_argument"
    outcome = move(control, web, copy_storage_overwrite=["vdb"])
    assert outcome.ended() == ("completed", None), outcome.text
    assert disks.content(WEB, 2) == disks.content(WEB, 1) != there


@pytest.mark.parametrize("state", ["--off", pytest.param("--paused", marks=pytest.mark.long)])
def test_a_file_in_use_by_a_domain_at_the_destination_is_never_overwritten(lab: Lab, control: Control, disks: Disks, web: str, guest: Make, state: str) -> None:
    other = guest("other", "--mib", "32", "--off", on=2)
    disks.create(WEB, on=2, mib=4)
    there = disks.content(WEB, 2)
    lab.virsh(2, "attach-disk", other, WEB, "vdb", "--subdriver", "qcow2", "--config")
    if state == "--paused":
        lab.virsh(2, "start", other, "--paused")
    outcome = move(control, web, copy_storage_overwrite=["vdb"])
    assert outcome.refused() == "conflict"
    assert "other uses" in outcome.msg
    assert disks.content(WEB, 2) == there


@pytest.mark.long
def test_a_file_that_backs_another_image_at_the_destination_is_never_overwritten(lab: Lab, control: Control, disks: Disks, web: str) -> None:
    disks.create(WEB, on=2, mib=4)
    disks.create(f"{IMAGES}/overlay.qcow2", on=2, backing=WEB)
    outcome = move(control, web, copy_storage_overwrite=["vdb"])
    assert outcome.refused() == "conflict"
    assert "overlay.qcow2 uses" in outcome.msg


def test_a_copy_without_free_space_at_the_destination_is_refused(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("large", "--mib", "64")
    folder = f"{ELSEWHERE}/small"
    for number in (1, 2):
        lab.on(number, "mkdir", "-p", folder)
    disks.attach(name, disks.create(f"{folder}/large.qcow2"))
    lab.on(2, "mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder)
    try:
        outcome = move(control, name)
    finally:
        lab.on(2, "umount", folder)
    assert outcome.refused() == "conflict"
    assert f"MiB short of space in {folder}" in outcome.msg
    assert lab.places(name) == {1: "running"}


@pytest.mark.parametrize("named", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_failed_move_removes_the_copied_disks_from_the_destination(lab: Lab, control: Control, disks: Disks, web: str, named: bool) -> None:
    arguments = {"copy_storage_overwrite": ["vdb"]} if named else {}
    if named:
        disks.create(WEB, on=2, mib=4)
    outcome = move(control, web, timeout_seconds=2, **HELD, **arguments)
    assert outcome.ended() == ("cancelled", "timeout"), outcome.text
    assert lab.places(web) == {1: "running"}
    assert not disks.exists(WEB, 2)
    assert disks.exists(WEB, 1)
    assert outcome.record["storage"]["disks"][0]["made"] is False
    assert move(control, web).ended() == ("completed", None)


@pytest.mark.long
def test_a_target_file_that_appears_while_the_move_is_queued_fails_it(lab: Lab, control: Control, disks: Disks, web: str, guest: Make) -> None:
    first = guest("first", "--mib", "96", "--dirty-mib", "64")
    running = control.begin(
        1,
        "live_migrate",
        {
            "moves": [{"name": first, **HELD}, {"name": web, "copy_storage": "auto"}],
            "parallel": 1,
            "destination": lab.host(2),
            "transport": "tcp",
        },
    )
    lab.under_way(lab.uuid(first))
    disks.create(WEB, on=2, mib=4)
    there = disks.content(WEB, 2)
    lab.hurry(first)
    outcome = running.wait()
    assert [record["status"] for record in outcome.records] == ["completed", "failed"], outcome.text
    assert lab.places(web) == {1: "running"}
    assert disks.content(WEB, 2) == there


@pytest.mark.long
def test_an_incremental_copy_sends_only_the_top_image(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("layers", "--mib", "64")
    base = disks.create(f"{IMAGES}/base.qcow2")
    top = disks.create(f"{IMAGES}/layers.qcow2", backing=base)
    disks.attach(name, top)
    outcome = move(control, name, "incremental")
    assert outcome.refused() == "not_supported"
    assert "backing chain" in outcome.msg
    lab.on(2, "cp", f"{_host_folder(lab)}/images/base.qcow2", base)
    disks.create(top, on=2, backing=base)
    outcome = move(control, name, "incremental", copy_storage_overwrite=["vdb"])
    assert outcome.refused() == "unsafe"
    assert "one file" in outcome.msg
    time.sleep(31)
    disks.remake_over(top, base, on=2)
    outcome = move(control, name, "incremental", copy_storage_overwrite=["vdb"])
    assert outcome.ended() == ("completed", None), outcome.text
    assert disks.content(top, 2) == disks.content(top, 1)
    assert disks.size(top, 2) < 2 * MIB
    assert outcome.record["storage"]["disks"][0]["action"] == "fill"


def _host_folder(lab: Lab) -> str:
    inventory = lab("inventory").strip()
    return f"{inventory.rsplit('/', 1)[0]}/hosts/{lab.host(1)}/var-lib-libvirt"


@pytest.mark.long
def test_a_full_copy_flattens_a_backing_chain(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    name = guest("layers", "--mib", "64")
    base = disks.create(f"{IMAGES}/base.qcow2")
    top = disks.create(f"{IMAGES}/layers.qcow2", backing=base)
    disks.attach(name, top)
    before = disks.content(top, 1)
    outcome = move(control, name, "full")
    assert outcome.ended() == ("completed", None), outcome.text
    assert disks.content(top, 2) == before
    assert not disks.exists(base, 2)
    assert lab.virsh(2, "domblklist", name).count(top) == 1


@pytest.mark.long
def test_copies_into_one_folder_without_a_pool_share_one_temporary_pool(lab: Lab, control: Control, disks: Disks, guest: Make) -> None:
    """Libvirt permits one pool for a folder: the moves of one task, and of another one at the same time, share it."""
    names = [guest(f"guest{number}", "--mib", "32") for number in range(4)]
    paths = {name: disks.create(f"{ELSEWHERE}/{name}.qcow2", mib=2) for name in names}
    for name, path in paths.items():
        disks.attach(name, path)
    first, second = (control.begin_moves([(name, 2) for name in half], parallel=2, transport="tcp", copy_storage="full") for half in (names[:2], names[2:]))
    for outcome in (first.wait(), second.wait()):
        assert outcome.code == 0, outcome.text
        assert [record["status"] for record in outcome.records] == ["completed"] * 2
    for name, path in paths.items():
        assert lab.places(name) == {2: "running"}
        assert disks.content(path, 2) == disks.content(path, 1)
