# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import DiskCopy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import Renaming, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.surveyed_disks import SurveyedDisk
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.storage import CopyRequest, plan_copies

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


def plan_disk_copies(wish: CopyRequest, *disks: t.Dict[str, t.Any]) -> t.List[DiskCopy]:
    return plan_copies(wish, [decode(SurveyedDisk, one) for one in disks], "web1", "kvm2")


def test_copy_storage_none_copies_no_disk() -> None:
    assert plan_disk_copies(CopyRequest("none"), disk("unproved"), disk("separate")) == []


def test_a_local_disk_gets_a_new_target_of_its_size() -> None:
    (copy,) = plan_disk_copies(CopyRequest("auto"), disk())
    assert copy == DiskCopy("vda", "/images/web.qcow2", "qcow2", 64 * MIB, 8 * MIB, "create", made=False)


def test_a_raw_image_counts_with_its_capacity() -> None:
    (copy,) = plan_disk_copies(CopyRequest("full"), disk(image={"format": "raw"}))
    assert copy.bytes == 64 * MIB


@pytest.mark.parametrize(
    ("below", "size"),
    [({"below_bytes": 20 * MIB}, 28 * MIB), ({"below_bytes": 200 * MIB}, 64 * MIB), ({"below_bytes": None}, 64 * MIB), ({}, 64 * MIB)],
)
def test_a_full_copy_of_an_overlay_counts_with_all_images_below(below: t.Dict[str, t.Any], size: int) -> None:
    """The copy has the data of the whole chain."""
    overlay = {**LAYERED, **below}
    for request in (CopyRequest("auto", ["vda"]), CopyRequest("full", ["vda"])):
        assert [plan_disk_copies(request, disk(image=overlay, existing=there))[0].bytes for there in (None, volume())] == [size, size]
    (filled,) = plan_disk_copies(CopyRequest("incremental", ["vda"]), disk(image=overlay, existing=volume(**BELOW)))
    assert filled.bytes == 8 * MIB


def test_a_full_copy_of_an_overlay_needs_the_space_of_the_whole_chain() -> None:
    with pytest.raises(Conflict, match=r"kvm2 is 8 MiB short of space in /images: the disks of domain web1 need 28 MiB there"):
        plan_disk_copies(CopyRequest("full"), disk(image={**LAYERED, "below_bytes": 20 * MIB}, available_bytes=20 * MIB))


def test_copy_storage_auto_copies_only_local_disks() -> None:
    disks = [disk("shared"), disk(image={"target": "vdb", "path": "/data/b"}), disk("shared", {"target": "vdc", "kind": "network"})]
    assert [copy.target for copy in plan_disk_copies(CopyRequest("auto"), *disks)] == ["vdb"]


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize("unsafe", [False, True])
def test_a_shared_disk_is_not_copied_onto_itself(mode: str, unsafe: bool) -> None:
    with pytest.raises(Unsafe, match="with itself"):
        plan_disk_copies(CopyRequest(mode, ["vda"], unsafe), disk("shared"))


def test_copy_storage_full_does_not_copy_a_network_disk() -> None:
    assert plan_disk_copies(CopyRequest("full"), disk("shared", {"kind": "network"})) == []


@pytest.mark.parametrize("mode", COPYING)
def test_an_unproved_disk_is_unsafe_in_every_mode(mode: str) -> None:
    with pytest.raises(Unsafe, match="nobody knows"):
        plan_disk_copies(CopyRequest(mode, ["vda"]), disk("unproved"))


def test_unsafe_moves_an_unproved_disk_and_never_copies_it() -> None:
    assert plan_disk_copies(CopyRequest("auto", [], unsafe=True), disk("unproved")) == []
    with pytest.raises(Unsafe):
        plan_disk_copies(CopyRequest("full", [], unsafe=True), disk("unproved"))


def test_an_existing_file_is_overwritten_only_when_its_disk_is_named() -> None:
    with pytest.raises(Conflict, match="copy_storage_overwrite"):
        plan_disk_copies(CopyRequest("auto"), disk(existing=volume()))
    with pytest.raises(Conflict, match="copy_storage_overwrite"):
        plan_disk_copies(CopyRequest("auto", ["vdb"]), disk(existing=volume()), disk(image={"target": "vdb", "path": "/images/b"}))
    assert plan_disk_copies(CopyRequest("auto", ["vda"]), disk(existing=volume()))[0].action == "replace"
    assert plan_disk_copies(CopyRequest("auto", ["vda"]), disk())[0].action == "create"


@pytest.mark.parametrize("existing", [None, volume()])
def test_a_file_in_use_at_the_destination_is_never_overwritten(existing: t.Optional[t.Dict[str, t.Any]]) -> None:
    with pytest.raises(Conflict, match="db1 uses"):
        plan_disk_copies(CopyRequest("auto", ["vda"]), disk(existing=existing, used_by=["db1"]))


def test_overwriting_an_unknown_disk_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="vdz"):
        plan_disk_copies(CopyRequest("auto", ["vdz"]), disk())


def test_a_shareable_disk_is_not_copied() -> None:
    with pytest.raises(NotSupported, match="shareable"):
        plan_disk_copies(CopyRequest("auto"), disk(image={"shareable": True}))


def test_an_unsupported_image_format_is_refused() -> None:
    with pytest.raises(NotSupported, match="vmdk"):
        plan_disk_copies(CopyRequest("auto"), disk(image={"format": "vmdk"}))


def test_an_encrypted_image_is_refused() -> None:
    """Its target would be one without encryption, which QEMU refuses at the destination."""
    for mode in ("auto", "full"):
        with pytest.raises(NotSupported, match="web1 is encrypted, and no encrypted target can be created"):
            plan_disk_copies(CopyRequest(mode), disk(image={"encrypted": True}))
    assert plan_disk_copies(CopyRequest("auto"), disk(image={"encrypted": False}))


def test_a_copy_that_fits_exactly_is_accepted_and_one_byte_more_is_refused() -> None:
    assert plan_disk_copies(CopyRequest("auto"), disk(available_bytes=8 * MIB))
    with pytest.raises(Conflict, match="1 MiB short of space in /images"):
        plan_disk_copies(CopyRequest("auto"), disk(available_bytes=8 * MIB - 1))


def test_free_space_is_counted_for_all_disks_of_a_folder() -> None:
    two = [disk(available_bytes=15 * MIB), disk(image={"target": "vdb", "path": "/images/b"}, available_bytes=15 * MIB)]
    with pytest.raises(Conflict, match="1 MiB short of space"):
        plan_disk_copies(CopyRequest("auto"), *two)
    two[1]["image"]["path"] = "/elsewhere/b"
    assert len(plan_disk_copies(CopyRequest("auto"), *two)) == 2


def test_an_overwritten_file_counts_as_free_space() -> None:
    assert plan_disk_copies(CopyRequest("auto", ["vda"]), disk(existing=volume(), available_bytes=7 * MIB))


LAYERED = {"has_backing": True, "backing": ["/images/base"]}
BELOW = {"backing_path": "/images/base"}


def test_an_incremental_copy_fills_the_existing_target() -> None:
    (copy,) = plan_disk_copies(CopyRequest("incremental", ["vda"]), disk(image=LAYERED, existing=volume(**BELOW)))
    assert copy.action == "fill"


@pytest.mark.parametrize(
    ("image", "existing", "words"),
    [
        (LAYERED, None, "backing chain"),
        (LAYERED, volume(), "built on /images/base, its target on kvm2 on no other image"),
        ({}, volume(**BELOW), "built on no other image, its target on kvm2 on /images/base"),
        (LAYERED, volume(format="raw", **BELOW), "has the format qcow2, its target on kvm2 has raw"),
        (LAYERED, volume(capacity_bytes=32 * MIB, **BELOW), "bytes"),
    ],
)
def test_an_incremental_copy_needs_a_matching_target(image: t.Dict[str, t.Any], existing: t.Optional[t.Dict[str, t.Any]], words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        plan_disk_copies(CopyRequest("incremental", ["vda"]), disk(image=image, existing=existing))


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("base", ["/images/base-v2", "/data/base", "json:{}", "rbd:pool/base"])
def test_a_target_that_names_another_base_is_refused(base: str, unsafe: bool) -> None:
    """The next cold start takes the chain from the header of the target."""
    with pytest.raises(NotSupported, match=f"built on /images/base, its target on kvm2 on {base}"):
        plan_disk_copies(CopyRequest("incremental", ["vda"], unsafe), disk(image=LAYERED, existing=volume(backing_path=base)))


@pytest.mark.parametrize("named", ["/images/base", "/images/./base", "/images/sub/../base", "//images/base", "base", "./base", "file:/images/base"])
def test_a_target_may_name_the_base_in_any_form(named: str) -> None:
    (copy,) = plan_disk_copies(CopyRequest("incremental", ["vda"]), disk(image=LAYERED, existing=volume(backing_path=named)))
    assert copy.action == "fill"


def test_a_target_names_the_base_as_its_own_host_does() -> None:
    there = Renaming("kvm1", "kvm2", ResourceMaps(images={"gold": "/images"}), ResourceMaps(images={"gold": "/data"}))
    request = CopyRequest("incremental", ["vda"], renaming=there)
    assert plan_disk_copies(request, disk(image=LAYERED, existing=volume(backing_path="/data/base")))[0].action == "fill"
    with pytest.raises(NotSupported, match="built on /data/base, its target on kvm2 on /images/base"):
        plan_disk_copies(request, disk(image=LAYERED, existing=volume(**BELOW)))


def test_a_base_that_is_not_a_file_is_unsafe() -> None:
    layers = disk(image={"has_backing": True, "backing": [""]}, existing=volume(backing_path="/dev/vg/base"), other_base="one of its images is not a file")
    with pytest.raises(Unsafe, match="not a file"):
        plan_disk_copies(CopyRequest("incremental", ["vda"]), layers)
    assert plan_disk_copies(CopyRequest("incremental", ["vda"], unsafe=True), layers)[0].action == "fill"


def test_a_base_that_the_survey_does_not_name_is_refused() -> None:
    with pytest.raises(NotSupported, match="built on an image that is not known"):
        plan_disk_copies(CopyRequest("incremental", ["vda"]), disk(image={"has_backing": True}, existing=volume(**BELOW)))


def test_an_incremental_copy_into_what_may_be_the_same_file_is_unsafe() -> None:
    with pytest.raises(Unsafe, match="one file"):
        plan_disk_copies(CopyRequest("incremental", ["vda"]), disk(image=LAYERED, existing=volume(**BELOW), same_file="it is as old"))


def test_an_incremental_copy_over_a_different_backing_file_is_unsafe() -> None:
    other = disk(image=LAYERED, existing=volume(**BELOW), other_base="/images/base on the destination is another file")
    with pytest.raises(Unsafe, match="another backing file on kvm2: /images/base on the destination is another file"):
        plan_disk_copies(CopyRequest("incremental", ["vda"]), other)
    assert plan_disk_copies(CopyRequest("incremental", ["vda"], unsafe=True), other)[0].action == "fill"
