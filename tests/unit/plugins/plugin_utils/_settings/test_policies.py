# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, SignedInt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import PROFILE_FIELDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import Scheduling, effective_policy


def test_every_field_of_the_effective_policy_has_value_and_source() -> None:
    effective = effective_policy({"priority": 5, "labels": []}, {"labels": ["ssd"], "drain": "leave"}, {"downtime_ms": 100, "drain": "shutdown"})
    policy = effective.as_json()
    assert effective.scheduling == Scheduling(SignedInt(5), "leave", None, ())
    assert set(policy) == set(PROFILE_FIELDS)
    assert policy["priority"] == {"value": 5, "source": "domain"}
    assert policy["labels"] == {"value": [], "source": "domain"}
    assert policy["drain"] == {"value": "leave", "source": "profile"}
    assert policy["downtime_ms"] == {"value": 100, "source": "host"}
    assert policy["group"] == {"value": None, "source": "default"}


def test_a_list_of_strategies_applies_as_a_whole_and_a_single_one_is_text() -> None:
    effective = effective_policy({}, {"drain": ["save", "shutdown"]}, {"drain": "leave"})
    assert effective.scheduling.strategies == ("save", "shutdown")
    assert effective.as_json()["drain"] == {"value": ["save", "shutdown"], "source": "profile"}
    single = effective_policy({}, {}, {"drain": ["leave"]})
    assert (single.scheduling.drain, single.scheduling.strategies) == ("leave", ("leave",))


@pytest.mark.parametrize(
    ("drain", "words"),
    [
        ([], "drain is an empty list"),
        (["save", "stop"], "drain is 'stop'"),
        (["save", "save"], "a strategy twice"),
        (["leave", "migrate"], "Give leave last"),
        ({"save": 1}, "drain is {'save': 1}"),
    ],
)
def test_invalid_strategies_are_refused_with_the_place_where_they_are(drain: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match="kvmfleet_migration_policy of the host") as caught:
        effective_policy({}, {}, {"drain": drain})  # type: ignore[dict-item]
    assert words in str(caught.value)


def test_only_a_domain_or_a_profile_with_both_features_gives_a_warning() -> None:
    both: JsonObject = {"post_copy": True, "auto_converge": True}
    assert "are both on in the domain's own policy" in str(effective_policy(both, {}, {}).warning)
    assert "are both on in the profile of the domain" in str(effective_policy({}, both, {}).warning)
    for policy in (effective_policy({"post_copy": True}, {}, both), effective_policy({}, {}, both), effective_policy({}, {}, {})):
        assert policy.warning is None


def test_the_effective_policy_shows_which_source_switches_the_other_feature_off() -> None:
    policy = effective_policy({}, {"post_copy": True, "force_pause_max_seconds": 5}, {"auto_converge": True, "timeout_seconds_per_gib": 9}).as_json()
    assert policy["post_copy"] == {"value": True, "source": "profile"}
    assert policy["auto_converge"] == {"value": False, "source": "profile"}
    assert policy["force_pause_max_seconds"] == {"value": 5, "source": "profile"}


def test_the_timeout_by_size_is_no_field_of_a_domain_or_profile() -> None:
    assert "timeout_seconds_per_gib" not in PROFILE_FIELDS
    with pytest.raises(InvalidArgument, match=r"timeout_seconds_per_gib is 0 \(host\)"):
        effective_policy({}, {}, {"timeout_seconds_per_gib": 0})


def test_an_invalid_default_of_the_host_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"kvmfleet_migration_policy.*drain is 'now'"):
        effective_policy({}, {}, {"drain": "now"})
