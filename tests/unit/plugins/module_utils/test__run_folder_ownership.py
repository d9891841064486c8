# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import AlreadyWatched, Ownership, is_locked, is_newest, lock_path
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID

HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


def ownership_in(folder: pathlib.Path) -> Ownership:
    return Ownership(UUID, str(folder))


def test_one_process_holds_the_lock_until_it_dies(tmp_path: pathlib.Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock_path(UUID, str(tmp_path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(AlreadyWatched, match="already watched") as caught:
        ownership_in(tmp_path)
    assert caught.value.error_code == "conflict"
    holder.kill()
    holder.communicate(timeout=300)
    ownership_in(tmp_path).release_lock()


def test_a_lock_that_cannot_be_written_starts_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*dummy: t.Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        for write in (lambda owned: owned.begin_record("r1", 1), lambda owned: owned.take_over("r1", 1)):
            ownership = ownership_in(tmp_path)
            with pytest.raises(Internal, match=r"No space left.*Nothing was started"):
                write(ownership)
            ownership.release_lock()
    ownership = ownership_in(tmp_path)
    ownership.begin_record("r1", 1)
    ownership.release_lock()


def test_a_generation_must_be_higher_than_the_last_one(tmp_path: pathlib.Path) -> None:
    for record, generation in (("r1", 1), ("r2", 2), ("r9", 9)):
        ownership = ownership_in(tmp_path)
        ownership.begin_record(record, generation)
        ownership.release_lock()
    for late in (9, 8, 1, 0, -1):
        ownership = ownership_in(tmp_path)
        with pytest.raises(Conflict, match=r"came too late: record r9 \(generation 9\)"):
            ownership.begin_record("late", late)
        ownership.release_lock()
    ownership_in(tmp_path).begin_record("r10", 10)


def test_a_refused_generation_keeps_the_lock(tmp_path: pathlib.Path) -> None:
    first = ownership_in(tmp_path)
    first.begin_record("r1", 5)
    first.release_lock()
    second = ownership_in(tmp_path)
    with pytest.raises(Conflict):
        second.begin_record("r0", 5)
    newest = [is_newest(record, 5, UUID, str(tmp_path)) for record in ("r1", "r0")]
    assert (newest, is_locked(UUID, str(tmp_path))) == ([True, False], True)
    second.release_lock()
    assert not is_locked(UUID, str(tmp_path))


def test_taking_over_gets_the_next_generation(tmp_path: pathlib.Path) -> None:
    first = ownership_in(tmp_path)
    first.begin_record("r1", 5)
    first.release_lock()
    second = ownership_in(tmp_path)
    assert second.take_over("r1", 5) == 6
    second.release_lock()
    with pytest.raises(Conflict):
        ownership_in(tmp_path).begin_record("r1", 6)


@pytest.mark.parametrize(("begun", "ledger", "expected"), [(None, 4, 5), (3, 9, 10), (9, 3, 10)])
def test_taking_over_exceeds_the_generations_of_host_and_ledger(tmp_path: pathlib.Path, begun: t.Optional[int], ledger: int, expected: int) -> None:
    ownership = ownership_in(tmp_path)
    if begun is not None:
        ownership.begin_record("r1", begun)
    assert ownership.take_over("r2", ledger) == expected
    ownership.release_lock()


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"record": "x"}', '{"record": "x", "generation": "new"}', '{"record": "x", "generation": Infinity}', "[" * 4000, "\0" * 128]
)
def test_a_damaged_lock_file_stops_the_move_and_is_not_overwritten(tmp_path: pathlib.Path, content: str) -> None:
    path = pathlib.Path(lock_path(UUID, str(tmp_path)))
    path.write_text(content, encoding="ascii")
    for act in ("begin_record", "take_over"):
        ownership = ownership_in(tmp_path)
        with pytest.raises(Internal, match="damaged"):
            getattr(ownership, act)("r1", 5)
        ownership.release_lock()
    assert path.read_text(encoding="ascii") == content


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: pathlib.Path) -> None:
    pathlib.Path(lock_path(UUID, str(tmp_path))).symlink_to(tmp_path / "victim")
    with pytest.raises(Internal, match="symbolic link"):
        ownership_in(tmp_path)
    assert not (tmp_path / "victim").exists()


def test_a_lock_that_cannot_be_opened_is_an_error_about_its_domain(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other domains of the same task go on."""

    def refuse_files(*arguments: t.Any, **options: t.Any) -> t.NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refuse_files)
    with pytest.raises(Internal, match=f"{UUID} cannot be opened under .*: Too many open files. Nothing was started."):
        ownership_in(tmp_path)
