# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder: where it is, who may read it, what is refused; and the locks between processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, NotFound, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file import folder, store
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import report_disk_errors
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

NewMove = Callable[..., MoveRecord]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_the_ledger_is_private_whatever_the_umask(path: str, new_move: NewMove, umask: int) -> None:
    before = os.umask(umask)
    try:
        ledger = FileLedger(path)
        ledger.open_record(new_move())
        with ledger.hold_lock("host-a"):
            pass
    finally:
        os.umask(before)
    entries = [Path(path), *Path(path).rglob("*")]
    assert {entry.stat().st_mode & 0o777 for entry in entries if entry.is_dir()} == {0o700}
    assert {entry.stat().st_mode & 0o777 for entry in entries if entry.is_file()} == {0o600}
    assert not [entry.name for entry in entries if entry.name.endswith(".tmp")]


def test_a_ledger_folder_with_open_permissions_is_made_private(ledger: FileLedger, path: str) -> None:
    os.chmod(path, 0o755)
    FileLedger(path)
    assert Path(path).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("blocks", "files", "free_files", "room"),
    [(25_600, 1000, 1000, "1000 files"), (25_599, 10**6, 10**6, "99 MiB"), (25_600, 10**6, 10**6, ""), (25_600, 0, 0, "")],
    ids=["few files", "little space", "room", "files are not counted"],
)
def test_a_file_system_that_is_nearly_full_is_a_finding(
    ledger: FileLedger, monkeypatch: pytest.MonkeyPatch, blocks: int, files: int, free_files: int, room: str
) -> None:
    found = os.statvfs_result((4096, 4096, 10**6, 10**6, blocks, files, free_files, free_files, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    found = [text.partition(".")[0] for text in ledger.find_threats()]
    assert found == ([f"The file system of the ledger {ledger.path} has room for {room} only"] if room else [])


def test_the_default_is_the_users_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    open_ledger(None)
    assert (tmp_path / "state/kvmfleet/ledger/ledger.json").is_file()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    open_ledger(None)
    assert (tmp_path / "home/.local/state/kvmfleet/ledger/ledger.json").is_file()


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_ledger("~/fleet ledger/a")
    assert (tmp_path / "fleet ledger/a/ledger.json").is_file()


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("etcd://127.0.0.1:2379", InvalidArgument),
        ("http://example.org/", InvalidArgument),
        ("", InvalidArgument),
        ("  ", InvalidArgument),
        ("led\nger", InvalidArgument),
        ("led\0ger", InvalidArgument),
        ("/dev/null", InvalidArgument),
        ("/dev/null/ledger", InvalidArgument),
        (f"/tmp/{'x' * 300}", InvalidArgument),
    ],
)
def test_an_invalid_location_is_refused_with_the_next_step(location: str, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        open_ledger(location)
    assert repr(location)[1:-1] in str(refused.value)
    assert len(str(refused.value).split(". ")) >= 2


def test_reading_does_not_create_a_ledger(path: str) -> None:
    # The first next step is not a second ledger for a fleet that has one.
    with pytest.raises(NotFound, match=r"There is no ledger at .*If the fleet has one, set kvmfleet_ledger to it, or restore it from a backup"):
        open_ledger(path, create=False)
    assert not Path(path).exists()
    Path(path).mkdir()
    with pytest.raises(NotFound):
        open_ledger(path, create=False)
    assert list(Path(path).iterdir()) == []


_AS_NOBODY = """
import os, sys
sys.path[:0] = {search!r}
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_ledger({path!r})
except KvmfleetError as error:
    print(error.error_code, error)
"""


def test_a_folder_that_cannot_be_written_is_forbidden_and_named() -> None:
    # Not below tmp_path, whose parents let nobody but their owner pass.
    with tempfile.TemporaryDirectory() as readonly:
        os.chmod(readonly, 0o555)
        script = _AS_NOBODY.format(search=sys.path, path=f"{readonly}/ledger")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.startswith(f"forbidden Failed to use the ledger {readonly}/ledger: Permission denied. "), done


def test_errors_of_the_system_are_mapped_to_error_codes() -> None:
    for number, error in ((30, Forbidden), (20, InvalidArgument)):
        with pytest.raises(error, match="the ledger /srv/ledger"), report_disk_errors("/srv/ledger"):
            raise OSError(number, os.strerror(number))


def test_a_file_system_that_became_read_only_is_no_reason_for_another_ledger(tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match=r"Read-only file system\. Repair the file system") as caught, report_disk_errors(tmp_path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert "another folder" not in str(caught.value)


def test_files_of_another_user_in_a_ledger_are_no_reason_for_another_ledger(tmp_path: Path) -> None:
    for number in (errno.EACCES, errno.EPERM):
        with pytest.raises(Forbidden, match=r"Run as the owner of the ledger.*chown -R") as caught, report_disk_errors(tmp_path):
            raise OSError(number, os.strerror(number))
        assert "another folder" not in str(caught.value)


def test_a_folder_of_a_ledger_that_became_a_link_is_no_reason_for_another_ledger(ledger: FileLedger, path: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (Path(path) / "hosts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument, match=r"Restore .* from a backup") as caught:
        ledger.list_hosts()
    assert "Set 'ledger'" not in str(caught.value)


def test_a_ledger_that_has_lost_its_identity_is_first_of_all_to_be_restored(ledger: FileLedger, path: str, new_move: NewMove) -> None:
    ledger.open_record(new_move())
    (Path(path) / "ledger.json").unlink()
    with pytest.raises(InvalidArgument, match=r"lost its ledger\.json, restore that file from a backup: a second ledger would not know where .*Otherwise set"):
        open_ledger(path)


def test_a_ledger_that_never_was_on_a_read_only_file_system_is_to_be_put_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match=r"Read-only file system\. Run as .* set 'ledger' to another folder"), report_disk_errors(tmp_path / "ledger"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_ledger_that_stays_locked_is_a_timeout(ledger: FileLedger, path: str, monkeypatch: pytest.MonkeyPatch, new_move: NewMove) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.05)
    with store.Folder.open_path(path) as root, folder.hold_file_lock(root, "ledger.lock", True, 0):
        with pytest.raises(TimedOut, match=r"ledger\.lock"):
            ledger.open_record(new_move())
        with pytest.raises(TimedOut, match=r"ledger\.lock"):
            list(ledger.list_records())


def test_continuous_readers_do_not_starve_a_writer(ledger: FileLedger, monkeypatch: pytest.MonkeyPatch, new_move: NewMove) -> None:
    """Six readers at a time, so that there is always one while another goes."""
    monkeypatch.setattr(store, "LOCK_SECONDS", 8)
    written, failed = threading.Event(), []

    def read() -> None:
        try:
            while not written.is_set():
                ledger._run_reading(lambda current: time.sleep(0.1))
        except TimedOut as error:
            failed.append(error)

    readers = [threading.Thread(target=read) for _reader in range(6)]
    for reader in readers:
        reader.start()
    try:
        for number in range(5):
            ledger.open_record(new_move(f"web{number}"))
    finally:
        written.set()
        for reader in readers:
            reader.join()
    assert failed == []
    assert len(list(ledger.list_records(unsettled_only=True))) == 5
