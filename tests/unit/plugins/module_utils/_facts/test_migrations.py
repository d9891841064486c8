# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.migrations import canonical_uuid, in_progress, read_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import identity
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.hosts import OTHER, UUID, ListedHost, info

LEAVING = info(job=h.JOB_OUTGOING)
JOBS = {UUID: h.JobStats(memory_total_bytes=1000, memory_remaining_bytes=400, iteration=2)}


def state(uuid: str = UUID, status: str = "running", alive: bool = True) -> schema.Record:
    record = schema.new_record("live-migration", {"uuid": uuid, "name": "web1"}, schema.place("kvm1"), schema.place("kvm2"), {}, "test")
    watcher = identity("6a1d0a1e-0000-4000-8000-000000000001")
    return {**record, "status": status, "watcher": watcher if alive else {**watcher, "start_ticks": 1}}


def listed(host: ListedHost, states: t.Optional[t.Dict[str, schema.Record]], uuid: t.Optional[str] = None) -> t.List[schema.Record]:
    return in_progress(t.cast(t.Any, host), states, uuid)


def test_nothing_in_progress_is_an_empty_list() -> None:
    assert listed(ListedHost(info(), info("db1", OTHER, job=h.JOB_INCOMING, state=h.PAUSED)), {}) == []


def test_a_watched_move_has_its_record_with_the_figures_of_now() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), {UUID: state()})
    assert (found["watched"], found["destination"]["host"], found["status"]) == (True, "kvm2", "running")
    assert found["progress"]["percent"] == 60
    assert "watcher" not in found


def test_a_move_whose_watcher_is_gone_is_not_watched() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), {UUID: state(alive=False)})
    assert found["watched"] is False


def test_a_move_of_somebody_else_s_is_listed_without_a_destination() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), {})
    assert (found["id"], found["watched"], found["destination"]["host"], found["source"]["host"]) == (None, False, None, "kvm1")
    assert found["progress"]["memory_remaining_bytes"] == 400


def test_post_copy_is_in_progress_also_without_a_job() -> None:
    failed = info(state=h.PAUSED, reason=h.POST_COPY_FAILED)
    (found,) = listed(ListedHost(failed), {UUID: state()})
    assert found["status"] == "running (post-copy)"


def test_a_move_that_waits_for_its_turn_is_listed_while_its_watcher_lives() -> None:
    assert [one["status"] for one in listed(ListedHost(info()), {UUID: state(status="queued")})] == ["queued"]
    assert listed(ListedHost(info()), {UUID: state(status="queued", alive=False)}) == []


def test_who_may_not_read_the_state_files_cannot_tell_whether_it_is_watched() -> None:
    (found,) = listed(ListedHost(LEAVING, jobs=JOBS), None)
    assert found["watched"] is None


def test_one_domain_only() -> None:
    host = ListedHost(LEAVING, info("db1", OTHER, job=h.JOB_OUTGOING))
    assert [one["domain"]["name"] for one in listed(host, {}, OTHER)] == ["db1"]
    assert listed(ListedHost(LEAVING), {}, OTHER) == []


def test_state_files_that_are_final_torn_or_misnamed_are_passed_over(tmp_path: pathlib.Path) -> None:
    files = {f"{UUID}.json": json.dumps(state()), f"{OTHER}.json": json.dumps(state()), "torn.json": '{"schema": 1', "note.txt": "x"}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert list(read_states(str(tmp_path)) or ()) == [UUID]
    (tmp_path / f"{UUID}.json").write_text(json.dumps(state(status="completed")), encoding="utf-8")
    assert read_states(str(tmp_path)) == {}


def test_no_folder_is_no_move() -> None:
    assert read_states("/nonexistent/kvmfleet") == {}


def test_a_folder_that_may_not_be_read_is_not_known(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> t.List[str]:
        raise PermissionError(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    assert read_states(str(tmp_path)) is None


def test_a_uuid_in_any_spelling_is_libvirt_s_and_anything_else_is_refused() -> None:
    assert canonical_uuid(UUID.upper().replace("-", "")) == UUID
    assert canonical_uuid(None) is None
    for wrong in ("", "../../etc", "web1\n"):
        with pytest.raises(InvalidArgument, match="no UUID"):
            canonical_uuid(wrong)
