# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a saved domain needs by its own policy, its profile and the default of its host."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.saved_policy import effective_request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

Body = dict[str, t.Any]
POST_COPY = "COMPUTE_MIGRATE_POST_COPY"
SAVED = {"memory_mib": 1024, "vcpus": 1, "traits": ["SAVED"], "priority": 0, "labels": [], "group": None, "drain": "migrate"}
DB, WEB = {"name": "db", "policy": "anti-affinity"}, {"name": "web", "policy": "affinity"}


def settings(profiles: t.Any, default: t.Any = None) -> Settings:
    return Settings({"hostvars": {"kvm2": {"kvmfleet_profiles": profiles}, "kvm1": {"kvmfleet_migration_policy": default or {}}}, "groups": {}})


def read(policy: Body, known: Settings, request: Body = SAVED) -> Body:
    return dict(effective_request(DomainProtection(policy=policy, request=request), known, "kvm2", "kvm1") or {})


@pytest.mark.parametrize(
    ("policy", "profiles", "expected"),
    [
        ({}, None, []),
        ({"post_copy": True}, None, [POST_COPY]),
        ({"post_copy": False}, None, []),
        ({"profile": "quick"}, {"quick": {"post_copy": True}}, [POST_COPY]),
        ({"profile": "quick", "post_copy": False}, {"quick": {"post_copy": True}}, []),
        ({"profile": "gone"}, {}, ["SAVED"]),
        ({"profile": "quick"}, ["no dictionary"], ["SAVED"]),
    ],
)
def test_required_traits_are_those_of_the_policy_and_its_profile(policy: Body, profiles: t.Any, expected: list[str]) -> None:
    assert read(policy, settings(profiles))["traits"] == expected


def test_traits_that_the_dead_host_preferred_are_not_required() -> None:
    assert read({}, settings({}, {"post_copy": True}))["traits"] == []


@pytest.mark.parametrize(
    ("policy", "profile", "default", "expected"),
    [
        ({}, {}, {}, {}),
        ({"profile": "db"}, {"group": DB, "labels": ["ssd"], "priority": 9}, {}, {"group": DB, "labels": ["ssd"], "priority": 9}),
        ({"profile": "db", "group": WEB, "priority": 0}, {"group": DB, "priority": 9}, {}, {"group": WEB}),
        ({"profile": "db", "labels": []}, {"labels": ["ssd"]}, {}, {}),
        ({}, {}, {"priority": 7}, {"priority": 7}),
        ({"profile": "db"}, {"priority": 9}, {"priority": 7}, {"priority": 9}),
        ({"profile": "db"}, {"priority": 9}, {"unknown": 7}, {"priority": 9}),
        ({"profile": "db"}, {"priority": "high"}, {}, {"traits": ["SAVED"]}),
        ({"profile": "gone", "group": WEB}, {"group": DB}, {}, {"traits": ["SAVED"]}),
    ],
)
def test_group_labels_and_priority_are_those_of_the_policy_its_profile_and_the_host(policy: Body, profile: Body, default: Body, expected: Body) -> None:
    assert read(policy, settings({"db": profile}, default)) == {**SAVED, "traits": [], **expected}


def test_what_no_policy_has_is_as_it_was_saved() -> None:
    assert read({}, settings({}), {**SAVED, "group": WEB})["group"] == WEB


def test_a_domain_without_a_saved_request_has_none() -> None:
    assert effective_request(DomainProtection(policy={"profile": "db"}), settings({}), "kvm2", "kvm1") is None


def test_profiles_that_cannot_be_templated_do_not_stop_an_evacuation(monkeypatch: pytest.MonkeyPatch) -> None:
    known = settings({})

    def fail(host: str, name: t.Any) -> t.Any:
        raise AnsibleError("'gold' is undefined")

    monkeypatch.setattr(known, "profile", fail)
    assert read({"profile": "gold"}, known) == SAVED
