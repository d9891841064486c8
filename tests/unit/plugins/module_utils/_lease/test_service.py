# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service in one run after the other: what each renewal says, whenever a run or the host ends."""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import service as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import state as states
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.etcd import NotAcknowledged
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.renewal import Acknowledgement
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE, HostLease, LeaseWatchdog

from .conftest import OWN, PEER, make_config

ALONE = (make_config().fleet[0],)


class Died(BaseException):
    """The process ends."""


class Host:
    """A host with its files and a clock, and etcd as it answers it.

    :arg sent: all renewals that were sent, each with the moment of that.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.state, self.count = folder / "lease.json", folder / "lease-count"
        self.now = 100.0
        self.boot = 1
        self.sent: t.List[t.Tuple[float, HostLease]] = []
        self.answers: t.List[t.Union[float, Exception, Died]] = []
        """For each attempt: how long until it is acknowledged, or how it ends."""
        self.watchdog: t.Optional[LeaseWatchdog] = None
        self.is_tested = False

    def moment(self) -> BootMoment:
        return BootMoment(f"boot{self.boot}", self.now)

    def reboot(self) -> None:
        self.boot += 1
        self.now = 10.0
        if self.state.exists():
            self.state.unlink()

    def renew(self, describe: t.Callable[[str], bytes]) -> Acknowledgement:
        self.sent.append((self.now, decode(HostLease, json.loads(describe("direct")))))
        seconds = 0.1
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            seconds = answer
        self.now += seconds
        return Acknowledgement(1000 + len(self.sent), "direct")

    def service(self, config: t.Optional[LeaseConfig] = None) -> m.LeaseService:
        return m.LeaseService(config or make_config(), t.cast(t.Any, self))

    @property
    def last(self) -> HostLease:
        return self.sent[-1][1]


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return placed(Host(tmp_path), monkeypatch)


def placed(host: Host, patch: pytest.MonkeyPatch) -> Host:
    for module in (m, states):
        patch.setattr(module, "boot_moment", host.moment)
    patch.setattr(m, "read_lease_state", functools.partial(states.read_lease_state, str(host.state)))
    patch.setattr(m, "write_lease_state", functools.partial(states.write_lease_state, path=str(host.state)))
    patch.setattr(m, "reserve_counts", functools.partial(states.reserve_counts, path=str(host.count)))
    patch.setattr(m, "read_reserved_count", functools.partial(states.read_reserved_count, str(host.count)))
    patch.setattr(m, "read_watchdog", lambda grace: host.watchdog)
    patch.setattr(m, "has_been_tested", lambda: host.is_tested, raising=False)
    return host


def kept(host: Host) -> t.Any:
    return json.loads(host.state.read_text())


def test_renewals_are_numbered_and_say_since_which_the_lease_is_held(host: Host) -> None:
    service = host.service()
    for _turn in range(3):
        service.renew()
        host.now += 3
    assert [(lease.count, lease.held_since) for _at, lease in host.sent] == [(1, 0), (2, 1), (3, 1)]
    assert [lease.acknowledged_revision for _at, lease in host.sent] == [0, 1001, 1002]
    assert (host.last.fleet.size, host.last.boot_id, host.last.path) == (3, "boot1", "direct")
    assert service.answer_peer().lease == HELD


def test_a_gap_begins_a_new_lease(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    service = host.service()
    service.renew()
    host.answers = [NotAcknowledged("kvm8:2379: no answer"), *[NotAcknowledged("kvm9:2379: no answer")] * 2]
    for _turn in range(3):
        host.now += 6
        service.renew()
    assert service.answer_peer().lease == NONE
    assert (host.last.held_since, kept(host)["problem"]) == (0, "The lease was not renewed: kvm9:2379: no answer.")
    # An outage is one line in the log.
    assert capfd.readouterr().err.count("no answer") == 1
    service.renew()
    service.renew()
    assert (host.last.count, host.last.held_since) == (6, 5)
    assert "The lease is renewed." in capfd.readouterr().err


def test_another_run_in_the_same_boot_goes_on_with_the_lease(host: Host) -> None:
    host.service().renew()
    host.now += 2
    service = host.service()
    assert service.answer_peer().lease == HELD
    service.renew()
    assert (host.last.count, host.last.held_since) == (2, 1)


def test_another_boot_has_no_lease_and_numbers_that_were_never_used(host: Host) -> None:
    host.service().renew()
    host.reboot()
    service = host.service()
    assert service.answer_peer().lease == NONE
    service.renew()
    assert (host.last.count, host.last.held_since) == (states.BLOCK + 1, 0)


def test_another_identity_has_no_lease_of_the_one_before(host: Host) -> None:
    host.service().renew()
    service = host.service(make_config(host_id=PEER))
    assert service.answer_peer().lease == NONE
    service.renew()
    assert (host.last.host_id, host.last.held_since) == (PEER, 0)


def test_a_watchdog_is_bound_only_after_the_first_lease_of_a_boot(host: Host) -> None:
    """The test of the watchdog does not end a host that never had a lease: it must not have been promised that it would."""
    host.watchdog = LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 10, True, True, 30)
    service = host.service()
    host.answers = [NotAcknowledged("the answer was lost")]
    service.renew()
    service.renew()
    service.renew()
    assert [lease.watchdog.bound for _at, lease in host.sent if lease.watchdog] == [False, False, True]
    assert kept(host)["held_until"] > 0


def test_no_renewal_is_sent_that_the_watchdog_could_not_know(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    service = host.service()
    service.renew()

    def refuse(*_arguments: t.Any, **_options: t.Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(m, "write_lease_state", refuse)
    service.renew()
    service.renew()
    assert len(host.sent) == 1
    monkeypatch.setattr(m, "write_lease_state", functools.partial(states.write_lease_state, path=str(host.state)))
    service.renew()
    assert host.last.count == 2


def test_a_renewal_for_which_the_host_has_no_thread_ends_no_service(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    """A new process is even harder to get then, and the lease ends meanwhile: the watchdog would reset the host with its guests."""
    service = host.service()
    host.answers = [RuntimeError("can't start new thread")]
    service.renew()
    assert "The lease was not renewed: can't start new thread." in capfd.readouterr().err
    service.renew()
    assert service.answer_peer().lease == HELD


def test_a_renewal_with_another_list_of_hosts_counts_beside_the_one_before_until_it_is_acknowledged(host: Host) -> None:
    host.service().renew()
    service = host.service(make_config(fleet=ALONE))
    host.answers = [NotAcknowledged("the answer was lost")]
    service.renew()
    assert sorted(map(len, kept(host)["fleets"])) == [1, 3]
    # A run after that one knows both lists.
    service = host.service(make_config(fleet=ALONE))
    service.renew()
    assert kept(host)["fleets"] == [[OWN]]


def test_a_shorter_lease_holds_from_the_first_renewal_that_says_so(host: Host) -> None:
    host.service(make_config(lease_seconds=60)).renew()
    assert kept(host)["held_until"] == 160.0
    service = host.service(make_config(lease_seconds=9))
    host.answers = [NotAcknowledged("the answer was lost")]
    service.renew()
    # Who reads that renewal waits for 9 s from now on.
    assert kept(host)["held_until"] == host.now + 9


def test_the_next_block_is_reserved_long_before_the_last_number(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (m, states):
        monkeypatch.setattr(module, "BLOCK", 10)
    service = host.service()
    for _turn in range(30):
        service.renew()
    assert [lease.count for _at, lease in host.sent] == list(range(1, 31))
    assert states.read_reserved_count(str(host.count)) == 40


def test_a_disk_that_cannot_be_written_stops_renewals_only_when_all_numbers_are_used(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (m, states):
        monkeypatch.setattr(module, "BLOCK", 10)
    service = host.service()

    def refuse(*_arguments: t.Any, **_options: t.Any) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(m, "reserve_counts", refuse)
    for _turn in range(15):
        service.renew()
    assert host.last.count == 10
    assert "no number for a renewal can be reserved" in kept(host)["problem"]
    # Nor does another run use more numbers.
    host.service().renew()
    assert host.last.count == 10


def test_a_count_that_is_damaged_ends_the_service_but_not_a_run_in_the_same_boot(host: Host) -> None:
    host.service().renew()
    host.count.write_text("damaged")
    host.service().renew()
    assert host.last.count == 2
    host.reboot()
    with pytest.raises(Internal, match="is not a number"):
        host.service()


def test_a_state_that_is_damaged_begins_another_block(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    host.service().renew()
    host.state.write_text("{")
    host.service().renew()
    assert (host.last.count, host.last.held_since) == (states.BLOCK + 1, 0)
    assert "cannot be read" in capfd.readouterr().err


@pytest.mark.parametrize("text", [None, "{", '{"schema": 2}'], ids=["lost", "damaged", "of a later version"])
def test_a_state_that_is_lost_after_a_lease_begins_with_one_that_has_ended(host: Host, text: t.Optional[str]) -> None:
    """The test of the watchdog knows that the host has had a lease in this boot, and the host may be cut off."""
    host.watchdog = LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 10, True, True, 30)
    host.service().renew()
    host.is_tested = True
    host.state.unlink() if text is None else host.state.write_text(text)
    service = host.service()
    host.answers = [NotAcknowledged("cut off")]
    service.renew()
    state = states.read_lease_state(str(host.state))
    assert state
    assert (state.view.was_held, state.view.is_held(host.now), state.runs_until) == (True, False, 0.0)
    assert host.last.watchdog
    assert (host.last.watchdog.bound, host.last.held_since, service.answer_peer().lease) == (False, 0, NONE)
    service.renew()
    assert service.answer_peer().lease == HELD


def test_another_identity_runs_on_as_long_as_the_one_before_could(host: Host) -> None:
    """It has no lease yet, and the watchdog is the same."""
    host.service().renew()
    until = kept(host)["runs_until"]
    service = host.service(make_config(host_id=PEER))
    assert (service.state.runs_until, service.state.view.was_held, service.state.fleets) == (until, True, (make_config().host_ids,))


# What happens at each step: a renewal that is acknowledged after so many seconds, one whose answer is lost, a process that ends when it was sent, a reboot.
EVENTS = st.lists(
    st.tuples(st.floats(0, 20), st.one_of(st.floats(0, 20), st.sampled_from(["lost", "died", "rebooted", "died before"]))), min_size=1, max_size=15
)


@given(EVENTS)
def test_whatever_ends_when_numbers_grow_and_a_lease_has_no_gap(tmp_path_factory: pytest.TempPathFactory, events: t.List[t.Tuple[float, t.Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        host = placed(Host(tmp_path_factory.mktemp("host")), patch)
        service = host.service()
        # By boot: from when until when the host has its lease, by the answers that it got; and by which renewal.
        held: t.List[t.Tuple[int, float, float, int]] = []
        for pause, event in events:
            host.now += pause
            begin = host.now
            host.answers = [{"lost": NotAcknowledged("lost"), "died": Died()}.get(event, event)] if event not in ("rebooted", "died before") else []
            if event == "rebooted":
                host.reboot()
            if event in ("rebooted", "died before"):
                service = host.service()
                continue
            try:
                service.renew()
            except Died:
                service = host.service()
            if isinstance(event, float):
                held.append((host.boot, host.now, begin + 15, host.last.count))
            is_held = any(boot == host.boot and start <= host.now < end for boot, start, end, _count in held)
            assert service.answer_peer().lease == (HELD if is_held else NONE)
        counts = [lease.count for _at, lease in host.sent]
        assert counts == sorted(set(counts))
        boots = {lease.count: lease.boot_id for _at, lease in host.sent}
        for at, lease in host.sent:
            if lease.held_since:
                assert boots[lease.held_since] == lease.boot_id
                spans = [(start, end) for _boot, start, end, count in held if lease.held_since <= count < lease.count]
                until = spans[0][0]
                for start, end in spans:
                    assert start <= until
                    until = max(until, end)
                assert until > at
