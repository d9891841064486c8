# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Statuses and which may follow which."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import check_transition, may_follow

MOVE = [s.ACCEPTED, s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED]
EVACUATION = [s.ACCEPTED, s.PRE_MIGRATING, s.DONE, s.COMPLETED]
ALL = sorted(s.UNSETTLED | s.TOMBSTONE | s.CLOSED)


def test_every_status_is_in_one_class() -> None:
    classes = (s.UNSETTLED, s.TOMBSTONE, s.CLOSED)
    assert not [pair for pair in itertools.combinations(classes, 2) if pair[0] & pair[1]]
    assert s.BEFORE_JOB < s.UNSETTLED
    assert s.CLOSED | {s.ERROR} == s.FINAL


@pytest.mark.parametrize(("record_type", "way"), [(s.LIVE_MIGRATION, MOVE), (s.EVACUATION, EVACUATION)])
def test_statuses_of_a_record_only_go_forward(record_type: str, way: t.List[str]) -> None:
    for earlier, later in zip(way, way[1:]):
        check_transition(record_type, earlier, later)
        with pytest.raises(Internal, match="cannot change from"):
            check_transition(record_type, later, earlier)


@pytest.mark.parametrize("record_type", s.TYPES)
@pytest.mark.parametrize("closed", sorted(s.CLOSED))
def test_nothing_follows_a_closed_status(record_type: str, closed: str) -> None:
    assert [status for status in ALL if may_follow(record_type, closed, status)] == [closed]


@pytest.mark.parametrize("status", MOVE[:-1])
def test_an_unfinished_move_can_become_failed_cancelled_or_error(status: str) -> None:
    for end in (s.FAILED, s.CANCELLED, s.ERROR):
        check_transition(s.LIVE_MIGRATION, status, end)


def test_only_a_move_that_is_not_queued_yet_can_become_conflict() -> None:
    assert [status for status in MOVE if may_follow(s.LIVE_MIGRATION, status, s.CONFLICT)] == [s.ACCEPTED, s.SCHEDULED]


def test_an_error_is_settled_by_what_the_hosts_prove() -> None:
    for status in (s.COMPLETED, s.FAILED, s.CANCELLED):
        check_transition(s.LIVE_MIGRATION, s.ERROR, status)


def test_an_evacuation_is_never_running() -> None:
    for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.CANCELLED):
        assert not [earlier for earlier in EVACUATION if may_follow(s.EVACUATION, earlier, status)]


def test_an_evacuation_is_completed_only_after_its_domain_was_started() -> None:
    assert [status for status in ALL if status != s.COMPLETED and may_follow(s.EVACUATION, status, s.COMPLETED)] == [s.DONE, s.ERROR]
