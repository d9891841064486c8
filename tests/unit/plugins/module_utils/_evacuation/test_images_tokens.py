# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._files import ContentByInode

HOST = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
OTHER = "2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"


def test_a_storage_token_is_written_once(tmp_path: pathlib.Path) -> None:
    nonces, problems = images.leave_tokens([str(tmp_path), str(tmp_path)], HOST)
    assert problems == {}
    assert list(nonces) == [str(tmp_path)]
    assert images.leave_tokens([str(tmp_path)], HOST) == (nonces, {})
    assert os.listdir(tmp_path) == [f".kvmfleet-host-{HOST}"]
    assert (tmp_path / f".kvmfleet-host-{HOST}").stat().st_mode & 0o777 == 0o644


def test_a_token_is_seen_only_in_the_same_store(tmp_path: pathlib.Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    nonces, _problems = images.leave_tokens([str(shared)], HOST)
    nonce = nonces[str(shared)]
    assert images.is_token_seen(str(shared), HOST, nonce)
    assert not images.is_token_seen(str(own), HOST, nonce)
    assert not images.is_token_seen(str(shared), OTHER, nonce)
    assert not images.is_token_seen(str(shared), HOST, OTHER)


@pytest.fixture
def copied(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A folder with a token, and where its copy belongs."""
    (tmp_path / "images").mkdir()
    images.leave_tokens([str(tmp_path / "images")], HOST)
    return tmp_path / "images", tmp_path / "copy"


def test_a_copy_of_a_folder_with_its_token_is_another_store(copied: tuple[pathlib.Path, pathlib.Path]) -> None:
    folder, copy = copied
    (nonce,) = images.leave_tokens([str(folder)], HOST)[0].values()
    shutil.copytree(folder, copy)
    assert images.is_token_seen(str(folder), HOST, nonce)
    assert not images.is_token_seen(str(copy), HOST, nonce)
    # The storage of the host itself was copied, and it uses the copy now.
    (renewed,) = images.leave_tokens([str(copy)], HOST)[0].values()
    assert renewed != nonce
    assert images.is_token_seen(str(copy), HOST, renewed)


def test_a_token_leaves_lower_numbers_free_that_its_copy_on_an_empty_file_system_gets(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C(cp) copies files in the order of their numbers, and an empty file system numbers them from the lowest one."""
    replace, lower = images.replace_file, list[str]()

    def replace_file(path: str, content: ContentByInode, mode: int) -> None:
        opened = [os.readlink(file) for file in pathlib.Path("/proc/self/fd").iterdir() if file.is_symlink()]
        lower.extend(name for name in opened if name.startswith(f"{tmp_path}/") and name.endswith(" (deleted)"))
        replace(path, content, mode)

    monkeypatch.setattr(images, "replace_file", replace_file)
    images.leave_tokens([str(tmp_path)], HOST)
    assert lower
    assert os.listdir(tmp_path) == [f".kvmfleet-host-{HOST}"]


class Killed(BaseException):
    """The process is killed: nothing after this is done."""


@pytest.mark.parametrize("call", ["unlink", "fsync", "rename"])
@pytest.mark.parametrize("before", [None, json.dumps({"host_id": HOST, "nonce": OTHER})])
def test_what_a_killed_run_has_left_of_a_token_is_removed_by_the_next_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, before: str | None, call: str
) -> None:
    """NFS has no files without a name: the temporary ones have one for a moment."""

    def kill(*_arguments: object, **_options: object) -> None:
        raise Killed

    token, image, other = (tmp_path / name for name in (f".kvmfleet-host-{HOST}", "web.new", f".kvmfleet-host-{OTHER}.1.new"))
    image.touch()
    other.touch()
    if before:
        token.write_text(before)
    monkeypatch.setattr("tempfile._O_TMPFILE_WORKS", False)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, kill)
        with pytest.raises(Killed):
            images.leave_tokens([str(tmp_path)], HOST)
    assert len(list(tmp_path.iterdir())) == (4 if before else 3)
    nonces, problems = images.leave_tokens([str(tmp_path)], HOST)
    assert (problems, images.is_token_seen(str(tmp_path), HOST, nonces[str(tmp_path)])) == ({}, True)
    assert set(tmp_path.iterdir()) == {token, image, other}


def test_a_token_of_an_earlier_version_keeps_its_nonce_and_is_not_proved_by_later_copies(tmp_path: pathlib.Path) -> None:
    folder, copy = tmp_path / "images", tmp_path / "copy"
    folder.mkdir()
    (folder / f".kvmfleet-host-{HOST}").write_text(json.dumps({"host_id": HOST, "nonce": OTHER}))
    assert images.is_token_seen(str(folder), HOST, OTHER)
    assert images.leave_tokens([str(folder)], HOST) == ({str(folder): OTHER}, {})
    shutil.copytree(folder, copy)
    assert (images.is_token_seen(str(folder), HOST, OTHER), images.is_token_seen(str(copy), HOST, OTHER)) == (True, False)


def test_a_token_of_an_earlier_version_that_cannot_be_written_again_stays(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(30, "Read-only file system")

    (tmp_path / f".kvmfleet-host-{HOST}").write_text(json.dumps({"host_id": HOST, "nonce": OTHER}))
    monkeypatch.setattr(images, "replace_file", fail)
    assert images.leave_tokens([str(tmp_path)], HOST) == ({str(tmp_path): OTHER}, {})


@pytest.mark.parametrize("kind", ["fuse.glusterfs", "fuse", "cifs", "9p", "virtiofs"])
def test_a_token_has_no_inode_where_hosts_may_number_files_differently(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(images, "read_mounts", lambda: [Mount("/", kind)])
    (nonce,) = images.leave_tokens([str(tmp_path)], HOST)[0].values()
    assert json.loads((tmp_path / f".kvmfleet-host-{HOST}").read_text()) == {"host_id": HOST, "nonce": nonce}
    assert images.leave_tokens([str(tmp_path)], HOST) == ({str(tmp_path): nonce}, {})


def test_each_host_has_its_own_token(tmp_path: pathlib.Path) -> None:
    first, _problems = images.leave_tokens([str(tmp_path)], HOST)
    second, _problems = images.leave_tokens([str(tmp_path)], OTHER)
    assert first != second
    assert all(images.is_token_seen(str(tmp_path), host_id, nonces[str(tmp_path)]) for host_id, nonces in ((HOST, first), (OTHER, second)))


@pytest.mark.parametrize(
    "content", ["[" * 4000, "", "{", "[]", "null", '{"host_id": 1}', json.dumps({"host_id": HOST}), json.dumps({"host_id": HOST, "nonce": "x"})]
)
def test_a_damaged_token_proves_nothing_and_is_replaced(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / f".kvmfleet-host-{HOST}"
    path.write_text(content)
    assert not images.is_token_seen(str(tmp_path), HOST, OTHER)
    nonces, problems = images.leave_tokens([str(tmp_path)], HOST)
    assert problems == {}
    assert images.is_token_seen(str(tmp_path), HOST, nonces[str(tmp_path)])


def test_a_link_in_place_of_a_token_is_not_followed(tmp_path: pathlib.Path) -> None:
    folder, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text(json.dumps({"host_id": HOST, "nonce": OTHER}))
    (folder / f".kvmfleet-host-{HOST}").symlink_to(elsewhere)
    assert not images.is_token_seen(str(folder), HOST, OTHER)
    _nonces, problems = images.leave_tokens([str(folder)], HOST)
    assert list(problems) == [str(folder)]
    assert elsewhere.read_text() == json.dumps({"host_id": HOST, "nonce": OTHER})


def test_what_is_no_file_in_place_of_a_token_is_not_even_opened(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that has the folder as a shared one can make a device there, and to open one may act already."""
    token, really_open, opened = tmp_path / f".kvmfleet-host-{HOST}", os.open, list[int]()

    def note_open(path: str, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        handle = really_open(path, flags, *mode, dir_fd=dir_fd)
        if os.fstat(handle).st_ino == token.lstat().st_ino and not flags & os.O_PATH:
            opened.append(flags)
        return handle

    os.mkfifo(token)
    monkeypatch.setattr(os, "open", note_open)
    assert not images.is_token_seen(str(tmp_path), HOST, OTHER)
    assert images.leave_tokens([str(tmp_path)], HOST) == ({}, {str(tmp_path): "it is no regular file"})
    assert opened == []


def test_a_token_that_was_replaced_on_its_file_server_is_looked_up_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nonces, _problems = images.leave_tokens([str(tmp_path)], HOST)
    really_open, stale = os.open, [True]

    def open_stale_once(path: str, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if path.startswith("/proc/") and stale and stale.pop():
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return really_open(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_stale_once)
    assert images.has_token(str(tmp_path), HOST, nonces[str(tmp_path)])
    assert not stale


def test_a_folder_that_cannot_hold_a_token_is_reported(tmp_path: pathlib.Path) -> None:
    missing = str(tmp_path / "missing")
    nonces, problems = images.leave_tokens([missing, "images", str(tmp_path)], HOST)
    assert list(nonces) == [str(tmp_path)]
    assert sorted(problems) == sorted([missing, "images"])


@pytest.mark.parametrize("host_id", ["", "..", "../../etc/x", HOST.upper(), HOST + "\n"])
def test_an_invalid_host_id_does_not_become_a_path(tmp_path: pathlib.Path, host_id: str) -> None:
    nonces, problems = images.leave_tokens([str(tmp_path)], host_id)
    assert nonces == {}
    assert list(problems) == [str(tmp_path)]
    assert os.listdir(tmp_path) == []
