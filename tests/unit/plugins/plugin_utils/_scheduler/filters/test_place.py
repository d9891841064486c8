# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import HostState, host, judged, request, silent, uuid_of


def test_the_source_is_refused_by_uuid_under_any_name() -> None:
    there = host("another-name", host_uuid=uuid_of("kvm1"))
    assert judged("not_source", request(), there).reason == "web1 runs there already."


def test_another_host_of_the_source_s_name_is_told_by_its_uuid() -> None:
    assert judged("not_source", request(), host("kvm1", host_uuid=uuid_of("new"))).reason is None


def test_the_host_id_tells_the_source_whatever_its_uuid_is_by_now() -> None:
    leaving = replace(request(), source_id="id-1")
    assert judged("not_source", leaving, host("kvm1", host_id="id-1", host_uuid=uuid_of("new"))).reason
    assert judged("not_source", leaving, host("kvm2", host_id="id-2", host_uuid=uuid_of("kvm1"))).reason is None


def test_without_a_uuid_the_name_tells_the_source() -> None:
    assert judged("not_source", request(), silent("kvm1")).reason
    assert judged("not_source", request(), silent("kvm2")).reason is None


@pytest.mark.parametrize(("state", "words"), [("maintenance", "It is in maintenance (new disks)."), ("fenced", "It is fenced"), ("retired", "'retired'")])
def test_a_host_that_is_not_enabled_is_refused_with_its_reason(state: str, words: str) -> None:
    finding = judged("enabled", request(), host(entry={"state": state, "reason": "new disks"}))
    assert finding.reason
    assert words in finding.reason


@pytest.mark.parametrize("entry", [None, {}, {"state": "enabled"}, {"state": None}])
def test_a_host_without_a_word_against_it_is_enabled(entry: dict[str, str] | None) -> None:
    assert judged("enabled", request(), host(entry=entry)).reason is None


def test_a_host_that_did_not_answer_gives_its_own_reason() -> None:
    assert judged("up", request(), silent()).reason == "It did not answer: no route to host."
    assert judged("up", request(), HostState.of("kvm9", None)).reason == "It did not answer: nothing is known of it."
    assert judged("up", request(), host()).reason is None
