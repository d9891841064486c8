# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom a host asks before its drain is planned, and what is moving to the host."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import preparation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.preparation import Arrival, HostPreparation, PreparationRequest, prepare_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record

HOSTS = ["kvm1", "kvm2", "kvm3", "kvm4"]


def request(host: str = "kvm1", **more: t.Any) -> PreparationRequest:
    return PreparationRequest(host, ("kvm1", "kvm2"), **{"candidates": ("kvm3", "kvm4"), "just_asked": True, **more})


def survey(given: PreparationRequest, known: dict[str, t.Any], ledger: FileLedger | None = None) -> HostPreparation:
    return prepare_host(given, known.get, ledger, lambda host: host in HOSTS)


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def known() -> dict[str, t.Any]:
    return {host: with_receipt(facts(host)) for host in HOSTS}


def test_no_host_is_asked_if_all_facts_are_known() -> None:
    assert survey(request(), known()) == HostPreparation((), (), ())


def test_candidates_with_incomplete_facts_are_asked_for_all_facts() -> None:
    hosts = {**known(), "kvm3": facts("kvm3"), "kvm4": None}
    found = survey(request(), hosts)
    assert (found.ask, found.ask_for_all) == ((), ("kvm3", "kvm4"))
    assert survey(request(candidates=("kvm2", "kvm4")), hosts).ask_for_all == ("kvm4",)


@pytest.mark.parametrize("more", [{"just_asked": False}, {"measure": True}])
def test_a_host_is_asked_unless_it_was_just_asked_for_this_drain(more: dict[str, bool]) -> None:
    assert survey(request(**more), known()).ask == ("kvm1",)


def test_a_host_whose_dirty_rates_were_measured_is_not_asked_again() -> None:
    measured = {**known(), "kvm1": with_receipt({**facts("kvm1"), "dirty_rate_seconds": 1})}
    assert survey(request(measure=True), measured).ask == ()


@pytest.mark.parametrize(("just_asked", "asked"), [(True, ()), (False, ("kvm3",))])
def test_candidates_may_have_older_facts_only_if_these_were_gathered_for_this_drain(just_asked: bool, asked: tuple[str, ...]) -> None:
    """Gathering the facts of a large fleet has taken longer than they are otherwise valid."""
    now, many = boot_moment(), [f"kvm{number}" for number in range(3, 503)]
    hosts = {host: with_receipt(facts(host)) for host in ("kvm1", *many)}
    hosts["kvm3"]["received"] = {"boot_id": now.boot_id, "seconds": now.seconds - 100}
    assert survey(request(candidates=tuple(many), just_asked=just_asked), hosts).ask_for_all == asked


def test_a_host_with_a_running_move_and_a_candidate_with_an_ended_one_are_asked(ledger: FileLedger) -> None:
    ledger.open_record(record("web1", "kvm1", "kvm3"))
    found = survey(request(), known(), ledger)
    assert (found.ask, found.ask_for_all) == (("kvm1",), ())
    done = ledger.open_record(record("web2", "kvm4", "kvm3", "running"))
    ledger.update_record(done, dataclasses.replace(done.record, status="completed"))
    assert survey(request(), known(), ledger).ask_for_all == ("kvm3",)
    there = {**known(), "kvm3": with_receipt(facts("kvm3", domain("web2")))}
    assert survey(request(), there, ledger).ask_for_all == ()


def test_hosts_on_which_an_evacuation_has_started_a_guest_since_their_facts_are_asked(ledger: FileLedger) -> None:
    for name, host in (("web1", "kvm1"), ("web2", "kvm3")):
        stored = ledger.open_record(record(name, "kvm9", host, "accepted", type="evacuation"))
        for status in ("pre-migrating", "done"):
            stored = ledger.update_record(stored, dataclasses.replace(stored.record, status=status))
    found = survey(request(), known(), ledger)
    assert (found.ask, found.ask_for_all) == (("kvm1",), ("kvm3",))
    there = {**known(), "kvm1": with_receipt(facts("kvm1", domain("web1"))), "kvm3": with_receipt(facts("kvm3", domain("web2")))}
    assert survey(request(), there, ledger) == HostPreparation((), (), ())


def test_a_host_whose_move_ends_while_the_ledger_is_read_is_asked(ledger: FileLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = [ledger.open_record(record("web1", "kvm3", "kvm1", "running"))]

    def then_complete(read: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def read_and_complete(*args: t.Any) -> t.Any:
            found = read(*args)
            for stored in [begun.pop()] if begun else []:
                ledger.update_record(stored, dataclasses.replace(stored.record, status="completed"))
            return found

        return read_and_complete

    for name in ("read_unsettled", "read_arrived"):
        monkeypatch.setattr(preparation, name, then_complete(getattr(preparation, name)))
    assert survey(request(), known(), ledger).ask == ("kvm1",)


def test_incoming_live_moves_are_listed_with_a_source_of_the_play(ledger: FileLedger) -> None:
    moving = [
        ledger.open_record(record(f"web{number}\u202e", source, to)).record
        for number, (source, to) in enumerate([("kvm3", "kvm1"), ("kvm9", "kvm1"), ("kvm3", "kvm2")])
    ]
    ledger.open_record(record("web9", "kvm3", "kvm1", type="cold-migration"))
    found = survey(request(), known(), ledger).arriving
    assert found == (Arrival(moving[0].domain.uuid, found[0].name, "kvm3"),)
    assert "\u202e" not in found[0].name


def test_the_survey_request_of_a_role_is_validated() -> None:
    given = {"play": ["kvm1"], "candidates": ["kvm2"], "just_asked": True, "measure": False}
    assert PreparationRequest.from_work("kvm1", given) == PreparationRequest("kvm1", ("kvm1",), ("kvm2",), just_asked=True)
    with pytest.raises(InvalidArgument, match=r"_work\.drain\.candidates"):
        PreparationRequest.from_work("kvm1", {**given, "candidates": "kvm2"})
