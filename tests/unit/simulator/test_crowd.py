# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several control processes on one ledger at once, in both stores; and proof that lost changes and exceeded limits would be found."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.control import Log
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.figures import Figures
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.findings import Line, Replay, most_at_once
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.page import written
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size, World

COLLECTIONS = next(parent.parent for parent in pathlib.Path(__file__).parents if parent.name == "ansible_collections")
PROGRAM = "ansible_collections.kvmfleet.migration.tests.simulator.crowd"
SHORT = ("--processes", "4", "--hosts", "20", "--tasks", "3", "--moves", "3", "--seconds", "0.2", "--members", "1")
ARRIVING = (s.ACCEPTED, s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED)
LIMITS = {"moves_in": 1, "moves_out": 1, "moves_total": 2}
SMALL = Size(processes=1, hosts=4, guests=8, rooms=3, popular=2, tasks=1, moves=1, limits=LIMITS)


@pytest.mark.parametrize("kind", ["file", "etcd"])
def test_concurrent_control_nodes_lose_no_change_and_reserve_nothing_twice(tmp_path: pathlib.Path, kind: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", PROGRAM, "--ledger", kind, *SHORT], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing wrong" in done.stdout
    assert int(re.findall(r"(\d+) completed,", done.stdout)[0]) > 4, done.stdout
    assert "lock (turns)" in done.stdout
    assert list(tmp_path.iterdir()) == []


class Story:
    """Audit lines of moves in a fleet of four hosts, each with two guests and room for three; one move at a time into and out of a host."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, t.Any]] = {}
        self.lines: list[Line] = []

    def tell(self, name: str, source: str, destination: str, *statuses: str) -> None:
        """Lead a move on through these statuses."""
        key = f"{name}-{destination}"
        record = self.records.setdefault(key, {"id": key, "source": {"host": source}, "destination": {"host": destination}, "status": None})
        for status in statuses:
            self.lines.append({"id": key, "domain": {"name": name}, "from": record["status"], "to": status})
            record["status"] = status

    def found(self) -> list[str]:
        replay = Replay(SMALL, self.records)
        return [sentence for line in self.lines for sentence in replay.see(line)] + list(replay.at_the_end())


@pytest.fixture
def story() -> Story:
    return Story()


def test_no_problem_is_found_in_a_consistent_history(story: Story) -> None:
    story.tell("g0", "kvm1", "kvm2", *ARRIVING)
    story.tell("g1", "kvm2", "kvm3", *ARRIVING)
    story.tell("g2", "kvm3", "kvm1", *ARRIVING[:3], s.CANCELLED)
    assert story.found() == []


def test_capacity_that_is_reserved_twice_is_found(story: Story) -> None:
    for name, source in (("g0", "kvm1"), ("g2", "kvm3")):
        story.tell(name, source, "kvm2", *ARRIVING[:2])
    assert "kvm2 has room for 3 and was given to 4: ['g0', 'g1', 'g2', 'g5']" in story.found()


def test_a_limit_that_is_exceeded_is_found(story: Story) -> None:
    for name, source, destination in (("g0", "kvm1", "kvm2"), ("g4", "kvm1", "kvm3"), ("g3", "kvm4", "kvm3")):
        story.tell(name, source, destination, *ARRIVING[:4])
    found = [sentence for sentence in story.found() if "at once" in sentence]
    assert [sentence.rpartition(": ")[2] for sentence in found] == ["moves_out is 1", "moves_in is 1", "moves_total is 2"]


def test_a_change_that_was_lost_is_found(story: Story) -> None:
    story.tell("g0", "kvm1", "kvm2", *ARRIVING)
    del story.lines[3]
    assert "g0-kvm2 went from preparing to running after queued" in story.found()


def test_a_record_that_contradicts_its_audit_lines_is_found(story: Story) -> None:
    story.tell("g0", "kvm1", "kvm2", *ARRIVING)
    story.records["g0-kvm2"]["status"] = s.FAILED
    story.lines.append({"id": "other", "domain": {"name": "g1"}, "from": None, "to": s.ACCEPTED})
    assert story.found() == ["other has a line and no record", "g0-kvm2 ended as failed, and its last line says completed"]


def test_concurrent_moves_are_counted_for_each_host_and_in_total(story: Story) -> None:
    story.tell("g0", "kvm1", "kvm2", *ARRIVING[:4])
    story.tell("g1", "kvm2", "kvm3", *ARRIVING[:5])
    story.tell("g0", "kvm1", "kvm2", s.COMPLETED)
    story.tell("g2", "kvm3", "kvm2", *ARRIVING[:4])
    most = most_at_once(story.lines, story.records.values())
    assert (most["moves_in", "kvm2"], most["moves_out", "kvm2"], most["moves_total", ""]) == (1, 1, 2)


def test_a_guest_that_exceeds_the_capacity_is_counted() -> None:
    world = World(SMALL)
    world.move(0, 1)
    assert world.overfull == 0
    world.move(2, 1)
    assert (world.overfull, world.guests_on(1)) == (1, [0, 1, 2, 5])


def test_the_page_has_only_the_figures_of_the_last_run() -> None:
    log = Log(ended={"a": s.COMPLETED, "b": s.CONFLICT}, task_seconds=[2.0], seconds={"update": [0.001, 0.003, 0.002]})
    first = written("# Scale\n", SMALL, [Figures("a folder", 10.0, [log], 12, [])])
    assert "- a folder: 10 s, 1 completed, 1 conflict; 0.1 completed moves and 1 changes of a record a second; nothing wrong." in first
    assert "| update | 3 | 2 | 3 | 3 |" in first
    second = written(first, SMALL, [Figures("etcd", 5.0, [log], 12, ["something"])])
    assert "a folder" not in second
    assert "1 wrong" in second
    assert second.startswith("# Scale\n\n<!-- figures -->\n")
    assert max(map(len, second.splitlines())) <= 160
