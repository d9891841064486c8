# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a host is suspect, isolated, gone, and back."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.detection import (
    GONE,
    ISOLATED,
    LEASE,
    LIBVIRT,
    SECOND_ADDRESS,
    SSH,
    SUSPECT,
    UP,
    HostDetection,
)

GONE_AFTER = 60.0


class Host:
    """A host, and what is heard of it, second by second."""

    def __init__(self, gone_after: float = GONE_AFTER, has_lease: bool = False) -> None:
        self.now, self.revision = 0.0, 0
        self.detection = HostDetection(gone_after, 0.0)
        self.has_lease = has_lease
        self.told: list[tuple[float, str, float]] = []
        self.was: list[str] = []
        self.connect()
        self.live(1)

    def connect(self) -> None:
        self.detection.note_connection(self.now)

    def lose_libvirt(self, silent_seconds: float = 0.0) -> None:
        self.detection.note_loss(self.now, "it stopped answering", silent_seconds)

    def stall(self, seconds: float) -> None:
        """Let nobody watch for that time."""
        self.now += seconds
        self.detection.skip_time(seconds, self.now)

    def live(self, seconds: int, lease: bool = True, reads: bool = True, probes: t.Sequence[str] = (), asked: t.Sequence[str] = ()) -> None:
        """Let time pass.

        :arg lease: whether the host renews its lease, every three seconds.
        :arg probes: the ports that answer.
        :arg asked: the ports that are probed and do not.
        """
        for _second in range(seconds):
            self.now += 1
            self.revision += lease and self.now % 3 == 0
            if self.has_lease and reads:
                self.detection.note_lease(self.revision, 15, 3, self.now)
            for path in probes:
                self.detection.note_probe(path, self.now, "")
            for path in asked:
                self.detection.note_probe(path, None, "no answer")
            change = self.detection.judge(self.now)
            if change:
                self.told.append((self.now, change.state, round(change.seconds)))
                self.was.append(change.was)

    @property
    def states(self) -> list[str]:
        return [state for _now, state, _seconds in self.told]


def test_without_leases_a_silent_host_is_suspect_gone_and_back() -> None:
    host = Host()
    host.live(99)
    host.lose_libvirt(silent_seconds=20)
    host.live(60)
    assert host.told == [(101.0, SUSPECT, 21), (140.0, GONE, 60)]
    host.live(260)
    host.connect()
    host.live(1)
    assert host.told[2:] == [(421.0, UP, 341)]


def test_a_restart_of_the_daemon_is_not_reported() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(9)
    host.connect()
    host.live(100)
    assert host.told == []


def test_a_host_that_never_answered_is_gone() -> None:
    detection = HostDetection(30.0, 0.0)
    detection.note_failed_try("no route")
    assert detection.judge(9) is None
    assert detection.judge(10) == (SUSPECT, UP, 10)
    assert detection.judge(30) == (GONE, SUSPECT, 30)
    assert detection.why == "no route"


def test_a_power_cut_is_first_seen_by_the_lease() -> None:
    host = Host(has_lease=True)
    host.live(99)
    # The lease was renewed at 99; libvirt's keepalive notices after 20 s.
    host.live(20, lease=False)
    assert host.told == [(115.0, SUSPECT, 16)]
    assert "lease" in host.detection.why
    # Whether others are silent, too, has to be known before libvirt notices it.
    assert host.detection.is_silent(host.now)
    host.lose_libvirt(silent_seconds=20)
    host.live(60, lease=False)
    assert host.states == [SUSPECT, GONE]
    assert host.told[1] == (160.0, GONE, 60)
    assert host.detection.is_silent(host.now)


def test_a_host_that_has_only_lost_its_lease_is_not_silent_for_ever() -> None:
    host = Host(has_lease=True)
    host.live(99)
    host.live(43, lease=False)
    assert host.detection.is_silent(host.now)
    host.live(2, lease=False)
    assert not host.detection.is_silent(host.now)
    assert host.states == [SUSPECT]


def test_hosts_that_fall_silent_at_once_are_gone_only_when_all_of_them_were_noticed() -> None:
    """The keepalive notices the first one after 20 s, and the last one five seconds later."""
    first, last = Host(gone_after=5), Host(gone_after=5)
    for host in (first, last):
        host.live(99)
    first.lose_libvirt(silent_seconds=20)
    for host in (first, last):
        host.live(5)
    last.lose_libvirt(silent_seconds=25)
    for host in (first, last):
        host.live(5)
    assert (first.told[-1], last.detection.is_silent(last.now)) == ((110.0, GONE, 30), True)


def test_a_host_that_renews_its_lease_is_isolated_and_never_gone() -> None:
    host = Host(has_lease=True)
    host.lose_libvirt()
    host.live(1000)
    assert host.states == [SUSPECT, ISOLATED]
    assert not host.detection.is_silent(host.now)
    assert "lease: renewed" in host.detection.describe_signs_of_life(host.now)
    # Then it dies.
    host.live(70, lease=False)
    assert host.states == [SUSPECT, ISOLATED, GONE]


@pytest.mark.parametrize("path", [SSH, SECOND_ADDRESS])
def test_a_host_whose_port_answers_is_isolated(path: str) -> None:
    host = Host()
    host.lose_libvirt()
    host.live(200, probes=[path])
    assert host.states == [SUSPECT, ISOLATED]
    assert host.detection.describe_signals(host.now)[path] == "answered 0 s ago"


def test_a_port_that_never_answers_says_nothing() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(100, asked=[SSH])
    assert host.states == [SUSPECT, GONE]
    assert "no answer" in host.detection.describe_signals(host.now)[SSH]


def test_a_host_that_answered_shortly_before_is_neither_isolated_nor_gone() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(30, probes=[SSH])
    host.live(50, asked=[SSH])
    assert host.states == [SUSPECT]
    host.live(20, asked=[SSH])
    assert host.states == [SUSPECT, GONE]


def test_leases_that_cannot_be_read_say_nothing() -> None:
    """All members of etcd are down: the hosts renew nothing, and nothing is read. Libvirt of all hosts answers."""
    host = Host(has_lease=True)
    host.live(100)
    host.detection.forget_lease()
    host.live(600, lease=False, reads=False)
    assert host.told == []
    # They are read again before the first renewal.
    host.live(10, lease=False)
    host.live(100)
    assert host.told == []


def test_an_isolated_host_whose_lease_cannot_be_read_any_more_is_not_gone_at_once() -> None:
    """The last renewal that was read is a sign of life, whatever can be read afterwards."""
    host = Host(has_lease=True)
    host.lose_libvirt()
    host.live(200)
    assert host.states == [SUSPECT, ISOLATED]
    host.detection.forget_lease()
    host.live(59, reads=False)
    assert host.states == [SUSPECT, ISOLATED]
    host.live(5, reads=False)
    assert host.told[-1] == (261.0, GONE, 60)


def test_time_in_which_nobody_watched_is_not_silence() -> None:
    host = Host(has_lease=True)
    host.lose_libvirt()
    host.live(200, probes=[SECOND_ADDRESS])
    host.stall(300)
    host.live(50, lease=False, asked=[SECOND_ADDRESS])
    assert host.states == [SUSPECT, ISOLATED]
    host.live(15, lease=False, asked=[SECOND_ADDRESS])
    assert host.states == [SUSPECT, ISOLATED, GONE]
    host.stall(300)
    host.live(1, lease=False)
    assert host.states == [SUSPECT, ISOLATED, GONE]


def test_a_connected_host_is_neither_suspect_nor_back_because_nobody_watched() -> None:
    host = Host(has_lease=True)
    host.live(10)
    host.stall(300)
    # The answer to a question of before is read late.
    host.live(1, lease=False)
    assert host.told == []
    host.live(20, lease=False)
    assert host.states == [SUSPECT]
    host.stall(300)
    host.live(1, lease=False, reads=False)
    assert host.states == [SUSPECT]


def test_a_host_that_boots_while_nobody_watches_is_not_isolated() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(100)
    host.live(5, probes=[SSH])
    host.stall(300)
    host.live(100, probes=[SSH])
    assert host.states == [SUSPECT, GONE]


def test_hosts_that_fall_silent_before_nobody_watches_are_still_noticed_together() -> None:
    host = Host(gone_after=5)
    host.lose_libvirt(silent_seconds=20)
    host.stall(300)
    host.live(9)
    assert host.states == [SUSPECT]
    host.live(1)
    assert host.states == [SUSPECT, GONE]
    host.connect()
    host.live(1)
    # This time the loss is noted before the gap is.
    host.lose_libvirt(silent_seconds=20)
    host.detection.skip_time(300.0, host.now)
    host.live(10)
    assert host.states == [SUSPECT, GONE, UP, SUSPECT, GONE]


def test_a_host_without_a_lease_that_can_be_read_is_judged_by_libvirt() -> None:
    host = Host(has_lease=True)
    host.live(100)
    host.detection.forget_lease()
    host.lose_libvirt()
    host.live(60, reads=False)
    assert host.states == [SUSPECT, GONE]


def test_the_first_lease_that_is_read_is_no_sign_of_life() -> None:
    """A key that a dead host has left."""
    detection = HostDetection(GONE_AFTER, 0.0)
    states = []
    for now in range(1, 100):
        detection.note_lease(7, 15, 3, float(now))
        change = detection.judge(float(now))
        states += [change.state] if change else []
    assert states == [SUSPECT, GONE]


def test_a_host_is_not_gone_before_it_would_know_that_its_lease_ended() -> None:
    host = Host(gone_after=5, has_lease=True)
    host.lose_libvirt()
    host.live(60, lease=False)
    assert host.told[-1] == (19.0, GONE, 18)


def test_a_host_that_boots_after_it_was_gone_is_back_and_not_isolated() -> None:
    host = Host(has_lease=True)
    host.lose_libvirt()
    host.live(100, lease=False)
    host.live(40)
    host.connect()
    host.live(5)
    assert host.states == [SUSPECT, GONE, UP]


def test_a_boot_may_take_longer_than_the_silence_after_which_a_host_is_gone() -> None:
    host = Host(gone_after=20, has_lease=True)
    host.lose_libvirt()
    host.live(60, lease=False)
    host.live(110)
    assert host.states == [SUSPECT, GONE]
    host.live(20)
    assert host.states == [SUSPECT, GONE, ISOLATED]


def test_a_host_that_was_gone_and_whose_libvirt_stays_silent_is_isolated_in_the_end() -> None:
    host = Host(has_lease=True)
    host.lose_libvirt()
    host.live(100, lease=False)
    host.live(150)
    assert host.states == [SUSPECT, GONE, ISOLATED]


def test_a_host_that_was_gone_is_back_from_that_although_its_lease_is_renewed_after_its_libvirt_answers() -> None:
    host = Host(has_lease=True)
    host.lose_libvirt()
    host.live(100, lease=False)
    host.connect()
    host.live(1, lease=False)
    host.live(9)
    assert (host.states, host.was) == ([SUSPECT, GONE, SUSPECT, UP], [UP, SUSPECT, GONE, GONE])
    assert host.detection.report_again(host.now) == (UP, GONE, 104)


def test_a_host_that_was_gone_is_back_from_that_although_it_was_isolated_meanwhile() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(100)
    host.live(130, probes=[SSH])
    host.connect()
    host.live(1)
    assert (host.states, host.was) == ([SUSPECT, GONE, ISOLATED, UP], [UP, SUSPECT, GONE, GONE])
    # Its next absence is another one.
    host.lose_libvirt()
    host.live(20)
    host.connect()
    host.live(1)
    assert host.was[4:] == [UP, SUSPECT]


def test_a_return_is_reported_again_although_the_host_was_suspect_meanwhile() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(100)
    host.connect()
    host.live(1)
    returned = host.detection.report_again(host.now)
    assert returned == (UP, GONE, 101)
    host.lose_libvirt()
    host.live(20)
    assert host.detection.report_again(host.now) is None
    host.connect()
    host.live(1)
    assert host.detection.report_again(host.now) == returned


def test_only_a_host_that_was_gone_and_shows_a_sign_of_life_is_returning() -> None:
    host = Host()
    host.lose_libvirt()
    host.live(30, probes=[SSH])
    assert not host.detection.is_returning
    host.live(90, asked=[SSH])
    assert (host.states, host.detection.is_returning) == ([SUSPECT, GONE], False)
    host.live(1, probes=[SSH])
    assert host.detection.is_returning
    host.connect()
    host.live(1)
    assert not host.detection.is_returning


def test_only_hosts_that_are_gone_or_isolated_are_reported_again() -> None:
    host = Host()
    assert host.detection.report_again(host.now) is None
    host.lose_libvirt()
    host.live(30)
    assert host.detection.report_again(host.now) is None
    host.live(70)
    assert host.detection.report_again(host.now) == (GONE, GONE, 100)


def test_signals_describe_each_path() -> None:
    host = Host(has_lease=True)
    assert host.detection.describe_signals(host.now)[LIBVIRT] == "answers"
    host.lose_libvirt()
    host.live(40, lease=False, asked=[SSH])
    signals = host.detection.describe_signals(host.now)
    assert signals.keys() == {LIBVIRT, LEASE, SSH}
    assert signals[LIBVIRT] == "silent for 40 s (it stopped answering)"
    assert signals[LEASE].startswith("not renewed for")


STEPS = st.lists(
    st.tuples(st.sampled_from(["connect", "lose", "renew", "stale", "unread", "ssh"]), st.floats(0, 100)),
    max_size=60,
)


@given(STEPS)
def test_a_host_is_gone_only_after_that_silence_on_every_path(steps: list[tuple[str, float]]) -> None:
    detection, now, revision, state = HostDetection(GONE_AFTER, 0.0), 0.0, 0, UP
    heard, renewed, proved, has_lease, is_connected, was_gone = 0.0, 0.0, 0.0, False, False, False
    for what, seconds in steps:
        now += seconds
        if what == "connect" and not is_connected:
            detection.note_connection(now)
            is_connected = True
        elif what == "lose" and is_connected:
            detection.note_loss(now, "closed")
            is_connected, heard = False, now
        elif what in ("renew", "stale"):
            revision += what == "renew"
            detection.note_lease(revision, 15, 3, now)
            if what == "renew":
                renewed, proved = now, now if has_lease else proved
            has_lease = True
        elif what == "unread":
            detection.forget_lease()
            renewed, has_lease = proved, False
        elif what == "ssh" and not is_connected:
            detection.note_probe(SSH, now, "")
            heard = now
        change = detection.judge(now)
        if change is None:
            continue
        was_gone = was_gone or state == GONE
        assert (change.was, change.state == state) == (GONE if change.state == UP and was_gone else state, False)
        state = change.state
        if state == GONE:
            assert not is_connected
            assert GONE_AFTER <= change.seconds <= now - max(heard, renewed)
        if state == UP:
            assert is_connected
            was_gone = False
