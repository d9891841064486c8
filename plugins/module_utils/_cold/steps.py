# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which step of a cold move comes next, given what both hosts and the folder of the saved memory show. Pure functions.

The same functions decide for a move that was just ordered and for one whose process was killed: what was done before shows in what is seen now. The owner
of the domain follows from that too:

- as long as the source has the definition, and its guest is not active at the destination, the source is the owner;
- the memory in an image can run only once. A guest is restored paused, then the image is renamed (spent), and only then the guest is resumed. An image that is
  not spent has never run, so it may be restored, again and on either host; one that is spent never is.
"""

from __future__ import annotations

import typing as t

from .._dataclass import dataclass
from .._model.domain_states import MIGRATION, PAUSED, STARTING_UP, STOPPED_REASONS, DomainView
from .._model.record_parts import OFFLINE, SAVE, SHUTDOWN

# What is in the folder of the saved memory: nothing, an image that libvirt never completed, one that cannot be read, one that can be restored, or one that was
# restored.
NO_IMAGE, INCOMPLETE, UNREADABLE, READY = "none", "incomplete", "unreadable", "ready"
SPENT_THERE, SPENT_HERE = "spent at the destination", "spent at the source"

# The steps. The names are written to the record before the step is done.
DEFINE, HOLD_AUTOSTART, SHUT_DOWN, SAVE_MEMORY, COPY_FILES = "define", "hold_autostart", "shut_down", "save", "copy_files"
RESTORE, SPEND, RESUME, UNDEFINE_SOURCE, AUTOSTART, START = "restore", "spend_image", "resume", "undefine_source", "autostart", "start"
REMOVE_IMAGE, KEEP_FILES = "remove_image", "keep_files"
# Those that undo a move.
RESTORE_BACK, SPEND_BACK, RESUME_BACK, START_BACK = "restore_back", "spend_image_back", "resume_back", "start_back"
UNDEFINE_DESTINATION, AUTOSTART_BACK = "undefine_destination", "autostart_back"
# A job occupies the domain.
WAIT = "wait"
# The ends: the domain is at the destination; it is on the source as before; the hosts do not show which of both.
ARRIVED, STAYED, DOUBT = "arrived", "stayed", "doubt"
ENDS = (ARRIVED, STAYED, DOUBT)


# Reasons of a pause that ends by itself.
_PASSING = (STARTING_UP, "saving")
# Reasons of a stop that cannot be a save.
_STOPPED = ("shutdown", "destroyed", "crashed", "failed")
_SAVED = "saved"


@dataclass(frozen=True)
class Seen:
    """What is seen at one moment.

    :arg source_autostart: whether the domain starts with its source; C(destination_autostart) likewise.
    :arg image: what is in the folder of the saved memory.
    :arg source_saved: whether the source has a managed-save image; C(destination_saved) likewise.
    :arg folder_proved: whether both hosts are proved to see the folder of the saved memory, so that it has no image indeed; see L(needs_folder_proof).
    """

    source: DomainView
    destination: DomainView
    source_autostart: bool = False
    destination_autostart: bool = False
    image: str = NO_IMAGE
    source_saved: bool = False
    destination_saved: bool = False
    folder_proved: bool = False


@dataclass(frozen=True)
class Course:
    """What the move is to do, and what its process has done.

    :arg runs_after: whether the guest is to run at the end; a paused one stays paused.
    :arg ran_before: whether the guest ran before the move.
    :arg autostart: whether the domain started with its host before the move.
    :arg adopted: an earlier process has begun it: the guest is neither shut down nor saved any more.
    :arg undoing: a step has failed.
    :arg restore_ordered: whether the destination may have been told to restore, or to receive, the memory.
    :arg done: steps of this process that leave nothing to be seen.
    """

    method: str
    runs_after: bool
    ran_before: bool
    autostart: bool
    adopted: bool = False
    undoing: bool = False
    restore_ordered: bool = True
    done: t.FrozenSet[str] = frozenset()


def next_step(course: Course, seen: Seen) -> str:
    """Return the next step, or the end."""
    source, destination = seen.source, seen.destination
    if not source.answered:
        return DOUBT
    if not destination.answered:
        return _step_alone(course, seen)
    if source.active and destination.active:
        return DOUBT
    if is_busy(source) or is_busy(destination):
        return WAIT
    if destination.active or not source.present:
        return _finish(course, seen)
    return _undo(course, seen) if course.undoing else _advance(course, seen)


def is_busy(view: DomainView) -> bool:
    """Whether a job occupies the domain; one that is being saved or restored may not show it."""
    return view.is_busy or (view.active and view.reason in _PASSING)


def _step_alone(course: Course, seen: Seen) -> str:
    """Return the step while the destination does not answer. A guest whose memory it was never told to restore may run on its source again."""
    if course.method == SAVE and not course.restore_ordered and not is_busy(seen.source):
        if seen.source.active:
            return _wake_up(course, seen) or DOUBT
        if seen.image == READY:
            return RESTORE_BACK
    return DOUBT


def _advance(course: Course, seen: Seen) -> str:
    """Return the next step of a move whose source has the definition, and whose guest is not active at the destination."""
    if course.method == SAVE:
        return _advance_save(course, seen)
    if seen.source.active:
        return _undo(course, seen) if course.method == OFFLINE or course.adopted else prepare(seen) or SHUT_DOWN
    return prepare(seen) or _copy(course) or UNDEFINE_SOURCE


def _advance_save(course: Course, seen: Seen) -> str:
    if seen.source.active:
        # An image beside a guest that runs on the source is of no use any more.
        return _undo(course, seen) if course.adopted or seen.image != NO_IMAGE else prepare(seen) or SAVE_MEMORY
    if seen.image == READY:
        return prepare(seen) or _copy(course) or RESTORE
    if seen.image == SPENT_THERE:
        # The guest ran at the destination, and has stopped there.
        return UNDEFINE_SOURCE if seen.destination.present else DOUBT
    return _undo(course, seen)


def prepare(seen: Seen) -> t.Optional[str]:
    """Return the step without which nothing else begins; null if both were done."""
    if not seen.destination.present:
        return DEFINE
    return HOLD_AUTOSTART if seen.source_autostart else None


def _copy(course: Course) -> t.Optional[str]:
    return None if COPY_FILES in course.done else COPY_FILES


def _finish(course: Course, seen: Seen) -> str:
    """Return the next step of a move whose destination is the owner."""
    destination = seen.destination
    if not destination.present or seen.image == SPENT_HERE or lacks_image(course, seen):
        return DOUBT
    if not destination.active and seen.image == READY:
        return RESTORE
    if destination.active and seen.image == READY:
        return SPEND
    if destination.active and seen.image == SPENT_THERE and destination.state == PAUSED and course.runs_after:
        return RESUME
    if seen.source.present:
        return UNDEFINE_SOURCE
    if course.autostart and not seen.destination_autostart:
        return AUTOSTART
    if course.method == SHUTDOWN and course.runs_after and not destination.active and destination.reason not in STOPPED_REASONS:
        return START
    if seen.image == INCOMPLETE or (seen.image == SPENT_THERE and destination.active):
        return REMOVE_IMAGE
    return ARRIVED if KEEP_FILES in course.done else KEEP_FILES


def lacks_image(course: Course, seen: Seen) -> bool:
    """Whether the destination has restored the memory, and its image, which has to be spent before anything else is done, is not seen.

    The image is only removed when the guest is resumed, or is to stay paused and the definition of the source is gone.
    """
    destination = seen.destination
    is_restored = destination.active and (destination.state, destination.reason) == (PAUSED, MIGRATION) and not seen.source.active
    is_needed = course.runs_after or seen.source.present
    return course.method == SAVE and is_restored and is_needed and seen.image not in (READY, SPENT_THERE)


def _undo(course: Course, seen: Seen) -> str:
    """Return the next step back of a move whose source has the definition, and whose guest is not active at the destination."""
    source = seen.source
    if source.active:
        step = _wake_up(course, seen)
        if step:
            return step
    elif course.method == SAVE:
        if seen.image == READY:
            return RESTORE_BACK
        if seen.image == SPENT_THERE:
            return UNDEFINE_SOURCE if seen.destination.present else DOUBT
        if seen.image == UNREADABLE or (_may_miss_image(course, seen) and not seen.folder_proved):
            # The image may be the only copy of the guest's memory, or its folder is not mounted now.
            return DOUBT
    if seen.destination.present:
        return UNDEFINE_DESTINATION
    if course.autostart and not seen.source_autostart:
        return AUTOSTART_BACK
    if seen.image == INCOMPLETE or (source.active and seen.image != NO_IMAGE):
        return REMOVE_IMAGE
    if course.method == SHUTDOWN and course.ran_before and course.runs_after and not source.active and START_BACK not in course.done:
        return START_BACK
    return STAYED


def needs_folder_proof(course: Course, seen: Seen) -> bool:
    """Whether the next step depends on C(folder_proved): nothing else tells whether there is an image. A host that lost its power no longer knows why a
    guest is off.
    """
    is_off = seen.source.present and not seen.source.active and seen.destination.answered and not seen.destination.active
    return course.method == SAVE and is_off and _may_miss_image(course, seen) and seen.source.reason != _SAVED


def _may_miss_image(course: Course, seen: Seen) -> bool:
    """Whether a guest that is off may have been saved to an image that is not seen."""
    return seen.image == NO_IMAGE and seen.source.reason not in _STOPPED and REMOVE_IMAGE not in course.done


def _wake_up(course: Course, seen: Seen) -> t.Optional[str]:
    """Return the step after which a guest that is active on the source again needs its image no more; null if it was done."""
    if course.method != SAVE:
        return None
    if seen.image == READY:
        return SPEND_BACK
    is_asleep = seen.image == SPENT_HERE and seen.source.state == PAUSED
    return RESUME_BACK if is_asleep and course.ran_before else None


def describe_doubt(seen: Seen) -> str:
    """Return what both hosts show, for the history of a record whose result is not proved."""
    image = f", and the image of its memory is {seen.image}" if seen.image != NO_IMAGE else ""
    return f"The domain is {seen.source.describe()} on the source, and {seen.destination.describe()} at the destination{image}."
