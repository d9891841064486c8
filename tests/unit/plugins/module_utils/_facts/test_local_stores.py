# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import functools
import os
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import local_stores as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import storage_queries
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.image_header import Unreadable
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.local_stores import LocalStores
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.storage_queries import StorageQueries
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import MountFacts


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with an image in each of C(nfs), C(local) and C(strange), and a link from C(local) into C(nfs)."""
    for name in ("nfs", "local", "strange"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.qcow2").write_bytes(b"x" * 5000)
    (tmp_path / "local" / "link.qcow2").symlink_to(tmp_path / "nfs" / "a.qcow2")
    return tmp_path.resolve()


@pytest.fixture
def stores(tree: pathlib.Path) -> LocalStores:
    kinds = {"nfs": ("nfs4", "nas:/export"), "local": ("ext4", "/dev/sda1"), "strange": ("fuse.sshfs", "nas:/x")}
    return LocalStores([Mount("/", "ext4"), *(Mount(str(tree / name), kind, "/", source) for name, (kind, source) in kinds.items())])


def test_an_image_is_located_by_the_target_of_its_links(stores: LocalStores, tree: pathlib.Path) -> None:
    assert stores.locate_file(str(tree / "nfs/a.qcow2")) == (True, "nfs4:nas:/export/a.qcow2")
    assert stores.locate_file(str(tree / "local/link.qcow2")) == (True, "nfs4:nas:/export/a.qcow2")
    assert stores.locate_file(str(tree / "local/a.qcow2")) == (False, None)


def test_a_folder_that_its_own_host_serves_is_not_known_to_be_shared(tree: pathlib.Path) -> None:
    path, mounts = str(tree / "nfs/a.qcow2"), [Mount("/", "ext4"), Mount(str(tree / "nfs"), "nfs4", "/", "localhost:/export")]
    assert LocalStores(mounts).locate_file(path) == (None, None)
    assert not StorageQueries(mounts).is_on_shared_mount(path)


def test_a_folder_that_is_mounted_on_demand_is_listed_without_its_capacity(tree: pathlib.Path) -> None:
    """Without it, its images would be on the file system around it."""
    mounts = [Mount(str(tree / "nfs"), "autofs", "/", "/etc/auto.srv"), Mount("/proc/sys/fs/binfmt_misc", "autofs", "/", "systemd-1")]
    assert LocalStores(mounts).describe_mounts() == [MountFacts(str(tree / "nfs"), "autofs", None, None, None)]


def test_a_missing_image_is_located_by_its_folder(stores: LocalStores, tree: pathlib.Path) -> None:
    assert stores.locate_file(str(tree / "nfs/new.qcow2")) == (True, "nfs4:nas:/export/new.qcow2")
    assert stores.count_copied_bytes(str(tree / "nfs/new.qcow2"), "raw") is None


def test_an_unknown_file_system_is_neither_shared_nor_local(stores: LocalStores, tree: pathlib.Path) -> None:
    assert stores.locate_file(str(tree / "strange/a.qcow2")) == (None, None)


def test_copied_bytes_follow_format_and_allocation(stores: LocalStores, tree: pathlib.Path) -> None:
    image = tree / "local/a.qcow2"
    assert stores.count_copied_bytes(str(image), "raw") == 5000
    assert stores.count_copied_bytes(str(image), "qcow2") == image.stat().st_blocks * 512


def test_mounts_are_described_with_their_free_space(tree: pathlib.Path) -> None:
    table = [Mount("/proc", "proc"), Mount(str(tree / "nfs"), "nfs4", "/", "nas:/export"), Mount(str(tree / "local/a.qcow2"), "ext4")]
    (mount,) = LocalStores(table).describe_mounts()
    assert (mount.path, mount.kind, mount.store) == (str(tree / "nfs"), "nfs4", "nfs4:nas:/export")
    assert 0 <= t.cast(int, mount.available_bytes) <= t.cast(int, mount.capacity_bytes)


def test_a_file_server_that_answers_with_an_error_does_not_answer(stores: LocalStores, tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an NFS mount with the option soft, and of a FUSE server that has ended."""
    measure = module._measure_capacity

    def fail(path: str) -> t.Any:
        if path == str(tree / "nfs"):
            raise OSError(5, "Input/output error")
        return measure(path)

    monkeypatch.setattr(module, "_measure_capacity", fail)
    found = {mount.path: (mount.capacity_bytes is None, mount.silent) for mount in stores.describe_mounts()}
    assert found[str(tree / "nfs")] == (True, True)
    assert found[str(tree / "local")] == (False, ABSENT)


def test_the_mounts_of_a_dead_file_server_are_waited_for_together(tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each guest, for example: all facts have to be there within the time limit of their task."""
    paths = [str(tree / "nfs"), str(tree / "nfs/b.qcow2"), str(tree / "local")]
    asked, back = threading.Barrier(3), threading.Event()

    def hang(_path: str) -> None:
        asked.wait(60)
        back.wait(60)

    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 1)
    monkeypatch.setattr(module, "_measure_capacity", hang)
    found = LocalStores([Mount(path, "nfs4", "/", f"nas:{path}") for path in paths]).describe_mounts()
    back.set()
    assert [(mount.path, mount.capacity_bytes, mount.silent) for mount in found] == [(path, None, True) for path in paths]
    assert asked.n_waiting == 0, "the last mount was not asked while the others hung"


@pytest.fixture
def dead_server(tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.List[str]]:
    """The file server of C(nfs) does not answer; return the paths below it for which it was asked."""
    back, asked = threading.Event(), []
    real = {call: getattr(os, call) for call in ("stat", "lstat", "readlink")}

    def hang(call: str, path: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
        # These calls follow the links of the folders, and "stat" also the last one.
        target = str(path).replace(f"{tree}/local/images/", f"{tree}/nfs/")
        if target.startswith(f"{tree}/nfs") or (call == "stat" and target == f"{tree}/local/link.qcow2"):
            asked.append(str(path))
            back.wait(60)
        return real[call](path, *given, **named)

    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.05)
    for call in real:
        monkeypatch.setattr(module.os, call, functools.partial(hang, call))
    yield asked
    back.set()


def test_a_dead_file_server_is_waited_for_twice(stores: LocalStores, tree: pathlib.Path, dead_server: t.List[str]) -> None:
    paths = [str(tree / "nfs" / f"{name}.qcow2") for name in "abc"]
    assert [stores.locate_file(path) for path in paths] == [(None, None)] * 3
    assert len(dead_server) == 2
    (silent,) = [mount for mount in stores.describe_mounts() if mount.path == str(tree / "nfs")]
    assert (silent.capacity_bytes, silent.available_bytes, silent.silent) == (None, None, True)
    assert not any(mount.silent for mount in stores.describe_mounts() if mount.path != silent.path)


def test_an_image_that_is_a_link_to_a_dead_file_server_delays_no_other(stores: LocalStores, tree: pathlib.Path, dead_server: t.List[str]) -> None:
    """A common folder of images is a link to a file system of a server."""
    (tree / "local/images").symlink_to(tree / "nfs")
    linked = [str(tree / "local/link.qcow2"), str(tree / "local/images/a.qcow2"), str(tree / "local/images/b.qcow2")]
    assert [stores.count_copied_bytes(path, "raw") for path in linked] == [None] * 3
    assert stores.count_copied_bytes(str(tree / "local/a.qcow2"), "raw") == 5000
    stores.is_device(linked[2])
    assert len(dead_server) == 2


@pytest.fixture
def conceal(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str], None]:
    """Return a function that denies this process, as another user, what is below a folder."""

    def deny(folder: str) -> None:
        monkeypatch.setattr(module, "is_root", lambda: False)
        for call in ("stat", "lstat", "statvfs"):
            monkeypatch.setattr(module.os, call, _denying(getattr(os, call), folder))

    return deny


def _denying(ask: t.Callable[..., t.Any], folder: str) -> t.Callable[..., t.Any]:
    def answer(path: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
        if str(path).startswith(folder):
            raise PermissionError(13, "Permission denied", path)
        return ask(path, *given, **named)

    return answer


def test_an_image_that_a_user_may_not_see_is_unknown_and_named(stores: LocalStores, tree: pathlib.Path, conceal: t.Callable[[str], None]) -> None:
    image = str(tree / "local/a.qcow2")
    conceal(str(tree / "local"))
    assert stores.locate_file(image) == (None, None)
    assert stores.count_copied_bytes(image, "raw") is None
    assert stores.denied == {image}


def test_a_mount_that_a_user_may_not_enter_is_listed_without_sizes(
    stores: LocalStores, tree: pathlib.Path, conceal: t.Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tree / "local")
    conceal(path)
    (found,) = [mount for mount in stores.describe_mounts() if mount.path == path]
    assert (found.kind, found.capacity_bytes, found.available_bytes) == ("ext4", None, None)
    assert path in stores.denied
    # For root, it is a file system of another user.
    monkeypatch.setattr(module, "is_root", lambda: True)
    assert path not in [mount.path for mount in stores.describe_mounts()]


def test_a_header_that_a_user_may_not_read_is_named(stores: LocalStores, tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = str(tree / "local/a.qcow2")

    def refuse(path: str) -> t.Any:
        raise Unreadable(f"{path} cannot be read: Permission denied") from PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "read_header", refuse)
    with pytest.raises(Unreadable, match="Permission denied"):
        stores.read_header(image)
    assert stores.denied == {image}
