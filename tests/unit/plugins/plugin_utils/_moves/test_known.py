# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was seen from afar and what a host said of itself, put together; and many reasons in one text."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.known import filled, with_known_disks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.reasons import compact

Facts = dict[str, t.Any]

SEEN: Facts = {
    "answered": True,
    "host_uuid": "u2",
    "mounts": None,
    "memory": {"total_bytes": 64},
    "traits": ["A"],
    "missing_traits": {},
    "unverified": ["P", "mounts", "bridges"],
    "bridges": None,
}


def test_what_only_the_host_knows_comes_from_its_own_facts_and_the_rest_from_now() -> None:
    own = {"host_uuid": "u2", "mounts": [{"path": "/"}], "memory": {"total_bytes": 1}, "traits": ["A", "P"], "missing_traits": {}, "unverified": []}
    facts = filled(SEEN, own)
    assert facts["mounts"] == [{"path": "/"}]
    assert facts["memory"] == {"total_bytes": 64}
    assert facts["traits"] == ["A", "P"]
    assert facts["unverified"] == ["bridges"], "what nobody told stays open"


def test_a_trait_that_the_host_says_it_lacks_is_no_longer_open() -> None:
    facts = filled(SEEN, {"host_uuid": "u2", "traits": ["A"], "missing_traits": {"P": "The sysctl is 0."}, "unverified": []})
    assert facts["missing_traits"] == {"P": "The sysctl is 0."}
    assert "P" not in facts["unverified"]


def test_facts_of_another_host_or_of_one_that_is_silent_now_do_not_count() -> None:
    assert filled(SEEN, {"host_uuid": "other", "mounts": []}) == SEEN
    assert filled(SEEN, None) == SEEN
    silent = {"answered": False, "msg": "no route"}
    assert filled(silent, {"host_uuid": "u2", "mounts": []}) == silent


def test_a_disk_s_store_comes_from_the_facts_of_the_host_that_the_domain_is_on() -> None:
    seen = {"disks": [{"target": "vda", "source": "/a", "shared": None, "store": None, "bytes": 7}, {"target": "vdb", "source": "/b", "shared": None}]}
    own = {"domains": [{"uuid": "d", "request": {"disks": [{"target": "vda", "source": "/a", "shared": True, "store": "nfs4:nas:/x", "bytes": 9}]}}]}
    first, second = with_known_disks(seen, own, "d")["disks"]
    assert first == {"target": "vda", "source": "/a", "shared": True, "store": "nfs4:nas:/x", "bytes": 7}
    assert second["shared"] is None
    assert with_known_disks(seen, own, "another")["disks"] == seen["disks"]
    assert with_known_disks({"memory_mib": 1}, None, "d") == {"memory_mib": 1}


def test_hosts_with_one_reason_share_it() -> None:
    assert compact({"kvm3": "It is full.", "kvm2": "It is full.", "kvm4": "It is off."}) == "kvm2, kvm3: It is full. kvm4: It is off."
