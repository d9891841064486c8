# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import find_remembered, list_remembered
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership

Document = t.Dict[str, t.Any]
WEB = str(uuid.UUID(int=64))


def state(**more: t.Any) -> Document:
    ends = HostRef("kvm1", None, None), HostRef("kvm2", None, None)
    record = new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web"), *ends, {}, "x")
    return {**encode(record), "ledger_id": "one", "watcher": {"pid": 2**22 + 1, "start_ticks": 5, "run_id": "r"}, "answers": {}, **more}


def write(folder: pathlib.Path, document: t.Any, name: str = WEB) -> None:
    (folder / f"{name}.json").write_text(json.dumps(document))


def test_a_remembered_move_is_listed_briefly_and_found_completely(tmp_path: pathlib.Path) -> None:
    there = state(status=s.COMPLETED, generation=4)
    write(tmp_path, there)
    (told,) = t.cast("list[Document]", list_remembered(str(tmp_path)))
    assert (told["id"], told["generation"], told["status"], told["ledger_id"]) == (there["id"], 4, s.COMPLETED, "one")
    assert (told["domain"], told["source"]["host"], told["destination"]["host"]) == ({"uuid": WEB, "name": "web"}, "kvm1", "kvm2")
    assert find_remembered(there["id"], str(tmp_path)) == {
        "record": {key: value for key, value in there.items() if key not in ("watcher", "answers")},
        "watched": False,
    }
    assert find_remembered(str(uuid.uuid4()), str(tmp_path)) is None


def test_a_remembered_move_shows_whether_it_is_watched(tmp_path: pathlib.Path) -> None:
    there = state(watcher=encode(identify_watcher("r")))
    write(tmp_path, there)
    told = find_remembered(there["id"], str(tmp_path))
    assert told is not None
    assert told["watched"]


def test_evacuations_are_remembered_from_their_notes(tmp_path: pathlib.Path) -> None:
    """Its note outlives the boot after which the host remembers no move."""
    run, kept = tmp_path / "run", tmp_path / "kept"
    run.mkdir()
    noted = {**state(type=s.EVACUATION, status=s.PRE_MIGRATING), "evidence": [{"kind": "person"}]}
    note = {key: value for key, value in noted.items() if key not in ("watcher", "answers")}
    restart.write_note(WEB, note, str(kept))
    write(run, state(status=s.COMPLETED))
    told = t.cast("list[Document]", list_remembered(str(run), str(kept)))
    assert [(one["type"], one["status"], one["ledger_id"]) for one in told] == [(s.LIVE_MIGRATION, s.COMPLETED, "one"), (s.EVACUATION, s.PRE_MIGRATING, "one")]
    assert find_remembered(note["id"], str(run), str(kept)) == {"record": note, "watched": False}
    ownership = Ownership(WEB, str(run))
    during = find_remembered(note["id"], str(run), str(kept))
    ownership.release_lock()
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
def test_invalid_state_files_are_not_remembered(tmp_path: pathlib.Path, document: t.Any, name: str) -> None:
    write(tmp_path, document, name)
    write(tmp_path, state(domain={"uuid": str(uuid.UUID(int=66)), "name": "app"}), str(uuid.UUID(int=66)))
    assert [told["domain"]["name"] for told in list_remembered(str(tmp_path)) or ()] == ["app"]


def test_a_host_without_moves_remembers_none(tmp_path: pathlib.Path) -> None:
    assert list_remembered(str(tmp_path / "none")) == []
