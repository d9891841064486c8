# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of docs/demo are what the collection writes, and belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.tests.demo.files import rendered
from ansible_collections.kvmfleet.migration.tests.demo.outcome import moves_of

DEMO = Path(__file__).resolve().parents[3] / "docs" / "demo"
FILES = rendered(DEMO)


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_demo_report_equals_what_the_code_writes(name: str) -> None:
    is_same = (DEMO / name).read_bytes() == FILES[name]
    assert is_same, "It is not any more. docs/demo/README.md says how to write it anew."


def test_demo_notices_and_outcome_match_the_report() -> None:
    report = json.loads((DEMO / "report.json").read_text(encoding="utf-8"))
    events = [json.loads(line)["data"] for line in (DEMO / "notices.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {event["record"] for event in events if "record" in event} == {move["id"] for move in report["moves"]}
    assert {event["run"] for event in events if "run" in event} == {run["id"] for run in report["maintenance_runs"]}
    outcome = (DEMO / "outcome.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in moves_of(report) if line not in outcome] == []
