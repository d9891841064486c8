# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import (
    Limits,
    SchedulerSettings,
    check_failover_hosts,
    count_failover_hosts,
)

RATIOS = ["cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"]


def test_scheduler_settings_have_defaults() -> None:
    found = SchedulerSettings.from_variable(None, "kvm2")
    assert (found.cpu_allocation_ratio, found.ram_allocation_ratio, found.disk_allocation_ratio) == (4.0, 1.0, 1.0)
    assert (found.reserved_memory_mib, found.reserved_cpus, found.labels, found.limits) == (512, 0, frozenset(), Limits(None, None, None))
    assert found.weights == {"free_memory": 1.0, "free_cpu": 1.0, "soft_groups": 1.0, "moves": -1.0}
    assert SchedulerSettings.from_variable({}, "kvm2") == found


def test_given_settings_override_defaults_and_text_is_read_as_numbers() -> None:
    value = {"cpu_allocation_ratio": "2.5", "reserved_memory_mib": 0, "labels": ["ssd"], "limits": {"moves_in": "2"}, "weights": {"moves": 0}}
    found = SchedulerSettings.from_variable(value, "kvm2")
    assert (found.cpu_allocation_ratio, found.reserved_memory_mib, found.labels) == (2.5, 0, {"ssd"})
    assert found.limits == Limits(None, 2, None)
    assert found.weights == {"free_memory": 1.0, "free_cpu": 1.0, "soft_groups": 1.0, "moves": 0.0}


@pytest.mark.parametrize("value", [-1, 5, 1.5, "some", True, None, [1]])
def test_an_invalid_number_of_failover_hosts_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_scheduler\.failover_hosts of kvm2 is .*\. Give a whole number from 0 to 4"):
        SchedulerSettings.from_variable({"failover_hosts": value}, "kvm2")


def test_the_largest_number_of_failover_hosts_counts_and_a_plan_keeps_it_only_if_it_is_set() -> None:
    settings = [SchedulerSettings.from_variable(value, "kvm2") for value in (None, {"failover_hosts": "2"}, {"failover_hosts": 1})]
    assert (count_failover_hosts(settings), count_failover_hosts([])) == (2, 0)
    assert "failover_hosts" not in settings[0].as_json()
    assert settings[1].as_json()["failover_hosts"] == 2


@pytest.mark.parametrize(("hosts", "words"), [(2, "the fleet has 2 hosts"), (1, r"the fleet has 1 host\.")])
def test_as_many_failover_hosts_as_the_fleet_has_are_refused(hosts: int, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_failover_hosts(2, hosts)
    check_failover_hosts(2, 3)
    check_failover_hosts(0, 1)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("value", [0, 0.0, -1, "much", "", "0", True, None, [1], float("inf"), float("nan"), 10**400])
def test_an_invalid_ratio_is_refused_with_variable_host_and_value(ratio: str, value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SchedulerSettings.from_variable({ratio: value}, "kvm2")
    assert str(caught.value) == f"kvmfleet_scheduler.{ratio} of kvm2 is {value!r}. Give a number above 0, such as 1.0."


@pytest.mark.parametrize(
    "value",
    [
        {"reserved_memory_mib": -1},
        {"reserved_memory_mib": 1.5},
        {"reserved_cpus": "two"},
        {"labels": "ssd"},
        {"labels": [1]},
        {"limits": {"domains": -1}},
        {"limits": {"domains": True}},
        {"limits": [1]},
        {"weights": {"free_memory": "high"}},
        {"weights": 3},
        {"ram_ratio": 1},
        {"limits": {"moves": 1}},
        {"weights": {"luck": 1}},
        {1: 2},
        "ram_allocation_ratio: 2",
        [],
        7,
    ],
)
def test_invalid_settings_are_refused_with_a_message(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_scheduler.* of kvm2 .*\. (Give|Valid names are)"):
        SchedulerSettings.from_variable(value, "kvm2")


def test_unknown_keys_of_settings_are_refused_with_the_known_ones() -> None:
    known = r"Valid names are: domains, moves_in, moves_out, moves_total\."
    with pytest.raises(InvalidArgument, match=rf"kvmfleet_scheduler\.limits of kvm2 has unknown keys: moves\. {known}"):
        SchedulerSettings.from_variable({"limits": {"moves": 1}}, "kvm2")


def test_settings_of_a_task_override_those_of_the_inventory() -> None:
    base = SchedulerSettings.from_variable({"ram_allocation_ratio": 2, "limits": {"domains": 3}, "weights": {"moves": -5}, "labels": ["ssd"]}, "kvm2")
    over = base.with_task({"cpu_allocation_ratio": 8, "limits": {"moves_in": 1}, "weights": {"free_cpu": 0}})
    assert (over.ram_allocation_ratio, over.cpu_allocation_ratio, over.labels) == (2.0, 8.0, {"ssd"})
    assert over.limits == Limits(3, 1, None)
    assert (over.weights["moves"], over.weights["free_cpu"]) == (-5.0, 0.0)
    assert base.with_task({"limits": {"domains": None}}).limits.domains is None
    assert base.with_task(None) is base
    with pytest.raises(InvalidArgument, match=r"^scheduler\.ram_allocation_ratio is 0\."):
        base.with_task({"ram_allocation_ratio": 0})


def test_settings_are_written_and_read_back() -> None:
    found = SchedulerSettings.from_variable({"labels": ["ssd", "gpu"], "limits": {"domains": 3}}, "kvm2")
    assert SchedulerSettings.from_variable(found.as_json(), "kvm2") == found
    assert found.as_json()["labels"] == ["gpu", "ssd"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
)
KEYS = st.sampled_from([*RATIOS, "reserved_memory_mib", "reserved_cpus", "labels", "limits", "weights", "filters", "other"])
PARTS = st.dictionaries(st.sampled_from(["domains", "moves_in", "free_memory", "moves", "labels", "memory"]), ANYTHING, max_size=3)


@settings(deadline=None)
@given(ANYTHING | st.dictionaries(KEYS, ANYTHING | PARTS, max_size=4))
def test_any_value_of_settings_is_read_or_refused(value: t.Any) -> None:
    read = None
    with contextlib.suppress(InvalidArgument):
        read = SchedulerSettings.from_variable(value, "kvm2")
    assert read is None or min(read.cpu_allocation_ratio, read.ram_allocation_ratio, read.disk_allocation_ratio) > 0
