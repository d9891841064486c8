# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.disks import list_files_below
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.image_header import (
    FILE,
    NETWORK,
    UNKNOWN,
    Header,
    Unreadable,
    locate_name,
    parse_header,
    read_header,
)


def image(backing: str = "", version: int = 3, features: int = 0, extensions: t.Sequence[t.Tuple[int, bytes]] = (), capacity: int = 0) -> bytes:
    """Return the first bytes of a qcow2 image."""
    said = b"".join(struct.pack(">II", kind, len(value)) + value.ljust(-(-len(value) // 8) * 8, b"\0") for kind, value in extensions)
    length = 104 if version == 3 else 72
    name = backing.encode()
    head = struct.pack(">4sIQIIQ", b"QFI\xfb", version, length + len(said) + 8 if name else 0, len(name), 16, capacity).ljust(length, b"\0")
    if version == 3:
        head = head[:72] + struct.pack(">Q", features) + head[80:100] + struct.pack(">I", length)
    return head + said + bytes(8) + name


def test_a_header_names_backing_file_format_and_data_file() -> None:
    extensions = [(0xE2792ACA, b"qcow2"), (0x6803F857, b"x" * 13), (0x44415441, b"web.raw")]
    assert parse_header(image("base", extensions=extensions, features=4, capacity=2**40), "/a") == Header("base", "qcow2", "web.raw", 2**40)
    assert parse_header(image("base", version=2, extensions=[(0xE2792ACA, b"raw")]), "/a") == Header("base", "raw", None, 0)
    assert parse_header(image(), "/a") == Header(capacity_bytes=0)


def test_the_name_of_a_data_file_counts_only_with_its_feature_bit() -> None:
    assert parse_header(image(extensions=[(0x44415441, b"web.raw")]), "/a").data_file is None


@pytest.mark.parametrize("content", [b"", b"QFI", bytes(4096), b"QFI\xfa" + bytes(100)])
def test_an_image_without_a_known_header_needs_nothing(content: bytes) -> None:
    assert parse_header(content, "/a") == Header()


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">4sIQI", b"QFI\xfb", 3, 512, 2**31).ljust(600, b"\0"),
        struct.pack(">4sIQI", b"QFI\xfb", 3, 2**40, 10).ljust(600, b"\0"),
        image(extensions=[(1, b"")])[:104] + struct.pack(">II", 7, 2**31),
        b"KDMV" + bytes(100),
        b"QED\0" + bytes(100),
    ],
)
def test_a_broken_or_unsupported_header_is_unreadable(content: bytes) -> None:
    with pytest.raises(Unreadable, match="/a"):
        parse_header(content, "/a")


def test_every_truncated_header_is_read_or_refused() -> None:
    whole = image("base", features=4, extensions=[(0xE2792ACA, b"qcow2"), (0x44415441, b"web.raw")])
    for length in range(len(whole)):
        with contextlib.suppress(Unreadable):
            assert isinstance(parse_header(whole[:length], "/a"), Header)


def test_only_files_and_devices_are_opened(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing"):
        assert read_header(str(tmp_path / name)) == Header()


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("base", FILE, "/srv/base"),
        ("../base", FILE, "/base"),
        ("/a/b", FILE, "/a/b"),
        ("file:/a/b", FILE, "/a/b"),
        ("./a:b", FILE, "/srv/a:b"),
        ("host_device:/dev/sda", FILE, "/dev/sda"),
        ("nbd://nas/base", NETWORK, ""),
        ("nbd:nas:10809:exportname=base", NETWORK, ""),
        ("https://nas/localhost", NETWORK, ""),
        ("gluster://localhost/vol/base", NETWORK, ""),
        ("nbd+unix:///base?socket=/x", UNKNOWN, ""),
        ("nbd:unix:/x:exportname=base", UNKNOWN, ""),
        ("nbd:localhost:10809", UNKNOWN, ""),
        ("nbd://[::1]:10809/base", UNKNOWN, ""),
        ("ssh://root@127.0.0.1/base", UNKNOWN, ""),
        ("rbd:pool/image", NETWORK, ""),
        ("fat:rw:/srv", UNKNOWN, ""),
        ('json:{"driver":"qcow2","file":{"driver":"file","filename":"/a/b"}}', FILE, "/a/b"),
        ('json:{"driver":"qcow2","file.driver":"file","file.filename":"b:c"}', FILE, "/srv/b:c"),
        ('json:{"driver":"raw","file":{"driver":"raw","file":{"driver":"host_device","filename":"/dev/sda"}}}', FILE, "/dev/sda"),
        ('json:{"file":{"driver":"rbd","pool":"p","image":"i"}}', NETWORK, ""),
        ('json:{"file":{"driver":"nbd","server":{"type":"inet","host":"nas","port":"10809"}}}', NETWORK, ""),
        ('json:{"file":{"driver":"nbd","server":{"type":"unix","path":"/x"}}}', UNKNOWN, ""),
        ('json:{"driver":"nbd","server.type":"inet","server.host":"localhost"}', UNKNOWN, ""),
        ('json:{"driver":"nbd","host":"127.0.0.1","port":"10809"}', UNKNOWN, ""),
        ('json:{"driver":"nbd","host":"nas","port":"10809"}', NETWORK, ""),
        ('json:{"driver":"qcow2","file.driver":"nbd","file.path":"/run/base.sock"}', UNKNOWN, ""),
        ('json:{"driver":"iscsi","portal":"[::1]:3260","target":"iqn.2026-01.org.example:a","lun":1}', UNKNOWN, ""),
        ('json:{"driver":"iscsi","portal":"nas:3260","target":"iqn.2026-01.org.example:a","lun":1}', NETWORK, ""),
        ('json:{"file":{"driver":"https","url":"https://localhost/base"}}', UNKNOWN, ""),
        ('json:{"file":{"driver":"https","url":"https://nas/base"}}', NETWORK, ""),
        ('json:{"file":{"driver":"ssh","path":"/base","server":{"host":"nas","port":"22"}}}', NETWORK, ""),
        ('json:{"file":{"driver":"quorum","children":[]}}', UNKNOWN, ""),
        ("json:[]", UNKNOWN, ""),
        ("json:{", UNKNOWN, ""),
    ],
)
def test_backing_names_are_resolved_as_qemu_does(name: str, kind: str, path: str) -> None:
    found = locate_name(name, "/srv/image")
    assert (found.kind, found.path) == (kind, path)


def test_a_relative_backing_name_is_resolved_from_the_link_and_then_its_target(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "top").write_bytes(image("base"))
    (tmp_path / "link").symlink_to(tmp_path / "store" / "top")
    assert [file.path for file in list_files_below(str(tmp_path / "link"))] == [str(tmp_path / "store" / "base")]
    (tmp_path / "base").touch()
    assert [file.path for file in list_files_below(str(tmp_path / "link"))] == [str(tmp_path / "base")]
