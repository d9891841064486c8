# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import own_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import (
    explain_unread_states,
    list_in_progress,
    read_unfinished_states,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef, canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StateFile
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.hosts import OTHER, UUID, ListedHost, info

LEAVING = info(job=domain_states.JOB_OUTGOING)
JOBS = {UUID: domain_states.JobStats(memory_total_bytes=1000, memory_remaining_bytes=400, iteration=2)}


def state(uuid: str = UUID, status: str = "running", alive: bool = True) -> StateFile:
    record = new_record("live-migration", DomainRef(uuid, "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "test")
    watcher = identify_watcher("6a1d0a1e-0000-4000-8000-000000000001")
    return StateFile(dataclasses.replace(record, status=status), watcher if alive else dataclasses.replace(watcher, start_ticks=1))


def listed(host: ListedHost, states: t.Optional[t.Dict[str, StateFile]], uuid: t.Optional[str] = None) -> t.List[t.Dict[str, t.Any]]:
    return [migration.as_json() for migration in list_in_progress(t.cast(t.Any, host), states, uuid)]


def test_a_host_without_outgoing_moves_has_an_empty_list() -> None:
    assert listed(ListedHost(info(), info("db1", OTHER, job=domain_states.JOB_INCOMING, state=domain_states.PAUSED)), {}) == []


def test_a_watched_move_is_listed_with_its_record_and_current_progress() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), {UUID: state()})
    assert (found["watched"], found["destination"]["host"], found["status"]) == (True, "kvm2", "running")
    assert found["progress"]["percent"] == 60
    assert "watcher" not in found


def test_a_move_whose_watcher_died_is_not_watched() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), {UUID: state(alive=False)})
    assert found["watched"] is False


def test_a_foreign_job_is_listed_without_a_destination() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), {})
    assert (found["id"], found["watched"], found["destination"]["host"], found["source"]["host"]) == (None, False, None, "kvm1")
    assert found["progress"]["memory_remaining_bytes"] == 400


def test_a_foreign_job_has_begun_as_long_ago_as_libvirt_says() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs={UUID: dataclasses.replace(JOBS[UUID], elapsed_ms=90_000)}), {})
    began, listed_at = (datetime.datetime.fromisoformat(str(found[key]).replace("Z", "+00:00")) for key in ("created_at", "updated_at"))
    assert 89 < (listed_at - began).total_seconds() < 91


def test_a_broken_post_copy_is_listed_without_a_job() -> None:
    failed = info(state=domain_states.PAUSED, reason=domain_states.POST_COPY_FAILED)
    (found,) = listed(ListedHost(failed), {UUID: state()})
    assert found["status"] == "running (post-copy)"


def test_a_queued_move_is_listed_while_its_watcher_lives() -> None:
    assert [one["status"] for one in listed(ListedHost(info()), {UUID: state(status="queued")})] == ["queued"]
    assert listed(ListedHost(info()), {UUID: state(status="queued", alive=False)}) == []


def test_without_readable_state_files_it_is_unknown_whether_a_move_is_watched() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), None)
    assert found["watched"] is None


def test_moves_of_one_domain_are_listed() -> None:
    host = ListedHost(LEAVING, info("db1", OTHER, job=domain_states.JOB_OUTGOING))
    assert [one["domain"]["name"] for one in listed(host, {}, OTHER)] == ["db1"]
    assert listed(ListedHost(LEAVING), {}, OTHER) == []


def test_final_torn_or_misnamed_state_files_are_ignored(tmp_path: pathlib.Path) -> None:
    files = {f"{UUID}.json": json.dumps(state().as_json()), f"{OTHER}.json": json.dumps(state().as_json()), "torn.json": '{"schema": 1', "note.txt": "x"}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert list(read_unfinished_states(str(tmp_path)) or ()) == [UUID]
    (tmp_path / f"{UUID}.json").write_text(json.dumps(state(status="completed").as_json()), encoding="utf-8")
    assert read_unfinished_states(str(tmp_path)) == {}


def test_a_missing_run_folder_has_no_unfinished_moves() -> None:
    assert read_unfinished_states("/nonexistent/kvmfleet") == {}


def test_unfinished_moves_of_an_unreadable_run_folder_are_unknown(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> t.List[str]:
        raise PermissionError(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    assert read_unfinished_states(str(tmp_path)) is None


def test_a_uuid_in_any_spelling_is_canonical_and_anything_else_is_refused() -> None:
    assert canonical_uuid(UUID.upper().replace("-", "")) == UUID
    assert canonical_uuid(None) is None
    for wrong in ("", "../../etc", "web1\n"):
        with pytest.raises(InvalidArgument, match="not a UUID"):
            canonical_uuid(wrong)


def test_a_user_is_told_what_is_unknown_without_the_state_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_moves, "is_root", lambda: False)
    unread = explain_unread_states(None, is_own_host=True)
    assert set(unread) == {"id", "destination", "watched", "waiting"}
    assert set(unread.values()) == {"only root can read it on the host (/run/kvmfleet)"}
    assert "over a remote URI" in explain_unread_states(None, is_own_host=False)["watched"]
    assert explain_unread_states({}, is_own_host=True) == {}


def test_root_gets_the_same_answer_with_and_without_state_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_moves, "is_root", lambda: True)
    assert explain_unread_states(None, is_own_host=False) == {}
