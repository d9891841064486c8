# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import moment, received
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings


def settings(**variables: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": variables}})


def test_a_profile_is_found_by_name_and_no_name_is_no_profile() -> None:
    profiles = {"gold": {"timeout_seconds": 60}, "plain": None}
    assert settings(kvmfleet_profiles=profiles).profile("kvm1", "gold") == {"timeout_seconds": 60}
    assert settings(kvmfleet_profiles=profiles).profile("kvm1", "plain") == {}
    assert settings().profile("kvm1", None) == {}


@pytest.mark.parametrize(
    ("profiles", "named"),
    [
        ({"silver": {}, "bronze": {}}, "Known are: bronze, silver"),
        ({}, "Known are: none"),
        ("gold", "no dictionary"),
        ({"gold": [1]}, "no dictionary"),
        ({"gold": {"post_copi": True}}, "post_copi"),
        ({"gold": {"profile": "silver"}}, "no field of a policy"),
        ({"gold": {"timeout_seconds": "60"}}, "The profile gold in kvmfleet_profiles of kvm1: timeout_seconds"),
    ],
)
def test_a_profile_that_is_no_use_is_named(profiles: t.Any, named: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        settings(kvmfleet_profiles=profiles).profile("kvm1", "gold")
    assert named in str(caught.value)


def test_a_misspelt_default_of_a_host_is_not_passed_over() -> None:
    with pytest.raises(InvalidArgument, match="post_copi"):
        settings(kvmfleet_migration_policy={"post_copi": False}).policy("kvm1")


@pytest.mark.parametrize(("seconds", "fresh"), [(0, True), (50, True), (90, False)])
def test_facts_count_for_a_minute_from_their_receipt(seconds: int, fresh: bool) -> None:
    then = moment()
    facts = {"host_uuid": "a", "received": {**then, "seconds": then["seconds"] - seconds}}
    found = settings(ansible_facts={"kvmfleet_host": facts})
    assert found.fresh_facts("kvm1") == (facts if fresh else None)
    assert found.why_stale("kvm1") == ("" if fresh else "those that it has are 90 s old, and 60 s at most count")


@pytest.mark.parametrize("minutes", [-5, 0, 5])
def test_a_host_s_clock_makes_its_facts_neither_older_nor_younger(minutes: int) -> None:
    by_its_clock = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    facts = received({"gathered_at": by_its_clock.isoformat(), "host_uuid": "a"})
    assert settings(ansible_facts={"kvmfleet_host": facts}).fresh_facts("kvm1") == facts


def test_facts_without_a_known_moment_of_receipt_are_of_unknown_age() -> None:
    for stamp in ({}, {"received": {"boot_id": "of another control node", "seconds": 1.0}}):
        facts = {"gathered_at": datetime.datetime.now(datetime.UTC).isoformat(), "host_uuid": "a", **stamp}
        found = settings(ansible_facts={"kvmfleet_host": facts})
        assert found.fresh_facts("kvm1") is None
        assert "cache" in found.why_stale("kvm1")


def test_facts_count_from_a_moment_on_however_old_they_are() -> None:
    since = moment()
    facts = {"host_uuid": "a", "received": {**since, "seconds": since["seconds"] - 90}}
    found = settings(ansible_facts={"kvmfleet_host": facts})
    assert found.facts_since("kvm1", facts["received"]) == facts
    assert found.facts_since("kvm1", since) is None
    assert settings().facts_since("kvm1", since) is None


def test_a_host_without_facts() -> None:
    assert settings().fresh_facts("kvm1") is None
    assert settings(ansible_facts={"kvmfleet_host": {}}).fresh_facts("kvm1") is None
    assert settings().fresh_facts("unknown") is None
