# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks of the playbook drill between the check of the fleet and the cut of the power."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION, Stage, build_collection

STEP = str(COLLECTION / "playbooks/tasks/drill_step.yml")


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build_collection(tmp_path_factory.mktemp("collections"))


def write_playbook(stage: Stage, *tasks: dict[str, t.Any]) -> str:
    path = stage.folder / "drill.yml"
    path.write_text(json.dumps([{"hosts": "kvm3", "gather_facts": False, "tasks": list(tasks)}]))
    return str(path)


def run_task(state: str, **args: t.Any) -> dict[str, t.Any]:
    return {"kvmfleet.migration.maintenance_run": {"state": state, **args}}


def begin_step(step: str) -> dict[str, t.Any]:
    return {"ansible.builtin.include_tasks": STEP, "vars": {"__drill_step": step}}


def test_a_drill_that_was_paused_before_its_cut_ends_and_the_same_command_checks_the_fleet_again(collections: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stage = Stage(collections, tmp_path)
    begin = [{**run_task("started", hosts=["kvm3"], drill={}), "register": "__drill_begun"}, run_task("next", hosts=["kvm3"])]
    stage.resume_once_paused()
    done = stage.play(write_playbook(stage, *begin, begin_step("check"), run_task("paused"), begin_step("cut")), target="kvm3")
    assert done.code != 0
    assert "The power of kvm3 is not cut: the drill was paused after the fleet was checked." in done.text
    # Another process continues it, and nobody has paused that one.
    again = stage.play(write_playbook(stage, *begin, begin_step("cut"), {"ansible.builtin.debug": {"var": "__drill_begun.unchecked"}}), target="kvm3")
    assert again.code == 0, again.text
    assert '"kvm3"' in again.text
    (document,) = FileLedger(str(stage.ledger)).list_maintenance_runs()
    assert (document.maintenance_run.term, document.maintenance_run.hosts[0].steps[-1].step) == (2, "cut")
