# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import Finding
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judge_with, record, request


def test_a_host_must_have_all_requested_labels() -> None:
    there = host(settings={"labels": ["ssd", "rack1"]})
    assert judge_with("labels", request(labels=["ssd"]), there).reason is None
    assert judge_with("labels", request(), there).reason is None
    assert judge_with("labels", request(labels=["ssd", "gpu"]), there).reason == "It lacks the label gpu (kvmfleet_scheduler.labels)."


@pytest.mark.parametrize(("limit", "passes"), [(None, True), (3, True), (2, False), (0, False)])
def test_the_limit_of_domains_may_be_reached_and_not_exceeded(limit: int | None, passes: bool) -> None:
    coming = record("db2", "kvm3", "kvm2")
    there = host("kvm2", domain("db1"), domain("off", state="shut off", active=False), records=[coming], settings={"limits": {"domains": limit}})
    assert (judge_with("max_domains", request(), there).reason is None) == passes


def test_a_reserved_domain_counts_once_for_max_domains() -> None:
    there = host(records=[record("web1", "kvm1", "kvm2")], settings={"limits": {"domains": 1}})
    assert judge_with("max_domains", request(), there).reason is None


@pytest.mark.parametrize(("limit", "waits"), [(None, False), (3, False), (2, True)])
def test_a_move_into_a_host_at_its_limit_would_wait(limit: int | None, waits: bool) -> None:
    started = [record("a", "kvm3", "kvm2", "running"), record("b", "kvm3", "kvm2", "preparing"), record("c", "kvm3", "kvm2", "queued")]
    there = host(records=started, settings={"limits": {"moves_in": limit}})
    told = ("As many domains are moving to kvm2 as are permitted, 2: it would wait for its turn (kvmfleet_scheduler.limits.moves_in).",)
    assert judge_with("max_moves", request(), there) == Finding(warnings=told if waits else ())


@pytest.mark.parametrize(("limit", "waits"), [(None, False), (3, False), (2, True)])
def test_a_move_out_of_a_source_at_its_limit_would_wait(limit: int | None, waits: bool) -> None:
    started = [record("a", "kvm1", "kvm3", "running (post-copy)"), record("b", "kvm1", "kvm3", "running"), record("c", "kvm1", "kvm2", "scheduled")]
    source = host("kvm1", records=started, settings={"limits": {"moves_out": limit}})
    told = ("As many domains are moving away from kvm1 as are permitted, 2: it would wait for its turn (kvmfleet_scheduler.limits.moves_out).",)
    assert judge_with("max_moves", request(), host(records=started), source) == Finding(warnings=told if waits else ())


def test_a_limit_of_zero_moves_refuses_the_host() -> None:
    closed, open_host = {"limits": {"moves_in": 0, "moves_out": 0}}, {"limits": {"moves_in": 1}}
    finding = judge_with("max_moves", request(), host("kvm2", settings=closed), host("kvm1", settings=closed))
    assert finding.reason == (
        "No move to kvm2 is permitted: kvmfleet_scheduler.limits.moves_in is 0. No move away from kvm1 is permitted: kvmfleet_scheduler.limits.moves_out is 0."
    )
    assert judge_with("max_moves", request(), host("kvm2", settings=open_host), host("kvm1", settings={"limits": {"moves_in": 0}})) == Finding()


def test_a_foreign_job_counts_for_the_limit_of_moves() -> None:
    there = host("kvm2", domain("a", job="incoming migration"), settings={"limits": {"moves_in": 1}})
    assert judge_with("max_moves", request(), there).warnings


def test_the_move_of_the_domain_itself_does_not_count() -> None:
    own = record("web1", "kvm1", "kvm2", "running")
    there = host(records=[own], settings={"limits": {"moves_in": 1}})
    assert judge_with("max_moves", request(), there) == Finding()
