# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserve for failover when the scheduler chooses a destination: what is judged, what is refused, and what a person may still do."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import admission, follow
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control, settings_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import close_host, room_for, run_one_move
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.test_scheduler_check import filters_of, refused

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c09"
BROKEN = "The fleet could no longer lose kvm3 for certain (failover_hosts: 1)."
FOUR = ("kvm1", "kvm2", "kvm3", "kvm4")


@pytest.fixture
def fleet_of_four(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    """A fleet in which db1 of kvm3 has room on kvm2 alone. The scheduler would move web1 of kvm1 there, and kvm4 has room for web1, too."""
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    monkeypatch.setattr(admission, "ASK_SECONDS", 0)
    control = Control(tmp_path, FOUR)
    reserve(control, 1)
    control.fleet.guest(memory_bytes=1 * GIB)
    control.fleet.guest(name="db1", uuid=OTHER, on="kvm3", memory_bytes=3 * GIB)
    # The hosts do not say which CPU features they can give a guest.
    control.source.needs = {UUID: {"cpu": None}, OTHER: {"cpu": None}}
    for name, gib in {"kvm1": 1, "kvm2": 3, "kvm3": 3, "kvm4": 1}.items():
        room_for(control, name, gib)
    return control


def reserve(control: Control, hosts: t.Any) -> None:
    control.settings = settings_of(*FOUR, kvmfleet_scheduler={"failover_hosts": hosts})


def test_the_scheduler_passes_over_a_host_after_which_another_could_not_be_lost(fleet_of_four: Control) -> None:
    result = fleet_of_four.check(name="web1")
    assert result["selected"] == "kvm4"
    assert filters_of(result) == {"kvm4": [], "kvm2": ["failover_hosts"], "kvm3": ["memory"]}
    (failure,) = next(verdict["failures"] for verdict in result["verdicts"] if verdict["host"] == "kvm2")
    assert failure["reason"] == BROKEN
    reserve(fleet_of_four, 0)
    assert fleet_of_four.check(name="web1")["selected"] == "kvm2"


def test_a_task_tries_a_reserve_out(fleet_of_four: Control) -> None:
    reserve(fleet_of_four, 0)
    assert fleet_of_four.check(name="web1", scheduler={"failover_hosts": 1})["selected"] == "kvm4"


def test_a_move_without_a_destination_goes_where_the_reserve_is_kept(fleet_of_four: Control) -> None:
    job = run_one_move(fleet_of_four, destination=None)
    (record,) = fleet_of_four.records()
    assert (record.status, record.destination.host) == (s.COMPLETED, "kvm4")
    assert not job.error


def test_check_mode_predicts_the_same_host(fleet_of_four: Control) -> None:
    (job,) = fleet_of_four.run(check=True, name="web1")
    assert job.record.destination.host == "kvm4"


def test_a_move_is_refused_if_no_host_keeps_the_reserve(fleet_of_four: Control) -> None:
    room_for(fleet_of_four, "kvm4", 0.5)
    assert BROKEN in refused(fleet_of_four, name="web1")["msg"]
    job = run_one_move(fleet_of_four, destination=None)
    assert job.error
    assert BROKEN in str(job.error)
    (record,) = fleet_of_four.records()
    assert record.status == s.CONFLICT
    assert fleet_of_four.fleet.migrations == []


def test_a_destination_that_is_named_is_not_judged(fleet_of_four: Control) -> None:
    run_one_move(fleet_of_four, destination="kvm2")
    (record,) = fleet_of_four.records()
    assert (record.status, record.destination.host) == (s.COMPLETED, "kvm2")


def test_some_candidates_do_not_show_what_the_fleet_can_lose(fleet_of_four: Control) -> None:
    assert fleet_of_four.check(name="web1", candidates=["kvm2"])["selected"] == "kvm2"


def test_a_loss_that_is_not_possible_anyway_is_a_warning(fleet_of_four: Control) -> None:
    third = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c10"
    fleet_of_four.fleet.guest(name="c1", uuid=third, on="kvm2", memory_bytes=GIB // 4)
    fleet_of_four.source.needs[third] = {"cpu": None}
    result = fleet_of_four.check(name="web1")
    (chosen,) = [verdict for verdict in result["verdicts"] if verdict["host"] == result["selected"]]
    assert "The fleet cannot lose kvm3 for certain, with or without this (failover_hosts: 1)." in chosen["warnings"]


def test_guests_of_which_it_is_not_certain_that_another_host_could_start_them_are_left_out(fleet_of_four: Control) -> None:
    fleet_of_four.source.needs = {UUID: {"cpu": None}}
    result = fleet_of_four.check(name="web1")
    (chosen,) = [verdict for verdict in result["verdicts"] if verdict["host"] == result["selected"]]
    assert result["selected"] == "kvm2"
    assert "The reserve does not count db1: no other host could start it for certain." in chosen["warnings"]


def test_a_host_in_maintenance_uses_the_reserve(fleet_of_four: Control) -> None:
    room_for(fleet_of_four, "kvm4", 0.5)
    close_host(fleet_of_four, "kvm4", "new memory")
    assert fleet_of_four.check(name="web1")["selected"] == "kvm2"


def test_a_saved_request_is_judged_as_a_new_guest(fleet_of_four: Control) -> None:
    reserve(fleet_of_four, 0)
    request = fleet_of_four.check(name="web1")["request"]
    new = {**request, "uuid": None, "name": "new"}
    assert fleet_of_four.check(request=new)["selected"] == "kvm2"
    reserve(fleet_of_four, 1)
    result = fleet_of_four.check(request=new)
    assert filters_of(result)["kvm2"] == ["failover_hosts"]


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (-1, "kvmfleet_scheduler.failover_hosts of kvm1 is -1. Give a whole number from 0 to 4"),
        ("some", "kvmfleet_scheduler.failover_hosts of kvm1 is 'some'. Give a whole number from 0 to 4"),
        (4, "kvmfleet_scheduler.failover_hosts is 4, and the fleet has 4 hosts. Give the number"),
    ],
)
def test_an_invalid_number_moves_nothing(fleet_of_four: Control, hosts: t.Any, words: str) -> None:
    reserve(fleet_of_four, hosts)
    for destination in (None, "kvm2"):
        with pytest.raises(e.InvalidArgument) as caught:
            fleet_of_four.run(name="web1", destination=destination)
        assert words in str(caught.value)
    assert (fleet_of_four.records(), fleet_of_four.fleet.migrations) == ([], [])
