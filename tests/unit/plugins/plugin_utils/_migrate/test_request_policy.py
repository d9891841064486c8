# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import SignedInt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import parse_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainGroup
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import (
    MoveRequest,
    apply_policy,
    check_source_traits,
    read_requests,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import Scheduling
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

AUTO_CONVERGE, POST_COPY = "COMPUTE_MIGRATE_AUTO_CONVERGE", "COMPUTE_MIGRATE_POST_COPY"
ABLE = HostFacts(traits=(AUTO_CONVERGE, POST_COPY), unverified=(), missing_traits={})
OPEN = HostFacts(traits=(AUTO_CONVERGE,), unverified=(POST_COPY,), missing_traits={})
UNABLE = HostFacts(traits=(AUTO_CONVERGE,), unverified=(), missing_traits={POST_COPY: "The sysctl is 0."})

Facts = dict[str, t.Any]


def settings(hosts: t.Mapping[str, Facts] | None = None, **of_source: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": of_source, "kvm2": {}, "kvm3": {}, **(hosts or {})}, "groups": {"kvmfleet_hosts": ["kvm1", "kvm2", "kvm3"]}})


def request(known: Settings, **options: t.Any) -> MoveRequest:
    args = {option: spec.get("default") for option, spec in live_migrate_spec().items()}
    (made,) = read_requests({**args, "name": "web1", **options}, known, "kvm1")
    return made


def applied(xml: str, known: Settings, **options: t.Any) -> tuple[MoveRequest, list[str]]:
    made = request(known, **options)
    return made, apply_policy(made, SurveyedDomain(True, {}, policy=parse_policy(xml)), known, "kvm1")


def resolved(xml: str, known: Settings, **options: t.Any) -> tuple[GivenPolicy, list[str]]:
    made, warnings = applied(xml, known, **options)
    return made.policy, warnings


def scheduling(xml: str, known: Settings) -> Scheduling:
    return applied(xml, known)[0].scheduling


def test_policy_values_come_from_task_then_domain_then_profile_then_host() -> None:
    known = settings(
        kvmfleet_profiles={"gold": {"timeout_seconds": 3, "downtime_ms": 300, "on_timeout": "force_complete"}},
        kvmfleet_migration_policy={"timeout_seconds": 4, "downtime_ms": 400, "on_timeout": "abort", "stall_seconds": 40},
    )
    policy, warnings = resolved(
        "<policy><profile>gold</profile><timeout_seconds>2</timeout_seconds><downtime_ms>200</downtime_ms></policy>", known, downtime_ms=100
    )
    sources = {option: (policy.value_of(option), policy.source_of(option)) for option in policy.sources}
    assert sources["downtime_ms"] == (100, "task")
    assert sources["timeout_seconds"] == (2, "domain")
    assert sources["on_timeout"] == ("force_complete", "profile")
    assert sources["stall_seconds"] == (40, "host")
    assert sources["downtime_steps"] == (10, "default")
    assert warnings == []


def test_a_vetoed_option_is_a_warning_that_names_the_source_of_the_veto() -> None:
    policy, warnings = resolved("<policy><post_copy>false</post_copy></policy>", settings(), post_copy=True)
    assert (policy.post_copy, policy.source_of("post_copy")) == (False, "domain")
    assert "its own policy" in warnings[0]
    dummy, warnings = resolved("<policy><profile>gold</profile></policy>", settings(kvmfleet_profiles={"gold": {"post_copy": False}}), post_copy=True)
    assert "its profile" in warnings[0]


def test_an_option_that_is_false_in_the_task_gives_no_veto_warning() -> None:
    assert resolved("<policy><post_copy>false</post_copy></policy>", settings(), post_copy=False)[1] == []


@pytest.mark.parametrize("xml", ["<policy><timeout_seconds>soon</timeout_seconds></policy>", "<policy><profile>gone</profile></policy>"])
def test_an_invalid_policy_is_refused_with_domain_and_host(xml: str) -> None:
    with pytest.raises(InvalidArgument, match="domain web1 on kvm1"):
        resolved(xml, settings())


def test_a_task_with_auto_converge_and_post_copy_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        request(settings(), auto_converge=True, post_copy=True)


def test_a_move_and_its_task_with_one_feature_each_are_a_conflict() -> None:
    args = {**{option: spec.get("default") for option, spec in live_migrate_spec().items()}, "post_copy": True}
    with pytest.raises(Conflict, match="both on in the task"):
        read_requests({**args, "moves": [{"name": "web1", "auto_converge": True}]}, settings(), "kvm1")  # type: ignore[typeddict-item]
    one_feature = {"name": "web1", "auto_converge": True, "post_copy": False}
    (made,) = read_requests({**args, "moves": [one_feature]}, settings(), "kvm1")  # type: ignore[typeddict-item]
    assert made.policy.features == ["auto_converge"]


@pytest.mark.parametrize(
    ("xml", "options", "expected", "sources"),
    [
        ("", {"post_copy": True}, ["post_copy"], ("task", "task")),
        ("<policy><post_copy>true</post_copy></policy>", {}, ["post_copy"], ("domain", "domain")),
        ("<policy><profile>gold</profile></policy>", {}, ["post_copy"], ("profile", "profile")),
        ("<policy><post_copy>true</post_copy></policy>", {"auto_converge": True}, ["auto_converge"], ("task", "task")),
        ("<policy><auto_converge>false</auto_converge></policy>", {"post_copy": True}, ["post_copy"], ("domain", "task")),
        ("", {}, ["auto_converge"], ("host", "default")),
    ],
)
def test_a_default_of_the_host_gives_way(xml: str, options: Facts, expected: list[str], sources: tuple[str, str]) -> None:
    known = settings(kvmfleet_migration_policy={"auto_converge": True}, kvmfleet_profiles={"gold": {"post_copy": True}})
    policy, warnings = resolved(xml, known, **options)
    assert (policy.features, warnings) == (expected, [])
    assert (policy.source_of("auto_converge"), policy.source_of("post_copy")) == sources


@pytest.mark.parametrize(
    ("xml", "where"),
    [
        ("<policy><post_copy>true</post_copy><auto_converge>true</auto_converge></policy>", "the domain's own policy"),
        ("<policy><profile>both</profile></policy>", "the profile of the domain"),
    ],
)
def test_a_domain_with_both_features_is_not_moved_unless_the_task_decides(xml: str, where: str) -> None:
    known = settings(kvmfleet_profiles={"both": {"post_copy": True, "auto_converge": True}})
    with pytest.raises(Conflict, match=where):
        resolved(xml, known)
    assert resolved(xml, known, post_copy=True)[0].features == ["post_copy"]


def test_a_preference_of_the_host_requires_no_trait_of_the_source() -> None:
    both = settings(kvmfleet_migration_policy={"post_copy": True, "auto_converge": True})
    made, dummy = applied("", both)
    assert check_source_traits(made, UNABLE, "kvm1") == []
    made, dummy = applied("", both, post_copy=True)
    with pytest.raises(NotSupported):
        check_source_traits(made, UNABLE, "kvm1")


def with_post_copy() -> MoveRequest:
    return request(settings(), post_copy=True)


def test_a_source_without_the_trait_is_not_supported() -> None:
    with pytest.raises(NotSupported, match=r"kvm1 .* web1 .*post_copy.*The sysctl is 0"):
        check_source_traits(with_post_copy(), UNABLE, "kvm1")
    assert check_source_traits(with_post_copy(), ABLE, "kvm1") == []


def test_a_source_with_an_unverified_trait_is_a_warning() -> None:
    (warning,) = check_source_traits(with_post_copy(), OPEN, "kvm1")
    assert "post_copy for domain web1 is unverified on kvm1" in warning


def test_a_move_without_features_requires_no_trait() -> None:
    assert check_source_traits(request(settings()), UNABLE, "kvm1") == []


def test_scheduling_fields_come_from_domain_then_profile_then_host() -> None:
    known = settings(
        kvmfleet_profiles={"gold": {"labels": ["ssd"], "group": {"name": "web", "policy": "affinity"}, "priority": 5}},
        kvmfleet_migration_policy={"priority": 1, "drain": "shutdown"},
    )
    own = "<policy><profile>gold</profile><priority>7</priority></policy>"
    assert scheduling(own, known) == Scheduling(SignedInt(7), "shutdown", DomainGroup("web", "affinity"), ("ssd",))
    assert scheduling("", settings()) == Scheduling(SignedInt(0), "migrate", None, ())
