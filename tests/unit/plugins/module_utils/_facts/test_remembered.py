# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import notes
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.remembered import recalled, remembered
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import identity

WEB = str(uuid.UUID(int=64))


def state(**more: t.Any) -> schema.Record:
    ends = schema.place("kvm1"), schema.place("kvm2")
    record = schema.new_record(s.LIVE_MIGRATION, {"uuid": WEB, "name": "web"}, *ends, {}, "x")
    return {**record, "ledger_id": "one", "watcher": {"pid": 2**22 + 1, "start_ticks": 5, "run_id": "r"}, "answers": {}, **more}


def write(folder: pathlib.Path, document: t.Any, name: str = WEB) -> None:
    (folder / f"{name}.json").write_text(json.dumps(document))


def test_each_move_is_remembered_in_short_and_whole(tmp_path: pathlib.Path) -> None:
    there = state(status=s.COMPLETED, generation=4)
    write(tmp_path, there)
    (told,) = t.cast("list[schema.Record]", remembered(str(tmp_path)))
    assert (told["id"], told["generation"], told["status"], told["ledger_id"]) == (there["id"], 4, s.COMPLETED, "one")
    assert (told["domain"], told["source"]["host"], told["destination"]["host"]) == ({"uuid": WEB, "name": "web"}, "kvm1", "kvm2")
    assert recalled(there["id"], str(tmp_path)) == {
        "record": {key: value for key, value in there.items() if key not in ("watcher", "answers")},
        "watched": False,
    }
    assert recalled(str(uuid.uuid4()), str(tmp_path)) is None


def test_a_move_that_is_watched_says_so(tmp_path: pathlib.Path) -> None:
    there = state(watcher=identity("r"))
    write(tmp_path, there)
    told = recalled(there["id"], str(tmp_path))
    assert told is not None
    assert told["watched"]


def test_an_evacuation_is_remembered_beside_the_moves_from_here(tmp_path: pathlib.Path) -> None:
    """Its note outlives the boot after which the host remembers no move."""
    run, kept = tmp_path / "run", tmp_path / "kept"
    run.mkdir()
    noted = {**state(type=s.EVACUATION, status=s.PRE_MIGRATING), "evidence": [{"kind": "person"}]}
    note = {key: value for key, value in noted.items() if key not in ("watcher", "answers")}
    notes.write(WEB, note, str(kept))
    write(run, state(status=s.COMPLETED))
    told = t.cast("list[schema.Record]", remembered(str(run), str(kept)))
    assert [(one["type"], one["status"], one["ledger_id"]) for one in told] == [(s.LIVE_MIGRATION, s.COMPLETED, "one"), (s.EVACUATION, s.PRE_MIGRATING, "one")]
    assert recalled(note["id"], str(run), str(kept)) == {"record": note, "watched": False}
    ownership = Ownership(WEB, str(run))
    during = recalled(note["id"], str(run), str(kept))
    ownership.release()
    assert during is not None
    assert during["watched"]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({}, WEB),
        ([], WEB),
        (state(schema=99), WEB),
        (state(id="x"), WEB),
        (state(), str(uuid.UUID(int=65))),
        (state(domain={"uuid": "web", "name": "web"}), "web"),
    ],
)
def test_what_is_no_state_of_a_move_is_passed_over(tmp_path: pathlib.Path, document: t.Any, name: str) -> None:
    write(tmp_path, document, name)
    write(tmp_path, state(domain={"uuid": str(uuid.UUID(int=66)), "name": "app"}), str(uuid.UUID(int=66)))
    assert [told["domain"]["name"] for told in remembered(str(tmp_path)) or ()] == ["app"]


def test_a_host_without_moves_remembers_none(tmp_path: pathlib.Path) -> None:
    assert remembered(str(tmp_path / "none")) == []
