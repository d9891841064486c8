# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What several tasks do in one folder at the same time, against a storage driver with libvirt's own rules."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection, folders, values
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, NotFound
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._libvirt.test_connection_errors import LibvirtError

PATH = "/srv/images"


class Binding:
    libvirtError = LibvirtError
    VIR_CONNECT_LIST_STORAGE_POOLS_INACTIVE = 1
    VIR_CONNECT_LIST_STORAGE_POOLS_DIR = 64


class Pool:
    def __init__(self, driver: Driver, kind: str = "dir", defined: bool = False) -> None:
        self.driver, self.kind, self.defined = driver, kind, defined
        self.active, self.busy = False, 0
        self.seen: t.Set[str] = set()
        self.starts = 0

    def create(self) -> None:
        self.starts += 1
        self.active = True
        self.seen = set(self.driver.files)

    def destroy(self) -> None:
        self._check()
        self._check_idle()
        self.active = False

    def refresh(self) -> None:
        self._check()
        self._check_idle()
        self.seen = set(self.driver.files)

    def listVolumes(self) -> t.List[str]:
        self._check()
        return sorted(self.seen)

    def XMLDesc(self) -> str:
        return f"<pool type='{self.kind}'><target><path>{PATH}</path></target></pool>"

    def _check(self) -> None:
        if not self.active:
            raise LibvirtError(55 if self.defined else 49)

    def _check_idle(self) -> None:
        if self.busy:
            self.busy -= 1
            raise LibvirtError(1, "pool has asynchronous jobs running")


class Driver:
    """A connection to it; C(files) are in the folder."""

    def __init__(self, *pools: t.Tuple[str, bool]) -> None:
        self.files = {"a.qcow2"}
        self.pools = [Pool(self, kind, defined) for kind, defined in pools]
        self.hidden = 0

    def storagePoolLookupByTargetPath(self, path: str) -> Pool:
        found = next((pool for pool in self.pools if pool.active), None)
        if found is None or self.hidden:
            self.hidden = max(0, self.hidden - 1)
            raise LibvirtError(49)
        return found

    def listAllStoragePools(self, flags: int) -> t.List[Pool]:
        assert flags == 65
        return [pool for pool in self.pools if pool.defined and not pool.active and pool.kind == "dir"]

    def storagePoolCreateXML(self, xml: str) -> Pool:
        if any(pool.kind == "dir" and (pool.active or pool.defined) for pool in self.pools):
            raise LibvirtError(9, "Storage source conflict with pool")
        pool = Pool(self)
        pool.create()
        self.pools.append(pool)
        return pool

    @property
    def active(self) -> t.List[Pool]:
        return [pool for pool in self.pools if pool.active]


@pytest.fixture(autouse=True)
def binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", Binding)
    monkeypatch.setattr(folders, "_PAUSE_SECONDS", 0.0)


def opened(driver: Driver) -> t.ContextManager[folders.LibvirtFolder]:
    return folders.open_folder(driver, PATH, "qemu+tcp://kvm2/system")


def test_a_temporary_pool_is_removed_afterwards() -> None:
    driver = Driver()
    with opened(driver) as there:
        assert there.list_names() == ["a.qcow2"]
        assert len(driver.active) == 1
    assert driver.active == []


def test_a_task_continues_when_the_owner_stops_the_shared_pool() -> None:
    driver = Driver()
    first = opened(driver)
    first.__enter__()
    with opened(driver) as second:
        assert len(driver.active) == 1
        first.__exit__(None, None, None)
        assert driver.active == []
        driver.files.add("b.qcow2")
        assert second.list_names() == ["a.qcow2", "b.qcow2"]
    assert driver.active == []


def test_a_pool_that_another_task_created_first_is_used() -> None:
    driver = Driver()
    with opened(driver):
        driver.hidden = 1
        with opened(driver) as second:
            assert second.list_names() == ["a.qcow2"]
        assert len(driver.active) == 1


def test_a_busy_volume_is_awaited() -> None:
    driver = Driver()
    with opened(driver) as there:
        driver.active[0].busy = 3
        there.refresh_listing()
        driver.active[0].busy = 3
    assert driver.active == []


def test_a_pool_with_a_volume_that_stays_busy_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_SECONDS", 0.0)
    driver = Driver()
    with opened(driver):
        driver.active[0].busy = 1 << 30
    assert len(driver.active) == 1


def test_an_inactive_pool_is_used_and_inactive_again_afterwards() -> None:
    """Libvirt permits no second one of the folder beside it."""
    driver = Driver(("dir", True))
    with opened(driver) as there:
        assert there.list_names() == ["a.qcow2"]
        assert driver.pools[0].active
        driver.pools[0].active = False
        assert there.list_names() == ["a.qcow2"]
    assert driver.active == []
    assert len(driver.pools) == 1


@pytest.mark.parametrize("kind", ["fs", "netfs"])
def test_a_pool_that_would_mount_a_file_system_is_never_started(kind: str) -> None:
    """To stop it would unmount what the guests there use."""
    driver = Driver((kind, True))
    with opened(driver) as there:
        assert there.list_names() == ["a.qcow2"]
    assert driver.pools[0].starts == 0
    assert driver.active == []


@pytest.mark.parametrize("path", ["/dev", "//dev/", "/dev/vg0"])
def test_a_folder_of_devices_is_never_opened(path: str) -> None:
    """A definition may call a device a file. libvirt would open all that is beside it, and the watchdog would reset the host."""
    driver = Driver()
    with pytest.raises(NotFound, match="folder of devices"), folders.open_folder(driver, path, "qemu+tcp://kvm2/system"):
        pass
    assert driver.pools == []
    with folders.open_folder(driver, "/dev/shm", "qemu+tcp://kvm2/system") as there:
        assert there.list_names() == ["a.qcow2"]


def test_an_error_of_the_folder_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()

    def refuse(code: int) -> t.Callable[[str], t.Any]:
        def create(xml: str) -> t.Any:
            raise LibvirtError(code, "no such folder")

        return create

    monkeypatch.setattr(driver, "storagePoolCreateXML", refuse(38))
    with pytest.raises(NotFound, match=PATH), opened(driver):
        pass
    monkeypatch.setattr(driver, "storagePoolCreateXML", refuse(43))
    with pytest.raises(Internal, match="libvirt error 43"), opened(driver):
        pass


@pytest.mark.parametrize(("image_format", "target"), [("qcow2", "<format type='qcow2'/><compat>1.1</compat>"), ("raw", "<format type='raw'/>")])
def test_an_image_is_created_in_the_version_that_keeps_bitmaps(monkeypatch: pytest.MonkeyPatch, image_format: str, target: str) -> None:
    created: t.List[str] = []
    monkeypatch.setattr(Pool, "createXML", lambda _pool, xml: created.append(xml), raising=False)
    with opened(Driver()) as there:
        there.create_image("new", image_format, 1024)
    assert f"<target>{target}</target>" in created[0]


class Volume:
    def __init__(self, backing: str) -> None:
        self._backing = backing

    def XMLDesc(self) -> str:
        return f"<volume><name>overlay</name><backingStore><path>{self._backing}</path></backingStore></volume>"


@pytest.mark.parametrize(("backing", "users"), [(f"{PATH}/./a", ["overlay"]), (f"file:{PATH}/a", ["overlay"]), (f"{PATH}/b", []), ("", [])])
def test_an_image_below_another_one_is_found_in_each_form_of_its_path(monkeypatch: pytest.MonkeyPatch, backing: str, users: t.List[str]) -> None:
    monkeypatch.setattr(Pool, "listAllVolumes", lambda _pool: [Volume(backing)], raising=False)
    with opened(Driver()) as there:
        assert there.find_users(f"{PATH}/a") == users


@pytest.mark.parametrize(("image_format", "is_converted"), [("raw", False), ("qcow2", True)])
def test_a_file_that_libvirt_would_convert_is_not_copied_by_it(monkeypatch: pytest.MonkeyPatch, image_format: str, is_converted: bool) -> None:
    content = bytes(range(256)) * 2500
    copies: t.List[t.Tuple[str, str]] = []
    written: t.Dict[str, bytes] = {}
    monkeypatch.setattr(folders.LibvirtFolder, "find_volume", lambda _folder, name: values.Volume(name, image_format, 1, 1))
    monkeypatch.setattr(folders.LibvirtFolder, "read_piece", lambda _folder, _name, offset, length: content[offset : offset + length])
    monkeypatch.setattr(folders.LibvirtFolder, "write_file", lambda _folder, name, given, _permissions: written.update({name: given}))
    copy = staticmethod(lambda _pool, name, new_name, _permissions: copies.append((name, new_name)))
    monkeypatch.setattr(folders.LibvirtFolder, "_copy_volume", copy)
    with opened(Driver()) as there:
        there.copy_file("received", "web_VARS", values.Permissions(0o600, 0, 0))
    assert (copies, written) == (([], {"web_VARS": content}) if is_converted else ([("received", "web_VARS")], {}))
