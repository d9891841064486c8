# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses an image: what this finds may be removed or overwritten by a copy, so that an overlooked domain loses its disk."""

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import Opened
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder, put_image
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError

_INACTIVE = 2
FAST_VOLUME = "<disk type='volume'><source pool='fast' volume='web.qcow2'/></disk>"


class Binding:
    libvirtError = LibvirtError


class Pool:
    def __init__(self, name: str, path: str, kind: str = "dir", state: int = 2) -> None:
        self._name, self._path, self._kind, self._state = name, path, kind, state

    def name(self) -> str:
        return self._name

    def info(self) -> t.List[int]:
        return [self._state, 0, 0, 0]

    def XMLDesc(self, flags: int) -> str:
        return f"<pool type='{self._kind}'><target><path>{self._path}</path></target></pool>"


class Domain:
    """An active domain; C(later) is the definition of its next start, null for a transient one."""

    def __init__(self, disks: str, later: t.Optional[str] = None, active: bool = True, name: str = "db1") -> None:
        self._disks, self._later, self._active, self._name = disks, later, active, name

    def name(self) -> str:
        return self._name

    def isActive(self) -> bool:
        return self._active

    def isPersistent(self) -> bool:
        return self._later is not None or not self._active

    def XMLDesc(self, flags: int = 0) -> str:
        disks = self._later if flags & _INACTIVE and self._later is not None else self._disks
        return f"<domain><devices>{disks}</devices></domain>"


class GoneDomain(Domain):
    def XMLDesc(self, flags: int = 0) -> str:
        raise LibvirtError(42)


class Connection:
    def __init__(self, domains: t.Sequence[Domain], pools: t.Sequence[Pool]) -> None:
        self._domains, self._pools = domains, pools

    def listAllDomains(self) -> t.Sequence[Domain]:
        return self._domains

    def listAllStoragePools(self, flags: int) -> t.Sequence[Pool]:
        return self._pools


class StoredHost(LibvirtHost):
    """A host whose folders are folders of this machine."""

    def __init__(self, domains: t.Sequence[Domain], pools: t.Sequence[Pool] = ()) -> None:
        super().__init__("qemu+tls://kvm2/system", Opened(t.cast(t.Any, Connection(domains, pools))))
        self.opened: t.List[str] = []

    @contextlib.contextmanager
    def open_folder(self, path: str) -> t.Iterator[t.Any]:
        if not os.path.isdir(path):
            raise NotFound(f"cannot open directory {path}")
        self.opened.append(path)
        yield DirectoryFolder(pathlib.Path(path))


@pytest.fixture(autouse=True)
def binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", Binding)


@pytest.fixture
def images(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with an image. Its age differs from that of all files that are made later."""
    folder = tmp_path / "images"
    folder.mkdir()
    put_image(folder / "web.qcow2")
    _wait_for_the_next_tick(folder / "web.qcow2")
    return folder


def _wait_for_the_next_tick(path: pathlib.Path) -> None:
    clock = path.parent / "clock"
    clock.touch()
    while clock.stat().st_ctime == path.stat().st_ctime:
        clock.touch()
    clock.unlink()


def disk_of(path: t.Union[str, pathlib.Path]) -> str:
    return f"<disk type='file'><source file='{path}'/></disk>"


def users_of(path: t.Union[str, pathlib.Path], domain: Domain, *pools: Pool) -> t.List[str]:
    return StoredHost([domain], pools).users_of(str(path))


@pytest.mark.parametrize("attribute", ["file", "dev", "dir"])
def test_a_domain_that_has_the_path_uses_the_image(attribute: str) -> None:
    source = f"<disk><source {attribute}='/images/web.qcow2'/></disk>"
    assert users_of("/images/web.qcow2", Domain(source)) == ["db1"]
    assert users_of("/images/other.qcow2", Domain(source)) == []


def test_a_backing_file_of_the_definition_is_used() -> None:
    disk = "<disk><source file='/images/top'/><backingStore><source file='/images/web.qcow2'/></backingStore></disk>"
    assert users_of("/images/web.qcow2", Domain(disk)) == ["db1"]


@pytest.mark.parametrize("other", ["//images//web.qcow2", "/images/./web.qcow2", "/images/old/../web.qcow2"])
def test_a_path_is_the_same_in_each_of_its_forms(other: str) -> None:
    assert users_of("/images/web.qcow2", Domain(disk_of(other))) == ["db1"]
    assert users_of(other, Domain(disk_of("/images/web.qcow2"))) == ["db1"]


def test_the_next_start_of_an_active_domain_uses_the_image_too() -> None:
    assert users_of("/images/web.qcow2", Domain("", later=disk_of("/images/web.qcow2"))) == ["db1"]
    assert users_of("/images/web.qcow2", Domain(disk_of("/images/web.qcow2"), later="")) == ["db1"]


def test_a_domain_that_vanishes_in_the_meantime_uses_nothing() -> None:
    domains = [GoneDomain(""), Domain(disk_of("/images/web.qcow2"), name="db2")]
    assert StoredHost(domains).users_of("/images/web.qcow2") == ["db2"]


@pytest.mark.parametrize("state", [0, 2], ids=["inactive", "running"])
@pytest.mark.parametrize("kind", ["dir", "fs", "netfs"])
def test_a_volume_is_the_file_of_its_pool(kind: str, state: int) -> None:
    pool = Pool("fast", "/images", kind, state)
    assert users_of("/images/web.qcow2", Domain(FAST_VOLUME), pool) == ["db1"]
    assert users_of("/images/other.qcow2", Domain(FAST_VOLUME), pool) == []


def test_a_volume_below_an_image_is_used() -> None:
    disk = f"<disk><source file='/images/top'/><backingStore type='volume'>{FAST_VOLUME[20:-7]}</backingStore></disk>"
    assert users_of("/images/web.qcow2", Domain(disk), Pool("fast", "/images")) == ["db1"]


def test_a_volume_that_is_no_file_of_a_folder_does_not_use_the_image() -> None:
    for pool in (Pool("fast", "/dev/vg0", "logical"), Pool("fast", "", "rbd")):
        assert users_of("/images/web.qcow2", Domain(FAST_VOLUME), pool) == []


def test_a_volume_of_an_unknown_pool_may_be_any_file_of_its_name() -> None:
    assert users_of("/images/web.qcow2", Domain(FAST_VOLUME)) == ["db1 (possibly: its volume fast/web.qcow2 is in a pool that the host does not have)"]
    assert users_of("/images/other.qcow2", Domain(FAST_VOLUME)) == []


def test_a_volume_of_an_unknown_pool_may_be_any_file_that_exists(images: pathlib.Path) -> None:
    put_image(images / "other.qcow2")
    (user,) = users_of(images / "other.qcow2", Domain(FAST_VOLUME))
    assert "possibly" in user


def test_an_image_is_found_behind_a_link(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "link.qcow2").symlink_to(images / "web.qcow2")
    assert users_of(images / "web.qcow2", Domain(disk_of(tmp_path / "link.qcow2"))) == [f"db1 (as {tmp_path}/link.qcow2)"]
    assert users_of(tmp_path / "link.qcow2", Domain(disk_of(images / "web.qcow2"))) == [f"db1 (as {images}/web.qcow2)"]


def test_an_image_is_found_in_a_folder_with_two_paths(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").symlink_to(images)
    assert users_of(images / "web.qcow2", Domain(disk_of(tmp_path / "data/web.qcow2"))) == [f"db1 (as {tmp_path}/data/web.qcow2)"]
    volume = "<disk type='volume'><source pool='data' volume='web.qcow2'/></disk>"
    assert users_of(images / "web.qcow2", Domain(volume), Pool("data", f"{tmp_path}/data")) == [f"db1 (as {tmp_path}/data/web.qcow2)"]


def test_an_image_that_its_guest_writes_to_meanwhile_is_found_behind_a_link(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    class BusyHost(StoredHost):
        @contextlib.contextmanager
        def open_folder(self, path: str) -> t.Iterator[t.Any]:
            with super().open_folder(path) as folder:
                (images / "web.qcow2").touch()
                yield folder

    (tmp_path / "link.qcow2").symlink_to(images / "web.qcow2")
    assert BusyHost([Domain(disk_of(tmp_path / "link.qcow2"))]).users_of(str(images / "web.qcow2")) == [f"db1 (as {tmp_path}/link.qcow2)"]


def test_another_file_of_the_same_form_is_not_the_image(images: pathlib.Path) -> None:
    put_image(images / "other.qcow2")
    assert users_of(images / "web.qcow2", Domain(disk_of(images / "other.qcow2"))) == []
    assert users_of(images / "other.qcow2", Domain(disk_of(images / "web.qcow2"))) == []


def test_the_chain_of_a_domain_that_is_off_is_read_from_its_images(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    put_image(tmp_path / "top.qcow2", backing=f"{tmp_path}/./middle.qcow2")
    put_image(tmp_path / "middle.qcow2", backing=str(images / "web.qcow2"))
    off = Domain(disk_of(tmp_path / "top.qcow2"), active=False)
    assert users_of(images / "web.qcow2", off) == [f"db1 (below {tmp_path}/top.qcow2)"]
    put_image(tmp_path / "middle.qcow2", backing=str(tmp_path / "top.qcow2"))
    assert users_of(images / "web.qcow2", off) == []


def test_files_that_are_missing_and_devices_are_not_the_image(images: pathlib.Path) -> None:
    host = StoredHost([Domain(f"{disk_of('/nowhere/web.qcow2')}{disk_of(images / 'gone')}<disk><source dev='/dev/sdb'/></disk>")])
    assert host.users_of(str(images / "web.qcow2")) == []
    assert host.opened == [str(images)]


def test_no_folder_of_the_domains_is_read_for_an_image_that_does_not_exist(images: pathlib.Path) -> None:
    host = StoredHost([Domain(disk_of("/tmp/other.qcow2"))])
    assert host.users_of(str(images / "new.qcow2")) == []
    assert host.opened == [str(images)]
