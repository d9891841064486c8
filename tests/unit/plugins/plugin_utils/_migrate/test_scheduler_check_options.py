# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of C(scheduler_check): bad ones end before any host was asked."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.scheduler_check import CheckRequest, read_check
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import settings_of

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
REQUEST = {"memory_mib": 512, "vcpus": 1}


def question(**given: t.Any) -> CheckRequest:
    args = {option: spec.get("default") for option, spec in scheduler_check_spec().items()}
    return read_check({**args, **given}, settings_of(), "kvm1")


def test_candidates_are_the_other_hosts_of_the_fleet() -> None:
    asked = question(name="web1")
    assert asked.move.uris == {"kvm2": "qemu+tcp://kvm2/system", "kvm3": "qemu+tcp://kvm3/system"}
    assert asked.survey_question().name == "web1"


def test_a_request_without_a_domain_includes_this_host_by_its_local_uri() -> None:
    asked = question(request=REQUEST)
    assert asked.move.uris["kvm1"] == "qemu:///system"
    assert sorted(asked.move.uris) == ["kvm1", "kvm2", "kvm3"]


def test_a_saved_request_keeps_uuid_and_name_of_its_domain() -> None:
    asked = question(request={**REQUEST, "uuid": UUID.upper(), "name": "web1"}, destination="kvm2")
    assert (asked.move.uuid, asked.move.label, list(asked.move.uris)) == (UUID, "web1", ["kvm2"])
    assert encode(asked.survey_question())["request"]["uuid"] == UUID


def test_a_destination_uri_gives_the_name_of_the_candidate() -> None:
    assert question(name="web1", destination_uri="qemu+ssh://10.0.0.9/system").move.uris == {"10.0.0.9": "qemu+ssh://10.0.0.9/system"}
    assert list(question(name="web1", destination="kvm9", destination_uri="qemu+ssh://10.0.0.9/system").move.uris) == ["kvm9"]


def test_the_source_of_a_remote_uri_is_named_by_the_inventory() -> None:
    asked = question(name="web1", uri="qemu+ssh://kvm3/system")
    assert (asked.source, sorted(asked.move.uris)) == ("kvm3", ["kvm1", "kvm2"])
    strange = question(name="web1", uri="qemu+ssh://10.0.0.9/system")
    assert (strange.source, sorted(strange.move.uris)) == ("10.0.0.9", ["kvm1", "kvm2", "kvm3"])
    assert question(name="web1").source == "kvm1"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": "web1", "uuid": UUID},
        {"name": "web1", "request": REQUEST},
        {"name": "a/b"},
        {"name": ""},
        {"uuid": "seven"},
        {"name": "web1", "candidates": ["kvm2"], "destination": "kvm3"},
        {"name": "web1", "candidates": ["kvm2"], "destination_uri": "qemu+ssh://kvm2/system"},
        {"name": "web1", "candidates": []},
        {"name": "web1", "candidates": [""]},
        {"name": "web1", "destination_uri": "kvm2"},
        {"name": "web1", "destination_uri": "qemu:///system"},
        {"name": "web1", "uri": "nonsense"},
        {"request": {}},
        {"request": {"memory_mib": "much", "vcpus": 1}},
        {"request": {"memory_mib": -1, "vcpus": 1}},
        {"request": {**REQUEST, "uuid": "seven"}},
        {"request": {**REQUEST, "uuid": 7}},
        {"request": {**REQUEST, "name": ["web1"]}},
        {"request": {**REQUEST, "group": {"name": "web", "policy": "together"}}},
        {"request": {**REQUEST, "disks": "vda"}},
    ],
)
def test_invalid_options_of_a_check_are_refused(given: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument):
        question(**given)


@pytest.mark.parametrize(("option", "value"), [("candidates", ["kvm2", ""]), ("destination", "")])
def test_an_empty_name_of_a_candidate_is_refused_with_its_option(option: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{option} .*empty"):
        question(name="web1", **{option: value})
