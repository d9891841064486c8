# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A broken post-copy and what brings it to its end, between fake hosts."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, KvmfleetError, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.recover import RECOVER_SECONDS, Recovery
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import acts, journal_of, order_of, record_of

TO_2 = "qemu+tcp://kvm2/system"
PAUSE, RESUME = "recover: pause", "recover: resume"


class InPostCopy:
    """A guest in post-copy, with about 900 MiB still at its source, and what recovers it."""

    def __init__(self, folder: pathlib.Path, libvirt: int = 9000000) -> None:
        self.fleet = FakeFleet(link_mib=100)
        self.fleet.destination.versions["libvirt"] = libvirt
        self.fleet.guest()
        self.migration = self.fleet.begin_elsewhere(UUID, "POSTCOPY")
        self.fleet.clock.sleep(1)
        self.migration.start_post_copy()
        self.began_at = self.fleet.clock()
        order = order_of(record_of(status=s.RUNNING_POST_COPY), adopt=True, flags=["POSTCOPY"])
        self.journal = journal_of(order.record, folder)
        clock = self.fleet.clock
        self.recovery = Recovery(order, self.journal, lambda: self.fleet.open(LOCAL_URI), lambda: self.fleet.open(TO_2), clock, clock.sleep)

    def recover(self) -> t.Optional[str]:
        why = self.recovery.recover_post_copy()
        assert all(host.is_closed for host in self.fleet.connections)
        return why

    @property
    def acts(self) -> t.List[str]:
        return acts(self.journal.record)

    @property
    def took(self) -> float:
        return self.fleet.clock() - self.began_at

    def asked(self) -> t.Set[str]:
        return {call.split()[0] for machine in self.fleet.machines.values() for call in machine.calls}

    def has_arrived(self) -> bool:
        return self.migration.is_over and self.fleet.destination.domains[UUID].view().describe() == "running (migrated)"


@pytest.fixture
def post_copy(tmp_path: pathlib.Path) -> InPostCopy:
    return InPostCopy(tmp_path)


def test_an_unattended_post_copy_stream_is_awaited(post_copy: InPostCopy) -> None:
    post_copy.migration.leave_unattended()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert (post_copy.acts, post_copy.asked()) == ([], set())


def test_a_broken_post_copy_stream_is_resumed(post_copy: InPostCopy) -> None:
    post_copy.migration.break_post_copy()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert post_copy.acts == [RESUME]
    assert post_copy.asked() == {"migrate"}
    assert UUID not in post_copy.fleet.source.domains, "the flags of the first call hold"


def test_a_stream_that_still_runs_is_left_alone(post_copy: InPostCopy) -> None:
    post_copy.migration.link_bytes = 20 * MIB
    post_copy.migration.lose_post_copy_call()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert post_copy.acts == [RESUME]
    assert "still running" in next(str(line.detail) for line in post_copy.journal.record.history if line.status == "resume_refused")


def test_a_stalled_stream_is_paused_and_resumed(post_copy: InPostCopy) -> None:
    post_copy.migration.link_bytes = 0
    post_copy.migration.lose_post_copy_call()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert post_copy.acts == [RESUME, PAUSE, RESUME]
    assert 30 < post_copy.took < 90


def test_a_stalled_unattended_stream_is_paused_and_resumed(post_copy: InPostCopy) -> None:
    post_copy.migration.link_bytes = 0
    post_copy.migration.leave_unattended()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert post_copy.acts == [PAUSE, RESUME]


def test_a_stream_that_breaks_again_is_resumed_again(post_copy: InPostCopy) -> None:
    post_copy.migration.break_post_copy()
    post_copy.fleet.clock.after(4, post_copy.migration.break_post_copy)
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert post_copy.acts == [RESUME, RESUME]


def test_a_resumed_stream_that_stalls_is_paused_and_resumed_again(post_copy: InPostCopy) -> None:
    post_copy.migration.break_post_copy()
    post_copy.fleet.clock.after(4, lambda: setattr(post_copy.migration, "link_bytes", 0))
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert post_copy.acts == [RESUME, PAUSE, RESUME]


@pytest.mark.parametrize("version", [11002000, 11003000, 11003999])
def test_a_stream_to_a_libvirt_that_would_crash_is_not_resumed(tmp_path: pathlib.Path, version: int) -> None:
    post_copy = InPostCopy(tmp_path, version)
    post_copy.migration.break_post_copy()
    why = post_copy.recover()
    assert why is not None
    assert "Update libvirt" in why
    assert (post_copy.acts, post_copy.asked()) == ([], set())


@pytest.mark.parametrize("version", [9000000, 11001999, 11004000, 12005000])
def test_a_stream_to_any_other_libvirt_is_resumed(tmp_path: pathlib.Path, version: int) -> None:
    post_copy = InPostCopy(tmp_path, version)
    post_copy.migration.break_post_copy()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()


@pytest.mark.parametrize("version", [5002000, 8004999])
def test_a_stream_to_a_libvirt_that_cannot_resume_is_not_resumed(tmp_path: pathlib.Path, version: int) -> None:
    post_copy = InPostCopy(tmp_path, version)
    post_copy.migration.break_post_copy()
    assert "cannot resume a post-copy migration" in (post_copy.recover() or "")
    assert (post_copy.acts, post_copy.asked()) == ([], set())


@pytest.mark.parametrize("version", [8004999, 11003000])
def test_a_stalled_stream_that_cannot_be_resumed_is_not_paused(tmp_path: pathlib.Path, version: int) -> None:
    """When its network works again, it continues by itself."""
    post_copy = InPostCopy(tmp_path, version)
    post_copy.migration.link_bytes = 0
    post_copy.migration.leave_unattended()
    post_copy.fleet.clock.after(200, lambda: setattr(post_copy.migration, "link_bytes", 100 * MIB))
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert (post_copy.acts, post_copy.asked()) == ([], set())
    assert [line.status for line in post_copy.journal.record.history].count("not_paused") == 1


def test_an_unattended_stream_is_awaited_with_any_version(tmp_path: pathlib.Path) -> None:
    post_copy = InPostCopy(tmp_path, 11003000)
    post_copy.migration.leave_unattended()
    assert post_copy.recover() is None
    assert post_copy.has_arrived()


def test_recovery_is_given_up_at_its_limit_and_both_copies_are_kept(post_copy: InPostCopy) -> None:
    post_copy.fleet.link_mib = 0
    post_copy.migration.break_post_copy()
    why = post_copy.recover()
    assert why is not None
    assert "900 s" in why
    assert RECOVER_SECONDS <= post_copy.took < RECOVER_SECONDS + 60
    assert post_copy.asked() == {"migrate", "pause_post_copy"}
    assert all(machine.domains[UUID].active for machine in post_copy.fleet.machines.values())


def test_recovery_without_an_answer_of_the_destination_does_nothing(post_copy: InPostCopy) -> None:
    post_copy.migration.break_post_copy()
    post_copy.fleet.destination.go_dark()
    assert post_copy.recover() is not None
    assert RECOVER_SECONDS <= post_copy.took < RECOVER_SECONDS + 60
    assert (post_copy.acts, post_copy.asked()) == ([], set())


@pytest.mark.parametrize("dark", ["kvm1", "kvm2"])
def test_recovery_continues_when_a_silent_host_returns(post_copy: InPostCopy, dark: str) -> None:
    post_copy.migration.break_post_copy()
    post_copy.fleet.machines[dark].go_dark()
    post_copy.fleet.clock.after(120, post_copy.fleet.machines[dark].come_back)
    assert post_copy.recover() is None
    assert post_copy.has_arrived()


@pytest.mark.parametrize("call", ["view", "pause_post_copy"])
@pytest.mark.parametrize("error", [TimedOut("job lock"), InvalidState("its job is not in post-copy")])
def test_a_refusal_during_recovery_is_noted_once_and_recovery_continues(post_copy: InPostCopy, call: str, error: KvmfleetError) -> None:
    post_copy.migration.link_bytes = 0
    post_copy.migration.leave_unattended()
    post_copy.fleet.source.refuse[call] = error
    post_copy.fleet.clock.after(100, lambda: post_copy.fleet.source.refuse.pop(call))
    assert post_copy.recover() is None
    assert post_copy.has_arrived()
    assert [line.status for line in post_copy.journal.record.history].count("recover_refused") == 1


def test_a_post_copy_with_a_crashed_destination_is_not_recovered(post_copy: InPostCopy) -> None:
    post_copy.migration.break_post_copy()
    post_copy.fleet.destination.domains[UUID].enter("crashed", "panicked")
    assert post_copy.recover() is None
    assert (post_copy.acts, post_copy.asked()) == ([], set())
