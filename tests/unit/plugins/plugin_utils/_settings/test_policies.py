# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import SignedInt
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


def test_auto_converge_with_post_copy_from_two_sources_is_a_warning() -> None:
    policy = effective_policy({"post_copy": True}, {}, {"auto_converge": True})
    assert "auto_converge from host and post_copy from domain" in str(policy.warning)
    assert effective_policy({}, {}, {}).warning is None


def test_an_invalid_default_of_the_host_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"kvmfleet_migration_policy.*drain is 'now'"):
        effective_policy({}, {}, {"drain": "now"})
