# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that real hosts keep: sent once, used again over SSH and with sudo, and never run if somebody else could have written them."""

from __future__ import annotations

import os
import pathlib
import stat
import typing as t
import zipfile

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _kept_module as program
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

LOADER = "ansible/module_utils/_internal/_ansiballz/_loader.py"
# What differs from one call to the next: hosts of the lab see the network devices of other labs come and go.
PASSING = {"gathered_at", "received", "memory", "numa_cells", "pools", "mounts", "net_devices"}


def folder_of(lab: Lab) -> pathlib.Path:
    return lab.path(1, "/run/kvmfleet")


def archives(lab: Lab) -> list[pathlib.Path]:
    folder = folder_of(lab)
    return sorted(folder.glob("*module-host_facts-*")) if folder.is_dir() else []


def forget(lab: Lab) -> None:
    """Leave no archive. The folder is as the first move or evacuation of a host makes it."""
    folder_of(lab).mkdir(exist_ok=True)
    folder_of(lab).chmod(0o700)
    for path in archives(lab):
        path.unlink()


def ask(who: Control, *options: str, **arguments: t.Any) -> Outcome:
    return Running(who.popen([*who.ad_hoc_command(1, "host_facts", arguments or {"uri": "qemu:///system"}, ledger=False), *options])).wait()


def facts_in(done: Outcome) -> dict[str, t.Any]:
    assert done.code == 0, done.text
    facts = done.result["ansible_facts"]["kvmfleet_host"]
    return {key: value for key, value in facts.items() if key not in PASSING}


def spoil(archive: pathlib.Path, mark: pathlib.Path) -> None:
    """Replace the archive by one that looks right, and that would leave a mark if it was run."""
    with zipfile.ZipFile(archive, "w") as spoiled:
        parts = LOADER.split("/")[:-1]
        for depth in range(len(parts)):
            spoiled.writestr("/".join([*parts[: depth + 1], "__init__.py"]), "")
        spoiled.writestr(LOADER, f"open({str(mark)!r}, 'w').close()\n")
        spoiled.comment = b"0" * program.DIGEST_LENGTH
    content = archive.read_bytes()[: -program.DIGEST_LENGTH]
    archive.write_bytes(content + program.digest_of(content))


@pytest.mark.parametrize("user", [pytest.param((), marks=pytest.mark.long), ("--user", "operator", "--become")])
def test_a_module_is_sent_once_and_answers_as_if_it_was_sent_each_time(lab: Lab, control: Control, user: tuple[str, ...]) -> None:
    who = Control(lab, control.folder, *user)
    forget(lab)
    usual = facts_in(ask(who, "-e", "ansible_ssh_pipelining=false"))
    assert archives(lab) == []
    assert facts_in(ask(who)) == usual
    (archive,) = archives(lab)
    status = archive.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, stat.S_IMODE(folder_of(lab).stat().st_mode)) == (0o600, 0, 0o700)
    assert facts_in(ask(who)) == usual
    assert archive.stat().st_ino == status.st_ino
    assert facts_in(ask(who, "--check", "--diff")) == usual


@pytest.mark.long
def test_errors_and_warnings_are_those_of_a_module_that_is_sent(lab: Lab, control: Control) -> None:
    ask(control)
    assert archives(lab)
    for arguments in ({"dirty_rate_seconds": -1}, {"uri": "qemu+tcp://nowhere.invalid/system"}, {"unknown": 1}, {"dirty_rate_seconds": "many"}):
        kept, usual = ask(control, **arguments), ask(control, "-e", "ansible_ssh_pipelining=false", **arguments)
        assert kept.code == usual.code != 0
        assert {**kept.result, "exception": 0} == {**usual.result, "exception": 0}


@pytest.mark.long
@pytest.mark.parametrize("change", ["mode", "owner", "folder"])
def test_an_archive_that_others_could_have_written_is_not_run(lab: Lab, control: Control, tmp_path: pathlib.Path, change: str) -> None:
    forget(lab)
    usual = facts_in(ask(control))
    (archive,) = archives(lab)
    mark = tmp_path / "mark"
    spoil(archive, mark)
    folder = folder_of(lab)
    if change == "mode":
        archive.chmod(0o666)
    elif change == "owner":
        os.chown(archive, 1000, 1000)
    else:
        folder.chmod(0o777)
    try:
        assert facts_in(ask(control)) == usual
    finally:
        folder.chmod(0o700)
        archive.unlink()
    assert not mark.exists()


def test_an_archive_that_was_damaged_is_replaced(lab: Lab, control: Control) -> None:
    forget(lab)
    usual = facts_in(ask(control))
    (archive,) = archives(lab)
    archive.write_bytes(archive.read_bytes()[:5000])
    assert facts_in(ask(control)) == usual
    assert archive.stat().st_size > 100_000
