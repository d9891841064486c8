# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that a host has switched off: they do not judge that host, in no way of choosing one, and the verdict names them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.admission import limits_between
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import filters_for_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import plan_placements
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.repair import passes_filters
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import (
    DEFAULT_FILTERS,
    Verdict,
    check_host,
    describe_filters_off,
    hosts_by_weight,
    rank_hosts,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import FILTERS

from .builders import domain, fleet, host, request, silent_host

GROUP = {"name": "db", "policy": "anti-affinity"}
# What a host that each optional filter refuses lacks: what the domain needs, and how the host is.
REFUSED: dict[str, tuple[dict[str, t.Any], dict[str, t.Any]]] = {
    "cpus": ({"vcpus": 64}, {}),
    "traits": ({"traits": ["COMPUTE_MIGRATE_POST_COPY"]}, {"traits": [], "missing_traits": {"COMPUTE_MIGRATE_POST_COPY": "The sysctl is 0."}}),
    "networks": ({"networks": [{"type": "bridge", "source": "br9"}]}, {}),
    "labels": ({"labels": ["ssd"]}, {}),
    "max_domains": ({}, {"settings": {"limits": {"domains": 0}}}),
    "max_moves": ({}, {"settings": {"limits": {"moves_in": 0}}}),
    "anti_affinity": ({"group": GROUP}, {"domains": [domain("db2", group=GROUP)]}),
}


def refused_host(name: str, **filters: bool) -> t.Any:
    facts = dict(REFUSED[name][1])
    settings = {**facts.pop("settings", {}), "filters": filters}
    return host("kvm2", *facts.pop("domains", ()), settings=settings, **facts)


@pytest.mark.parametrize("name", REFUSED)
def test_a_filter_that_is_off_refuses_nothing_in_any_way_of_choosing(name: str) -> None:
    asked, before, after = request(**REFUSED[name][0]), refused_host(name), refused_host(name, **{name: False})
    assert [failure["filter"] for failure in check_host(asked, before, fleet(before)).failures] == [name]
    assert (passes_filters(asked, fleet(before), "kvm2", DEFAULT_FILTERS), list(hosts_by_weight(asked, fleet(before), ["kvm2"], DEFAULT_FILTERS))) == (
        False,
        [],
    )
    verdict = check_host(asked, after, fleet(after))
    assert (verdict.passed, list(verdict.failures), verdict.filters_off) == (True, [], (name,))
    assert rank_hosts(asked, fleet(after), ["kvm2"])[0].filters_off == (name,)
    assert passes_filters(asked, fleet(after), "kvm2", DEFAULT_FILTERS)
    assert list(hosts_by_weight(asked, fleet(after), ["kvm2"], DEFAULT_FILTERS)) == ["kvm2"]
    assert [placement.destination for placement in plan_placements([asked], fleet(after))] == ["kvm2"]


def test_affinity_that_is_off_lets_a_member_go_alone() -> None:
    group = {"name": "db", "policy": "affinity"}
    other = host("kvm3", domain("db2", group=group))
    asked, there = request(group=group), host("kvm2", settings={"filters": {"affinity": False}})
    assert check_host(asked, there, fleet(there, other)).passed
    assert not check_host(asked, host("kvm2"), fleet(host("kvm2"), other)).passed


def test_a_filter_is_off_only_for_the_host_that_says_so() -> None:
    strict, lenient = host("kvm2"), host("kvm3", settings={"filters": {"labels": False}})
    verdicts = {verdict.host: verdict for verdict in rank_hosts(request(labels=["ssd"]), fleet(strict, lenient), ["kvm2", "kvm3"])}
    assert {name: (verdict.passed, verdict.filters_off) for name, verdict in verdicts.items()} == {"kvm2": (False, ()), "kvm3": (True, ("labels",))}


def test_the_other_filters_still_judge_the_host() -> None:
    there = host("kvm2", memory_mib=512, settings={"filters": dict.fromkeys([name for name, why in FILTERS.items() if not why], False)})
    verdict = check_host(request(memory_mib=4096), there, fleet(there))
    assert [failure["filter"] for failure in verdict.failures] == ["memory"]
    assert {rule.name for rule in filters_for_host(DEFAULT_FILTERS, there)} == {name for name, why in FILTERS.items() if why} | {"max_moves"}


def test_a_silent_host_stays_refused() -> None:
    assert [failure["filter"] for failure in check_host(request(), silent_host(), fleet(silent_host())).failures] == ["up"]


def test_each_end_of_a_move_switches_off_its_own_limit() -> None:
    none = {"limits": {"moves_in": 0, "moves_out": 0}}
    off = {**none, "filters": {"max_moves": False}}
    ways = {
        (one, two): (host("kvm1", settings=own), host("kvm2", settings=its))
        for one, own in (("on", none), ("off", off))
        for two, its in (("on", none), ("off", off))
    }
    refused = {way: check_host(request(), there, fleet(there, source)).reason for way, (source, there) in ways.items()}
    assert {way: ("moves_out" in why, "moves_in" in why) for way, why in refused.items()} == {
        ("on", "on"): (True, True),
        ("on", "off"): (True, False),
        ("off", "on"): (False, True),
        ("off", "off"): (False, False),
    }
    limits = {way: set(limits_between(source.settings, there.settings)) for way, (source, there) in ways.items()}
    assert limits == {("on", "on"): {"moves_in", "moves_out"}, ("on", "off"): {"moves_out"}, ("off", "on"): {"moves_in"}, ("off", "off"): set()}


def test_the_history_names_what_was_switched_off() -> None:
    assert describe_filters_off(Verdict("kvm2", True, filters_off=("cpus", "labels"))) == " Switched off there: cpus, labels."
    assert describe_filters_off(Verdict("kvm2", True)) == ""
