# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.filter.fleet_scan import FilterModule

fleet_scan = FilterModule().filters()["fleet_scan"]


def test_fleet_scan_returns_findings_and_unknown_hosts() -> None:
    assert fleet_scan({"kvm1": {"host_uuid": "u", "domains": []}, "kvm2": {}}) == {"findings": [], "unknown": ["kvm2"]}


@pytest.mark.parametrize("facts", [None, [], "kvm1", {"kvm1": "text"}, {"kvm1": {"domains": []}}, {"kvm1": {"host_uuid": "u", "domains": [{}]}}])
def test_bad_input_is_refused_with_a_message(facts: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="fleet_scan: "):
        fleet_scan(facts)
