# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import starting
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.starting import forget_note, forget_started, is_noted, list_notes, note_start
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import NOTED_BY_DRAIN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


def test_a_note_stays_until_it_is_removed_and_keeps_all_its_reasons(tmp_path: pathlib.Path) -> None:
    folder = str(tmp_path / "start-again")
    assert list_notes(folder) == ([], [])
    assert note_start(UUID.upper(), "web1", [NOTED_BY_DRAIN], folder)
    assert not note_start(UUID, "web1", [NOTED_BY_DRAIN], folder)
    assert note_start(UUID, "web1", ["autostart"], folder)
    (found,), damaged = list_notes(folder)
    assert (found.uuid, found.name, found.why, damaged) == (UUID, "web1", ("autostart", NOTED_BY_DRAIN), [])
    assert is_noted(UUID, folder)
    assert forget_note(UUID, folder)
    assert not forget_note(UUID, folder)
    assert list_notes(folder) == ([], [])


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", json.dumps({"uuid": "other", "name": "x", "why": [], "at": "now"}), json.dumps({"uuid": UUID, "name": 1, "why": [], "at": "now"})],
)
def test_damaged_notes_start_nothing_and_are_reported(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / f"{UUID}.json"
    path.write_text(content, encoding="utf-8")
    (tmp_path / "passwd.json").write_text(json.dumps({"uuid": "passwd", "name": "x", "why": [], "at": "now"}), encoding="utf-8")
    assert list_notes(str(tmp_path)) == ([], [str(path), str(tmp_path / "passwd.json")])
    assert note_start(UUID, "web1", [NOTED_BY_DRAIN], str(tmp_path))
    assert list_notes(str(tmp_path))[0][0].why == (NOTED_BY_DRAIN,)


def test_unknown_keys_of_a_note_are_kept(tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"{UUID}.json"
    path.write_text(json.dumps({"uuid": UUID, "name": "web1", "why": [NOTED_BY_DRAIN], "at": "2026-11-21T03:00:00.000Z", "of_a_later_version": [1]}))
    assert note_start(UUID, "web1", ["autostart"], str(tmp_path))
    assert json.loads(path.read_text()) == {
        "uuid": UUID,
        "name": "web1",
        "why": ["autostart", NOTED_BY_DRAIN],
        "at": "2026-11-21T03:00:00.000Z",
        "of_a_later_version": [1],
    }


def test_an_invalid_uuid_or_folder_of_a_note_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument):
        note_start("../passwd", "web1", [NOTED_BY_DRAIN], str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(Forbidden, match="Cannot record in"):
        note_start(UUID, "web1", [NOTED_BY_DRAIN], str(tmp_path / "file"))


def test_a_note_for_which_there_is_no_space_is_refused_with_its_cause(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, content: str, mode: int) -> t.NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(starting, "replace_file", refuse)
    with pytest.raises(Forbidden, match=r"web1 is to be started again: No space left on device\. Free space there"):
        note_start(UUID, "web1", [NOTED_BY_DRAIN], str(tmp_path))


def test_a_note_removed_during_the_listing_is_not_damaged(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note_start(UUID, "web1", [NOTED_BY_DRAIN], str(tmp_path))

    def listed(folder: str) -> list[str]:
        forget_note(UUID, folder)
        return [f"{UUID}.json"]

    monkeypatch.setattr(starting.os, "listdir", listed)
    assert list_notes(str(tmp_path)) == ([], [])


def test_a_note_names_the_boot_of_the_last_drain(tmp_path: pathlib.Path) -> None:
    folder = str(tmp_path)
    assert note_start(UUID, "web1", [NOTED_BY_DRAIN], folder, boot_id="boot A")
    assert not note_start(UUID, "web1", [NOTED_BY_DRAIN], folder, boot_id="boot A")
    assert note_start(UUID, "web1", ["autostart"], folder)
    assert list_notes(folder)[0][0].boot_id == "boot A"
    assert note_start(UUID, "web1", [NOTED_BY_DRAIN], folder, boot_id="boot B")
    assert list_notes(folder)[0][0].boot_id == "boot B"


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def forget_on(fleet: FakeFleet, tmp_path: pathlib.Path) -> bool:
    """Note the domain, have the host forget what was started, and return whether the note is gone."""
    notes = str(tmp_path / "notes")
    note_start(UUID, "web1", [NOTED_BY_DRAIN], notes)
    forget_started(FakeHost(fleet, fleet.source, LOCAL_URI), str(tmp_path / "run"), notes)
    return not is_noted(UUID, notes)


@pytest.mark.parametrize(("how", "is_gone"), [({}, True), ({"state": domain_states.SHUTOFF, "reason": "shutdown"}, False)])
def test_the_note_of_a_domain_that_somebody_has_started_is_removed(fleet: FakeFleet, tmp_path: pathlib.Path, how: dict[str, t.Any], is_gone: bool) -> None:
    fleet.guest(uuid=UUID, **how)
    assert forget_on(fleet, tmp_path) == is_gone


def test_the_note_of_a_domain_that_the_host_does_not_have_stays(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    assert not forget_on(fleet, tmp_path)


def test_the_note_of_a_domain_that_is_being_shut_down_stays(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(uuid=UUID)
    (tmp_path / "run").mkdir(mode=0o700)
    shutdown = Ownership(UUID, str(tmp_path / "run"))
    assert not forget_on(fleet, tmp_path)
    shutdown.release_lock()
    assert forget_on(fleet, tmp_path)
    Ownership(UUID, str(tmp_path / "run")).release_lock()


def test_a_note_that_cannot_be_judged_is_left_to_the_next_time(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_host: FakeHost, _uuid: str) -> t.NoReturn:
        raise Unreachable("libvirt is gone")

    fleet.guest(uuid=UUID)
    monkeypatch.setattr(FakeHost, "view_domain", fail)
    assert not forget_on(fleet, tmp_path)
