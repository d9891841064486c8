# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The brake's folder: several processes at once, one that is killed, and what cannot be read."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake

# Takes a place for the host it is given, out of three, when a line comes; says yes or no, and waits to be killed where it is told so.
TAKER = """
import datetime, sys
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake
path, host, then = sys.argv[1:]
request = brake.SlotRequest("evacuate", host, 3, 60)
now = datetime.datetime.now(datetime.timezone.utc)
print("ready", flush=True)
sys.stdin.readline()
try:
    brake.change_slots(path, lambda before: brake.take_slot(before, request, now), write=True)
except Conflict:
    print("no", flush=True)
else:
    print("yes", flush=True)
if then == "stay":
    sys.stdin.read()
"""
LIMIT_SECONDS = 120


def start_taker(path: pathlib.Path, host: str, then: str = "end") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", TAKER, str(path), host, then]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def let_continue(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def hosts_in(path: pathlib.Path) -> list[str]:
    return [place["host"] for place in json.loads((path / brake.STATE_FILE).read_text())["places"]]


def test_concurrent_processes_get_only_as_many_slots_as_there_are(tmp_path: pathlib.Path) -> None:
    takers = [start_taker(tmp_path / "brake", f"kvm{number}") for number in range(8)]
    assert [read_line(one) for one in takers] == ["ready"] * 8
    for one in takers:
        let_continue(one)
    answers = [read_line(one) for one in takers]
    assert [one.wait(LIMIT_SECONDS) for one in takers] == [0] * 8
    assert sorted(answers) == ["no"] * 5 + ["yes"] * 3
    assert sorted(hosts_in(tmp_path / "brake")) == [f"kvm{number}" for number, answer in enumerate(answers) if answer == "yes"]


def test_a_slot_stays_taken_after_its_process_is_killed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "brake"
    first = start_taker(path, "kvm1", "stay")
    let_continue(first)
    assert (read_line(first), read_line(first)) == ("ready", "yes")
    first.send_signal(signal.SIGKILL)
    assert first.wait(LIMIT_SECONDS) == -signal.SIGKILL
    assert hosts_in(path) == ["kvm1"]


def without_slots(before: object) -> list[brake.Slot]:
    return []


WITHOUT_ZONE = '{"places": [{"reaction": "evacuate", "host": "kvm1", "at": "2026-11-21T12:00:00"}]}'


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"places": [1]}', WITHOUT_ZONE])
def test_an_unreadable_state_file_blocks_all_reactions(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / brake.STATE_FILE).write_text(content)
    with pytest.raises(Unsafe, match="Nothing was done"):
        brake.change_slots(str(tmp_path), without_slots, write=True)
    assert (tmp_path / brake.STATE_FILE).read_text() == content


def test_an_unusable_folder_blocks_all_reactions(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Internal, match="Nothing was done"):
        brake.change_slots(str(tmp_path / "file" / "brake"), without_slots, write=True)


def test_reading_the_slots_writes_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "brake"
    assert brake.change_slots(str(path), without_slots, write=False) == ([], [])
    assert not path.exists()


def test_any_file_named_disarmed_disarms(tmp_path: pathlib.Path) -> None:
    brake.check_armed(str(tmp_path), "kvm1")
    (tmp_path / brake.DISARMING_FILE).symlink_to(tmp_path / "nowhere")
    with pytest.raises(Forbidden, match="kvm1"):
        brake.check_armed(str(tmp_path), "kvm1")
