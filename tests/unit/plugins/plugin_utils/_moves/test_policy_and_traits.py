# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import parse
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.policy import place_of, policy_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest, requests_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.traits import check_source
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

AUTO_CONVERGE, POST_COPY = "COMPUTE_MIGRATE_AUTO_CONVERGE", "COMPUTE_MIGRATE_POST_COPY"
ABLE = {"traits": [AUTO_CONVERGE, POST_COPY], "unverified": [], "missing_traits": {}}
OPEN = {"traits": [AUTO_CONVERGE], "unverified": [POST_COPY], "missing_traits": {}}
UNABLE = {"traits": [AUTO_CONVERGE], "unverified": [], "missing_traits": {POST_COPY: "The sysctl is 0."}}

Facts = dict[str, t.Any]


def settings(hosts: t.Mapping[str, Facts] | None = None, **of_source: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": of_source, "kvm2": {}, "kvm3": {}, **(hosts or {})}, "groups": {"kvmfleet_hosts": ["kvm1", "kvm2", "kvm3"]}})


def request(known: Settings, **options: t.Any) -> MoveRequest:
    args = {option: spec.get("default") for option, spec in live_migrate_spec().items()}
    (made,) = requests_of({**args, "name": "web1", **options}, known, "kvm1")
    return made


def domain(xml: str = "") -> Facts:
    return {"found": True, "policy": dataclasses.asdict(parse(xml))}


def resolved(xml: str, known: Settings, **options: t.Any) -> tuple[Facts, list[str]]:
    return policy_of(request(known, **options), domain(xml), known, "kvm1")


def test_task_then_domain_then_profile_then_host() -> None:
    known = settings(
        kvmfleet_profiles={"gold": {"timeout_seconds": 3, "downtime_ms": 300, "on_timeout": "force_complete"}},
        kvmfleet_migration_policy={"timeout_seconds": 4, "downtime_ms": 400, "on_timeout": "abort", "stall_seconds": 40},
    )
    policy, warnings = resolved(
        "<policy><profile>gold</profile><timeout_seconds>2</timeout_seconds><downtime_ms>200</downtime_ms></policy>", known, downtime_ms=100
    )
    sources = {field: (entry["value"], entry["source"]) for field, entry in policy.items()}
    assert sources["downtime_ms"] == (100, "task")
    assert sources["timeout_seconds"] == (2, "domain")
    assert sources["on_timeout"] == ("force_complete", "profile")
    assert sources["stall_seconds"] == (40, "host")
    assert sources["downtime_steps"] == (10, "default")
    assert warnings == []


def test_a_vetoed_option_is_a_warning_that_names_who_forbids_it() -> None:
    policy, warnings = resolved("<policy><post_copy>false</post_copy></policy>", settings(), post_copy=True)
    assert policy["post_copy"] == {"value": False, "source": "domain"}
    assert "its own policy" in warnings[0]
    dummy, warnings = resolved("<policy><profile>gold</profile></policy>", settings(kvmfleet_profiles={"gold": {"post_copy": False}}), post_copy=True)
    assert "the profile" in warnings[0]


def test_an_option_that_is_false_of_itself_is_no_veto() -> None:
    assert resolved("<policy><post_copy>false</post_copy></policy>", settings(), post_copy=False)[1] == []


@pytest.mark.parametrize("xml", ["<policy><timeout_seconds>soon</timeout_seconds></policy>", "<policy><profile>gone</profile></policy>"])
def test_what_is_wrong_names_domain_and_host(xml: str) -> None:
    with pytest.raises(InvalidArgument, match="domain web1 on kvm1"):
        resolved(xml, settings())


def test_a_task_that_wants_both_itself_is_refused_before_any_host_is_asked() -> None:
    with pytest.raises(Conflict):
        request(settings(), auto_converge=True, post_copy=True)


def test_a_domain_s_veto_parts_what_task_and_host_would_have_on() -> None:
    known = settings(kvmfleet_migration_policy={"auto_converge": True})
    with pytest.raises(Conflict):
        resolved("", known, post_copy=True)
    policy, dummy = resolved("<policy><auto_converge>false</auto_converge></policy>", known, post_copy=True)
    assert policy["post_copy"]["value"] is True


def with_post_copy() -> MoveRequest:
    return request(settings(), post_copy=True)


def test_a_source_that_cannot_is_not_supported_with_its_reason() -> None:
    with pytest.raises(NotSupported, match=r"kvm1 .* web1 .*post_copy.*The sysctl is 0"):
        check_source(with_post_copy(), UNABLE, "kvm1")
    assert check_source(with_post_copy(), ABLE, "kvm1") == []


def test_a_source_that_could_not_tell_is_a_warning() -> None:
    (warning,) = check_source(with_post_copy(), OPEN, "kvm1")
    assert "post_copy for domain web1 is unverified on kvm1" in warning


def test_without_a_feature_nothing_is_asked() -> None:
    assert check_source(request(settings()), UNABLE, "kvm1") == []


def test_the_place_is_the_domain_s_own_then_its_profile_s_then_the_host_s() -> None:
    known = settings(
        kvmfleet_profiles={"gold": {"labels": ["ssd"], "group": {"name": "web", "policy": "affinity"}, "priority": 5}},
        kvmfleet_migration_policy={"priority": 1, "drain": "shutdown"},
    )
    own = "<policy><profile>gold</profile><priority>7</priority></policy>"
    assert place_of(domain(own), known, "kvm1") == {
        "priority": 7,
        "drain": "shutdown",
        "group": {"name": "web", "policy": "affinity"},
        "labels": ["ssd"],
    }
    assert place_of(domain(), settings(), "kvm1") == {"priority": 0, "drain": "migrate", "group": None, "labels": []}
