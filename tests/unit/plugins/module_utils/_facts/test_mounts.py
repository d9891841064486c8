# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount, identify_store, parse_mount, read_mounts
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.storage_queries import StorageQueries

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 22 0:30 / /srv/images rw shared:17 master:2 - nfs4 filer:/images rw,vers=4.2
36 35 8:2 / /srv/images/local rw - xfs /dev/sdb1 rw
37 22 0:31 / /srv/with\\040blank rw - fuse.glusterfs server:/vol rw
38 22 0:32 / /srv/back\\134slash\\011tab rw - ceph mon:/ rw
39 22 0:33 / /srv/over rw - nfs filer:/x rw
40 22 8:3 / /srv/over rw - ext4 /dev/sdc1 rw
a line that is none
"""


@pytest.fixture
def table(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/srv/images/a.qcow2", True),
        ("/srv/images/deep/er/a.qcow2", True),
        ("/srv/images/local/a.qcow2", False),
        ("/srv/imagesque/a.qcow2", False),
        ("/srv/images/../a.qcow2", False),
        ("/srv/with blank/a.qcow2", True),
        ("/srv/back\\slash\ttab/a", True),
        ("/srv/over/a", False),
        ("/a.qcow2", False),
        ("/", False),
    ],
)
def test_the_innermost_and_latest_mount_counts(table: str, path: str, shared: bool) -> None:
    assert StorageQueries(read_mounts(table)).is_on_shared_mount(path) is shared


def test_a_line_of_mountinfo_is_parsed() -> None:
    assert parse_mount("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue") == Mount(
        "/mnt2", "ext3", "/mnt1", "/dev/root", "rw,errors=continue"
    )


def test_a_linked_image_is_on_the_mount_of_its_target(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link.qcow2").symlink_to(tmp_path / "store" / "a.qcow2")
    mounts = [Mount("/", "ext4"), Mount(str((tmp_path / "store").resolve()), "nfs")]
    assert StorageQueries(mounts).is_on_shared_mount(str(tmp_path / "link.qcow2")) is True
    assert StorageQueries(mounts).is_on_shared_mount(str(tmp_path / "other.qcow2")) is False


def test_the_mount_table_of_this_machine_can_be_read() -> None:
    assert "/" in {mount.path for mount in read_mounts()}


def test_unescaped_separators_in_mount_names_are_kept(tmp_path: pathlib.Path) -> None:
    """Whoever may mount a FUSE file system chooses such names."""
    table = tmp_path / "mountinfo"
    names = ["/mnt/a\rb", "/mnt/a\u00a0b", "/mnt/a\x0bb", "/mnt/a\u2028b", "/mnt/\udcff"]
    lines = [f"40 35 0:5{number} / {name} rw shared:7 - fuse.x {name} rw\n" for number, name in enumerate(names)]
    table.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
    assert read_mounts(str(table)) == [Mount(name, "fuse.x", "/", name, "rw") for name in names]


@pytest.mark.parametrize("line", ["", "\n", " - ", "36 35 98:0 /mnt1 /mnt2 rw", "36 - ext3 /dev/root rw", "36 35 98:0 /mnt1 /mnt2 rw - ext3"])
def test_an_invalid_line_of_mountinfo_is_ignored(line: str) -> None:
    assert parse_mount(line) is None


@pytest.mark.parametrize(
    ("mount", "store"),
    [
        (Mount("/srv", "nfs4", "/", "nas:/export"), "nfs4:nas:/export"),
        (Mount("/srv", "nfs4", "/", "nas:/export/"), "nfs4:nas:/export"),
        (Mount("/srv", "nfs4", "/images", "nas:/export"), "nfs4:nas:/export/images"),
        (Mount("/srv", "ceph", "/", "mon2,mon1:/vm"), "ceph:mon1,mon2:/vm"),
        (Mount("/srv", "cifs", "/", "//nas/share"), "cifs://nas/share"),
        (Mount("/srv", "fuse.glusterfs", "/", "server:/vol"), "fuse.glusterfs:server:/vol"),
        (Mount("/srv", "nfs4", "/", "localhost:/export"), None),
        (Mount("/srv", "nfs", "/", "127.0.0.1:/export"), None),
        (Mount("/srv", "nfs4", "/", "[::1]:/export"), None),
        (Mount("/srv", "cifs", "/", "//localhost/share"), None),
        (Mount("/srv", "fuse.glusterfs", "/", "localhost:/vol"), "fuse.glusterfs:localhost:/vol"),
        (Mount("/srv", "beegfs", "/", "beegfs_nodev"), None),
        (Mount("/srv", "gfs2", "/", "/dev/nonexistent"), None),
        (Mount("/srv", "ext4", "/", "/dev/sda1"), None),
    ],
)
def test_a_store_has_one_name_on_all_hosts(mount: Mount, store: str) -> None:
    assert identify_store(mount) == store
