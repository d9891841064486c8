# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which step of a cold move comes next for a domain that is off and has a managed-save image. Pure functions, like those in C(steps).

The domain is started paused on its source, which uses up the image, moved live, and saved at the destination. Its CPUs never run in between, so every copy of
its memory is the same. The source holds the file of the image under a second name (C(seen.image)) until the destination has saved the memory: whatever is
killed, the memory is in a file. It is restored from there, paused, only if no host shows that the guest has run and stopped since.
"""

from __future__ import annotations

from .._model.domain_states import MIGRATION, PAUSED, STOPPED_REASONS
from . import steps as st

# The steps that only this kind of move has.
HOLD_IMAGE, START_PAUSED, MOVE_LIVE = "hold_image", "start_paused", "move_live"
SAVE_THERE, SAVE_BACK = "save_at_destination", "save_back"
# Why a guest is off that may have run since its memory was saved.
_RAN = ("shutdown", "destroyed", "crashed")


def next_step(course: st.Course, seen: st.Seen) -> str:
    """Return the next step, or the end."""
    source, destination = seen.source, seen.destination
    if not source.answered:
        return st.DOUBT
    if st.is_busy(source) or (destination.answered and st.is_busy(destination)):
        return st.WAIT
    if not destination.answered:
        # Its memory is put back to a file, if the destination was never told to receive it.
        return SAVE_BACK if _is_asleep(seen) and not course.restore_ordered else st.DOUBT
    if source.active and destination.active:
        return st.DOUBT
    if destination.active or not source.present or (seen.destination_saved and not source.active and not seen.source_saved):
        return _finish(course, seen)
    return _undo(course, seen) if course.undoing else _advance(course, seen)


def _is_asleep(seen: st.Seen) -> bool:
    """Whether the source has the guest with the memory of the image, as this move has started it."""
    return seen.source.active and seen.source.state == PAUSED and seen.image == st.READY


def _advance(course: st.Course, seen: st.Seen) -> str:
    """Return the next step of a move whose memory is on the source, in the guest or in a file."""
    if seen.source.active:
        # A guest that runs, or of which no image is held, was started by a person.
        return st.prepare(seen) or MOVE_LIVE if _is_asleep(seen) else _undo(course, seen)
    if not seen.source_saved:
        return _regain(seen)
    if seen.image in (st.INCOMPLETE, st.UNREADABLE):
        return _undo(course, seen)
    return st.prepare(seen) or (HOLD_IMAGE if seen.image == st.NO_IMAGE else START_PAUSED)


def _regain(seen: st.Seen) -> str:
    """Return the step while the memory is only in the file that the source holds."""
    may_have_run = seen.source.reason in _RAN or seen.destination.reason in _RAN
    return st.RESTORE_BACK if seen.image == st.READY and not may_have_run else st.DOUBT


def _finish(course: st.Course, seen: st.Seen) -> str:
    """Return the next step of a move whose memory is at the destination."""
    destination = seen.destination
    if not destination.present or (not destination.active and not seen.destination_saved and destination.reason not in STOPPED_REASONS):
        return st.DOUBT
    if destination.active and destination.state == PAUSED and (seen.image == st.READY or _has_just_arrived(seen)):
        return SAVE_THERE
    if seen.source.present:
        # An image that both hosts have could be restored on both.
        return st.DOUBT if seen.source_saved else st.UNDEFINE_SOURCE
    if course.autostart and not seen.destination_autostart:
        return st.AUTOSTART
    if seen.image != st.NO_IMAGE:
        return st.REMOVE_IMAGE
    return st.ARRIVED if st.KEEP_FILES in course.done else st.KEEP_FILES


def _has_just_arrived(seen: st.Seen) -> bool:
    """Whether the guest has crossed and its memory is not saved yet, also if the source does not see the file that it holds."""
    return seen.destination.reason == MIGRATION and seen.source.present and not seen.source_saved


def _undo(course: st.Course, seen: st.Seen) -> str:
    """Return the next step back of a move whose memory is on the source, in the guest or in a file."""
    if seen.source.active:
        if _is_asleep(seen):
            return SAVE_BACK
    elif not seen.source_saved:
        return _regain(seen)
    if seen.destination.present:
        return st.UNDEFINE_DESTINATION
    if course.autostart and not seen.source_autostart:
        return st.AUTOSTART_BACK
    return st.REMOVE_IMAGE if seen.image != st.NO_IMAGE else st.STAYED
