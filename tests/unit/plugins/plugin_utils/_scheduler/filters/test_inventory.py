# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judged, record, request


def test_a_host_carries_all_labels_that_are_asked_for() -> None:
    there = host(settings={"labels": ["ssd", "rack1"]})
    assert judged("labels", request(labels=["ssd"]), there).reason is None
    assert judged("labels", request(), there).reason is None
    assert judged("labels", request(labels=["ssd", "gpu"]), there).reason == "It lacks the label gpu (kvmfleet_scheduler.labels)."


@pytest.mark.parametrize(("limit", "passes"), [(None, True), (3, True), (2, False), (0, False)])
def test_the_limit_of_domains_may_be_reached_and_not_exceeded(limit: int | None, passes: bool) -> None:
    coming = record("db2", "kvm3", "kvm2")
    there = host("kvm2", domain("db1"), domain("off", state="shut off", active=False), records=[coming], settings={"limits": {"domains": limit}})
    assert (judged("max_domains", request(), there).reason is None) == passes


def test_a_domain_that_is_booked_there_counts_once() -> None:
    there = host(records=[record("web1", "kvm1", "kvm2")], settings={"limits": {"domains": 1}})
    assert judged("max_domains", request(), there).reason is None


@pytest.mark.parametrize(("limit", "passes"), [(None, True), (3, True), (2, False), (0, False)])
def test_moves_into_a_host_have_a_limit(limit: int | None, passes: bool) -> None:
    started = [record("a", "kvm3", "kvm2", "running"), record("b", "kvm3", "kvm2", "preparing"), record("c", "kvm3", "kvm2", "queued")]
    there = host(records=started, settings={"limits": {"moves_in": limit}})
    assert (judged("max_moves", request(), there).reason is None) == passes


@pytest.mark.parametrize(("limit", "passes"), [(None, True), (3, True), (2, False)])
def test_moves_out_of_the_source_have_a_limit(limit: int | None, passes: bool) -> None:
    started = [record("a", "kvm1", "kvm3", "running (post-copy)"), record("b", "kvm1", "kvm3", "running"), record("c", "kvm1", "kvm2", "scheduled")]
    source = host("kvm1", records=started, settings={"limits": {"moves_out": limit}})
    finding = judged("max_moves", request(), host(records=started), source)
    assert (finding.reason is None) == passes
    assert passes or "2 domains are moving away from kvm1, whose limit is 2" in str(finding.reason)


def test_a_move_that_has_no_record_counts_too() -> None:
    there = host("kvm2", domain("a", job="incoming migration"), settings={"limits": {"moves_in": 1}})
    assert judged("max_moves", request(), there).reason == "1 domain is moving to it, and its limit is 1 (kvmfleet_scheduler.limits.moves_in)."


def test_its_own_move_is_no_other() -> None:
    own = record("web1", "kvm1", "kvm2", "running")
    there = host(records=[own], settings={"limits": {"moves_in": 1}})
    assert judged("max_moves", request(), there).reason is None
