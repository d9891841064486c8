# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.check import best, check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request

REQUEST = Request("11111111-1111-4111-8111-111111111111", "web1", "kvm1", "uuid-of-kvm1", 1024)
HOST = HostState("kvm2", "uuid-of-kvm2", total_mib=4096)


def refused_by(host: HostState, request: Request = REQUEST) -> list[str]:
    return [failure["filter"] for failure in check(request, host).failures]


def test_a_host_with_room_passes_with_its_free_memory_as_weight() -> None:
    verdict = check(REQUEST, HOST)
    assert (verdict.passed, verdict.failures, verdict.weight) == (True, [], 4096 - 512)


def test_an_exact_fit_passes_and_one_mib_more_does_not() -> None:
    full = dataclasses.replace(HOST, usage={"other": 4096 - 512 - 1024})
    assert refused_by(full) == []
    fuller = dataclasses.replace(HOST, usage={"other": 4096 - 512 - 1023})
    assert refused_by(fuller) == ["memory"]
    assert "1 MiB short of memory" in check(REQUEST, fuller).reason


def test_no_ratio_makes_a_domain_fit_that_is_larger_than_the_host() -> None:
    small = dataclasses.replace(HOST, total_mib=1000, ram_allocation_ratio=16.0)
    assert refused_by(small) == ["memory"]
    assert "the whole host has 1000 MiB" in check(REQUEST, small).reason


def test_the_source_is_refused_by_uuid_under_any_name() -> None:
    assert refused_by(dataclasses.replace(HOST, host_uuid="uuid-of-kvm1")) == ["not_source"]


def test_another_host_of_the_source_s_name_is_told_by_its_uuid() -> None:
    assert refused_by(dataclasses.replace(HOST, name="kvm1")) == []


def test_without_a_uuid_the_name_tells_the_source() -> None:
    assert "not_source" in refused_by(HostState("kvm1", unanswered="down"))


@pytest.mark.parametrize(("state", "words"), [("maintenance", "in maintenance"), ("fenced", "fenced"), ("retired", "'retired'")])
def test_a_host_that_is_not_enabled_is_refused_with_its_reason(state: str, words: str) -> None:
    verdict = check(REQUEST, dataclasses.replace(HOST, state=state, state_reason="new disks"))
    assert [failure["filter"] for failure in verdict.failures] == ["enabled"]
    assert words in verdict.reason
    assert "new disks" in verdict.reason


def test_a_host_that_does_not_answer_is_refused_once_and_not_for_its_memory() -> None:
    verdict = check(REQUEST, HostState("kvm3", unanswered="no route to host."))
    assert verdict.failures == [{"filter": "answers", "reason": "It did not answer: no route to host."}]


def test_all_reasons_are_given() -> None:
    assert refused_by(dataclasses.replace(HOST, state="fenced", usage={"other": 4096})) == ["enabled", "memory"]


def test_the_best_has_most_free_memory_and_then_the_first_name() -> None:
    hosts = [dataclasses.replace(HOST, name=name, host_uuid=name, total_mib=mib) for name, mib in (("b", 8192), ("a", 8192), ("c", 4096), ("d", 100))]
    chosen = best([check(REQUEST, host) for host in hosts])
    assert chosen is not None
    assert chosen.host == "a"
    assert best([check(REQUEST, hosts[-1])]) is None
