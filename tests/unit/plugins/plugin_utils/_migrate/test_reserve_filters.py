# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that a destination has switched off, in the record of a move and in what scheduler_check returns; invalid ones move nothing."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import close_host, room_for, run_one_move


def test_a_record_names_the_filters_that_were_off_at_its_destination(control: Control) -> None:
    control.fleet.guest()
    control.source.policies[UUID] = {"labels": ["ssd"]}
    refused = run_one_move(control)
    assert (refused.error.error_code, "filters_off" in encode(control.records()[0])) == ("conflict", False)
    control.variables("kvm2")["kvmfleet_scheduler"] = {"filters": {"labels": False, "cpus": False}}
    foreseen = run_one_move(control, check=True)
    assert (foreseen.record.filters_off, foreseen.record.id) == (("cpus", "labels"), None)
    moved = run_one_move(control)
    assert (moved.error, moved.record.filters_off) == (None, ("cpus", "labels"))
    booked = next(line.detail for line in moved.record.history if line.status == s.SCHEDULED)
    assert booked == "The destination was verified and booked. Switched off there: cpus, labels."
    assert encode(moved.record)["filters_off"] == ["cpus", "labels"]


def test_the_record_of_a_refusal_names_the_filters_that_were_off(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    control.variables("kvm2")["kvmfleet_scheduler"] = {"filters": {"labels": False}}
    run_one_move(control)
    assert [(record.status, record.filters_off) for record in control.records()] == [(s.CONFLICT, ("labels",))]


@pytest.mark.parametrize("filters", [{"memory": False}, {"luck": False}, ["labels"]])
def test_a_move_to_a_host_with_invalid_filters_moves_nothing(control: Control, filters: t.Any) -> None:
    close_host(control, "kvm3", "a fan")
    control.fleet.guest()
    control.variables("kvm2")["kvmfleet_scheduler"] = {"filters": filters}
    with pytest.raises(e.InvalidArgument, match=r"kvmfleet_scheduler\.filters of kvm2"):
        control.run(name="web1", destination="kvm2")
    assert control.records() == []


def test_scheduler_check_shows_the_filters_that_were_off(control: Control) -> None:
    control.fleet.guest()
    control.source.policies[UUID] = {"labels": ["ssd"]}
    with pytest.raises(e.Conflict) as caught:
        control.check(name="web1")
    assert [verdict["filters_off"] for verdict in caught.value.result["verdicts"]] == [[], []]
    tried = control.check(name="web1", destination="kvm2", scheduler={"filters": {"labels": False}})
    assert (tried["selected"], tried["verdicts"][0]["filters_off"]) == ("kvm2", ["labels"])
    assert (tried["lines"][0], tried["lines"][-1]) == ("web1 can go to kvm2.", "kvm2: Switched off there: labels.")
    with pytest.raises(e.InvalidArgument, match=r"scheduler\.filters switches off"):
        control.check(name="web1", scheduler={"filters": {"storage": False}})
