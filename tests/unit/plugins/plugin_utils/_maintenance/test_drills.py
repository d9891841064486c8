# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decisions of a drill: each thing that refuses it, the cut after a kill at any moment, what is waited for, and the verdict."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import drill_verdict, drills, transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.decisions import admit_hosts, resume_point
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drill_verdict import FleetAfter
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drills import Accepted, FleetBefore, HomelessGuest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.texts import attention_text, end_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import PlannedHost
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import RUN_ID, at, holder, options

WEB, APP = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
GUESTS = {WEB: "web", APP: "app"}
HOST = HostRef("kvm3", "id-3", None)
# Where the guests run after a drill that was passed.
HOME: dict[str, frozenset[str] | None] = {"kvm1": frozenset(), "kvm3": frozenset(GUESTS)}


def make(**changes: t.Any) -> Drill:
    return dataclasses.replace(drills.make_drill(90, 300, m.REACTION_RUN, (), GUESTS), **changes)


def begun(drill: Drill | None = None, **changes: t.Any) -> MaintenanceRun:
    return transitions.new_run(RUN_ID, [PlannedHost("kvm3")], options(**changes), holder(), at(), drill or make())


def in_step(step: str, run: MaintenanceRun | None = None) -> MaintenanceRun:
    run = transitions.begin_host(run or begun(), "kvm3", at())
    for one in m.DRILL_STEPS[: m.DRILL_STEPS.index(step) + 1]:
        run = transitions.begin_step(run, "kvm3", one, at(), "boot-a" if one == m.CUT else None)
    return run


def cut(seconds: float = 10) -> MaintenanceRun:
    return drills.begin_cut(in_step(m.CUT), "kvm3", at(seconds))


def evacuated(uuid: str, done: float | None, created: float = 15, status: str = s.DONE, host: HostRef = HOST) -> MoveRecord:
    record = new_record(s.EVACUATION, DomainRef(uuid, GUESTS[uuid]), host, HostRef("kvm1", "id-1", None), {}, "ann")
    lines = [HistoryLine(at(created).at, s.PRE_MIGRATING), *([HistoryLine(at(done).at, s.DONE)] if done is not None else [])]
    return dataclasses.replace(record, created_at=at(created).at, status=status, history=tuple(lines))


# -- what is refused ---------------------------------------------------------------------------------------------------


def entry(name: str = "kvm3", state: str = s.ENABLED, held: bool = True) -> t.Any:
    guard = {"installed": True, "systemd": held, "held_at_boot": held, "held": False, "note": ""}
    return host_entry({"name": name, "host_id": None, "state": state, "protected": {"at": at().at, "guard": guard}})


AHEAD = dataclasses.replace(entry(), protected=dataclasses.replace(entry().protected, at="2126-11-21T03:00:00.000Z"))
READY = FleetBefore(
    entry=entry(),
    others=[entry("kvm1"), entry("kvm2")],
    guests=["app", "web"],
    autostarted=[],
    records=[],
    open_runs=[],
    protected_hours=1,
    homeless=[],
    homes={},
    unclear=[],
    silent=[],
    power="Status: ON",
    is_on=True,
)
STRICT = Accepted((), False, 24)


def refusals(accepted: Accepted = STRICT, **changes: t.Any) -> list[str]:
    return drills.list_refusals("kvm3", dataclasses.replace(READY, **changes), accepted)


def test_a_fleet_that_is_ready_is_not_refused() -> None:
    assert refusals() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"entry": None}, "kvm3 is not in the ledger: protect it first."),
        ({"entry": entry(state=s.FENCED)}, "kvm3 is in the state 'fenced', and a drill needs every host in service."),
        ({"others": [entry("kvm1", s.MAINTENANCE)]}, "kvm1 is in the state 'maintenance'"),
        ({"silent": ["kvm2"]}, "kvm2 did not answer."),
        ({"open_runs": ["The maintenance run 7"]}, "The maintenance run 7 is open."),
        ({"records": [evacuated(WEB, None, status=s.PRE_MIGRATING)]}, "web has a record that is 'pre-migrating'"),
        ({"protected_hours": None}, "kvm3 was never protected: run kvmfleet.migration.protect first."),
        ({"protected_hours": 24}, "kvm3 was protected 24 h ago"),
        ({"protected_hours": None, "entry": AHEAD}, "which is in the future: a clock was wrong, so its age is not known. Run kvmfleet"),
        ({"entry": entry(held=False)}, "No boot guard holds kvm3 at its next boot"),
        ({"power": None, "is_on": False}, "kvm3 has no fence agent (kvmfleet_fencing)"),
        ({"power": "exited with 1", "is_on": False}, "The fence agent of kvm3 does not report that it is on: exited with 1."),
        ({"guests": None}, "kvm3 did not report its guests now."),
        ({"guests": []}, "No guest runs on kvm3, so that a drill would show nothing."),
        ({"unclear": ["kvm3: too many guests"]}, "It is not known whether the fleet can lose kvm3: kvm3: too many guests"),
        ({"homeless": [HomelessGuest("web", "kvm1: 64 MiB too little")]}, "The fleet cannot lose kvm3 now, as web could not be started elsewhere (kvm1: 64"),
        (
            {"homes": {"web": "kvm1"}},
            "web would not be brought back to kvm3, because a drain or an evacuation took it off kvm1, which is its home.",
        ),
    ],
)
def test_each_missing_condition_refuses_it_with_a_sentence(changes: dict[str, t.Any], said: str) -> None:
    (found,) = refusals(**changes)
    assert said in found
    assert found.endswith(".") or "too many guests" in found


def test_what_a_person_accepts_by_name_does_not_refuse_it() -> None:
    homeless = [HomelessGuest("web", "its disk is local"), HomelessGuest("app", "its disk is local")]
    (left,) = refusals(Accepted(("web",), False, 24), homeless=homeless)
    assert "as app could not be started elsewhere" in left
    assert refusals(Accepted(("web", "app"), True, 48), homeless=homeless, entry=entry(held=False), protected_hours=30) == []


def test_a_guest_that_would_start_beside_its_evacuated_self_cannot_be_accepted() -> None:
    unguarded = Accepted((), True, 24)
    (found,) = refusals(unguarded, entry=entry(held=False), autostarted=["app", "web"])
    assert found.startswith("No boot guard holds kvm3 at its next boot, and it would start app, web then, although they run elsewhere:")
    assert refusals(unguarded, autostarted=["app", "web"]) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, 300, "run", (), GUESTS), "drill_limit_seconds is 0"),
        ((3601, 3601, "run", (), GUESTS), "drill_limit_seconds is 3601"),
        ((90, 60, "run", (), GUESTS), "drill_deadline_seconds is 60, and the limit is 90 s"),
        ((90, 3601, "run", (), GUESTS), "drill_deadline_seconds is 3601"),
        ((90, 300, "run", ("db",), GUESTS), "drill_accept_lost names db, and no such guest runs on the host"),
    ],
)
def test_limits_that_cannot_be_are_refused(given: t.Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        drills.make_drill(*given)


# -- kills -------------------------------------------------------------------------------------------------------------


def test_a_drill_continues_in_the_step_where_it_was_killed() -> None:
    (host,) = begun().hosts
    assert resume_point(host, m.DRILL_STEPS) == drills_point(m.CHECK, is_repeated=False)
    for step in m.DRILL_STEPS:
        _run, admission = admit_hosts(transitions.take_over(in_step(step), holder(2), at(60)), ["kvm3"], at(60))
        assert admission.begun == {"kvm3": drills_point(step)}


def test_the_host_of_an_open_drill_that_failed_on_its_way_back_is_tried_again() -> None:
    failed = transitions.fail_host(in_step(m.RECOVER, cut()), "kvm3", "it did not answer", at(50))
    run, admission = admit_hosts(transitions.take_over(failed, holder(2), at(60)), ["kvm3"], at(60))
    assert admission.begun == {"kvm3": drills_point(m.RECOVER)}
    assert (run.hosts[0].status, run.hosts[0].error) == (m.IN_PROGRESS, None)


def drills_point(step: str, is_repeated: bool = True) -> t.Any:
    from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.decisions import ResumePoint

    return ResumePoint(step, is_repeated)


def test_the_cut_is_repeated_only_on_the_boot_that_it_was_to_end() -> None:
    assert drills.decide_cut(make(), is_off=False, boot_before="a", boot_now="a") == drills.CUT
    done = make(cut_at=at(5).at)
    assert drills.decide_cut(done, is_off=True, boot_before="a", boot_now=None) == drills.GO_ON
    assert drills.decide_cut(done, is_off=False, boot_before="a", boot_now="a") == drills.CUT
    assert drills.decide_cut(done, is_off=False, boot_before="a", boot_now="b") == drills.IS_BACK
    assert drills.decide_cut(done, is_off=False, boot_before="a", boot_now=None) == drills.IS_BACK
    assert drills.decide_cut(done, is_off=False, boot_before=None, boot_now=None) == drills.IS_BACK


def test_the_host_of_a_drill_whose_process_is_gone_is_named_as_out_of_service() -> None:
    left = dataclasses.replace(cut(), holder=None)
    closed = transitions.close_run(left, {}, at(60))
    assert (closed.state, closed.hosts[0].status, closed.hosts[0].is_down) == (m.STOPPED, m.FAILED, True)
    assert f"run the same command with -e drill_run={RUN_ID}" in end_text(closed)
    assert transitions.take_over(closed, holder(2), at(90)).drill == left.drill
    assert attention_text(dataclasses.replace(cut(), state=m.PAUSED, reason="paused by ann")) is not None


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_guests_are_waited_for_until_their_records_say_that_they_run() -> None:
    drill = t.cast(Drill, cut().drill)
    assert drills.list_waiting(drill, []) == ["app", "web"]
    # A record from before the cut is of another death.
    assert drills.list_waiting(drill, [evacuated(WEB, 8, created=5), evacuated(APP, None, status=s.PRE_MIGRATING)]) == ["app", "web"]
    assert drills.list_waiting(drill, [evacuated(WEB, 20), evacuated(APP, 21, status=s.COMPLETED)]) == []
    assert drills.list_waiting(dataclasses.replace(drill, accept_lost=("app",)), [evacuated(WEB, 20)]) == []


def test_the_deadline_counts_from_the_cut_on_the_clock_of_the_control_node() -> None:
    drill = t.cast(Drill, cut(10).drill)
    assert [drills.has_waited(drill, at(seconds)) for seconds in (11, 309, 310)] == [False, False, True]
    assert drills.has_waited(drill, at(500, boot="boot-2")) is None
    assert drills.has_waited(make(), at(500)) is None


# -- the verdict -------------------------------------------------------------------------------------------------------


def judge(*records: MoveRecord, run: MaintenanceRun | None = None, **changes: t.Any) -> Drill:
    given = {"stages": {}, "running": HOME, "must_be_home": True, "state": s.ENABLED, **changes}
    judged = drill_verdict.judge_drill(run or cut(), FleetAfter(records, **given), at(400))
    return t.cast(Drill, judged.drill)


def test_guests_that_ran_in_time_and_are_home_pass() -> None:
    fast, slow = evacuated(WEB, 31), evacuated(APP, 38.0, status=s.COMPLETED)
    drill = judge(fast, slow, stages={fast.record_id: {"start": 1.5}})
    assert (drill.passed, drill.reasons, drill.median_seconds, drill.longest_seconds) == (True, (), 21.0, 28.0)
    assert [(one.name, one.destination, one.seconds, one.stages) for one in drill.guests] == [("app", "kvm1", 28.0, {}), ("web", "kvm1", 21.0, {"start": 1.5})]
    assert drill_verdict.verdict_text(drill) == "passed: 2 of 2 guests ran elsewhere, median 21.0 s, longest 28.0 s, limit 90 s"
    run = dataclasses.replace(cut(), drill=drill)
    assert decode(MaintenanceRun, encode(run)) == run
    assert drill_verdict.drill_line(run).startswith("kvm3 at 2026-11-24 01:00 UTC: passed: ")
    assert drill_verdict.last_verdict([begun(), run]) == run
    assert drill_verdict.last_verdict([begun()]) is None


@pytest.mark.parametrize(
    ("records", "changes", "reason"),
    [
        ([evacuated(WEB, 101), evacuated(APP, 20)], {}, "web: it ran elsewhere after 91.0 s, and the limit is 90 s"),
        ([evacuated(APP, 20)], {}, "web: it was not started elsewhere"),
        ([evacuated(WEB, None, status=s.CONFLICT), evacuated(APP, 20)], {}, "web: it was not started elsewhere (conflict: )"),
        ([evacuated(WEB, 20), evacuated(APP, 20)], {"running": {**HOME, "kvm3": frozenset({APP})}}, "web: it was not brought back"),
        ([evacuated(WEB, 20), evacuated(APP, 20)], {"running": {**HOME, "kvm3": None}}, "kvm3 did not report its guests after its return."),
        ([evacuated(WEB, 20), evacuated(APP, 20)], {"running": {**HOME, "kvm1": frozenset({WEB})}}, "web: it runs on kvm1 and kvm3 at the same time"),
        ([evacuated(WEB, 20), evacuated(APP, 20)], {"running": {"kvm3": frozenset({WEB})}, "must_be_home": False}, "app: it runs on no host"),
        (
            [evacuated(WEB, 20), evacuated(APP, 20)],
            {"running": {**HOME, "kvm1": None}},
            "kvm1 did not report the guests there, so that it is not known whether a guest of kvm3 runs twice.",
        ),
        ([evacuated(WEB, 20), evacuated(APP, 20)], {"state": s.FENCED}, "kvm3 is in the state 'fenced' in the ledger."),
    ],
)
def test_each_shortcoming_fails_it_and_is_named(records: list[MoveRecord], changes: dict[str, t.Any], reason: str) -> None:
    drill = judge(*records, **changes)
    assert (drill.passed, drill.reasons) == (False, (reason,))
    assert drill_verdict.verdict_text(drill).startswith("failed: ")
    assert reason.rstrip(".") in drill_verdict.verdict_text(drill)


def test_a_problem_a_host_that_stays_off_and_a_missing_cut_fail_it() -> None:
    run = drills.note_problem(cut(), "kvm3", "The evacuation failed: no answer.", at(50))
    assert drills.note_problem(run, "kvm3", "The evacuation failed: no answer.", at(51)) == run
    failed = transitions.fail_host(run, "kvm3", "did not return within 900 s", at(60))
    drill = judge(evacuated(WEB, 20), evacuated(APP, 20), run=failed, running={**HOME, "kvm3": None})
    assert drill.reasons == ("The evacuation failed: no answer.", "kvm3 was not brought back (cut): did not return within 900 s")
    assert "The power was not cut." in judge(run=in_step(m.CUT)).reasons


def test_a_late_guest_of_an_interrupted_drill_says_so() -> None:
    run = transitions.take_over(cut(), holder(2), at(60))
    assert judge(evacuated(WEB, 120), evacuated(APP, 20), run=run).reasons == (
        "web: it ran elsewhere after 110.0 s, and the limit is 90 s, and the drill was interrupted",
    )


def test_a_guest_that_may_stay_off_and_guests_that_need_not_come_home_are_no_reason() -> None:
    lost = dataclasses.replace(cut(), drill=dataclasses.replace(t.cast(Drill, cut().drill), accept_lost=("web",)))
    assert judge(evacuated(APP, 20), run=lost).passed
    assert judge(evacuated(WEB, 20), evacuated(APP, 20), running={"kvm1": frozenset({WEB, APP}), "kvm3": frozenset()}, must_be_home=False).passed
