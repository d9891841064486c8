# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import struct

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_survey import find_users, iterate_chain, iterate_images_beside
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.image_header import Unreadable


def qcow2(path: pathlib.Path, backing: str = "") -> str:
    """Write as much of a qcow2 image as says what it is backed by."""
    name = backing.encode()
    path.write_bytes(struct.pack(">4sIQI", b"QFI\xfb", 3, 512 if name else 0, len(name)).ljust(512, b"\0") + name)
    return str(path)


def test_a_backing_chain_is_followed_by_relative_and_absolute_names(tmp_path: pathlib.Path) -> None:
    base = qcow2(tmp_path / "base.qcow2")
    middle = qcow2(tmp_path / "middle.qcow2", "base.qcow2")
    top = qcow2(tmp_path / "top.qcow2", f"file:{middle}")
    assert list(iterate_chain(top)) == [top, middle, base]


def test_a_json_name_a_loop_and_a_broken_header_are_unreadable(tmp_path: pathlib.Path) -> None:
    qcow2(tmp_path / "json.qcow2", 'json:{"driver":"qcow2"}')
    qcow2(tmp_path / "loop.qcow2", "loop.qcow2")
    (tmp_path / "broken.qcow2").write_bytes(struct.pack(">4sIQI", b"QFI\xfb", 3, 512, 2**31).ljust(512, b"\0"))
    for name in ("json", "loop", "broken"):
        with pytest.raises(Unreadable):
            list(iterate_chain(str(tmp_path / f"{name}.qcow2")))


def test_users_of_a_file_are_found_by_their_backing_chains(tmp_path: pathlib.Path) -> None:
    base = qcow2(tmp_path / "base.qcow2")
    (tmp_path / "link.qcow2").symlink_to(base)
    (tmp_path / "folder").mkdir()
    overlay = qcow2(tmp_path / "folder" / "overlay.qcow2", "../link.qcow2")
    other = qcow2(tmp_path / "other.qcow2")
    unread = tmp_path / "unread"
    unread.write_bytes(b"KDMV" + b"\0" * 100)
    assert find_users(base, [("domain a", overlay), ("domain b", other)]) == ["domain a"]
    assert find_users(base, [("domain c", str(unread))])[0].startswith("domain c, it may be")


def test_overlays_in_the_same_folder_count_as_users(tmp_path: pathlib.Path) -> None:
    base = qcow2(tmp_path / "base.qcow2")
    overlay = qcow2(tmp_path / "overlay.qcow2", "base.qcow2")
    assert find_users(base, iterate_images_beside(base)) == [f"the image {overlay}"]


def test_a_data_file_of_another_image_is_in_use(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data.raw"
    data.write_bytes(b"")
    name = str(data).encode()
    content = bytearray(struct.pack(">4sIQI", b"QFI\xfb", 3, 0, 0).ljust(512, b"\0"))
    struct.pack_into(">Q", content, 72, 4)
    struct.pack_into(">I", content, 100, 104)
    struct.pack_into(">II", content, 104, 0x44415441, len(name))
    content[112 : 112 + len(name)] = name
    image = tmp_path / "image.qcow2"
    image.write_bytes(bytes(content))
    assert find_users(str(data), [("domain a", str(image))]) == ["domain a"]
