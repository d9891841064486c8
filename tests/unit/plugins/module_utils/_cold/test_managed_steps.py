# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a cold move with a managed-save image, as a table: what is seen, and what follows from it."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import managed_steps as ms
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import steps as st
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import NO_ANSWER, NOT_THERE, DomainView

OFF = DomainView(present=True, persistent=True, state=ds.SHUTOFF, reason="saved")
BOOTED = DomainView(present=True, persistent=True, state=ds.SHUTOFF)
GONE = DomainView(present=True, persistent=True, state=ds.SHUTOFF, reason=ds.MIGRATED)
HALTED = DomainView(present=True, persistent=True, state=ds.SHUTOFF, reason="shutdown")
RUNS = DomainView(present=True, active=True, persistent=True, state=ds.RUNNING, reason="booted")
ASLEEP = DomainView(present=True, active=True, persistent=True, state=ds.PAUSED, reason="user")
SENDING = DomainView(present=True, active=True, persistent=True, state=ds.PAUSED, reason="user", job=ds.JOB_OUTGOING)
ARRIVING = DomainView(present=True, active=True, state=ds.PAUSED, reason=ds.MIGRATION, job=ds.JOB_INCOMING)
ARRIVED = DomainView(present=True, active=True, persistent=True, state=ds.PAUSED, reason=ds.MIGRATION)
VIEWS = (NO_ANSWER, NOT_THERE, OFF, BOOTED, GONE, HALTED, RUNS, ASLEEP, SENDING, ARRIVING, ARRIVED)
IMAGES = (st.NO_IMAGE, st.INCOMPLETE, st.UNREADABLE, st.READY)
KEPT = {"done": frozenset({st.KEEP_FILES})}
UNDOING = {"undoing": True}


def course(**how: t.Any) -> st.Course:
    return st.Course(**{"method": "offline", "runs_after": False, "ran_before": False, "autostart": False, **how})


# How the move is, the source, the destination, whether they have a managed-save image, and what the source holds.
TABLE: list[tuple[dict[str, t.Any], DomainView, DomainView, tuple[bool, bool], str, str]] = [
    ({}, OFF, NOT_THERE, (True, False), st.NO_IMAGE, st.DEFINE),
    ({}, OFF, BOOTED, (True, False), st.NO_IMAGE, ms.HOLD_IMAGE),
    ({}, OFF, BOOTED, (True, False), st.READY, ms.START_PAUSED),
    ({}, ASLEEP, BOOTED, (False, False), st.READY, ms.MOVE_LIVE),
    ({}, SENDING, ARRIVING, (False, False), st.READY, st.WAIT),
    ({}, GONE, ASLEEP, (False, False), st.READY, ms.SAVE_THERE),
    # The folder of the held image is not mounted after the source has booted, or cannot be read.
    ({}, BOOTED, ARRIVED, (False, False), st.NO_IMAGE, ms.SAVE_THERE),
    ({}, BOOTED, ARRIVED, (False, False), st.UNREADABLE, ms.SAVE_THERE),
    # A person has started it there, paused, after its memory was saved.
    ({}, NOT_THERE, ARRIVED, (False, False), st.NO_IMAGE, st.KEEP_FILES),
    ({}, GONE, OFF, (False, True), st.READY, st.UNDEFINE_SOURCE),
    ({"autostart": True}, NOT_THERE, OFF, (False, True), st.READY, st.AUTOSTART),
    ({}, NOT_THERE, OFF, (False, True), st.READY, st.REMOVE_IMAGE),
    ({}, NOT_THERE, OFF, (False, True), st.NO_IMAGE, st.KEEP_FILES),
    (KEPT, NOT_THERE, OFF, (False, True), st.NO_IMAGE, st.ARRIVED),
    # A part of the move has failed.
    (UNDOING, ASLEEP, BOOTED, (False, False), st.READY, ms.SAVE_BACK),
    (UNDOING, OFF, BOOTED, (True, False), st.READY, st.UNDEFINE_DESTINATION),
    (UNDOING, OFF, NOT_THERE, (True, False), st.READY, st.REMOVE_IMAGE),
    (UNDOING, OFF, NOT_THERE, (True, False), st.NO_IMAGE, st.STAYED),
    (UNDOING, GONE, ASLEEP, (False, False), st.READY, ms.SAVE_THERE),
    ({}, OFF, BOOTED, (True, False), st.UNREADABLE, st.UNDEFINE_DESTINATION),
    ({}, OFF, BOOTED, (True, False), st.INCOMPLETE, st.UNDEFINE_DESTINATION),
    # A host was rebooted while it had the guest: nobody has run it.
    ({}, BOOTED, BOOTED, (False, False), st.READY, st.RESTORE_BACK),
    ({}, GONE, BOOTED, (False, False), st.READY, st.RESTORE_BACK),
    # A guest that has run since its memory was saved is never restored from that.
    ({}, HALTED, BOOTED, (False, False), st.READY, st.DOUBT),
    ({}, GONE, HALTED, (False, False), st.READY, st.DOUBT),
    ({}, BOOTED, BOOTED, (False, False), st.NO_IMAGE, st.DOUBT),
    # A person has resumed the guest.
    ({}, RUNS, BOOTED, (False, False), st.READY, st.UNDEFINE_DESTINATION),
    ({}, GONE, RUNS, (False, False), st.READY, st.UNDEFINE_SOURCE),
    ({}, ASLEEP, ASLEEP, (False, False), st.READY, st.DOUBT),
    ({}, NO_ANSWER, ASLEEP, (False, False), st.NO_IMAGE, st.DOUBT),
    ({"restore_ordered": False}, ASLEEP, NO_ANSWER, (False, False), st.READY, ms.SAVE_BACK),
    ({}, ASLEEP, NO_ANSWER, (False, False), st.READY, st.DOUBT),
]


@pytest.mark.parametrize(("how", "source", "destination", "saved", "image", "step"), TABLE)
def test_the_next_step(how: dict[str, t.Any], source: DomainView, destination: DomainView, saved: tuple[bool, bool], image: str, step: str) -> None:
    seen = st.Seen(source, destination, image=image, source_saved=saved[0], destination_saved=saved[1])
    assert ms.next_step(course(**how), seen) == step


def test_autostart_of_the_source_is_off_before_the_guest_is_started() -> None:
    seen = st.Seen(OFF, BOOTED, source_autostart=True, image=st.READY, source_saved=True)
    assert ms.next_step(course(autostart=True), seen) == st.HOLD_AUTOSTART


COURSES = [
    course(undoing=undoing, restore_ordered=ordered, autostart=True, done=done)
    for undoing, ordered, done in itertools.product((False, True), (False, True), (frozenset(), KEPT["done"]))
]
SEEN = [
    st.Seen(source, destination, here, there, image, here_saved and not source.active, there_saved and not destination.active)
    for source, destination, image, here, there, here_saved, there_saved in itertools.product(
        VIEWS, VIEWS, IMAGES, (False, True), (False, True), (False, True), (False, True)
    )
]


def test_no_step_breaks_a_rule_whatever_is_seen() -> None:
    for one, seen in itertools.product(COURSES, SEEN):
        step, source, destination = ms.next_step(one, seen), seen.source, seen.destination
        if source.active and destination.active:
            assert step in (st.DOUBT, st.WAIT)
        if step in (st.RESTORE_BACK, ms.START_PAUSED):
            assert seen.image == st.READY
            assert not source.active
            assert not destination.active
            assert "shutdown" not in (source.reason, destination.reason) or seen.source_saved
        if step == ms.MOVE_LIVE:
            assert (source.state, seen.image, destination.active) == (ds.PAUSED, st.READY, False)
        if step in (ms.SAVE_THERE, ms.SAVE_BACK):
            assert (destination if step == ms.SAVE_THERE else source).state == ds.PAUSED
        if step == st.UNDEFINE_SOURCE:
            assert destination.active or seen.destination_saved or destination.reason in ds.STOPPED_REASONS
            assert not source.active
            assert not seen.source_saved
        if step == st.UNDEFINE_DESTINATION:
            assert source.active or seen.source_saved
            assert not destination.active
        if step == st.REMOVE_IMAGE:
            assert source.active or seen.source_saved or destination.present
        if step == st.STAYED:
            assert source.active or seen.source_saved
            assert not destination.present
