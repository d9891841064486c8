# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.displaced import DisplacedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.plan import sort_moves_back
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.task_results import MoveBack
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import domain, facts, uid


def displaced(name: str) -> DisplacedDomain:
    return DisplacedDomain(uid(name), name, possible_hosts=("kvm2",))


def test_displaced_domains_are_found_on_the_hosts_where_they_run() -> None:
    web, db, off = (domain(name, active) for name, active in (("web1", True), ("db1", True), ("off1", False)))
    known = {"kvm1": facts("kvm1", db), "kvm2": facts("kvm2", off), "kvm3": facts("kvm3", web), "kvm4": {}}
    result = sort_moves_back("kvm1", [displaced(name) for name in ("web1", "db1", "off1", "lost1")], known)
    assert result.moves == (MoveBack(uid("web1"), "web1", "kvm3"),)
    assert [entry.name for entry in result.skipped] == ["off1", "lost1"]
    assert "left on kvm2" in result.skipped[0].reason


def test_the_definition_of_a_displaced_domain_that_is_off_moves_back() -> None:
    result = sort_moves_back("kvm1", [displaced("off1")], {"kvm1": facts("kvm1"), "kvm2": facts("kvm2", domain("off1")), "kvm3": facts("kvm3")})
    assert (result.moves, result.skipped) == ((MoveBack(uid("off1"), "off1", "kvm2", "offline"),), ())


@pytest.mark.parametrize(
    ("here", "more"),
    [((domain("off1"),), {}), ((), {"kvm3": facts("kvm3", domain("off1"))}), ((), {"kvm3": None})],
)
def test_a_displaced_domain_that_is_off_moves_back_only_if_its_definition_is_certainly_the_only_one(here: t.Any, more: dict[str, t.Any]) -> None:
    result = sort_moves_back("kvm1", [displaced("off1")], {"kvm1": facts("kvm1", *here), "kvm2": facts("kvm2", domain("off1")), **more})
    assert result.moves == ()
    assert "kvm2" in result.skipped[0].reason


def test_a_displaced_domain_that_runs_twice_is_not_moved() -> None:
    twice = domain("web1", active=True)
    result = sort_moves_back("kvm1", [displaced("web1")], {"kvm1": facts("kvm1"), "kvm2": facts("kvm2", twice), "kvm3": facts("kvm3", twice)})
    assert (result.moves, result.skipped[0].reason) == ((), "It is active on kvm2 and kvm3.")
