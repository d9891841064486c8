# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The short command that reads and beats, run by a real shell, and what is made of its answer."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import start_ticks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import remote
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import SourceHost

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
RUN = "6a1d0a1e-0000-4000-8000-000000000001"
ME = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}


class ShellAction:
    """An action plugin whose host is this machine."""

    def __init__(self, noise: str = "") -> None:
        self.noise = noise

    def here(self, task_vars: t.Any) -> str:
        return "kvm1"

    def _low_level_execute_command(self, command: str) -> t.Dict[str, t.Any]:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=300)
        return {"rc": done.returncode, "stdout": self.noise + done.stdout, "stderr": done.stderr}


def source(action: t.Any) -> SourceHost:
    return SourceHost(action, {}, "qemu:///system")


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(remote, "RUN_FOLDER", str(tmp_path))
    return tmp_path


def state_of(uuid: str, **more: t.Any) -> dict[str, t.Any]:
    ends = schema.place("kvm1"), schema.place("kvm2")
    return {**schema.new_record("live-migration", {"uuid": uuid, "name": "a {b} 1"}, *ends, {}, "watcher"), "watcher": ME, **more}


def write_state(folder: pathlib.Path, uuid: str, **more: t.Any) -> None:
    (folder / f"{uuid}.json").write_text(json.dumps(state_of(uuid, **more)) + "\n", encoding="utf-8")


def test_a_poll_beats_and_reads_what_there_is(folder: pathlib.Path) -> None:
    write_state(folder, UUID, watcher=ME)
    write_state(folder, OTHER, watcher={**ME, "start_ticks": 1})
    found = source(ShellAction()).poll(RUN, 42, {UUID: ME, OTHER: ME}, None)
    assert {uuid: state["alive"] for uuid, state in found.items()} == {UUID: True, OTHER: False}
    heartbeat = folder / f"{RUN}.heartbeat"
    assert heartbeat.read_text(encoding="ascii") == "42"
    assert heartbeat.stat().st_mode & 0o777 == 0o600


def test_a_state_that_is_missing_is_left_out_and_a_dead_watcher_seen(folder: pathlib.Path) -> None:
    dead = {"pid": 2**22 + 1, "start_ticks": 5}
    write_state(folder, UUID, watcher=dead)
    found = source(ShellAction()).poll(RUN, 1, {UUID: dead, OTHER: dead}, None)
    assert {uuid: state["alive"] for uuid, state in found.items()} == {UUID: False}


def test_what_a_login_shell_prints_is_passed_over(folder: pathlib.Path) -> None:
    write_state(folder, UUID, watcher=ME)
    found = source(ShellAction(noise="Welcome!\n\n  4 updates\nLast login: yesterday\n² 3\n" + "9" * 5000 + " x\n")).poll(RUN, 1, {UUID: ME}, None)
    assert found[UUID]["alive"] is True


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
        '{"seen":',
        '{"seen":[]}',
    ],
)
def test_a_state_file_that_is_damaged_is_named(folder: pathlib.Path, text: str) -> None:
    (folder / f"{UUID}.json").write_text(f"{text}\n", encoding="ascii")
    with pytest.raises(e.Internal, match="state file"):
        source(ShellAction()).poll(RUN, 1, {UUID: ME}, None)


def test_what_the_watcher_saw_at_its_end_is_read_with_the_states(folder: pathlib.Path) -> None:
    write_state(folder, UUID, watcher=ME)
    (folder / f"{RUN}.seen").write_text(json.dumps({"seen": {"qemu:///system": {"domains": []}}}, separators=(",", ":")) + "\n", encoding="utf-8")
    (folder / f"{OTHER}.seen").write_text('{"seen":{}}\n', encoding="utf-8")
    host = source(ShellAction())
    assert list(host.poll(RUN, 1, {UUID: ME}, None)) == [UUID]
    assert host.seen == {"qemu:///system": {"domains": []}}


def test_a_watcher_that_ends_ends_the_wait(folder: pathlib.Path) -> None:
    ending = subprocess.Popen(["sleep", "0.3"])
    watcher = {"pid": ending.pid, "start_ticks": start_ticks(ending.pid)}
    write_state(folder, UUID, watcher=watcher)
    threading.Thread(target=ending.wait).start()
    assert source(ShellAction()).poll(RUN, 1, {UUID: watcher}, None)[UUID]["alive"] is False


def test_a_host_without_the_folder_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RUN_FOLDER", "/nonexistent/kvmfleet")
    result = source(ShellAction()).poll(RUN, 1, {UUID: ME}, None)
    assert result == {}
