# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, with_receipt


def settings(**variables: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": variables}})


def test_a_profile_is_found_by_its_name() -> None:
    profiles = {"gold": {"timeout_seconds": 60}, "plain": None}
    assert settings(kvmfleet_profiles=profiles).profile("kvm1", "gold") == {"timeout_seconds": 60}
    assert settings(kvmfleet_profiles=profiles).profile("kvm1", "plain") == {}
    assert settings().profile("kvm1", None) == {}


@pytest.mark.parametrize(
    ("profiles", "named"),
    [
        ({"silver": {}, "bronze": {}}, "Valid names are: bronze, silver"),
        ({}, "Valid names are: none"),
        ("gold", "not a dictionary"),
        ({"gold": [1]}, "not a dictionary"),
        ({"gold": {"post_copi": True}}, "post_copi"),
        ({"gold": {"profile": "silver"}}, "not a field of a policy"),
        ({"gold": {"force_pause_max_seconds": 0}}, "force_pause_max_seconds is 0"),
        ({"gold": {"timeout_seconds_per_gib": 90}}, "timeout_seconds_per_gib"),
        ({"gold": {"timeout_seconds": "60"}}, "The profile gold in kvmfleet_profiles of kvm1: timeout_seconds"),
    ],
)
def test_a_missing_or_invalid_profile_is_refused(profiles: t.Any, named: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        settings(kvmfleet_profiles=profiles).profile("kvm1", "gold")
    assert named in str(caught.value)


def test_a_misspelt_default_of_a_host_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="post_copi"):
        settings(kvmfleet_migration_policy={"post_copi": False}).policy("kvm1")


@pytest.mark.parametrize(("seconds", "fresh"), [(0, True), (50, True), (90, False)])
def test_facts_count_for_a_minute_from_their_receipt(seconds: int, fresh: bool) -> None:
    then = boot_moment()
    facts = {"host_uuid": "a", "received": {"boot_id": then.boot_id, "seconds": then.seconds - seconds}}
    found = settings(ansible_facts={"kvmfleet_host": facts})
    assert found.fresh_facts("kvm1") == (facts if fresh else None)
    assert found.why_stale("kvm1") == ("" if fresh else "they are 90 s old, and 60 s is the limit")


@pytest.mark.parametrize("minutes", [-5, 0, 5])
def test_the_clock_of_a_host_does_not_change_the_age_of_its_facts(minutes: int) -> None:
    by_its_clock = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    facts = with_receipt({"gathered_at": by_its_clock.isoformat(), "host_uuid": "a"})
    assert settings(ansible_facts={"kvmfleet_host": facts}).fresh_facts("kvm1") == facts


def test_facts_without_a_known_time_of_receipt_have_an_unknown_age() -> None:
    for stamp in ({}, {"received": {"boot_id": "of another control node", "seconds": 1.0}}):
        facts = {"gathered_at": datetime.datetime.now(datetime.UTC).isoformat(), "host_uuid": "a", **stamp}
        found = settings(ansible_facts={"kvmfleet_host": facts})
        assert found.fresh_facts("kvm1") is None
        assert "cache" in found.why_stale("kvm1")


def test_facts_received_since_a_given_moment_count_whatever_their_age() -> None:
    since = boot_moment()
    before = BootMoment(since.boot_id, since.seconds - 90)
    facts = {"host_uuid": "a", "received": encode(before)}
    found = settings(ansible_facts={"kvmfleet_host": facts})
    assert found.facts_since("kvm1", before) == facts
    assert found.facts_since("kvm1", since) is None
    assert settings().facts_since("kvm1", since) is None


def test_a_host_without_facts_has_no_fresh_facts() -> None:
    assert settings().fresh_facts("kvm1") is None
    assert settings(ansible_facts={"kvmfleet_host": {}}).fresh_facts("kvm1") is None
    assert settings().fresh_facts("unknown") is None
