# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import PROFILE_FIELDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._policy.effective import effective, warning_of


def test_every_field_has_a_value_and_its_source() -> None:
    policy = effective({"priority": 5, "labels": []}, {"labels": ["ssd"], "drain": "leave"}, {"downtime_ms": 100, "drain": "shutdown"})
    assert set(policy) == set(PROFILE_FIELDS)
    assert policy["priority"] == {"value": 5, "source": "domain"}
    assert policy["labels"] == {"value": [], "source": "domain"}
    assert policy["drain"] == {"value": "leave", "source": "profile"}
    assert policy["downtime_ms"] == {"value": 100, "source": "host"}
    assert policy["group"] == {"value": None, "source": "default"}


def test_both_features_from_domain_and_host_are_shown_with_a_warning() -> None:
    policy = effective({"post_copy": True}, {}, {"auto_converge": True})
    assert "auto_converge from host and post_copy from domain" in str(warning_of(policy))
    assert warning_of(effective({}, {}, {})) is None


def test_a_host_s_default_that_cannot_be_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"kvmfleet_migration_policy.*drain is 'now'"):
        effective({}, {}, {"drain": "now"})
