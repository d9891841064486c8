# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, SavedDisk, SavedDomain, SavedFile
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_documents import keep_unread_images, list_unproved, prove_images
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import (
    FOLDER,
    ID1,
    ID2,
    ID3,
    NONCE,
    Body,
    disk,
    reported_domain,
)

WWN = "wwn:0x5000c500a1b2c3d4"
OWN = {"host_id": ID1, "folders": {FOLDER: NONCE}}


def saved(document: Body) -> SavedDisk:
    return decode(SavedDisk, document)


def domain(disks: t.Sequence[SavedDisk], files: t.Sequence[SavedFile] = ()) -> SavedDomain:
    return dataclasses.replace(decode(SavedDomain, reported_domain()), disks=tuple(disks), files=tuple(files))


BLOCK = disk(kind="block", path="/dev/sdb", folders=[], wwn=WWN)


def peer(host_id: str, **sees: str) -> HostEntry:
    return host_entry({"host_id": host_id, "sees": {ID1: sees}})


def prove(images: t.Sequence[t.Any], hosts: list[HostEntry]) -> tuple[t.Any, ...]:
    return prove_images(images, ID1, hosts, {str(host.host_id): host.seen_of(ID1) for host in hosts})


def list_seeing_hosts(one: Body, *hosts: HostEntry) -> list[str]:
    return list(prove([saved(one)], [host_entry(OWN), *hosts])[0].seen_by or ())


def reasons(one: Body, *hosts: HostEntry, **own: t.Any) -> list[str]:
    proved = domain(prove([saved(one)], [host_entry(OWN), *hosts]))
    return [entry.reason for entry in list_unproved(proved, ID1, host_entry({**OWN, **own}))]


def test_a_host_that_read_the_same_token_sees_the_disk() -> None:
    assert list_seeing_hosts(disk(), peer(ID2, **{FOLDER: NONCE}), peer(ID3, **{FOLDER: "another"})) == [ID1, ID2]
    assert prove([saved(disk())], [host_entry(OWN), peer(ID2, **{FOLDER: NONCE})])[0].shared is True
    assert prove([saved(disk())], [host_entry(OWN)])[0].shared is False


def test_all_folders_of_a_disk_and_its_backing_files_must_be_seen() -> None:
    chained = disk(folders=[FOLDER, "/srv/base"])
    own = {**OWN, "folders": {FOLDER: NONCE, "/srv/base": "base"}}
    one, both = peer(ID2, **{FOLDER: NONCE}), peer(ID3, **{FOLDER: NONCE, "/srv/base": "base"})
    assert prove([saved(chained)], [host_entry(own), one, both])[0].seen_by == (ID1, ID3)


def test_a_folder_without_a_token_proves_nothing() -> None:
    assert prove([saved(disk())], [host_entry({"host_id": ID1, "folders": {}}), peer(ID2)])[0].seen_by == (ID1,)


def unread(before: Body | None, now: Body, active: bool = True) -> SavedDisk:
    """Return the disk of a domain whose storage does not answer."""
    told = decode(SavedDomain, reported_domain(disks=[now], active=active, unread=[now["path"]]))
    return keep_unread_images(told, DomainProtection(disks=(before,)) if before else None).disks[0]


LOCATED = disk(folders=[FOLDER, "/srv/base"], backing=["/srv/base/os.qcow2"], locks="leased")
LOST = disk(mount=None, backing=["/srv/base/os.qcow2"])


def test_an_image_whose_storage_does_not_answer_keeps_the_location_that_was_saved() -> None:
    """With the folder of a link alone, the folder of the image itself would not have to be proved."""
    assert unread(LOCATED, LOST) == saved(LOCATED)
    assert unread(LOCATED, disk(mount=None, backing=[], backing_problem="cannot be read"), active=False) == dataclasses.replace(
        saved(LOCATED), backing_problem=ABSENT
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, LOST), (LOCATED, {**LOST, "backing": ["/srv/base/new.qcow2"]}), (LOCATED, {**LOST, "format": "raw"}), (LOCATED, {**LOST, "target": "vdb"})],
)
def test_an_image_that_was_saved_otherwise_is_not_proved_while_its_storage_does_not_answer(before: Body | None, now: Body) -> None:
    assert "did not answer" in str(unread(before, now).backing_problem)
    assert reasons({**now, "backing_problem": "its storage did not answer"}, peer(ID2, **{FOLDER: NONCE, "/srv/base": "base"}))


def test_a_file_whose_storage_does_not_answer_keeps_its_folders_or_is_not_proved() -> None:
    now = SavedFile("nvram", "file", f"{FOLDER}/web.fd", (FOLDER,))
    located = dataclasses.replace(now, folders=(FOLDER, "/srv/nvram"))
    told = dataclasses.replace(domain([saved(disk())], [now]), unread=(now.path,))
    for before, folders in ((DomainProtection(files=(encode(located),)), located.folders), (None, ())):
        assert [file.folders for file in keep_unread_images(told, before).files or ()] == [folders]
    answered = dataclasses.replace(told, unread=ABSENT)
    assert keep_unread_images(answered, None) == answered


def test_block_devices_are_proved_by_identity_and_network_disks_always() -> None:
    assert list_seeing_hosts(BLOCK, peer(ID2, **{"/dev/sdb": WWN}), peer(ID3, **{"/dev/sdb": "wwn:0x5"})) == [ID1, ID2]
    assert list_seeing_hosts(disk(kind="block", path="/dev/sdb", folders=[]), peer(ID2)) == [ID1]
    assert list_seeing_hosts(disk(kind="network", path="pool/web1", folders=[]), peer(ID2), peer(ID3)) == [ID1, ID2, ID3]
    assert list_seeing_hosts(disk(kind="nvme", path="/x", folders=[]), peer(ID2)) == [ID1]


def test_each_disk_that_no_other_host_sees_is_listed_with_its_reason() -> None:
    assert reasons(disk(), peer(ID2, **{FOLDER: NONCE})) == []
    assert FOLDER in reasons(disk(), peer(ID2))[0]
    assert "Read-only" in reasons(disk(), peer(ID2), unwritable={FOLDER: "Read-only file system"})[0]
    assert WWN in reasons(BLOCK, peer(ID2))[0]
    assert "no identity" in reasons(disk(kind="block", path="/dev/sdb", folders=[]), peer(ID2))[0]
    assert "volume" in reasons(disk(kind="volume", path="", folders=[]), peer(ID2))[0]


def test_an_empty_or_optional_drive_needs_no_proof() -> None:
    assert reasons(disk(path="", folders=[])) == []
    assert reasons(disk(optional=True)) == []


def test_disks_that_no_single_host_sees_together_are_unproved() -> None:
    disks = [saved(disk(seen_by=[ID1, ID2])), saved(disk(target="vdb", seen_by=[ID1, ID3]))]
    found = list(list_unproved(domain(disks), ID1, host_entry(OWN)))
    assert [(entry.target, entry.path) for entry in found] == [(None, None)]


def test_a_backing_device_must_be_seen() -> None:
    built = disk(backing_devices={"/dev/sdb": WWN})
    both = peer(ID2, **{FOLDER: NONCE, "/dev/sdb": WWN})
    assert list_seeing_hosts(built, both, peer(ID3, **{FOLDER: NONCE})) == [ID1, ID2]
    assert list_seeing_hosts(disk(backing_devices={"/dev/sdb": None}), both) == [ID1]
    assert "no identity" in reasons(disk(backing_devices={"/dev/sdb": None}), both)[0]


def test_a_disk_with_an_unknown_backing_is_unproved() -> None:
    sealed = disk(backing_problem="/x cannot be read")
    assert list_seeing_hosts(sealed, peer(ID2, **{FOLDER: NONCE})) == [ID1]
    assert "/x cannot be read" in reasons(sealed, peer(ID2, **{FOLDER: NONCE}))[0]


def test_another_needed_file_that_no_other_host_sees_is_listed() -> None:
    seeing = peer(ID2, **{FOLDER: NONCE})
    file = SavedFile("nvram", "file", "/var/lib/web_VARS.fd", ("/var/lib",), wwn=None, shared=None)
    proved = domain(prove([saved(disk())], [host_entry(OWN), seeing]), prove([file], [host_entry(OWN), seeing]))
    (entry,) = list_unproved(proved, ID1, host_entry(OWN))
    assert (entry.target, entry.path) == (None, "/var/lib/web_VARS.fd")
    assert "firmware variables" in entry.reason
    assert entry.reason.endswith("or let the guest start with fresh ones (evacuate_host_accept_fresh)")
