# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decides where a guest is after a move, from the states on both hosts.

Each rule is a row of the table in docs/specs.md, "Location of the guest after a move".
"""

from __future__ import annotations

import typing as t

from .._dataclass import dataclass
from .._model import domain_states
from .._model.domain_states import DomainView

# The actions of a verdict.
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


@dataclass(frozen=True)
class Verdict:
    """The conclusion from the answers of both hosts. C(wait) becomes C(otherwise) if waiting changed nothing."""

    act: str
    reason: t.Optional[str] = None
    otherwise: t.Optional[str] = None


@dataclass(frozen=True)
class MoveState:
    """The move itself: the guest's state before it, and its progress.

    :arg ran_there: whether the guest was seen running at the destination, by this process or an earlier one.
    :arg was_at_destination: whether the destination had a definition before, or may have had one.
    :arg leaves_nothing: whether a guest that has run at its destination, and has stopped since, cannot be told from one that never ran: it was transient, and
      no process has seen the end of its job.
    """

    was_paused: bool = False
    post_copy: bool = False
    ran_there: bool = False
    job_started: bool = True
    paused_by_us: bool = False
    was_at_destination: bool = True
    leaves_nothing: bool = False


_INCOMING = (domain_states.MIGRATION, domain_states.STARTING_UP)
_POST_COPY = (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
# Why a domain that never ran at its destination can be off there: libvirt could not start its CPUs; and, if its definition was there before, also because it
# had not arrived when its connection was cut, its daemon was started again, or its host lost its power.
_START_FAILED = ("failed",)
_NOT_ARRIVED = ("failed", "destroyed", "daemon", "")


def judge_outcome(source: DomainView, destination: DomainView, move: MoveState) -> Verdict:
    """Return the verdict. The caller ensures that the source gave the same answer before and after the destination answered."""
    if not (source.answered and destination.answered):
        return Verdict(ERROR, REASON_UNREACHABLE)
    if source.state == domain_states.PAUSED and source.reason in _POST_COPY:
        # libvirt keeps the job of an unattended post-copy.
        return _judge_post_copy(destination)
    if source.job == domain_states.JOB_OUTGOING:
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    if not source.active:
        return _judge_source_off(source, destination, move)
    if destination.active:
        return _judge_both_active(source, destination, move)
    return _judge_only_source(source, destination, move)


def judge_foreign_job(source: DomainView, runs_elsewhere: bool, arrives_elsewhere: bool = False) -> Verdict:
    """Return the verdict about a job of another tool, whose destination libvirt does not report.

    :arg runs_elsewhere: whether the guest runs on another host of the fleet.
    :arg arrives_elsewhere: whether another host has the domain as one that still arrives.
    """
    if not source.answered:
        return Verdict(ERROR, REASON_UNREACHABLE)
    if source.job == domain_states.JOB_OUTGOING or source.reason in _POST_COPY or _is_handed_over(source):
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    if source.active:
        return Verdict(ERROR, REASON_RUNNING_TWICE) if runs_elsewhere else Verdict(NOT_MOVED)
    if arrives_elsewhere and not runs_elsewhere:
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    return Verdict(COMPLETED) if runs_elsewhere or source.reason == domain_states.MIGRATED else Verdict(ERROR, REASON_GUEST_DIED)


def _judge_source_off(source: DomainView, destination: DomainView, move: MoveState) -> Verdict:
    if not destination.active:
        if move.ran_there and not move.post_copy and destination.present and destination.reason in domain_states.STOPPED_REASONS:
            return Verdict(COMPLETED)
        # A move that never began proves nothing about a guest that its owner has shut down in the meantime.
        return Verdict(ERROR, REASON_GUEST_DIED) if move.job_started or not source.present else Verdict(NOT_MOVED)
    if destination.reason in _POST_COPY:
        return Verdict(WAIT, otherwise=REASON_MEMORY_LOST)
    if _is_incoming(destination):
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    return Verdict(COMPLETED)


def _judge_post_copy(destination: DomainView) -> Verdict:
    if not destination.active:
        return Verdict(ERROR, REASON_MEMORY_LOST)
    if destination.reason in _POST_COPY:
        return Verdict(RECOVER)
    return Verdict(WAIT, otherwise=REASON_UNCLEAR)


def _judge_both_active(source: DomainView, destination: DomainView, move: MoveState) -> Verdict:
    if _is_incoming(destination):
        # libvirt itself removes an incoming domain within 30 s.
        return Verdict(WAIT, otherwise=REASON_UNCLEAR)
    if _is_handed_over(source) and destination.reason not in _POST_COPY and not move.post_copy:
        return Verdict(DESTROY_SOURCE)
    return Verdict(ERROR, REASON_RUNNING_TWICE)


def _judge_only_source(source: DomainView, destination: DomainView, move: MoveState) -> Verdict:
    stopped_for_the_move = _is_handed_over(source) or (move.paused_by_us and source.state == domain_states.PAUSED)
    if not stopped_for_the_move or move.was_paused:
        return Verdict(NOT_MOVED)
    if move.post_copy or move.ran_there or _may_have_run(destination, move):
        return Verdict(ERROR, REASON_UNCLEAR)
    return Verdict(RESUME_SOURCE)


def is_running_as_before(source: DomainView, move: MoveState) -> bool:
    """Whether the guest is active on the source as before the move, and no job is about to change that."""
    if not (source.answered and source.active) or source.job != domain_states.JOB_NONE or move.post_copy or move.ran_there:
        return False
    return source.state != domain_states.PAUSED or (move.was_paused and not _is_handed_over(source) and source.reason not in _POST_COPY)


def is_running(view: DomainView) -> bool:
    """Whether the guest runs on that host, and is not only an incoming domain."""
    return view.active and not _is_incoming(view)


def _may_have_run(destination: DomainView, move: MoveState) -> bool:
    """Whether a guest that is off at its destination may have run there.

    Libvirt writes the definition of a persistent domain when all of its memory has arrived, right before the guest runs (docs/libvirt.md). A definition that
    came with the move therefore shows that the guest was about to run.
    """
    if not destination.present:
        # The source may just as well be paused by this move as by the end of its job.
        return move.leaves_nothing and not move.paused_by_us
    never_ran = _NOT_ARRIVED if move.was_at_destination else _START_FAILED
    return destination.state == domain_states.CRASHED or destination.reason not in never_ran


def _is_incoming(view: DomainView) -> bool:
    return view.state == domain_states.PAUSED and view.reason in _INCOMING


def _is_handed_over(view: DomainView) -> bool:
    return view.state == domain_states.PAUSED and view.reason == domain_states.MIGRATION
