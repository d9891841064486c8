# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet is asked once about all domains of a cleanup. Before each removal, the host that has the domain is asked again, and all others if it must be."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import cleanup, cleanup_survey
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_survey import CleanupSurvey
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import CleanupPlan, FleetReading
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Aborted, Unreachable

from .test_cleanup import UUID, Host, Scene

OTHER_UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
WHOLE_FLEET = ["kvm2", "kvm3"]


class Fleet(Scene):
    """The domain is on kvm2. A third host has nothing of it. C(opened) are the hosts that were connected to."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.third = Host("third", present=False)
        self.opened: list[str] = []

    def open(self, uri: str) -> t.Any:
        self.opened.append(uri)
        host = {"kvm2": self.there, "kvm3": self.third}.get(uri, self.here)
        if not host.answers:
            raise Unreachable("no answer")
        return host

    def survey(self) -> CleanupSurvey:
        uris = {name: name for name in WHOLE_FLEET}
        return CleanupSurvey(self.here, "me", uris, self.open, self._put_aside, str(self.save_folder))

    def read(self) -> FleetReading:
        """Return what the fleet answers now."""
        survey = self.survey()
        survey.plan_cleanups([self.ask()])
        assert survey.reading
        self.opened.clear()
        return survey.reading

    def plan_again(self, earlier: FleetReading | None) -> CleanupPlan:
        self.opened.clear()
        return self.survey().plan_again(self.ask(), earlier, [UUID])

    @property
    def asked(self) -> list[str]:
        """The hosts that were asked since."""
        return sorted(set(self.opened))


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def age(reading: FleetReading, seconds: float) -> FleetReading:
    now = boot_moment()
    return dataclasses.replace(reading, moment=dataclasses.replace(now, seconds=now.seconds - seconds))


def test_while_the_answers_of_the_fleet_are_valid_only_the_host_with_the_domain_is_asked(fleet: Fleet) -> None:
    plan = fleet.plan_again(age(fleet.read(), 100))
    assert (plan.kind, plan.where, [disk.reason for disk in plan.disks]) == ("clean", "kvm2", [""])
    assert fleet.asked == ["kvm2"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda reading: age(reading, 120),
        lambda reading: age(reading, -1),
        lambda reading: dataclasses.replace(reading, moment=BootMoment("another boot", reading.moment.seconds)),
        lambda reading: dataclasses.replace(reading, uuids=(OTHER_UUID,)),
        lambda reading: dataclasses.replace(reading, answers={"kvm2": reading.answers["kvm2"]}),
        lambda reading: None,
    ],
    ids=["too old", "of the future", "of another boot", "about other domains", "of another fleet", "none"],
)
def test_answers_that_are_not_valid_permit_nothing(fleet: Fleet, spoil: t.Callable[[FleetReading], FleetReading | None]) -> None:
    reading = spoil(fleet.read())
    fleet.third.present = fleet.third.active = True
    plan = fleet.plan_again(reading)
    assert (plan.kind, fleet.asked) == ("refuse", WHOLE_FLEET)
    assert "it is active on kvm2 and kvm3" in plan.reason


def test_answers_that_became_too_old_while_one_host_was_asked_permit_nothing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, look = fleet.read(), fleet.there.find_domain

    def look_slowly(**domain: t.Any) -> t.Any:
        later = boot_moment()
        monkeypatch.setattr(cleanup_survey, "boot_moment", lambda: dataclasses.replace(later, seconds=later.seconds + 121))
        return look(**domain)

    monkeypatch.setattr(fleet.there, "find_domain", look_slowly)
    fleet.third.present = fleet.third.active = True
    assert (fleet.plan_again(reading).kind, fleet.asked) == ("refuse", WHOLE_FLEET)


def test_a_domain_that_has_moved_on_since_is_found_before_its_copy_is_removed(fleet: Fleet) -> None:
    reading = fleet.read()
    fleet.there.present = False
    fleet.third = Host("third", fleet.there.disks, active=True)
    plan = fleet.plan_again(reading)
    assert (plan.kind, plan.where, fleet.asked) == ("clean", "kvm3", WHOLE_FLEET)


@pytest.mark.parametrize(("change", "why"), [("off", "active on no other host"), ("gone", "active on no other host"), ("silent", "kvm2 did not answer")])
def test_a_copy_is_kept_if_the_domain_is_no_longer_active_where_it_was(fleet: Fleet, change: str, why: str) -> None:
    reading = fleet.read()
    fleet.there.active = change == "silent"
    fleet.there.present = change != "gone"
    fleet.there.answers = change != "silent"
    plan = fleet.plan_again(reading)
    assert (plan.kind, fleet.asked) == ("refuse", WHOLE_FLEET)
    assert why in plan.reason


def test_an_address_that_leads_to_this_host_now_permits_nothing(fleet: Fleet) -> None:
    reading = fleet.read()
    fleet.there.uuid = fleet.here.uuid
    assert (fleet.plan_again(reading).kind, fleet.asked) == ("refuse", WHOLE_FLEET)


def test_a_domain_that_was_started_here_since_is_an_alarm(fleet: Fleet) -> None:
    reading = fleet.read()
    fleet.here.active = True
    plan = fleet.plan_again(reading)
    assert (plan.kind, plan.where, fleet.asked) == ("alarm", "kvm2", WHOLE_FLEET)


def test_silent_hosts_are_asked_again_before_the_copy_of_a_domain_that_is_active_nowhere_is_removed(fleet: Fleet) -> None:
    fleet.fenced = True
    fleet.there.answers = False
    reading = fleet.read()
    assert (fleet.plan_again(reading).kind, fleet.asked) == ("clean", WHOLE_FLEET)
    fleet.there.answers, fleet.there.active = True, False
    assert (fleet.plan_again(reading).kind, fleet.asked) == ("refuse", WHOLE_FLEET)


@pytest.fixture
def work(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """The input of the phases that survey and clean, on a host of this fleet."""
    for name in ("require_root", "_check_identity"):
        monkeypatch.setattr(cleanup, name, lambda *_given: None)
    monkeypatch.setattr(cleanup, "require_local", lambda uri: uri)
    monkeypatch.setattr(cleanup, "open_host", fleet.open)
    monkeypatch.setattr(cleanup, "_list_moved_files", lambda record: frozenset())
    monkeypatch.setattr(cleanup, "Quarantine", lambda record: Quarantine(record, str(fleet.root)))
    return {"host_id": "me", "uris": {name: name for name in WHOLE_FLEET}, "domains": [encode(fleet.ask())], "storage": "keep", "uuids": [UUID], "fleet": None}


def test_a_copy_whose_task_has_ended_while_other_hosts_were_asked_stays(fleet: Fleet, work: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task held the lock of the host. Another one may have brought the domain back since."""
    monkeypatch.setattr(cleanup, "has_lost_task", lambda: "kvm3" in fleet.opened)
    with pytest.raises(Aborted, match="Nothing was removed"):
        cleanup.clean_copy("here", work)
    assert fleet.here.present


def test_the_fleet_is_asked_once_for_the_survey_and_the_removal(fleet: Fleet, work: t.Any) -> None:
    surveyed = cleanup.survey_copies("here", work)
    assert fleet.opened.count("kvm3") == 1
    cleaned = cleanup.clean_copy("here", {**work, "fleet": surveyed["fleet"]})
    assert (fleet.opened.count("kvm3"), cleaned["fleet"], fleet.here.present) == (1, None, False)
    fleet.here.present = True
    cleaned = cleanup.clean_copy("here", {**work, "fleet": None})
    assert (fleet.opened.count("kvm3"), cleaned["fleet"]["uuids"], fleet.here.present) == (2, [UUID], False)
