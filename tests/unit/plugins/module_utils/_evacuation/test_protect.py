# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import functools
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Forbidden, Internal, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import belonging, protect
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import identity
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

LEDGER = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
OTHER = "2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"
NOTHING = {"ledger_id": LEDGER, "known": {}, "check": False}
ALL = {"host_id": None, "uuids": None}

Json = t.Dict[str, t.Any]


class Boot:
    """What the guard says of this boot."""

    held: t.Optional[Json] = None


class DefinitionsHost(FakeHost):
    """Its definitions tell whether they are those of the next start."""

    refuse: t.ClassVar[t.Dict[str, Exception]] = {}

    def whole_definition(self, uuid: str, persistent: bool) -> str:
        domain = self._machine.domain(uuid)
        if domain.name in self.refuse:
            raise self.refuse[domain.name]
        return domain.xml().replace("</name>", f"</name><title>{'inactive' if persistent else 'live'}</title>")


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    places = {"belong": belonging.belong, "check_belongs": belonging.check_belongs}
    for name, function in places.items():
        monkeypatch.setattr(protect, name, functools.partial(function, path=str(tmp_path / "ledger-id")))
    for name, read in (("read_host_id", identity.read_host_id), ("create_host_id", identity.create_host_id)):
        monkeypatch.setattr(protect, name, functools.partial(read, str(tmp_path / "host-id")))
    monkeypatch.setattr(protect, "require_root", lambda: None)
    monkeypatch.setattr(protect, "state", Boot)
    monkeypatch.setattr(protect, "open_definitions_host", lambda uri: DefinitionsHost(fleet, fleet.machine_of(uri), uri))
    monkeypatch.setattr(Boot, "held", None)
    monkeypatch.setattr(DefinitionsHost, "refuse", {})
    return fleet


@pytest.fixture
def images(fleet: FakeFleet, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with the image of the domain web1."""
    folder = tmp_path / "images"
    folder.mkdir()
    fleet.guest(disks=(h.Disk("vda", "file", str(folder / "web1.qcow2")),))
    return folder


def save(**work: t.Any) -> Json:
    return protect.save(LOCAL_URI, {**ALL, **work})


def saved_state(fleet: FakeFleet, **how: t.Any) -> t.Optional[str]:
    fleet.guest(**how)
    return t.cast("t.Optional[str]", save()["domains"][0]["state"])


def test_tokens_are_left_once_and_seen_by_who_sees_the_folder(images: pathlib.Path) -> None:
    first = protect.leave(LOCAL_URI, NOTHING)
    assert (first["changed"], list(first["folders"]), first["unwritable"]) == (True, [str(images)], {})
    again = protect.leave(LOCAL_URI, {**NOTHING, "known": first["folders"]})
    assert again == {**first, "changed": False}
    work = {"folders": {first["host_id"]: first["folders"], OTHER: first["folders"]}, "devices": {}, "host_id": None}
    assert protect.see(LOCAL_URI, work)["sees"] == {first["host_id"]: first["folders"]}


def test_in_check_mode_nothing_is_made(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    answer = protect.leave(LOCAL_URI, {**NOTHING, "check": True})
    assert (answer["changed"], answer["host_id"], answer["folders"]) == (True, None, {})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["images"]
    assert list(images.iterdir()) == []


def test_a_folder_that_is_not_there_is_named_and_the_others_get_theirs(fleet: FakeFleet, images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fleet.guest("db1", OTHER, disks=(h.Disk("vda", "file", str(tmp_path / "gone" / "db1")),))
    answer = protect.leave(LOCAL_URI, NOTHING)
    assert (list(answer["folders"]), list(answer["unwritable"])) == ([str(images)], [str(tmp_path / "gone")])


def test_a_folder_that_does_not_answer_costs_its_time_once_for_all_peers(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: t.List[float] = []
    monkeypatch.setattr(protect, "within", lambda seconds, ask: asked.append(seconds))
    work = {"folders": {LEDGER: {"/dead": LEDGER}, OTHER: {"/dead": OTHER}}, "devices": {}, "host_id": None}
    assert protect.see(LOCAL_URI, work)["sees"] == {}
    assert len(asked) == 1


def test_another_ledger_is_refused_before_anything_is_left(images: pathlib.Path) -> None:
    protect.belong(OTHER)
    for phase in (protect.identify, protect.leave):
        with pytest.raises(Conflict, match=OTHER):
            phase(LOCAL_URI, NOTHING)
    assert list(images.iterdir()) == []


def test_persistent_domains_have_their_next_start_saved_and_transient_ones_what_runs(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest("tmp1", OTHER, persistent=False)
    found = {domain["name"]: domain for domain in save()["domains"]}
    assert "<title>inactive" in found["web1"]["definition"]
    assert "<title>live" in found["tmp1"]["definition"]
    assert found["web1"]["request"]["uuid"] == UUID
    assert found["web1"]["request"]["blockers"] == []


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ({}, "running"),
        ({"state": h.PAUSED, "reason": "user"}, "paused"),
        ({"state": h.PAUSED, "reason": "I/O error"}, "running"),
        ({"state": h.PAUSED, "reason": h.MIGRATION, "job": h.JOB_OUTGOING}, None),
        ({"state": h.SHUTOFF, "reason": "shutdown"}, "shut off"),
    ],
)
def test_the_state_is_what_a_person_would_want_back(fleet: FakeFleet, how: Json, state: t.Optional[str]) -> None:
    assert saved_state(fleet, **how) == state


def test_on_a_held_host_what_is_off_says_nothing(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Boot, "held", {"why": "a boot"})
    assert saved_state(fleet, state=h.SHUTOFF, reason="") is None
    assert saved_state(fleet) == "running"


def test_what_is_still_arriving_is_not_saved(fleet: FakeFleet) -> None:
    fleet.guest(state=h.PAUSED, reason=h.MIGRATION, job=h.JOB_INCOMING)
    assert save() == {"changed": False, "domains": [], "arriving": [UUID], "unreadable": [], "remembered": []}


def test_one_that_cannot_be_read_stops_no_other_and_one_that_went_away_is_not_there(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest("bad", OTHER)
    fleet.guest("gone", LEDGER)
    DefinitionsHost.refuse.update(bad=Internal("No secret."), gone=NotFound("Gone."))
    answer = save()
    assert [domain["name"] for domain in answer["domains"]] == ["web1"]
    assert answer["unreadable"] == [{"uuid": OTHER, "name": "bad", "why": "No secret."}]


def test_only_those_that_are_asked_for_are_read(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest("db1", OTHER)
    assert [domain["name"] for domain in save(uuids=[OTHER])["domains"]] == ["db1"]


def test_a_host_that_is_another_one_by_now_is_a_conflict(fleet: FakeFleet) -> None:
    fleet.guest()
    with pytest.raises(Conflict, match=OTHER):
        save(host_id=OTHER)


@pytest.mark.parametrize("phase", sorted(protect.PHASES))
def test_who_is_not_root_is_told_so(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    monkeypatch.setattr(protect, "require_root", _module.require_root)
    monkeypatch.setattr(_module.os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden, match="become"):
        protect.PHASES[phase](LOCAL_URI, {})
