# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where a guest is after a move, by what both hosts say. One row of the design's table is one rule below."""

from __future__ import annotations

import dataclasses
import typing as t

from . import hypervisor as h
from .hypervisor import GuestView

# What a verdict asks for.
COMPLETED = "completed"
NOT_MOVED = "not moved"
WAIT = "wait"
DESTROY_SOURCE = "destroy the source's copy"
RESUME_SOURCE = "resume on the source"
RECOVER = "recover post-copy"
ERROR = "error"

REASON_UNREACHABLE = "unreachable"
REASON_MEMORY_LOST = "memory_lost"
REASON_RUNNING_TWICE = "running_twice"
REASON_GUEST_DIED = "guest_died"
REASON_UNCLEAR = "unclear"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What follows from two readings. C(wait) may become C(otherwise) when waiting brought nothing."""

    act: str
    reason: t.Optional[str] = None
    otherwise: t.Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Move:
    """What is known of the move itself: the guest's state before it, and how far it came."""

    was_paused: bool = False
    post_copy: bool = False
    ran_there: bool = False
    job_started: bool = True
    paused_by_us: bool = False


_INCOMING = (h.MIGRATION, h.STARTING_UP)
_POST_COPY = (h.POST_COPY, h.POST_COPY_FAILED)


def judge(source: GuestView, destination: GuestView, move: Move) -> Verdict:
    """Return the verdict over equal readings of the source before and after the destination (the caller makes sure of that)."""
    if not (source.answered and destination.answered):
        return Verdict(ERROR, REASON_UNREACHABLE)
    if source.state == h.PAUSED and source.reason in _POST_COPY:
        # Libvirt keeps the job of a post-copy that nobody attends to.
        return _post_copy(destination)
    if source.job == h.JOB_OUTGOING:
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    if not source.active:
        return _source_is_off(source, destination, move)
    if destination.active:
        return _both_active(source, destination, move)
    return _only_source(source, destination, move)


def _source_is_off(source: GuestView, destination: GuestView, move: Move) -> Verdict:
    if not destination.active:
        # A move that never began says nothing about a guest that its owner has shut down meanwhile.
        return Verdict(ERROR, REASON_GUEST_DIED) if move.job_started or not source.present else Verdict(NOT_MOVED)
    if destination.reason in _POST_COPY:
        return Verdict(WAIT, otherwise=REASON_MEMORY_LOST)
    if _is_incoming(destination):
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    return Verdict(COMPLETED)


def _post_copy(destination: GuestView) -> Verdict:
    if not destination.active:
        return Verdict(ERROR, REASON_MEMORY_LOST)
    if destination.reason in _POST_COPY:
        return Verdict(RECOVER)
    return Verdict(WAIT, otherwise=REASON_UNCLEAR)


def _both_active(source: GuestView, destination: GuestView, move: Move) -> Verdict:
    if _is_incoming(destination):
        # What libvirt was receiving it removes by itself, within 30 s.
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    if _is_handed_over(source) and destination.reason not in _POST_COPY and not move.post_copy:
        return Verdict(DESTROY_SOURCE)
    return Verdict(ERROR, REASON_RUNNING_TWICE)


def _only_source(source: GuestView, destination: GuestView, move: Move) -> Verdict:
    stopped_for_the_move = _is_handed_over(source) or (move.paused_by_us and source.state == h.PAUSED)
    if not stopped_for_the_move or move.was_paused:
        return Verdict(NOT_MOVED)
    if move.post_copy or move.ran_there or _has_crashed(destination):
        return Verdict(ERROR, REASON_UNCLEAR)
    return Verdict(RESUME_SOURCE)


def runs_as_before(source: GuestView, move: Move) -> bool:
    """Whether the guest is active on the source as before the move, and no job is about to change that."""
    if not (source.answered and source.active) or source.job != h.JOB_NONE or move.post_copy or move.ran_there:
        return False
    return source.state != h.PAUSED or (move.was_paused and not _is_handed_over(source) and source.reason not in _POST_COPY)


def runs(view: GuestView) -> bool:
    """Whether the guest is active there as a guest of that host, and not only being received."""
    return view.active and not _is_incoming(view)


def _has_crashed(view: GuestView) -> bool:
    return view.present and (view.state == h.CRASHED or view.reason == "crashed")


def _is_incoming(view: GuestView) -> bool:
    return view.state == h.PAUSED and view.reason in _INCOMING


def _is_handed_over(view: GuestView) -> bool:
    return view.state == h.PAUSED and view.reason == h.MIGRATION
