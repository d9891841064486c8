# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect.proof import proved, unproved
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._protect.builders import DOMAIN, FOLDER, ID1, ID2, ID3, NONCE, Body, disk

WWN = "wwn:0x5000c500a1b2c3d4"
OWN = {"host_id": ID1, "folders": {FOLDER: NONCE}}
BLOCK = disk(kind="block", path="/dev/sdb", folders=[], wwn=WWN)


def peer(host_id: str, **sees: str) -> Body:
    return {"host_id": host_id, "sees": {ID1: sees}}


def seers(one: Body, *hosts: Body) -> list[str]:
    return t.cast("list[str]", proved([one], ID1, [OWN, *hosts])[0]["seen_by"])


def reasons(one: Body, *hosts: Body, **own: t.Any) -> list[str]:
    domain = {"uuid": DOMAIN, "name": "web1", "disks": proved([one], ID1, [OWN, *hosts])}
    return [entry["reason"] for entry in unproved(domain, ID1, {**OWN, **own})]


def test_a_host_that_read_this_very_token_sees_the_disk() -> None:
    assert seers(disk(), peer(ID2, **{FOLDER: NONCE}), peer(ID3, **{FOLDER: "another"})) == [ID1, ID2]
    assert proved([disk()], ID1, [OWN, peer(ID2, **{FOLDER: NONCE})])[0]["shared"] is True
    assert proved([disk()], ID1, [OWN])[0]["shared"] is False


def test_all_folders_of_a_disk_have_to_be_seen_its_backing_files_too() -> None:
    chained = disk(folders=[FOLDER, "/srv/base"])
    own = {**OWN, "folders": {FOLDER: NONCE, "/srv/base": "base"}}
    one, both = peer(ID2, **{FOLDER: NONCE}), peer(ID3, **{FOLDER: NONCE, "/srv/base": "base"})
    assert proved([chained], ID1, [own, one, both])[0]["seen_by"] == [ID1, ID3]


def test_a_folder_without_a_token_proves_nothing() -> None:
    assert proved([disk()], ID1, [{"host_id": ID1, "folders": {}}, peer(ID2)])[0]["seen_by"] == [ID1]


def test_block_devices_by_their_identity_and_network_disks_by_their_nature() -> None:
    assert seers(BLOCK, peer(ID2, **{"/dev/sdb": WWN}), peer(ID3, **{"/dev/sdb": "wwn:0x5"})) == [ID1, ID2]
    assert seers(disk(kind="block", path="/dev/sdb", folders=[]), peer(ID2)) == [ID1]
    assert seers(disk(kind="network", path="pool/web1", folders=[]), peer(ID2), peer(ID3)) == [ID1, ID2, ID3]
    assert seers(disk(kind="nvme", path="/x", folders=[]), peer(ID2)) == [ID1]


def test_each_disk_that_nobody_else_sees_is_named_with_its_reason() -> None:
    assert reasons(disk(), peer(ID2, **{FOLDER: NONCE})) == []
    assert FOLDER in reasons(disk(), peer(ID2))[0]
    assert "Read-only" in reasons(disk(), peer(ID2), unwritable={FOLDER: "Read-only file system"})[0]
    assert WWN in reasons(BLOCK, peer(ID2))[0]
    assert "no identity" in reasons(disk(kind="block", path="/dev/sdb", folders=[]), peer(ID2))[0]
    assert "volume" in reasons(disk(kind="volume", path="", folders=[]), peer(ID2))[0]


def test_a_drive_that_is_empty_or_may_be_missing_hinders_nothing() -> None:
    assert reasons(disk(path="", folders=[])) == []
    assert reasons(disk(optional=True)) == []


def test_disks_that_are_seen_by_different_hosts_are_seen_by_none() -> None:
    disks = [disk(seen_by=[ID1, ID2]), disk(target="vdb", seen_by=[ID1, ID3])]
    found = list(unproved({"uuid": DOMAIN, "name": "web1", "disks": disks}, ID1, OWN))
    assert [(entry["target"], entry["path"]) for entry in found] == [(None, None)]


def test_a_device_that_an_image_is_built_on_has_to_be_seen_too() -> None:
    built = disk(backing_devices={"/dev/sdb": WWN})
    both = peer(ID2, **{FOLDER: NONCE, "/dev/sdb": WWN})
    assert seers(built, both, peer(ID3, **{FOLDER: NONCE})) == [ID1, ID2]
    assert seers(disk(backing_devices={"/dev/sdb": None}), both) == [ID1]
    assert "no identity" in reasons(disk(backing_devices={"/dev/sdb": None}), both)[0]


def test_what_is_built_on_something_unknown_is_proved_for_nobody() -> None:
    sealed = disk(backing_problem="/x cannot be read")
    assert seers(sealed, peer(ID2, **{FOLDER: NONCE})) == [ID1]
    assert "/x cannot be read" in reasons(sealed, peer(ID2, **{FOLDER: NONCE}))[0]


def test_a_file_beside_the_disks_that_nobody_else_sees_is_named() -> None:
    seeing = peer(ID2, **{FOLDER: NONCE})
    file = {"what": "nvram", "kind": "file", "path": "/var/lib/web_VARS.fd", "folders": ["/var/lib"], "wwn": None, "shared": None}
    domain = {"uuid": DOMAIN, "name": "web1", "disks": proved([disk()], ID1, [OWN, seeing]), "files": proved([file], ID1, [OWN, seeing])}
    (entry,) = unproved(domain, ID1, OWN)
    assert (entry["target"], entry["path"]) == (None, "/var/lib/web_VARS.fd")
    assert "firmware variables" in entry["reason"]
