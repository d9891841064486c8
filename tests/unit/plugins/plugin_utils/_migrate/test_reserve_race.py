# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two tasks in two processes, one ledger, and capacity for one guest."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

RACER = pathlib.Path(__file__).with_name("racer.py")
COLLECTIONS = next(parent.parent for parent in RACER.parents if parent.name == "ansible_collections")


@pytest.fixture(params=["file", "etcd"])
def location(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """Where the ledger is, in either store."""
    return str(tmp_path / "ledger") if request.param == "file" else request.getfixturevalue("member").location(f"/tests/{uuid.uuid4()}")


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(1, 5))])
def test_one_of_two_concurrent_tasks_reserves_the_last_capacity(tmp_path: pathlib.Path, location: str, turn: int) -> None:
    ledger = open_ledger(location)
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    arguments = [(sys.executable, str(RACER), str(tmp_path), location, source, str(uuid.uuid4())) for source in ("kvm1", "kvm2")]
    racers = [subprocess.Popen(words, env=environment, **pipes) for words in arguments]
    answers = [racer.communicate(timeout=120) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], answers
    won, lost = sorted((json.loads(output) for output, _errors in answers), key=lambda answer: not answer["moved"])
    assert (won["code"], won["statuses"], won["moved"]) == (None, ["completed"], True)
    assert (lost["code"], lost["statuses"], lost["moved"]) == ("conflict", ["conflict"], False)
    assert "short of memory" in lost["msg"]
    assert sorted(record.status for record in ledger.list_records()) == ["completed", "conflict"]
