# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves with force to hosts that are not enabled: bypassed rules are recorded, and impossible moves are refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_refused, check_untouched, reasons
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


@pytest.mark.long
def test_a_forced_move_to_a_closed_host_records_what_it_bypassed(lab: Lab, control: Desk, web: str) -> None:
    control.close(2, "maintenance", "a new fan")
    control.close(3, "fenced", "it smelled")
    check_refused(lab, control, control.move(web, None), web, lab.host(2), "a new fan", lab.host(3), "it smelled")
    check_refused(lab, control, control.move(web, 2), web, "maintenance", "a new fan")
    predicted = control.move(web, 2, "--check", force=True)
    assert (predicted.code, predicted.record["forced"]) == (0, "FORCED_MIGRATE"), predicted.text
    assert control.forced_moves() == []
    done = control.move(web, 2, force=True)
    check_moved(lab, done, web, 2)
    assert done.record["forced"] == "FORCED_MIGRATE"
    assert "a new fan" in str(done.record["history"])
    assert "bypassed by force" in done.warnings
    assert control.forced_moves() == [done.record]
    assert [record["status"] for record in control.records()] == ["conflict", "conflict", "completed"]


@pytest.mark.long
def test_a_forced_move_that_no_filter_refuses_is_recorded_as_forced(lab: Lab, control: Desk, web: str) -> None:
    done = control.move(web, 2, force=True)
    check_moved(lab, done, web, 2)
    assert done.record["forced"] == "FORCED_MIGRATE"
    assert control.forced_moves() == [done.record]


@pytest.mark.long
def test_force_needs_a_destination_that_answers_and_is_not_the_source(lab: Lab, control: Desk, web: str, stopped: t.Callable[[int], None]) -> None:
    nowhere = control.move(web, None, force=True)
    assert nowhere.refused() == "invalid_argument"
    assert "destination" in nowhere.msg
    itself = control.move(web, 1, force=True)
    assert itself.refused() == "invalid_argument"
    stopped(2)
    silent = control.move(web, 2, force=True)
    assert silent.refused() == "unreachable"
    assert lab.host(2) in silent.msg
    assert (silent.ended(), silent.record["forced"]) == (("conflict", None), "FORCED_MIGRATE")
    assert control.forced_moves() == [control.only_record()] == [silent.record]
    check_untouched(lab, web)


@pytest.mark.long
def test_a_silent_candidate_is_refused_and_another_host_is_chosen(lab: Lab, control: Desk, web: str, stopped: t.Callable[[int], None]) -> None:
    stopped(2)
    seen = control.check(1, 2, 3, name=web)
    assert (seen.code, seen.result["selected"]) == (0, lab.host(3)), seen.text
    assert set(reasons(seen.result, lab.host(1))) == {"not_source"}
    assert set(reasons(seen.result, lab.host(2))) == {"up"}
    check_moved(lab, control.move(web, None), web, 3)
