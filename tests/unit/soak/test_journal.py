# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Journals that can be replayed, figures that show when nothing was tested, and the list of a fence device."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.soak.actions import SETTLE, Action
from ansible_collections.kvmfleet.migration.tests.soak.aftermath import documents
from ansible_collections.kvmfleet.migration.tests.soak.draw import Drawing
from ansible_collections.kvmfleet.migration.tests.soak.fencing import Device
from ansible_collections.kvmfleet.migration.tests.soak.figures import Figures
from ansible_collections.kvmfleet.migration.tests.soak.journal import LAST, Journal, read


def test_a_journal_returns_its_actions_in_order(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "journal.jsonl"
    journal = Journal(file, {"seed": 5})
    actions = [action for action, dummy in zip(Drawing(5, ["ada"]), range(50))]
    for action in actions:
        journal.write(action, "done")
        journal.note("in between")
    assert read(file) == actions
    assert len(journal.last()) == LAST
    assert str(actions[-1]) in journal.last()[-1]


def test_each_line_of_the_journal_has_the_action_and_its_time(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "journal.jsonl"
    Journal(file, {}).write(Action("kill qemu", {"guest": "ada", "which": 0}, 1.5), "4711 on 2")
    line = json.loads(file.read_text().splitlines()[1])
    assert (line["n"], line["did"], line["gap"]) == (1, "4711 on 2", 1.5)
    assert line["at"] >= 0


@pytest.mark.parametrize("text", ["", '{"verb": "move", "given": {}, "gap": 0}\n'])
def test_a_file_that_is_not_a_journal_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    file = tmp_path / "other"
    file.write_text(text)
    with pytest.raises(ValueError, match="no journal"):
        read(file)


def record(kind: str, status: str, reason: t.Optional[str] = None) -> dict[str, t.Optional[str]]:
    return {"type": kind, "status": status, "reason": reason}


def figures(*records: dict[str, t.Optional[str]], verbs: tuple[str, ...] = ("move", "cut"), looks: int = 9) -> Figures:
    found = Figures(looks=looks, settlings=1)
    for verb in verbs:
        found.act(Action(verb))
    found.read(records)
    return found


def test_figures_of_a_sufficient_soak_are_reported() -> None:
    found = figures(record("live-migration", "completed"), record("live-migration", "cancelled", "timeout"), record("evacuation", "completed"))
    assert found.not_enough() == []
    said = "\n".join(found.lines())
    assert "2 actions" in said
    assert "moves: 1 completed, 1 cancelled (timeout)" in said
    assert "evacuations: 1 completed" in said
    assert "faults: 1 cut" in said


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(figures(record("live-migration", "failed"), record("evacuation", "completed")), "no guest was moved", id="no move"),
        pytest.param(figures(record("live-migration", "completed"), verbs=("move", SETTLE)), "no fault happened", id="no fault"),
        pytest.param(figures(record("live-migration", "completed"), looks=0), "nothing was looked at", id="no check"),
    ],
)
def test_a_soak_without_moves_faults_or_checks_is_insufficient(found: Figures, why: str) -> None:
    assert found.not_enough() == [why]


def test_the_fence_device_reports_each_victim_once_from_complete_lines(tmp_path: pathlib.Path) -> None:
    device = Device(tmp_path)
    assert device.new_victims() == []
    with open(tmp_path / "fenced", "a", encoding="utf-8") as log:
        log.write("kvs1 ada\nkvs1 bo")
        log.flush()
        assert device.new_victims() == [("kvs1", "ada")]
        log.write("b\n")
    assert device.new_victims() == [("kvs1", "bob")]
    assert device.new_victims() == []


def test_the_fence_agent_is_a_valid_shell_script(tmp_path: pathlib.Path) -> None:
    assert subprocess.run(["sh", "-n", Device(tmp_path).agent], check=False).returncode == 0


def test_concatenated_json_documents_are_read_separately() -> None:
    assert documents('{"a": 1}\n{\n "b": {\n  "c": 2\n }\n}\n') == [{"a": 1}, {"b": {"c": 2}}]
    assert documents("\n") == []
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        documents('{"a": 1}{"b"')
