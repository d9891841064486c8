# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of a grant are read side by side, because each file system may be slow after a boot. All of them have to confirm it."""

from __future__ import annotations

import os
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import storage_program
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.storage_program import CONFIRMED, REVOKED, UNREADABLE, Grant

from .boots import GRANT, HOST_ID, NONCE, Machine

ReadTombstone = t.Callable[[Grant, str], t.Tuple[bool, str]]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    machine = Machine(tmp_path)
    machine.stores += [tmp_path / "images" / name for name in ("three", "four")]
    for store in machine.stores:
        machine.mount(store)
    return machine


def grant_of(machine: Machine) -> Grant:
    return {"grant": GRANT, "host_id": HOST_ID, "folders": {str(store): NONCE for store in machine.stores}}


@pytest.fixture
def waits_for_all(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no folder be read before the others are being read, too."""
    together, read = threading.Barrier(len(machine.stores), timeout=5), storage_program._read_tombstone

    def read_together(grant: Grant, folder: str) -> t.Tuple[bool, str]:
        together.wait()
        return read(grant, folder)

    monkeypatch.setattr(storage_program, "_read_tombstone", read_together)


@pytest.mark.usefixtures("waits_for_all")
def test_slow_folders_are_read_at_the_same_time(machine: Machine) -> None:
    assert storage_program.judge_grant(grant_of(machine)) == (CONFIRMED, "")


@pytest.mark.usefixtures("waits_for_all")
def test_one_tombstone_among_slow_folders_revokes_the_grant(machine: Machine) -> None:
    machine.revoke_elsewhere(machine.stores[2])
    machine.unmount(machine.stores[0])
    code, why = storage_program.judge_grant(grant_of(machine))
    assert (code, str(machine.stores[2]) in why) == (REVOKED, True)


@pytest.mark.usefixtures("waits_for_all")
def test_one_folder_that_is_not_mounted_confirms_no_grant(machine: Machine) -> None:
    machine.unmount(machine.stores[3])
    code, why = storage_program.judge_grant(grant_of(machine))
    assert (code, str(machine.stores[3]) in why, str(machine.stores[0]) in why) == (UNREADABLE, True, False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_folder_whose_reading_fails_in_an_unknown_way_confirms_no_grant(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_program, "has_tombstone", _fail_at(str(machine.stores[1]), RecursionError("too deep")))
    code, why = storage_program.judge_grant(grant_of(machine))
    assert (code, why.count("; "), str(machine.stores[1]) in why) == (UNREADABLE, 0, True)


def test_a_grant_is_not_judged_before_the_last_folder_is_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, read = list[str](), storage_program._read_tombstone

    def read_slowly(grant: Grant, folder: str) -> t.Tuple[bool, str]:
        time.sleep(0.5 if folder == str(machine.stores[0]) else 0)
        ended.append(folder)
        return read(grant, folder)

    monkeypatch.setattr(storage_program, "_read_tombstone", read_slowly)
    assert storage_program.judge_grant(grant_of(machine))[0] == CONFIRMED
    assert sorted(ended) == sorted(map(str, machine.stores))


def _fail_at(failing: str, error: Exception) -> t.Callable[..., bool]:
    has_tombstone = storage_program.has_tombstone

    def fail(folder: str, grant: str, host_id: str, nonce: str) -> bool:
        if folder == failing:
            raise error
        return has_tombstone(folder, grant, host_id, nonce)

    return fail


def test_a_device_in_place_of_the_token_confirms_no_grant_and_is_not_opened(machine: Machine) -> None:
    token = machine.stores[0] / f"{storage_program.HOST_TOKEN_PREFIX}{HOST_ID}"
    token.unlink()
    os.mkfifo(token)
    code, why = storage_program.judge_grant(grant_of(machine))
    assert (code, f"{machine.stores[0]}: it is no regular file" in why) == (UNREADABLE, True)
