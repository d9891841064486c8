# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.settings import Limits, SchedulerSettings

RATIOS = ["cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"]


def test_what_holds_where_the_inventory_says_nothing() -> None:
    found = SchedulerSettings.of(None, "kvm2")
    assert (found.cpu_allocation_ratio, found.ram_allocation_ratio, found.disk_allocation_ratio) == (4.0, 1.0, 1.0)
    assert (found.reserved_memory_mib, found.reserved_cpus, found.labels, found.limits) == (512, 0, frozenset(), Limits(None, None, None))
    assert found.weights == {"free_memory": 1.0, "free_cpu": 1.0, "soft_groups": 1.0, "moves": -1.0}
    assert SchedulerSettings.of({}, "kvm2") == found


def test_what_is_given_counts_and_templated_text_is_read_as_a_number() -> None:
    value = {"cpu_allocation_ratio": "2.5", "reserved_memory_mib": 0, "labels": ["ssd"], "limits": {"moves_in": "2"}, "weights": {"moves": 0}}
    found = SchedulerSettings.of(value, "kvm2")
    assert (found.cpu_allocation_ratio, found.reserved_memory_mib, found.labels) == (2.5, 0, {"ssd"})
    assert found.limits == Limits(None, 2, None)
    assert found.weights == {"free_memory": 1.0, "free_cpu": 1.0, "soft_groups": 1.0, "moves": 0.0}


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("value", [0, 0.0, -1, "much", "", "0", True, None, [1], float("inf"), float("nan"), 10**400])
def test_a_ratio_that_is_none_is_refused_by_variable_host_and_value(ratio: str, value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SchedulerSettings.of({ratio: value}, "kvm2")
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
def test_what_cannot_be_is_refused_with_a_sentence(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_scheduler.* of kvm2 .*\. (Give|Known are)"):
        SchedulerSettings.of(value, "kvm2")


def test_unknown_keys_are_named_with_the_known_ones() -> None:
    known = r"Known are: domains, moves_in, moves_out, moves_total\."
    with pytest.raises(InvalidArgument, match=rf"kvmfleet_scheduler\.limits of kvm2 has the unknown moves\. {known}"):
        SchedulerSettings.of({"limits": {"moves": 1}}, "kvm2")


def test_a_task_s_settings_lie_over_the_inventory_s() -> None:
    base = SchedulerSettings.of({"ram_allocation_ratio": 2, "limits": {"domains": 3}, "weights": {"moves": -5}, "labels": ["ssd"]}, "kvm2")
    over = base.with_task({"cpu_allocation_ratio": 8, "limits": {"moves_in": 1}, "weights": {"free_cpu": 0}})
    assert (over.ram_allocation_ratio, over.cpu_allocation_ratio, over.labels) == (2.0, 8.0, {"ssd"})
    assert over.limits == Limits(3, 1, None)
    assert (over.weights["moves"], over.weights["free_cpu"]) == (-5.0, 0.0)
    assert base.with_task({"limits": {"domains": None}}).limits.domains is None
    assert base.with_task(None) is base
    with pytest.raises(InvalidArgument, match=r"^scheduler\.ram_allocation_ratio is 0\."):
        base.with_task({"ram_allocation_ratio": 0})


def test_settings_can_be_written_down_and_read_again() -> None:
    found = SchedulerSettings.of({"labels": ["ssd", "gpu"], "limits": {"domains": 3}}, "kvm2")
    assert SchedulerSettings.of(found.as_json(), "kvm2") == found
    assert found.as_json()["labels"] == ["gpu", "ssd"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
)
KEYS = st.sampled_from([*RATIOS, "reserved_memory_mib", "reserved_cpus", "labels", "limits", "weights", "other"])
PARTS = st.dictionaries(st.sampled_from(["domains", "moves_in", "free_memory", "moves"]), ANYTHING, max_size=3)


@settings(deadline=None)
@given(ANYTHING | st.dictionaries(KEYS, ANYTHING | PARTS, max_size=4))
def test_anything_is_read_or_refused(value: t.Any) -> None:
    read = None
    with contextlib.suppress(InvalidArgument):
        read = SchedulerSettings.of(value, "kvm2")
    assert read is None or min(read.cpu_allocation_ratio, read.ram_allocation_ratio, read.disk_allocation_ratio) > 0
