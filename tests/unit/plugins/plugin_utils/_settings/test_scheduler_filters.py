# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that are switched off by name: which of them can be, and what is said of the others."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import FILTERS, Limits, SchedulerSettings

OPTIONAL = ["cpus", "traits", "one_way", "secrets", "networks", "labels", "max_domains", "max_moves", "affinity", "anti_affinity"]
KEPT = [name for name in FILTERS if name not in OPTIONAL]


def read(**filters: object) -> SchedulerSettings:
    return SchedulerSettings.from_variable({"filters": filters}, "kvm2")


def test_every_filter_of_the_scheduler_has_a_switch() -> None:
    assert list(FILTERS) == [rule.name for rule in DEFAULT_FILTERS]
    assert [name for name, why in FILTERS.items() if not why] == OPTIONAL


def test_no_filter_that_force_cannot_bypass_can_be_switched_off() -> None:
    assert {rule.name for rule in DEFAULT_FILTERS if not rule.overridable} <= set(KEPT)


def test_filters_are_on_unless_switched_off() -> None:
    assert SchedulerSettings.from_variable(None, "kvm2").filters_off == frozenset()
    assert read(labels=True, memory=True).filters_off == frozenset()
    assert read(labels=False, cpus="no", networks="off", affinity=0).filters_off == {"labels", "cpus", "networks", "affinity"}
    assert SchedulerSettings.from_variable({"filters": None}, "kvm2").filters_off == frozenset()


@pytest.mark.parametrize("name", KEPT)
def test_a_filter_that_protects_data_or_a_guest_cannot_be_switched_off(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(**{name: False, "labels": False})
    message = str(caught.value)
    assert message.startswith(f"kvmfleet_scheduler.filters of kvm2 switches off what protects data or the life of a guest: {name} ({FILTERS[name]}).")
    assert message.endswith(f"Filters that can be switched off are: {', '.join(OPTIONAL)}.")


def test_all_filters_that_cannot_be_switched_off_are_named_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"storage \(.*\), migratable \("):
        read(storage=False, migratable=False)


@pytest.mark.parametrize("name", ["luck", "RamFilter", "can_start", "name", ""])
def test_an_unknown_filter_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(**{name: False})
    assert str(caught.value) == f"kvmfleet_scheduler.filters of kvm2 has unknown keys: {name}. Valid names are: {', '.join(FILTERS)}."


@pytest.mark.parametrize("value", [["labels"], "labels", 7, True])
def test_filters_that_are_no_dictionary_are_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_scheduler\.filters of kvm2 is .*\. Give a dictionary\.$"):
        SchedulerSettings.from_variable({"filters": value}, "kvm2")


@pytest.mark.parametrize("value", [None, 2, 0.5, "maybe", "", [False], {}])
def test_a_switch_that_is_not_boolean_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_scheduler\.filters\.labels of kvm2 is .*\. Give true or false\.$"):
        read(labels=value)


def test_filters_of_a_task_override_those_of_the_inventory_one_by_one() -> None:
    base = read(labels=False, cpus=False)
    over = base.with_task({"filters": {"labels": True, "networks": False}})
    assert over.filters_off == {"cpus", "networks"}
    assert base.with_task({"reserved_cpus": 1}).filters_off == {"labels", "cpus"}
    with pytest.raises(InvalidArgument, match=r"^scheduler\.filters switches off .*: memory "):
        base.with_task({"filters": {"memory": False}})


def test_settings_with_filters_are_written_and_read_back_and_others_are_as_before() -> None:
    off = read(networks=False, labels=False)
    assert off.as_json()["filters"] == {"labels": False, "networks": False}
    assert SchedulerSettings.from_variable(off.as_json(), "kvm2") == off
    assert set(read(labels=True).as_json()) & {"filters", "filters_off"} == set()


def test_limits_of_moves_that_are_switched_off_do_not_apply() -> None:
    limits = {"domains": 3, "moves_in": 0, "moves_out": 0, "moves_total": 5}
    found = SchedulerSettings.from_variable({"limits": limits, "filters": {"max_moves": False}}, "kvm2")
    assert found.move_limits == Limits(domains=3, moves_total=5)
    assert SchedulerSettings.from_variable({"limits": limits}, "kvm2").move_limits == Limits(3, 0, 0, 5)
