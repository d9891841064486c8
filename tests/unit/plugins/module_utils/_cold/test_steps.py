# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of cold moves, as a table: what is seen, and what follows from it."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import steps as st
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import NO_ANSWER, NOT_THERE, DomainView

OFF = DomainView(present=True, persistent=True, state=ds.SHUTOFF, reason="shutdown")
SAVED = DomainView(present=True, persistent=True, state=ds.SHUTOFF, reason="saved")
FRESH = DomainView(present=True, persistent=True, state=ds.SHUTOFF)
RUNS = DomainView(present=True, active=True, persistent=True, state=ds.RUNNING, reason="booted")
RESTORED = DomainView(present=True, active=True, persistent=True, state=ds.PAUSED, reason=ds.MIGRATION)
SUSPENDED = DomainView(present=True, active=True, persistent=True, state=ds.PAUSED, reason="user")
SAVING = DomainView(present=True, active=True, persistent=True, state=ds.PAUSED, reason="saving")
BUSY = DomainView(present=True, active=True, persistent=True, state=ds.RUNNING, reason="booted", job=ds.JOB_OTHER)
VIEWS = (NO_ANSWER, NOT_THERE, OFF, SAVED, FRESH, RUNS, RESTORED, SUSPENDED, SAVING, BUSY)
IMAGES = (st.NO_IMAGE, st.INCOMPLETE, st.UNREADABLE, st.READY, st.SPENT_THERE, st.SPENT_HERE)


def course(method: str, **how: t.Any) -> st.Course:
    ran = how.pop("ran_before", method != "offline")
    return st.Course(**{"method": method, "runs_after": ran and method == "save", "ran_before": ran, "autostart": False, **how})


COPIED = {"done": frozenset({st.COPY_FILES})}
KEPT = {"done": frozenset({st.KEEP_FILES})}
ADOPTED, UNDOING = {"adopted": True}, {"undoing": True}
STAYS_PAUSED: dict[str, t.Any] = {"runs_after": False, "ran_before": False}
TABLE: list[tuple[str, dict[str, t.Any], DomainView, DomainView, str, str]] = [
    ("offline", {}, OFF, NOT_THERE, st.NO_IMAGE, st.DEFINE),
    ("offline", {}, OFF, FRESH, st.NO_IMAGE, st.COPY_FILES),
    ("offline", COPIED, OFF, FRESH, st.NO_IMAGE, st.UNDEFINE_SOURCE),
    ("offline", {}, NOT_THERE, FRESH, st.NO_IMAGE, st.KEEP_FILES),
    ("offline", KEPT, NOT_THERE, FRESH, st.NO_IMAGE, st.ARRIVED),
    ("offline", KEPT | {"autostart": True}, NOT_THERE, FRESH, st.NO_IMAGE, st.AUTOSTART),
    # A person has started the domain on one of both hosts.
    ("offline", {}, RUNS, FRESH, st.NO_IMAGE, st.UNDEFINE_DESTINATION),
    ("offline", {}, OFF, RUNS, st.NO_IMAGE, st.UNDEFINE_SOURCE),
    ("offline", {}, RUNS, RUNS, st.NO_IMAGE, st.DOUBT),
    ("offline", {}, NOT_THERE, NOT_THERE, st.NO_IMAGE, st.DOUBT),
    ("offline", {}, OFF, NO_ANSWER, st.NO_IMAGE, st.DOUBT),
    ("offline", UNDOING, OFF, FRESH, st.NO_IMAGE, st.UNDEFINE_DESTINATION),
    ("offline", UNDOING, OFF, NOT_THERE, st.NO_IMAGE, st.STAYED),
    ("shutdown", {}, RUNS, FRESH, st.NO_IMAGE, st.SHUT_DOWN),
    ("shutdown", ADOPTED, RUNS, FRESH, st.NO_IMAGE, st.UNDEFINE_DESTINATION),
    ("shutdown", ADOPTED, OFF, FRESH, st.NO_IMAGE, st.COPY_FILES),
    ("shutdown", KEPT | {"runs_after": True}, NOT_THERE, FRESH, st.NO_IMAGE, st.START),
    # It is to stay off.
    ("shutdown", KEPT, NOT_THERE, FRESH, st.NO_IMAGE, st.ARRIVED),
    # It was started there, and its guest has shut itself down since.
    ("shutdown", KEPT | {"runs_after": True}, NOT_THERE, OFF, st.NO_IMAGE, st.ARRIVED),
    ("shutdown", UNDOING | {"runs_after": True}, OFF, NOT_THERE, st.NO_IMAGE, st.START_BACK),
    ("shutdown", UNDOING, OFF, NOT_THERE, st.NO_IMAGE, st.STAYED),
    ("save", {}, RUNS, FRESH, st.NO_IMAGE, st.SAVE_MEMORY),
    ("save", {}, SAVING, FRESH, st.UNREADABLE, st.WAIT),
    ("save", ADOPTED, BUSY, FRESH, st.UNREADABLE, st.WAIT),
    ("save", ADOPTED, RUNS, FRESH, st.NO_IMAGE, st.UNDEFINE_DESTINATION),
    ("save", COPIED, SAVED, FRESH, st.READY, st.RESTORE),
    ("save", {}, SAVED, RESTORED, st.READY, st.SPEND),
    ("save", {}, SAVED, RESTORED, st.SPENT_THERE, st.RESUME),
    ("save", {}, SAVED, RUNS, st.SPENT_THERE, st.UNDEFINE_SOURCE),
    ("save", {}, NOT_THERE, RUNS, st.SPENT_THERE, st.REMOVE_IMAGE),
    ("save", KEPT, NOT_THERE, RUNS, st.NO_IMAGE, st.ARRIVED),
    ("save", STAYS_PAUSED, SAVED, RESTORED, st.SPENT_THERE, st.UNDEFINE_SOURCE),
    # The memory was restored, and its image, which may be unspent, is not seen: its folder is not mounted, or cannot be read.
    ("save", ADOPTED, FRESH, RESTORED, st.NO_IMAGE, st.DOUBT),
    ("save", ADOPTED, FRESH, RESTORED, st.UNREADABLE, st.DOUBT),
    ("save", ADOPTED, NOT_THERE, RESTORED, st.NO_IMAGE, st.DOUBT),
    ("save", STAYS_PAUSED, FRESH, RESTORED, st.NO_IMAGE, st.DOUBT),
    # The image is removed after the definition of the source; a person has paused the guest since.
    ("save", STAYS_PAUSED | KEPT, NOT_THERE, RESTORED, st.NO_IMAGE, st.ARRIVED),
    ("save", KEPT, NOT_THERE, SUSPENDED, st.NO_IMAGE, st.ARRIVED),
    ("save", UNDOING, SAVED, FRESH, st.READY, st.RESTORE_BACK),
    ("save", UNDOING, RESTORED, FRESH, st.READY, st.SPEND_BACK),
    ("save", UNDOING, RESTORED, FRESH, st.SPENT_HERE, st.RESUME_BACK),
    ("save", UNDOING, RUNS, NOT_THERE, st.SPENT_HERE, st.REMOVE_IMAGE),
    # A person has started the guest from its disks: the image is void.
    ("save", {}, RUNS, FRESH, st.READY, st.SPEND_BACK),
    # It ran there, and is off: what is spent is never restored.
    ("save", {}, SAVED, OFF, st.SPENT_THERE, st.UNDEFINE_SOURCE),
    ("save", {}, SAVED, FRESH, st.UNREADABLE, st.DOUBT),
    # Its host lost its power while the memory was being saved.
    ("save", ADOPTED, FRESH, FRESH, st.INCOMPLETE, st.UNDEFINE_DESTINATION),
    ("save", ADOPTED, FRESH, NOT_THERE, st.INCOMPLETE, st.REMOVE_IMAGE),
    ("save", ADOPTED, FRESH, FRESH, st.UNREADABLE, st.DOUBT),
    ("save", ADOPTED, FRESH, FRESH, st.NO_IMAGE, st.DOUBT),
    ("save", KEPT, NOT_THERE, RUNS, st.INCOMPLETE, st.REMOVE_IMAGE),
    ("save", {}, SAVED, FRESH, st.NO_IMAGE, st.DOUBT),
    ("save", {}, OFF, FRESH, st.NO_IMAGE, st.UNDEFINE_DESTINATION),
    ("save", {"restore_ordered": False}, SAVED, NO_ANSWER, st.READY, st.RESTORE_BACK),
    ("save", {"restore_ordered": False}, RESTORED, NO_ANSWER, st.READY, st.SPEND_BACK),
    ("save", {}, SAVED, NO_ANSWER, st.READY, st.DOUBT),
]


@pytest.mark.parametrize(("method", "how", "source", "destination", "image", "step"), TABLE)
def test_the_next_step(method: str, how: dict[str, t.Any], source: DomainView, destination: DomainView, image: str, step: str) -> None:
    assert st.next_step(course(method, **how), st.Seen(source, destination, image=image)) == step


def test_without_an_image_in_a_folder_that_both_hosts_see_the_memory_was_never_saved() -> None:
    adopted = course("save", **ADOPTED)
    lost = st.Seen(FRESH, FRESH)
    assert (st.needs_folder_proof(adopted, lost), st.next_step(adopted, lost)) == (True, st.DOUBT)
    assert st.next_step(adopted, st.Seen(FRESH, FRESH, folder_proved=True)) == st.UNDEFINE_DESTINATION
    # Here libvirt knows that the memory was saved, the destination may have the guest, or the guest is known to have stopped.
    for source, destination in ((SAVED, FRESH), (FRESH, RUNS), (FRESH, NO_ANSWER), (OFF, FRESH), (RUNS, FRESH), (NO_ANSWER, FRESH)):
        assert not st.needs_folder_proof(adopted, st.Seen(source, destination))
    assert not st.needs_folder_proof(adopted, st.Seen(FRESH, FRESH, image=st.UNREADABLE))
    assert not st.needs_folder_proof(course("shutdown"), lost)


def test_autostart_of_the_source_is_off_before_anything_else_is_done() -> None:
    for method, source in (("offline", OFF), ("shutdown", RUNS), ("save", RUNS)):
        seen = st.Seen(source, FRESH, source_autostart=True)
        assert st.next_step(course(method, autostart=True), seen) == st.HOLD_AUTOSTART


COURSES = [
    course(method, adopted=adopted, undoing=undoing, restore_ordered=ordered, autostart=True, done=done)
    for method, adopted, undoing, ordered, done in itertools.product(
        ("offline", "save", "shutdown"), (False, True), (False, True), (False, True), (frozenset(), COPIED["done"] | KEPT["done"])
    )
]


def test_no_step_breaks_a_rule_whatever_is_seen() -> None:
    for one, source, destination, image, here, there in itertools.product(COURSES, VIEWS, VIEWS, IMAGES, (False, True), (False, True)):
        seen = st.Seen(source, destination, here, there, image)
        step = st.next_step(one, seen)
        if source.active and destination.active:
            assert step in (st.DOUBT, st.WAIT)
        if step == st.UNDEFINE_SOURCE:
            assert destination.present
            assert not source.active
        if step == st.UNDEFINE_DESTINATION:
            assert source.present
            assert not destination.active
        if step in (st.RESTORE, st.RESTORE_BACK):
            assert image == st.READY
            assert not source.active
            assert not destination.active
        if step in (st.RESUME, st.RESUME_BACK):
            assert image in (st.SPENT_THERE, st.SPENT_HERE)
        if step in (st.START, st.START_BACK):
            assert not source.active
            assert not destination.active
        if step == st.AUTOSTART:
            assert not source.present
        if step == st.AUTOSTART_BACK:
            assert not destination.present
        if step == st.REMOVE_IMAGE:
            assert source.active or destination.active or image == st.INCOMPLETE
