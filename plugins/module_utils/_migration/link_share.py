# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How the moves of one host share its link: which queued move is started next, and how much bandwidth each job has.

A guest that writes much is sent alone: the faster it is sent, the less of it is sent twice. Other guests are sent one after another, each with the whole link,
and several at once only where that is measurably faster. The next ones are prepared meanwhile: their jobs exist, and wait with C(WAITING_MIB).
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass

MIB = 1024**2

# A waiting job has the smallest bandwidth that libvirt knows: 0 would be no limit.
WAITING_MIB = 1
NO_LIMIT = 0

# A guest that writes at least this part of the link's rate is busy.
BUSY_SHARE = 0.1
# A busy guest that writes this part of the rate at which it is sent does not converge.
ENDLESS_SHARE = 0.9
# How many jobs may connect or wait besides those that are sent, and how many may in any case.
MAX_PREPARED = 4
ALWAYS_PREPARED = 2
# Jobs are prepared if those before them are sent within that time.
PREPARE_SECONDS = 10.0
# Behind a job that takes longer, nothing is started whose guest is still being measured: it might be busy.
UNMEASURED_SECONDS = 2.0
# A guest that is sent within that time leaves the link to the next one already.
ENDING_SECONDS = 0.5
# A link of which nothing is known is taken for a gigabit, or for twice what the busiest guest writes.
ASSUMED_BYTES = 112 * MIB

# How long a rate is measured, and how much faster one guest more must make all of them.
MEASURE_SECONDS = 1.5
TRIAL_GAIN = 1.15
TRIAL_PAUSE_SECONDS = 20.0
# What was seen of the link is forgotten by this factor in each measurement, if less is seen.
SEEN_DECAY = 0.8
# A link that carries this part of its known rate is full.
FULL_SHARE = 0.8
# A link that has carried more than it was told to, by this factor, has another rate.
TRUSTED_FACTOR = 1.25

QUEUED = "queued"
CONNECTING = "connecting"
READY = "ready"
FREE = "free"


@dataclass(frozen=True)
class SharedJob:
    """A move as the shares see it, in bytes and bytes a second.

    :arg stage: C(queued), C(connecting) until libvirt reports memory to be sent, C(ready) from then on, or C(free): a job that is forced, in post-copy, or
      has a bandwidth that a person has set. It has what it has.
    :arg sent_bytes: what the job has sent so far.
    :arg dirty_rate_bytes: how fast the guest writes, if that is known; else 0. C(is_measured) is false as long as that is being measured.
    :arg cap_mib: the bandwidth that its task permits; 0 is no limit.
    :arg may_wait: whether the job may wait with C(WAITING_MIB). A job that copies disks may not, because libvirt limits each disk once, at the start; nor one
      with auto-converge after its first iteration, because the hypervisor would throttle the guest; nor one that another tool began, which gets no share.
    :arg destination: its URI.
    """

    uuid: str
    stage: str
    remaining_bytes: int = 0
    sent_bytes: int = 0
    dirty_rate_bytes: int = 0
    iteration: int = 0
    cap_mib: int = 0
    may_wait: bool = True
    destination: str = ""
    is_measured: bool = True


@dataclass(frozen=True)
class LinkState:
    """What is remembered from one decision to the next.

    :arg link_bytes: what the link is known to carry, bytes a second; 0 if that is not known. C(seen_bytes) is what was seen of it lately, and
      C(best_bytes) the most that was ever seen.
    :arg told_bytes: what a person has said that the link carries; 0 if nobody has.
    :arg width: how many quiet guests are sent at once.
    :arg senders: UUIDs of the jobs that are sent; the others that exist wait.
    :arg measured_from: since when these senders are measured; C(sent_then) and C(left_then) are what each had sent then, and had to send.
    :arg rate_bytes: what all senders together reached when they were last measured.
    :arg stuck: UUIDs of senders of which nothing was sent in that time.
    :arg rate_before: of a trial with one guest more at once: what the others reached without it; 0 without a trial.
    """

    link_bytes: float = 0.0
    seen_bytes: float = 0.0
    width: int = 1
    senders: t.Tuple[str, ...] = ()
    measured_from: float = 0.0
    sent_then: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_then: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    rate_bytes: float = 0.0
    stuck: t.Tuple[str, ...] = ()
    rate_before: float = 0.0
    no_trial_before: float = 0.0
    best_bytes: float = 0.0
    told_bytes: float = 0.0


@dataclass(frozen=True)
class Shares:
    """A decision: the queued move to start now, if any, and the bandwidth of each job in MiB/s: C(WAITING_MIB) or more, or C(NO_LIMIT)."""

    start: t.Optional[str]
    mib: t.Mapping[str, int]


def share_link(jobs: t.Sequence[SharedJob], state: LinkState, now: float, sources: t.Optional[t.Mapping[str, int]] = None) -> t.Tuple[Shares, LinkState]:
    """Return the shares of these jobs, which are in the order in which they are to be moved, and what to remember.

    :arg now: seconds of a monotonic clock.
    :arg sources: by URI of a destination, how many hosts send to it now.
    """
    if now - state.measured_from >= MEASURE_SECONDS:
        state = _judge_trial(jobs, _measure_rate(jobs, state, now), now)
    link = _Link(state, jobs)
    senders = _choose_senders(jobs, link)
    start = _choose_start(jobs, senders, link)
    mib = _divide_link(jobs, senders, start, link, sources or {})
    return Shares(start, mib), _follow_senders(senders, state, now)


class _Link:
    """What is known of the link, and of the guests that cross it."""

    def __init__(self, state: LinkState, jobs: t.Sequence[SharedJob]) -> None:
        self.state = state
        self.is_known = bool(state.link_bytes)
        self.bytes = state.seen_bytes or state.link_bytes or max([ASSUMED_BYTES, *(2 * job.dirty_rate_bytes for job in jobs)])

    def is_busy(self, job: SharedJob) -> bool:
        """Whether the guest writes so much that it is sent alone."""
        return job.dirty_rate_bytes >= BUSY_SHARE * self.bytes

    def may_be_busy(self, job: SharedJob) -> bool:
        """Whether the guest of a job that exists is busy, or is still being measured and takes long."""
        return self.is_busy(job) or (not job.is_measured and self.seconds_of([job]) >= UNMEASURED_SECONDS)

    def is_endless(self, job: SharedJob) -> bool:
        """Whether the guest was seen to write as fast as it is sent, so that others need not wait for its end."""
        rate = min(self.bytes, job.cap_mib * MIB) if job.cap_mib else self.bytes
        return job.may_wait and job.iteration > 2 and job.dirty_rate_bytes >= ENDLESS_SHARE * rate

    def is_sent(self, job: SharedJob) -> bool:
        """Whether the job was a sender at the last decision."""
        return job.uuid in self.state.senders

    def leaves_room(self, job: SharedJob) -> bool:
        """Whether the cap of the job leaves much of the link."""
        return bool(job.cap_mib) and job.cap_mib * MIB < FULL_SHARE * (self.state.link_bytes or self.bytes)

    def seconds_of(self, jobs: t.Iterable[SharedJob]) -> float:
        """How long these jobs take, one after another."""
        return sum(job.remaining_bytes for job in jobs) / self.bytes


def _choose_senders(jobs: t.Sequence[SharedJob], link: _Link) -> t.List[SharedJob]:
    """Return the jobs that are sent now. The others have to wait, or do not exist yet."""
    ready = [job for job in jobs if job.stage == READY]
    stuck = [job for job in ready if job.uuid in link.state.stuck and link.is_sent(job)]
    moving = [job for job in ready if job not in stuck]
    quiet = [job for job in moving if not link.is_busy(job)]
    endless = [job for job in moving if link.is_busy(job) and link.is_endless(job)]
    busy = [job for job in moving if link.is_busy(job) and job not in endless]
    ending = [job for job in quiet if link.is_sent(job) and link.seconds_of([job]) < ENDING_SECONDS]
    further = sorted((job for job in quiet if job not in ending), key=lambda job: not link.is_sent(job))[: link.state.width]
    alone = sorted(busy or ([] if quiet else endless), key=lambda job: not link.is_sent(job))[:1]
    chosen = [*stuck, *ending, *alone]
    if not alone or link.leaves_room(alone[0]):
        chosen += further
    return [job for job in jobs if job in chosen or (job.stage in (CONNECTING, READY) and not job.may_wait)]


def _choose_start(jobs: t.Sequence[SharedJob], senders: t.Sequence[SharedJob], link: _Link) -> t.Optional[str]:
    """Return the queued move whose job is started now."""
    started = [job for job in jobs if job.stage in (CONNECTING, READY)]
    has_busy = any(link.may_be_busy(job) and not link.is_endless(job) for job in started)
    if not _has_room(senders, [job for job in started if job not in senders], link):
        return None
    for job in jobs:
        # All that a second busy guest writes while it waits is sent once more. What may not wait starts on a link that is free.
        is_held_back = (has_busy and (link.is_busy(job) or not job.is_measured)) or (bool(started) and not job.may_wait)
        if job.stage == QUEUED and not is_held_back:
            return job.uuid
    return None


def _has_room(senders: t.Sequence[SharedJob], prepared: t.Sequence[SharedJob], link: _Link) -> bool:
    """Whether one more job is started. Those that are sent leave the link soon, and few are prepared."""
    moving = [job for job in senders if job.uuid not in link.state.stuck]
    if len(prepared) >= MAX_PREPARED or link.seconds_of(moving) >= PREPARE_SECONDS * link.state.width:
        return False
    return len(prepared) < ALWAYS_PREPARED or link.seconds_of([*moving, *prepared]) < PREPARE_SECONDS * link.state.width


def _divide_link(
    jobs: t.Sequence[SharedJob], senders: t.Sequence[SharedJob], start: t.Optional[str], link: _Link, sources: t.Mapping[str, int]
) -> t.Dict[str, int]:
    """Return the bandwidth of each job that exists or is started now, in MiB/s."""
    reserved_mib = sum(job.cap_mib for job in senders if link.is_busy(job) and link.leaves_room(job))
    quiet = [job for job in senders if not link.is_busy(job)]
    rest_mib = max(WAITING_MIB + 1, (int(link.state.link_bytes / MIB) - reserved_mib) // max(1, len(quiet))) if reserved_mib and link.is_known else NO_LIMIT
    existing = [job for job in jobs if job.stage in (CONNECTING, READY) or job.uuid == start]
    # Nothing is sent yet: the first job need not wait for the next decision.
    sent = senders or existing[:1]
    mib = {}
    for job in existing:
        limits = (job.cap_mib, rest_mib if job in quiet else NO_LIMIT, _share_of_destination(job, link, sources))
        mib[job.uuid] = min((limit for limit in limits if limit), default=NO_LIMIT) if job in sent or not job.may_wait else WAITING_MIB
    return mib


def _share_of_destination(job: SharedJob, link: _Link, sources: t.Mapping[str, int]) -> int:
    """Return what this host may send to a destination that several hosts send to, in MiB/s.

    What was measured while others send too is a share already. Without a rate that was told, or if more was seen, TCP alone shares the link.
    """
    hosts, told_bytes = sources.get(job.destination, 1), link.state.told_bytes
    if hosts <= 1 or not told_bytes or link.state.best_bytes > TRUSTED_FACTOR * told_bytes:
        return NO_LIMIT
    return max(WAITING_MIB + 1, int(told_bytes / MIB / hosts))


# -- measuring ---------------------------------------------------------------------------------------------------


def _measure_rate(jobs: t.Sequence[SharedJob], state: LinkState, now: float) -> LinkState:
    """Return the state with the rate that its senders have reached together, and begin the next measurement.

    Empty pages count as advance. The link has not carried them, so what was seen of it is without them.
    """
    senders = [job for job in jobs if job.uuid in state.senders]
    seconds = now - state.measured_from
    sent = {job.uuid: max(0, job.sent_bytes - state.sent_then.get(job.uuid, 0)) for job in senders}
    advanced = {job.uuid: max(sent[job.uuid], state.left_then.get(job.uuid, 0) - job.remaining_bytes) for job in senders}
    carried = sum(sent.values()) / seconds
    is_capped = all(job.cap_mib for job in senders)
    seen = state.seen_bytes if is_capped else max(carried, SEEN_DECAY * state.seen_bytes)
    return dataclasses.replace(
        _begin_measuring(senders, state, now),
        rate_bytes=sum(advanced.values()) / seconds,
        seen_bytes=seen,
        best_bytes=max(state.best_bytes, carried),
        stuck=tuple(uuid for uuid, more in advanced.items() if more <= 0),
    )


def _judge_trial(jobs: t.Sequence[SharedJob], state: LinkState, now: float) -> LinkState:
    """Return the state with one guest more to be sent at once, or with one less if the last trial has shown no gain.

    A link that is full, and a host whose cores are, show the same: one guest more makes the others slower.
    """
    link = _Link(state, jobs)
    senders = [job for job in jobs if job.uuid in state.senders]
    if not state.rate_bytes or len(senders) < state.width or any(link.is_busy(job) for job in senders):
        return state
    if state.rate_before:
        if state.rate_bytes >= TRIAL_GAIN * state.rate_before:
            return dataclasses.replace(state, rate_before=0.0)
        known = max(state.rate_bytes, state.rate_before)
        return dataclasses.replace(state, rate_before=0.0, width=state.width - 1, no_trial_before=now + TRIAL_PAUSE_SECONDS, link_bytes=known)
    is_full = link.is_known and state.rate_bytes >= FULL_SHARE * state.link_bytes
    waiting = [job for job in jobs if job.stage == READY and not link.is_sent(job) and not link.is_busy(job)]
    if is_full or not waiting or now < state.no_trial_before:
        return state
    return dataclasses.replace(state, width=state.width + 1, rate_before=state.rate_bytes)


def _follow_senders(senders: t.Sequence[SharedJob], state: LinkState, now: float) -> LinkState:
    """Return the state with these senders; whenever they change, the measurement begins again."""
    ready = [job for job in senders if job.stage == READY]
    uuids = tuple(job.uuid for job in ready)
    if uuids == state.senders:
        return state
    return dataclasses.replace(_begin_measuring(ready, state, now), senders=uuids, stuck=tuple(uuid for uuid in state.stuck if uuid in uuids))


def _begin_measuring(senders: t.Sequence[SharedJob], state: LinkState, now: float) -> LinkState:
    return dataclasses.replace(
        state,
        measured_from=now,
        sent_then={job.uuid: job.sent_bytes for job in senders},
        left_then={job.uuid: job.remaining_bytes for job in senders},
    )
