# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import storage_queries
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.storage_queries import StorageQueries

MOUNTS = [Mount("/", "ext4"), Mount("/srv", "nfs4"), Mount("/srv/fast", "fuse.glusterfs"), Mount("/local", "xfs")]


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[], bool]]:
    """A question that is not answered before the test ends."""
    is_over = threading.Event()
    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.01)
    yield lambda: is_over.wait(60)
    is_over.set()


def ask_late(storage: StorageQueries, hang: t.Callable[[], bool], *paths: str) -> None:
    assert [storage.ask(path, hang) for path in paths] == [None] * len(paths)


def test_storage_that_was_late_twice_is_not_asked_again(hang: t.Callable[[], bool]) -> None:
    storage = StorageQueries(MOUNTS)
    ask_late(storage, hang, "/srv/a")
    assert storage.ask("/srv/c", lambda: "answer") == "answer"
    ask_late(storage, hang, "/srv/b")
    assert storage.ask("/srv/c", lambda: "answer") is None
    assert (storage.was_late("/srv/never-asked"), storage.was_late("/srv/fast"), storage.was_late("/elsewhere")) == (True, False, False)


@pytest.mark.parametrize(("late", "other"), [("/srv/a", "/srv/fast/a"), ("/srv/a", "/local/a"), ("/local/a", "/srv/a")])
def test_other_storage_is_still_asked(hang: t.Callable[[], bool], late: str, other: str) -> None:
    storage = StorageQueries(MOUNTS)
    ask_late(storage, hang, late, late)
    assert storage.ask(late, lambda: "answer") is None
    assert storage.ask(other, lambda: "answer") == "answer"


def test_a_question_that_fails_is_no_late_answer(tmp_path: pathlib.Path) -> None:
    storage = StorageQueries([Mount("/", "nfs4")])
    missing = str(tmp_path / "missing")
    assert [storage.ask(missing, lambda: (tmp_path / "missing" / "file").read_text()) for _turn in range(4)] == [None] * 4
    assert not storage.was_late(missing)
    assert (storage.path_exists(missing), storage.path_exists(str(tmp_path))) == (False, True)


def test_a_file_whose_storage_is_late_is_on_the_mount_of_its_path(hang: t.Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The survey of a move asks this for each disk, and guests on other storage wait for it."""
    storage, asked = StorageQueries(MOUNTS), []

    def follow(path: str) -> str:
        asked.append(path)
        hang()
        return path

    monkeypatch.setattr(storage_queries.os.path, "realpath", follow)
    found = [storage.is_on_shared_mount(path) for path in ("/srv/a/1", "/srv/b/2", "/srv/c/3")]
    late = [storage.is_on_shared_mount(path) for path in ("/links/a/1",)]
    monkeypatch.undo()
    assert (found, late, asked) == ([True] * 3, [False], ["/srv/a/1", "/srv/b/2", "/links/a/1"])


@pytest.mark.parametrize(
    ("path", "mount_point"),
    [
        ("own/a.qcow2", "."),
        ("image.qcow2", "nfs"),
        ("images/a.qcow2", "nfs"),
        ("own/up/a.qcow2", "nfs"),
        ("images/../own/a.qcow2", "."),
        ("images/back/a.qcow2", "nfs"),
        ("nfs/fast/a.qcow2", "nfs/fast"),
        ("loop/a.qcow2", "."),
    ],
)
def test_own_links_are_followed_without_asking_a_server(
    tmp_path: pathlib.Path, hang: t.Callable[[], bool], monkeypatch: pytest.MonkeyPatch, path: str, mount_point: str
) -> None:
    """A link on the server itself leads anywhere: what hangs is the server."""
    top = tmp_path.resolve()
    links = {"image.qcow2": "nfs/a.qcow2", "images": str(top / "nfs"), "own/up": "../images", "nfs/back": "../own", "loop": "loop"}
    for folder in ("own", "nfs/fast"):
        (top / folder).mkdir(parents=True)
    for name, target in links.items():
        (top / name).symlink_to(target)
    read_link = os.readlink

    def read(link: str) -> str:
        assert not link.startswith(str(top / "nfs"))
        return read_link(link)

    monkeypatch.setattr(storage_queries.os, "readlink", read)
    mount_points = {"nfs": str(top / "nfs"), "nfs/fast": str(top / "nfs/fast"), ".": "/"}
    kinds = {"nfs": "nfs4", "nfs/fast": "fuse.glusterfs", ".": "ext4"}
    storage = StorageQueries([Mount(mount_points[name], kind) for name, kind in kinds.items()])
    ask_late(storage, hang, str(top / path))
    assert [name for name, where in mount_points.items() if storage.was_late(where)] == [mount_point]


def test_a_file_system_of_the_host_that_hangs_is_waited_for_twice(hang: t.Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk is gone, and its links cannot be followed."""
    storage, asked = StorageQueries(MOUNTS), []

    def read(link: str) -> str:
        if link.startswith("/local/"):
            asked.append(link)
            hang()
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(storage_queries.os, "readlink", read)
    assert [storage.ask(f"/local/{name}", lambda: "answer") for name in "abc"] == [None] * 3
    assert asked == ["/local/a", "/local/b"]
    assert storage.ask("/elsewhere/a", lambda: "answer") == "answer"


def test_all_mounts_of_a_server_that_hangs_are_found_at_once(hang: t.Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each guest, for example: the last guest must not wait for all the others."""
    paths = [f"/guests/{number}" for number in range(30)]
    probed: list[str] = []

    def probe(path: str) -> None:
        probed.append(path)
        if path.startswith("/guests"):
            hang()

    monkeypatch.setattr(storage_queries.os, "statvfs", probe)
    storage = StorageQueries([Mount("/", "ext4"), Mount("/srv", "nfs4"), *(Mount(path, "nfs4") for path in paths), Mount("/auto", "autofs")])
    ask_late(storage, hang, "/guests/0/image")
    assert (set(probed), probed.count("/srv"), probed.count("/guests/7")) == ({*paths, "/srv"}, 1, 2)
    assert [storage.ask(f"{path}/image", lambda: "answer") for path in paths] == [None] * 30
    assert (storage.was_late("/guests/29/image"), storage.ask("/srv/a", lambda: "answer")) == (True, "answer")
