# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The short command that reads the state and updates the heartbeat, run by a real shell, and the parsing of its output."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._proc_files import read_start_ticks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import source_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
RUN = "6a1d0a1e-0000-4000-8000-000000000001"
ME = Watcher(os.getpid(), read_start_ticks(os.getpid()))


class ShellAction:
    """An action plugin whose host is this machine."""

    def __init__(self, noise: str = "") -> None:
        self.noise = noise

    def target_host(self, task_vars: t.Any) -> str:
        return "kvm1"

    def _low_level_execute_command(self, command: str) -> t.Dict[str, t.Any]:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=300)
        return {"rc": done.returncode, "stdout": self.noise + done.stdout, "stderr": done.stderr}


def source(action: t.Any) -> SourceHost:
    return SourceHost(action, {}, "qemu:///system")


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(source_host, "RUN_FOLDER", str(tmp_path))
    return tmp_path


def state_of(uuid: str, **more: t.Any) -> dict[str, t.Any]:
    ends = HostRef("kvm1", None, None), HostRef("kvm2", None, None)
    record = encode(new_record("live-migration", DomainRef(uuid, "a {b} 1"), *ends, {}, "watcher"))
    return {**record, "watcher": encode(ME), **more}


def write_state(folder: pathlib.Path, uuid: str, **more: t.Any) -> None:
    (folder / f"{uuid}.json").write_text(json.dumps(state_of(uuid, **more)) + "\n", encoding="utf-8")


def test_a_poll_writes_the_heartbeat_and_reads_the_state_files(folder: pathlib.Path) -> None:
    write_state(folder, UUID)
    write_state(folder, OTHER, watcher={**encode(ME), "start_ticks": 1})
    found = source(ShellAction()).poll_states(RUN, 42, {UUID: ME, OTHER: ME}, None)
    assert {uuid: state.is_alive for uuid, state in found.items()} == {UUID: True, OTHER: False}
    heartbeat = folder / f"{RUN}.heartbeat"
    assert heartbeat.read_text(encoding="ascii") == "42"
    assert heartbeat.stat().st_mode & 0o777 == 0o600


def test_a_poll_omits_missing_state_files_and_finds_dead_watchers(folder: pathlib.Path) -> None:
    dead = Watcher(2**22 + 1, 5)
    write_state(folder, UUID, watcher=encode(dead))
    found = source(ShellAction()).poll_states(RUN, 1, {UUID: dead, OTHER: dead}, None)
    assert {uuid: state.is_alive for uuid, state in found.items()} == {UUID: False}


def test_output_of_a_login_shell_is_ignored(folder: pathlib.Path) -> None:
    write_state(folder, UUID)
    found = source(ShellAction(noise="Welcome!\n\n  4 updates\nLast login: yesterday\n² 3\n" + "9" * 5000 + " x\n")).poll_states(RUN, 1, {UUID: ME}, None)
    assert found[UUID].is_alive is True


@pytest.mark.parametrize(
    "text",
    [
        "{torn",
        '{"a":' * 5000,
        "{}",
        '{"domain":{"uuid":["a"]}}',
        json.dumps(state_of(UUID, progress={})),
        json.dumps(state_of(UUID, watcher=None)),
        json.dumps(state_of(UUID, watcher={"pid": ["a"], "start_ticks": 5})),
        json.dumps(state_of(UUID, watcher={"pid": 5})),
        '{"seen":',
        '{"seen":[]}',
    ],
)
def test_a_damaged_state_file_is_an_internal_error(folder: pathlib.Path, text: str) -> None:
    (folder / f"{UUID}.json").write_text(f"{text}\n", encoding="ascii")
    with pytest.raises(e.Internal, match="state file"):
        source(ShellAction()).poll_states(RUN, 1, {UUID: ME}, None)


def test_the_seen_hosts_file_is_read_with_the_state_files(folder: pathlib.Path) -> None:
    write_state(folder, UUID)
    (folder / f"{RUN}.seen").write_text(json.dumps({"seen": {"qemu:///system": {"domains": []}}}, separators=(",", ":")) + "\n", encoding="utf-8")
    (folder / f"{OTHER}.seen").write_text('{"seen":{}}\n', encoding="utf-8")
    host = source(ShellAction())
    assert list(host.poll_states(RUN, 1, {UUID: ME}, None)) == [UUID]
    assert host.seen == {"qemu:///system": {"domains": []}}


def test_a_poll_returns_when_a_watcher_ends(folder: pathlib.Path) -> None:
    ending = subprocess.Popen(["sleep", "0.3"])
    watcher = Watcher(ending.pid, read_start_ticks(ending.pid))
    write_state(folder, UUID, watcher=encode(watcher))
    threading.Thread(target=ending.wait).start()
    assert source(ShellAction()).poll_states(RUN, 1, {UUID: watcher}, None)[UUID].is_alive is False


def test_a_host_without_the_run_folder_has_no_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_host, "RUN_FOLDER", "/nonexistent/kvmfleet")
    result = source(ShellAction()).poll_states(RUN, 1, {UUID: ME}, None)
    assert result == {}
