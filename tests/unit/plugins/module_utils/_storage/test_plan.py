# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.plan import Wish, plan

MIB = 1024**2
COPYING = ["auto", "full", "incremental"]


def volume(**facts: t.Any) -> t.Dict[str, t.Any]:
    return {"name": "web.qcow2", "format": "qcow2", "capacity_bytes": 64 * MIB, "allocation_bytes": MIB, "backing_path": "", "changed_at": 1.0, **facts}


def disk(verdict: str = "separate", image: t.Optional[t.Dict[str, t.Any]] = None, **facts: t.Any) -> t.Dict[str, t.Any]:
    default = {
        "target": "vda",
        "kind": "file",
        "path": "/images/web.qcow2",
        "format": "qcow2",
        "capacity_bytes": 64 * MIB,
        "allocation_bytes": 8 * MIB,
        "shareable": False,
        "has_backing": False,
    }
    base = {"verdict": verdict, "why": "nobody knows", "existing": None, "used_by": [], "available_bytes": 100 * MIB, "same_file": ""}
    return {"image": {**default, **(image or {})}, **base, **facts}


def planned(wish: Wish, *disks: t.Dict[str, t.Any]) -> t.List[t.Dict[str, t.Any]]:
    return plan(wish, disks, "web1", "kvm2")


def test_none_copies_nothing_whatever_the_disks_are() -> None:
    assert planned(Wish("none"), disk("unproved"), disk("separate")) == []


def test_a_separate_disk_gets_a_new_target_of_its_size() -> None:
    (copy,) = planned(Wish("auto"), disk())
    assert copy == {"target": "vda", "path": "/images/web.qcow2", "format": "qcow2", "capacity_bytes": 64 * MIB, "bytes": 8 * MIB, "action": "create"}


def test_a_raw_image_counts_with_all_it_can_hold() -> None:
    (copy,) = planned(Wish("full"), disk(image={"format": "raw"}))
    assert copy["bytes"] == 64 * MIB


def test_auto_copies_the_separate_disks_and_no_other() -> None:
    disks = [disk("shared"), disk(image={"target": "vdb", "path": "/data/b"}), disk("shared", {"target": "vdc", "kind": "network"})]
    assert [copy["target"] for copy in planned(Wish("auto"), *disks)] == ["vdb"]


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize("unsafe", [False, True])
def test_a_shared_disk_is_not_copied_onto_itself(mode: str, unsafe: bool) -> None:
    with pytest.raises(Unsafe, match="onto itself"):
        planned(Wish(mode, ["vda"], unsafe), disk("shared"))


def test_full_leaves_a_network_disk_where_it_is() -> None:
    assert planned(Wish("full"), disk("shared", {"kind": "network"})) == []


@pytest.mark.parametrize("mode", COPYING)
def test_what_is_not_proved_is_unsafe_under_every_mode(mode: str) -> None:
    with pytest.raises(Unsafe, match="nobody knows"):
        planned(Wish(mode, ["vda"]), disk("unproved"))


def test_a_person_s_word_moves_an_unproved_disk_and_never_copies_it() -> None:
    assert planned(Wish("auto", [], unsafe=True), disk("unproved")) == []
    with pytest.raises(Unsafe):
        planned(Wish("full", [], unsafe=True), disk("unproved"))


def test_a_file_there_is_replaced_only_by_name() -> None:
    with pytest.raises(Conflict, match="copy_storage_overwrite"):
        planned(Wish("auto"), disk(existing=volume()))
    with pytest.raises(Conflict, match="copy_storage_overwrite"):
        planned(Wish("auto", ["vdb"]), disk(existing=volume()), disk(image={"target": "vdb", "path": "/images/b"}))
    assert planned(Wish("auto", ["vda"]), disk(existing=volume()))[0]["action"] == "replace"
    assert planned(Wish("auto", ["vda"]), disk())[0]["action"] == "create"


@pytest.mark.parametrize("existing", [None, volume()])
def test_a_file_in_use_there_is_never_touched(existing: t.Optional[t.Dict[str, t.Any]]) -> None:
    with pytest.raises(Conflict, match="db1 uses"):
        planned(Wish("auto", ["vda"]), disk(existing=existing, used_by=["db1"]))


def test_overwriting_a_disk_that_the_domain_does_not_have_is_a_mistake() -> None:
    with pytest.raises(InvalidArgument, match="vdz"):
        planned(Wish("auto", ["vdz"]), disk())


def test_a_shareable_disk_is_not_copied() -> None:
    with pytest.raises(NotSupported, match="shareable"):
        planned(Wish("auto"), disk(image={"shareable": True}))


def test_a_format_without_a_target_is_named() -> None:
    with pytest.raises(NotSupported, match="vmdk"):
        planned(Wish("auto"), disk(image={"format": "vmdk"}))


def test_an_exact_fit_has_room_and_a_byte_more_has_not() -> None:
    assert planned(Wish("auto"), disk(available_bytes=8 * MIB))
    with pytest.raises(Conflict, match="1 MiB short of room in /images"):
        planned(Wish("auto"), disk(available_bytes=8 * MIB - 1))


def test_room_is_counted_for_all_disks_of_a_folder_together() -> None:
    two = [disk(available_bytes=15 * MIB), disk(image={"target": "vdb", "path": "/images/b"}, available_bytes=15 * MIB)]
    with pytest.raises(Conflict, match="1 MiB short of room"):
        planned(Wish("auto"), *two)
    two[1]["image"]["path"] = "/elsewhere/b"
    assert len(planned(Wish("auto"), *two)) == 2


def test_what_is_replaced_gives_its_room() -> None:
    assert planned(Wish("auto", ["vda"]), disk(existing=volume(), available_bytes=7 * MIB))


LAYERED = {"has_backing": True}
BELOW = {"backing_path": "/images/base"}


def test_an_incremental_copy_fills_the_target_that_is_there() -> None:
    (copy,) = planned(Wish("incremental", ["vda"]), disk(image=LAYERED, existing=volume(**BELOW)))
    assert copy["action"] == "fill"


@pytest.mark.parametrize(
    ("image", "existing", "words"),
    [
        (LAYERED, None, "backing chain"),
        (LAYERED, volume(), "format or backing"),
        ({}, volume(**BELOW), "format or backing"),
        (LAYERED, volume(format="raw", **BELOW), "format or backing"),
        (LAYERED, volume(capacity_bytes=32 * MIB, **BELOW), "bytes"),
    ],
)
def test_an_incremental_copy_needs_the_target_as_the_image_is(image: t.Dict[str, t.Any], existing: t.Optional[t.Dict[str, t.Any]], words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        planned(Wish("incremental", ["vda"]), disk(image=image, existing=existing))


def test_an_incremental_copy_is_not_made_into_what_may_be_the_image_itself() -> None:
    with pytest.raises(Unsafe, match="one file"):
        planned(Wish("incremental", ["vda"]), disk(image=LAYERED, existing=volume(**BELOW), same_file="it is as old"))


def test_an_incremental_copy_needs_the_base_that_the_image_is_built_on() -> None:
    other = disk(image=LAYERED, existing=volume(**BELOW), other_base="/images/base there is another file")
    with pytest.raises(Unsafe, match="built on something else on kvm2: /images/base there is another file"):
        planned(Wish("incremental", ["vda"]), other)
    assert planned(Wish("incremental", ["vda"], unsafe=True), other)[0]["action"] == "fill"
