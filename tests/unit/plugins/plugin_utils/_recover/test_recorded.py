# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which guests ran before their host went down, from what the ledger has saved and what the hosts report."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import records
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, ColdMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, EarlierState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_documents import read_inputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.recorded import (
    RecordedDomain,
    find_recorded,
    make_arrivals,
    state_after_move,
    with_recorded,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.task_results import DomainVerdict, StartPlan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, domain, end, facts, record, uid

Body = dict[str, t.Any]

A, B = "boot A", "boot B"
SAVED = {"state": "running", "at": "2026-11-21T01:00:00.000Z", "boot_id": A}
EARLIER = {"state": "paused", "at": "2026-11-20T01:00:00.000Z"}
OFF = domain("web1")


@pytest.mark.parametrize(
    ("saved", "boot_id", "state"),
    [
        (SAVED, B, "running"),
        ({**SAVED, "state": "paused"}, B, "paused"),
        ({**SAVED, "state": "shut off"}, B, None),
        # Somebody has stopped it while its host was up.
        (SAVED, A, None),
        # It was saved again after the boot.
        ({**SAVED, "state": "shut off", "boot_id": B, "ran_before": EARLIER}, B, "paused"),
        ({**SAVED, "state": "shut off", "boot_id": B, "ran_before": None}, B, None),
        # It stayed off for a whole boot.
        ({**SAVED, "state": "shut off", "ran_before": EARLIER}, B, None),
        # Version 0.1.0 has saved no boot.
        ({"state": "running"}, B, "running"),
        ({"state": "shut off"}, B, None),
        ({}, B, None),
        (SAVED, None, "running"),
        ({**SAVED, "boot_id": None}, None, "running"),
        ({**SAVED, "boot_id": 5}, B, "running"),
        ({**SAVED, "boot_id": B, "ran_before": "yes"}, B, None),
    ],
)
def test_a_domain_ran_before_a_boot_if_its_state_was_seen_earlier(saved: Body, boot_id: str | None, state: str | None) -> None:
    found = decode(DomainProtection, saved).state_before(boot_id)
    assert (found.state if found else None) == state


def find(
    here: t.Sequence[Body] = (OFF,), there: t.Sequence[Body] = (), places: t.Sequence[str] = ("kvm1",), saved_on: str = "kvm1", **saved: t.Any
) -> list[RecordedDomain]:
    """Return what is found on kvm1 in its boot B."""
    body = document("web1", *places)
    entry = domain_entry({**body, "protected": {**SAVED, "host": encode(end(saved_on)), **saved}})
    return find_recorded("kvm1", {"kvm1": facts("kvm1", *here), "kvm2": facts("kvm2", *there)}, [entry], B, lambda _entry, _host: None)


@pytest.mark.parametrize(
    ("arguments", "is_found"),
    [
        ({}, True),
        ({"here": [domain("web1", active=True)]}, False),
        ({"here": [{**OFF, "state": "shut off", "reason": "shutdown"}]}, False),
        ({"here": [{**OFF, "state": "shut off", "reason": "destroyed"}]}, False),
        ({"here": [{**OFF, "state": "shut off", "reason": ""}]}, True),
        ({"here": [{**OFF, "state": "shut off", "reason": "failed"}]}, True),
        ({"places": ["kvm2"]}, False),
        ({"places": ["kvm1", "kvm2"]}, True),
        ({"state": "shut off"}, False),
        ({"saved_on": "kvm2"}, False),
        ({"here": []}, True),
        ({"here": [], "there": [OFF]}, False),
        ({"here": [], "places": ["kvm1", "kvm2"]}, False),
    ],
)
def test_a_domain_of_the_host_that_ran_and_is_off_is_found(arguments: Body, is_found: bool) -> None:
    assert [one.name for one in find(**arguments)] == (["web1"] if is_found else [])


def test_a_domain_that_was_missing_before_the_host_went_down_is_found_only_if_it_is_defined_again() -> None:
    note = {"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "host": encode(end("kvm1"))}
    entry = domain_entry({**document("web1", "kvm1"), "protected": {**SAVED, "host": encode(end("kvm1"))}, "missing": note})
    for here, names in ((), []), ((OFF,), ["web1"]):
        assert [one.name for one in find_recorded("kvm1", {"kvm1": facts("kvm1", *here)}, [entry], B, lambda _entry, _host: None)] == names


@pytest.mark.parametrize(("noted_in", "names"), [(A, []), (B, ["web1"])])
def test_a_domain_that_its_host_lost_with_its_last_boot_is_found_although_it_was_protected_since(noted_in: str, names: list[str]) -> None:
    """Nobody has deleted it: it ran, and is off."""
    note = {"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "host": encode(end("kvm1")), "boot_id": noted_in}
    entry = domain_entry({**document("web1", "kvm1"), "protected": {**SAVED, "host": encode(end("kvm1"))}, "missing": note})
    assert [one.name for one in find_recorded("kvm1", {"kvm1": facts("kvm1")}, [entry], B, lambda _entry, _host: None)] == names


def test_a_host_without_facts_and_a_domain_that_was_never_saved_give_nothing() -> None:
    entry = domain_entry(document("web1", "kvm1", protected=False))
    assert find_recorded("kvm1", {"kvm1": facts("kvm1", OFF)}, [entry], B, lambda _entry, _host: None) == []
    assert find_recorded("kvm1", {"kvm1": None}, [entry], B, lambda _entry, _host: None) == []


def test_the_latest_of_two_evacuations_counts_although_the_clock_of_its_control_node_is_behind(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither dead host was cleaned up yet."""
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    for clock, source, destination in (("2999-01-01T00:00:00.000Z", "kvm3", "kvm2"), ("2000-01-01T00:00:00.000Z", "kvm2", "kvm1")):
        monkeypatch.setattr(records, "utc_now", lambda at=clock: at)
        stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(uid("web1"), "web1"), end(source), end(destination), {}, "ann"))
        for status in (s.PRE_MIGRATING, s.DONE):
            stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    document_of_web1 = ledger.read_domain(uid("web1"))
    assert document_of_web1
    found = make_arrivals(ledger)(document_of_web1.domain, end("kvm1"))
    assert found
    assert found.before.state == "running"
    tombstones = read_inputs(ledger, None, lambda _peer: {}).tombstones[uid("web1")]
    assert [one.destination.host for one in tombstones] == ["kvm2", "kvm1"]


@pytest.mark.parametrize(("wanted", "state"), [("running", "running"), ("paused", "paused"), ("shut off", None)])
def test_a_domain_that_was_evacuated_to_the_host_ran_there_if_it_was_to_run(tmp_path: pathlib.Path, wanted: str, state: str | None) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    made = new_record(s.EVACUATION, DomainRef(uid("web1"), "web1"), end("kvm2"), end("kvm1"), {}, "ann")
    stored = ledger.open_record(dataclasses.replace(made, wanted_state=wanted))
    for status in (s.PRE_MIGRATING, s.DONE):
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    found = make_arrivals(ledger)(domain_entry(document("web1", "kvm1")), end("kvm1"))
    assert (found.before.state if found else None) == state


def verdict(reason: str) -> DomainVerdict:
    return DomainVerdict(uid("web1"), "web1", reason)


NOTHING = StartPlan((), (), (), ())


@pytest.mark.parametrize("mode", ["autostart", "none", "as_recorded"])
def test_a_domain_that_the_host_has_lost_is_named_and_never_started(mode: str) -> None:
    (lost,) = find(here=[], definition="<domain/>")
    plan = with_recorded(NOTHING, NOTHING, [lost], "kvm1", mode)
    assert (plan.start, plan.refuse) == ((), ())
    words = f"define it there from its document in the ledger (domains/{uid('web1')}.json, protected.definition), and start it."
    assert f"kvm1 has no definition of it any more, so recover cannot start it. If it ran nowhere else, {words}" in plan.stayed_off[0].reason


def test_a_lost_domain_that_was_never_saved_is_not_said_to_be_in_the_ledger() -> None:
    lost = RecordedDomain(uid("web1"), "web1", EarlierState("running"), is_defined=False, is_saved=False)
    (named,) = with_recorded(NOTHING, NOTHING, [lost], "kvm1", "autostart").stayed_off
    assert named.reason.endswith("define it there from a backup (the ledger does not have it), and start it.")


@pytest.mark.parametrize("mode", ["autostart", "none", "as_recorded"])
@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (StartPlan((verdict("yes"),), (), (), ()), "If it is to run, run kvmfleet.migration.domain_start there. Then protect kvm1."),
        (StartPlan((), (), (verdict("It may run on kvm3."),), ()), "It cannot be started now: It may run on kvm3."),
    ],
)
def test_a_domain_that_came_to_an_unprotected_host_is_named_and_never_started(mode: str, verdicts: StartPlan, words: str) -> None:
    """Its owner may have stopped it there years ago."""
    came = RecordedDomain(uid("web1"), "web1", EarlierState("running", "2026-11-21T01:00:00.000Z"), is_defined=True, is_certain=False)
    plan = with_recorded(NOTHING, verdicts, [came], "kvm1", mode)
    assert (plan.start, plan.refuse) == ((), ())
    assert plan.stayed_off[0].reason == (
        "It was running when it came to kvm1 (2026-11-21T01:00:00.000Z), and is off. kvm1 is not protected, "
        f"so the ledger does not show whether somebody has stopped it since. {words}"
    )


@pytest.mark.parametrize(("mode", "started"), [("autostart", 0), ("none", 0), ("as_recorded", 1)])
def test_a_domain_that_may_be_started_is_named_or_started(mode: str, started: int) -> None:
    recorded = [RecordedDomain(uid("web1"), "web1", EarlierState("paused"), is_defined=True)]
    plan = with_recorded(NOTHING, StartPlan((verdict("yes"),), (), (), ()), recorded, "kvm1", mode)
    assert (len(plan.start), len(plan.stayed_off)) == (started, 1 - started)
    assert [one.paused for one in plan.start] == [True] * started
    assert [one.reason[:56] for one in plan.stayed_off] == ["It was paused before the host went down, and is off. To "] * (1 - started)


@pytest.mark.parametrize(("mode", "refused"), [("autostart", 0), ("none", 0), ("as_recorded", 1)])
def test_a_domain_that_must_not_be_started_is_named_or_refused(mode: str, refused: int) -> None:
    recorded = [RecordedDomain(uid("web1"), "web1", EarlierState("running"), is_defined=True)]
    plan = with_recorded(NOTHING, StartPlan((), (), (verdict("It may run on kvm3."),), ()), recorded, "kvm1", mode)
    assert (len(plan.refuse), len(plan.stayed_off), plan.start) == (refused, 1 - refused, ())
    assert all("It cannot be started now: It may run on kvm3." in one.reason for one in plan.stayed_off)


def test_a_domain_that_is_active_elsewhere_is_not_named() -> None:
    recorded = [RecordedDomain(uid("web1"), "web1", EarlierState("running"), is_defined=True)]
    for mode in ("autostart", "as_recorded"):
        assert with_recorded(NOTHING, StartPlan((), (verdict("It is active on kvm2."),), (), ()), recorded, "kvm1", mode) == NOTHING


@pytest.mark.parametrize(
    ("method", "start", "state"), [("save", False, "running"), ("shutdown", True, "running"), ("shutdown", False, "shut off"), (None, False, "running")]
)
def test_a_domain_that_was_shut_down_for_its_move_did_not_arrive_running(method: str | None, start: bool, state: str) -> None:
    live = dataclasses.replace(record("web1", "kvm1", "kvm2"), before=Before(state="running", persistent=True, autostart=False, at_destination=False))
    moved = dataclasses.replace(live, method=method, cold=ColdMove(start)) if method else live
    assert state_after_move(moved) == state
