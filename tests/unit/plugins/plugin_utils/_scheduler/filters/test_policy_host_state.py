# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import (
    HostState,
    host,
    judge_with,
    request,
    silent_host,
    uuid_of,
)


def test_the_source_is_refused_by_uuid_under_any_name() -> None:
    there = host("another-name", host_uuid=uuid_of("kvm1"))
    assert judge_with("not_source", request(), there).reason == "web1 runs there already."


def test_another_host_with_the_name_of_the_source_passes_by_its_uuid() -> None:
    assert judge_with("not_source", request(), host("kvm1", host_uuid=uuid_of("new"))).reason is None


def test_the_source_is_recognised_by_its_host_id_whatever_its_uuid() -> None:
    leaving = replace(request(), source_id="id-1")
    assert judge_with("not_source", leaving, host("kvm1", host_id="id-1", host_uuid=uuid_of("new"))).reason
    assert judge_with("not_source", leaving, host("kvm2", host_id="id-2", host_uuid=uuid_of("kvm1"))).reason is None


def test_the_source_is_recognised_by_name_without_a_uuid() -> None:
    assert judge_with("not_source", request(), silent_host("kvm1")).reason
    assert judge_with("not_source", request(), silent_host("kvm2")).reason is None


@pytest.mark.parametrize(("state", "words"), [("maintenance", "It is in maintenance (new disks)."), ("fenced", "It is fenced"), ("retired", "'retired'")])
def test_a_host_that_is_not_enabled_is_refused_with_its_reason(state: str, words: str) -> None:
    finding = judge_with("enabled", request(), replace(host(), state=state, state_reason="new disks"))
    assert finding.reason
    assert words in finding.reason


@pytest.mark.parametrize("entry", [None, {}, {"state": "enabled"}])
def test_a_host_without_a_state_is_enabled(entry: dict[str, str] | None) -> None:
    assert judge_with("enabled", request(), host(entry=entry)).reason is None


def test_a_host_that_did_not_answer_is_refused_with_the_reason() -> None:
    assert judge_with("up", request(), silent_host()).reason == "It did not answer: no route to host."
    assert judge_with("up", request(), HostState.from_facts("kvm9", None)).reason == "It did not answer: there are no facts for it."
    assert judge_with("up", request(), host()).reason is None
