# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the moves of one host share its link: single decisions, and whole drains over a simulated link."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.link_share import (
    CONNECTING,
    FREE,
    MAX_PREPARED,
    MIB,
    NO_LIMIT,
    QUEUED,
    READY,
    WAITING_MIB,
    LinkState,
    SharedJob,
    Shares,
    share_link,
)

LINK = 64
KNOWN = LinkState(link_bytes=LINK * MIB, told_bytes=LINK * MIB)


def job(uuid: str, stage: str = READY, left: float = 200, dirty: float = 0, **more: t.Any) -> SharedJob:
    """A job with so many MiB to be sent, of a guest that writes so many MiB/s."""
    return SharedJob(uuid, stage, int(left * MIB), dirty_rate_bytes=int(dirty * MIB), **more)


def decide(*jobs: SharedJob, state: LinkState = KNOWN, sources: t.Optional[t.Mapping[str, int]] = None) -> Shares:
    return share_link(jobs, state, 0.5, sources)[0]


def sent(*uuids: str, state: LinkState = KNOWN, **more: t.Any) -> LinkState:
    return dataclasses.replace(state, senders=uuids, **more)


def test_one_quiet_guest_is_sent_and_the_others_wait_with_the_smallest_bandwidth() -> None:
    assert decide(job("a"), job("b"), job("c", CONNECTING)).mib == {"a": NO_LIMIT, "b": WAITING_MIB, "c": WAITING_MIB}


def test_the_first_job_need_not_wait_for_another_decision() -> None:
    shares = decide(job("a", QUEUED), job("b", QUEUED))
    assert (shares.start, shares.mib) == ("a", {"a": NO_LIMIT})


def test_a_busy_guest_goes_before_quiet_ones_and_alone() -> None:
    assert decide(job("a"), job("b", dirty=28), state=sent("a")).mib == {"a": WAITING_MIB, "b": NO_LIMIT}


def test_a_guest_that_is_nearly_sent_is_not_stopped_for_a_busy_one() -> None:
    assert decide(job("a", left=8), job("b", dirty=28), state=sent("a")).mib == {"a": NO_LIMIT, "b": NO_LIMIT}


def test_the_next_guest_begins_while_the_last_one_ends() -> None:
    assert decide(job("a", left=8), job("b"), job("c"), state=sent("a")).mib == {"a": NO_LIMIT, "b": NO_LIMIT, "c": WAITING_MIB}


def test_two_busy_guests_are_sent_one_after_the_other() -> None:
    assert decide(job("a", dirty=28), job("b", dirty=28), state=sent("b")).mib == {"a": WAITING_MIB, "b": NO_LIMIT}


def test_a_second_busy_guest_is_not_prepared_while_the_first_one_is_sent() -> None:
    assert decide(job("a", dirty=28), job("b", QUEUED, dirty=28), job("c", QUEUED), state=sent("a")).start == "c"


def test_a_guest_that_is_still_measured_is_not_prepared_behind_one_that_takes_long() -> None:
    unmeasured = job("b", QUEUED, is_measured=False)
    assert decide(job("a", is_measured=False), unmeasured, state=sent("a")).start is None
    assert decide(job("a", left=64, is_measured=False), unmeasured, state=sent("a")).start == "b"
    assert decide(job("a", dirty=28), unmeasured, state=sent("a")).start is None
    assert decide(job("a"), unmeasured, state=sent("a")).start == "b"


def test_empty_pages_are_no_rate_of_the_link() -> None:
    state = LinkState(senders=("a",), measured_from=0.0, sent_then={"a": 0}, left_then={"a": 512 * MIB})
    busy = job("a", left=20, dirty=26, sent_bytes=96 * MIB)
    shares, after = share_link([busy, job("b", QUEUED, dirty=26)], state, 1.5)
    assert (shares.start, int(after.seen_bytes / MIB), int(after.best_bytes / MIB)) == (None, 64, 64)


def test_a_guest_that_never_converges_waits_for_the_quiet_ones() -> None:
    endless = job("a", dirty=60, iteration=4)
    assert decide(endless, job("b"), state=sent("a")).mib == {"a": WAITING_MIB, "b": NO_LIMIT}
    assert decide(endless, state=sent("a")).mib == {"a": NO_LIMIT}


def test_the_rest_of_the_link_goes_to_quiet_guests_beside_a_capped_busy_one() -> None:
    assert decide(job("a", dirty=8, cap_mib=24), job("b"), state=sent("a")).mib == {"a": 24, "b": 40}


def test_a_capped_busy_guest_does_not_hold_the_others_on_a_link_of_unknown_rate() -> None:
    assert decide(job("a", dirty=28, cap_mib=24), job("b"), state=LinkState(senders=("a",))).mib == {"a": 24, "b": NO_LIMIT}


def test_a_guest_that_writes_as_fast_as_its_cap_permits_waits_for_the_quiet_ones() -> None:
    assert decide(job("a", dirty=28, cap_mib=24, iteration=4), job("b"), state=sent("a")).mib == {"a": WAITING_MIB, "b": NO_LIMIT}


def test_the_cap_of_a_task_bounds_its_share() -> None:
    assert decide(job("a", cap_mib=16)).mib == {"a": 16}


def test_a_job_that_may_not_wait_has_its_whole_share_and_starts_alone() -> None:
    assert decide(job("a"), job("b", may_wait=False), state=sent("a")).mib["b"] == NO_LIMIT
    copying = job("b", QUEUED, may_wait=False)
    assert decide(job("a", left=8), copying, job("c", QUEUED), state=sent("a")).start == "c"
    assert decide(copying, job("c", QUEUED)).start == "b"


def test_a_forced_job_keeps_what_it_has_and_delays_nobody() -> None:
    assert decide(job("a", FREE), job("b")).mib == {"b": NO_LIMIT}


def test_a_destination_of_several_sources_gives_each_its_part() -> None:
    assert decide(job("a", destination="x"), sources={"x": 4}).mib == {"a": 16}
    for state in (LinkState(), LinkState(link_bytes=LINK * MIB), dataclasses.replace(KNOWN, best_bytes=2 * LINK * MIB)):
        assert decide(job("a", destination="x"), state=state, sources={"x": 4}).mib == {"a": NO_LIMIT}, "nobody has told the rate, or it is another one"


def test_no_share_is_less_than_a_waiting_job_has() -> None:
    shares = decide(job("a", destination="x"), state=LinkState(link_bytes=MIB, told_bytes=MIB), sources={"x": 100})
    assert shares.mib["a"] > WAITING_MIB


def test_nothing_is_prepared_behind_a_guest_that_takes_long() -> None:
    assert decide(job("a", left=2000), job("b", QUEUED), state=sent("a")).start is None
    assert decide(job("a", left=200), job("b", QUEUED), state=sent("a")).start == "b"


def test_few_guests_are_prepared() -> None:
    waiting = [job(str(number), left=1) for number in range(MAX_PREPARED)]
    assert decide(job("a"), *waiting[1:], job("b", QUEUED), state=sent("a")).start == "b"
    assert decide(job("a"), *waiting, job("b", QUEUED), state=sent("a")).start is None


def test_a_sender_that_is_stuck_does_not_hold_the_others() -> None:
    state = sent("a", measured_from=0.0, sent_then={"a": 7})
    shares, after = share_link([job("a", sent_bytes=7), job("b")], state, 2.0)
    assert after.stuck == ("a",)
    assert shares.mib == {"a": NO_LIMIT, "b": NO_LIMIT}


# -- whole drains ------------------------------------------------------------------------------------------------


# What a guest has left when it is switched over: an eighth of a second on the link.
SWITCHOVER_MIB = 8


@dataclasses.dataclass
class Guest:
    """A guest on a simulated link, in MiB and MiB/s. It rewrites at most C(dirty_set)."""

    uuid: str
    left: float
    dirty: float = 0.0
    dirty_set: float = 0.0
    connect: float = 1.5
    cap: int = 0
    began: t.Optional[float] = None
    sent: float = 0.0
    written: float = 0.0
    iteration: int = 1
    is_known: bool = True
    ended: t.Optional[float] = None


class Link:
    """Carries C(mib) a second, and no stream more than C(stream_mib); C(change_to) is its rate from a second on.

    :arg sources: how many hosts send to the destination, which is told after 5 s.
    """

    def __init__(self, mib: float, stream_mib: float = 10**6, known_mib: float = 0, change_to: t.Tuple[float, float] = (10**9, 0), sources: int = 1) -> None:
        self.mib, self.stream_mib, self.change_to, self.sources = mib, stream_mib, change_to, sources
        self.state = LinkState(link_bytes=known_mib * MIB, told_bytes=known_mib * MIB)
        self.now = 0.0
        self.bytes = 0.0

    def drain(self, guests: t.Sequence[Guest], limit: float = 600) -> float:
        """Return how many seconds the drain takes."""
        step = 0.1
        while any(guest.ended is None for guest in guests):
            assert self.now < limit, [guest for guest in guests if guest.ended is None]
            moving = [guest for guest in guests if guest.ended is None]
            told = {"x": self.sources} if self.now >= 5 else {}
            shares, self.state = share_link([self._job_of(guest) for guest in moving], self.state, self.now, told)
            if shares.start:
                next(guest for guest in moving if guest.uuid == shares.start).began = self.now
            self._send(moving, shares.mib, step)
            self.now += step
        return self.now

    def _job_of(self, guest: Guest) -> SharedJob:
        stage = QUEUED if guest.began is None else READY if self.now >= guest.began + guest.connect else CONNECTING
        dirty = int(guest.dirty * MIB) if guest.is_known or guest.iteration > 1 else 0
        return SharedJob(guest.uuid, stage, int(guest.left * MIB), int(guest.sent * MIB), dirty, guest.iteration, guest.cap, destination="x")

    def _send(self, moving: t.Sequence[Guest], mib: t.Mapping[str, int], step: float) -> None:
        limits = {guest.uuid: min(self.stream_mib, mib[guest.uuid] or 10**6) for guest in moving if self._job_of(guest).stage == READY}
        link = self.change_to[1] if self.now >= self.change_to[0] else self.mib
        rates: t.Dict[str, float] = {}
        for index, (uuid, most) in enumerate(sorted(limits.items(), key=lambda one: one[1])):
            rates[uuid] = min(most, (link - sum(rates.values())) / (len(limits) - index))
        for guest in moving:
            self._advance(guest, rates.get(guest.uuid, 0) * step, step)

    def _advance(self, guest: Guest, mib: float, step: float) -> None:
        if not mib:
            return
        guest.sent += mib
        self.bytes += mib
        guest.left -= mib
        guest.written = min(guest.dirty_set, guest.written + guest.dirty * step)
        if guest.left <= 0:
            guest.left, guest.written, guest.iteration = guest.written, 0.0, guest.iteration + 1
            if guest.left <= SWITCHOVER_MIB:
                guest.ended = self.now


def mixed(is_known: bool = True) -> t.List[Guest]:
    """Two guests that write 28 MiB/s over 128 MiB, and six with 200 MiB that rest: 22.75 s of bytes on 64 MiB/s."""
    busy = [Guest(f"busy{number}", 128, 28, 128, is_known=is_known) for number in (1, 2)]
    return [*busy, *(Guest(f"full{number}", 200) for number in range(6))]


@pytest.mark.parametrize("known_mib", [0, LINK, 10 * LINK, LINK / 10])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_mixed_drain_takes_little_more_than_its_bytes(known_mib: float, is_known: bool) -> None:
    assert Link(LINK, known_mib=known_mib).drain(mixed(is_known)) < 1.5 * 1456 / LINK


def test_quiet_guests_before_busy_ones_take_no_longer() -> None:
    assert Link(LINK).drain(mixed()[::-1]) < 1.45 * 1456 / LINK


def test_guests_that_write_half_of_what_the_link_carries_converge() -> None:
    assert Link(LINK).drain([*(Guest(f"busy{number}", 128, 32, 128) for number in (1, 2)), *mixed()[2:]]) < 2 * 1456 / LINK


def test_a_host_that_cannot_fill_the_link_with_one_guest_sends_several() -> None:
    guests = [Guest(str(number), 400) for number in range(8)]
    seconds = Link(1000, stream_mib=50).drain(guests)
    assert seconds < 0.6 * 8 * 400 / 50, "one after another, they would take 64 s"


def test_capped_moves_fill_the_link_together() -> None:
    guests = [Guest(str(number), 200, cap=16) for number in range(8)]
    assert Link(LINK, known_mib=LINK).drain(guests) < 0.6 * 8 * 200 / 16


def test_a_link_that_drops_to_a_tenth_delays_no_guest_for_ever() -> None:
    bytes_after = 1456 - 5 * LINK
    assert Link(LINK, known_mib=LINK, change_to=(5.0, LINK / 10)).drain([*mixed()[2:]]) < 5 + 1.3 * bytes_after / (LINK / 10)


@pytest.mark.parametrize("known_mib", [0, LINK, 10 * LINK, LINK / 10])
def test_two_drains_over_one_cable_take_what_each_can_have_of_it(known_mib: float) -> None:
    mine = LINK / 2
    assert Link(mine, known_mib=known_mib, sources=2).drain([*mixed()[2:]]) < 1.25 * 1200 / mine


def test_a_guest_that_never_ends_alone_lets_the_others_go() -> None:
    guests = [Guest("endless", 128, 100, 128), *mixed()[2:]]
    link = Link(LINK, known_mib=LINK)
    with pytest.raises(AssertionError):
        link.drain(guests, limit=60)
    assert [guest.uuid for guest in guests if guest.ended is None] == ["endless"]
