# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shutting a domain down on a fake host: what is asked of the guest, how often, and what is made of how it ended."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import shutting_down
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.shutting_down import DomainShutdown, shutdown_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.starting import list_notes
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Aborted,
    Forbidden,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    NotSupported,
    TimedOut,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, read_own_act
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import FakeDomain
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost


class PoliteHost(FakeHost):
    """A fake host whose guest does, when it is asked to shut down, what the test says."""

    def __init__(self, fleet: FakeFleet, press: t.Callable[[], object] = lambda: None, action: str = "destroy") -> None:
        super().__init__(fleet, fleet.source, LOCAL_URI)
        self.press, self.action = press, action
        self.stops: t.Dict[str, str] = {}
        self.listening = False

    def on_poweroff(self, uuid: str) -> str:
        return self.action

    def listen_for_stop(self, uuid: str) -> None:
        self.listening = True

    def stopped_by(self, uuid: str) -> t.Optional[str]:
        return self.stops.get(uuid) if self.listening else None

    def shut_down(self, uuid: str) -> None:
        self._act("shut_down", uuid)
        self.press()


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def shutdown(fleet: FakeFleet, host: PoliteHost, folder: pathlib.Path, wait_seconds: float = 180) -> DomainShutdown:
    return DomainShutdown(host, host.find_domain(uuid=UUID), wait_seconds, str(folder), fleet.clock, fleet.clock.sleep)


def enter_shut_off(domain: FakeDomain, reason: str = "shutdown") -> t.Callable[[], object]:
    return lambda: domain.enter(domain_states.SHUTOFF, reason)


def count_shutdown_calls(fleet: FakeFleet) -> int:
    return fleet.source.calls.count(f"shut_down {UUID}")


def test_a_guest_is_asked_once_and_awaited(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    host = PoliteHost(fleet, lambda: fleet.clock.after(12, enter_shut_off(domain)))
    done = shutdown(fleet, host, tmp_path).carry_out()
    assert done["reason"] == "shutdown"
    assert 12 <= done["elapsed_seconds"] <= 13
    assert count_shutdown_calls(fleet) == 1


def test_a_guest_that_does_not_react_is_asked_again(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    host = PoliteHost(fleet)
    fleet.clock.at(45, lambda: setattr(host, "press", enter_shut_off(domain)))
    assert 60 <= shutdown(fleet, host, tmp_path).carry_out()["elapsed_seconds"] <= 62
    assert count_shutdown_calls(fleet) == 3


def test_a_guest_that_never_shuts_down_times_out_and_keeps_running(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    with pytest.raises(TimedOut, match=r"still running .* after 20 s\. It was not destroyed") as caught:
        shutdown(fleet, PoliteHost(fleet), tmp_path, 20).carry_out()
    assert caught.value.as_result()["changed"] is True
    assert domain.state == domain_states.RUNNING
    assert set(fleet.source.calls) == {f"shut_down {UUID}"}


@pytest.mark.parametrize(
    ("state", "reason", "job", "action", "why"),
    [
        (domain_states.PAUSED, "user", domain_states.JOB_NONE, "destroy", "cannot react"),
        (domain_states.RUNNING, "booted", domain_states.JOB_OUTGOING, "destroy", "outgoing migration"),
        (domain_states.RUNNING, "booted", domain_states.JOB_OTHER, "destroy", "has a job"),
        (domain_states.PAUSED, domain_states.MIGRATION, domain_states.JOB_INCOMING, "destroy", "incoming migration"),
        (domain_states.RUNNING, domain_states.POST_COPY, domain_states.JOB_NONE, "destroy", "post-copy"),
        (domain_states.RUNNING, "booted", domain_states.JOB_NONE, "restart", "on_poweroff restart"),
        (domain_states.RUNNING, "booted", domain_states.JOB_NONE, "preserve", "on_poweroff preserve"),
    ],
)
def test_a_guest_that_cannot_shut_down_is_refused_before_it_is_asked(
    fleet: FakeFleet, tmp_path: pathlib.Path, state: str, reason: str, job: str, action: str, why: str
) -> None:
    fleet.guest(state=state, reason=reason, job=job)
    with pytest.raises(InvalidState, match=why):
        shutdown(fleet, PoliteHost(fleet, action=action), tmp_path).check_possible()
    assert count_shutdown_calls(fleet) == 0


def test_a_guest_whose_disk_is_being_copied_is_refused_before_it_is_asked(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """The job of a disk ends with its guest, and nobody is told."""
    fleet.guest(other_job="a copy of disk vda")
    with pytest.raises(InvalidState, match=r"has a job in progress \(a copy of disk vda\)"):
        shutdown(fleet, PoliteHost(fleet), tmp_path).check_possible()
    assert count_shutdown_calls(fleet) == 0


@pytest.mark.parametrize(("start_again", "differing", "is_refused"), [(True, "", True), (False, "", False), (True, "<transient/>", False)])
def test_a_guest_that_would_start_again_from_a_stale_image_is_refused(
    fleet: FakeFleet, tmp_path: pathlib.Path, start_again: bool, differing: str, is_refused: bool
) -> None:
    """It was defined anew while it ran on a snapshot: its definition names the image below that."""
    domain = fleet.guest(disks=(domain_states.Disk("vda", "file", "/srv/web1.qcow2"),))
    domain.live_definition = domain.xml().replace("web1.qcow2'", "web1.snap'").replace("</disk>", f"{differing}</disk>")
    one = dataclasses.replace(shutdown(fleet, PoliteHost(fleet), tmp_path), start_again=start_again)
    if not is_refused:
        one.check_possible()
        return
    with pytest.raises(InvalidState, match=r"disk vda: the running domain has /srv/web1.snap as this disk, and its definition has /srv/web1.qcow2"):
        one.check_possible()


def test_the_shutdown_of_a_watched_domain_is_refused(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    (tmp_path / f"{UUID}.json").write_text(json.dumps({"status": "queued", "watcher": encode(identify_watcher("run"))}))
    with pytest.raises(InvalidState, match="is being moved"):
        shutdown(fleet, PoliteHost(fleet), tmp_path).check_possible()


def test_the_state_file_of_an_ended_move_does_not_prevent_a_shutdown(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    (tmp_path / f"{UUID}.json").write_text(json.dumps({"status": "completed", "watcher": encode(identify_watcher("run"))}))
    shutdown(fleet, PoliteHost(fleet), tmp_path).check_possible()


def test_a_shutdown_is_refused_when_a_move_begins_at_the_same_time(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    watcher = Ownership(UUID, str(tmp_path))
    with pytest.raises(InvalidState, match="is being moved"):
        shutdown(fleet, PoliteHost(fleet), tmp_path).carry_out()
    watcher.release_lock()
    assert count_shutdown_calls(fleet) == 0


def test_a_shutdown_prevents_moves_until_it_ends(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    refused: t.List[KvmfleetError] = []

    def press() -> None:
        with pytest.raises(KvmfleetError) as caught:
            Ownership(UUID, str(tmp_path))
        refused.append(caught.value)
        enter_shut_off(domain)()

    shutdown(fleet, PoliteHost(fleet, press), tmp_path).carry_out()
    assert [error.error_code for error in refused] == ["conflict"]
    Ownership(UUID, str(tmp_path)).release_lock()


def test_a_transient_domain_is_shut_down_although_its_event_comes_late(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(persistent=False)
    host = PoliteHost(fleet, lambda: fleet.clock.after(1, lambda: fleet.source.remove(UUID)))
    fleet.clock.at(2, lambda: host.stops.update({UUID: "shutdown"}))
    assert shutdown(fleet, host, tmp_path).carry_out()["reason"] == "shutdown"


def test_an_intermediate_state_is_read_again(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    host = PoliteHost(fleet, lambda: domain.enter(domain_states.OTHER_STATE, ""))
    fleet.clock.at(1, enter_shut_off(domain))
    assert shutdown(fleet, host, tmp_path).carry_out()["reason"] == "shutdown"


@pytest.mark.parametrize(("told", "why"), [({UUID: "migrated"}, "has been moved away"), ({}, "did not say how")])
def test_a_domain_that_vanished_without_a_shutdown_is_an_error(fleet: FakeFleet, tmp_path: pathlib.Path, told: t.Dict[str, str], why: str) -> None:
    fleet.guest()
    host = PoliteHost(fleet, lambda: fleet.source.remove(UUID))
    host.stops = told
    with pytest.raises(InvalidState, match=why):
        shutdown(fleet, host, tmp_path).carry_out()


def test_a_domain_that_was_destroyed_meanwhile_has_its_own_reason(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain = fleet.guest()
    assert shutdown(fleet, PoliteHost(fleet, enter_shut_off(domain, "destroyed")), tmp_path).carry_out()["reason"] == "destroyed"


def test_a_host_that_stops_answering_after_the_request_is_unreachable(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    host = PoliteHost(fleet, lambda: fleet.clock.after(2, fleet.source.go_dark))
    task = shutdown(fleet, host, tmp_path)
    task.info = host.find_domain(uuid=UUID)
    with pytest.raises(Unreachable, match="was asked to shut down"):
        task.carry_out()


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"wait_seconds": 0}, InvalidArgument),
        ({"wait_seconds": 86401}, InvalidArgument),
        ({"name": None, "uuid": "no-uuid"}, InvalidArgument),
        ({"name": "a/b"}, InvalidArgument),
        ({"name": "nobody"}, NotFound),
        ({"uri": "qemu+ssh://kvm2/system"}, NotSupported),
    ],
)
def test_bad_options_are_refused(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, params: t.Dict[str, t.Any], expected: t.Type[KvmfleetError]) -> None:
    fleet.guest()
    monkeypatch.setattr(shutting_down, "require_root", lambda: None)
    monkeypatch.setattr(shutting_down, "prepare_run_folder", lambda: "")
    monkeypatch.setattr(shutting_down, "open_host", lambda uri: PoliteHost(fleet))
    with pytest.raises(expected):
        shutdown_of({"uri": LOCAL_URI, "name": "web1", "uuid": None, "wait_seconds": 180, **params})


def test_a_shutdown_without_root_is_forbidden(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_module.os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden, match="become"):
        shutdown_of({"uri": LOCAL_URI, "name": "web1", "uuid": None, "wait_seconds": 180})


def test_a_shutdown_is_noted_before_the_guest_is_asked(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    domain, noted = fleet.guest(), []

    def press() -> None:
        noted.append(read_own_act(UUID, str(tmp_path)))
        domain.enter(domain_states.SHUTOFF, "shutdown")

    shutdown(fleet, PoliteHost(fleet, press), tmp_path).carry_out()
    assert noted[0]
    assert read_own_act(UUID, str(tmp_path)) == noted[0]


def test_a_guest_that_is_to_be_started_again_is_noted_with_the_boot_of_its_shutdown(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    host, notes = PoliteHost(fleet, enter_shut_off(fleet.guest())), str(tmp_path / "notes")
    DomainShutdown(host, host.find_domain(uuid=UUID), 180, str(tmp_path), fleet.clock, fleet.clock.sleep, start_again=True, notes_folder=notes).carry_out()
    (note,), _damaged = list_notes(notes)
    assert (note.name, note.why, note.boot_id) == ("web1", ("drain",), boot_moment().boot_id)


def test_a_guest_is_not_asked_again_after_the_task_has_ended(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has cancelled the task. The request would be repeated for hours, and the domain could be neither moved nor shut down meanwhile."""
    fleet.guest()
    host = PoliteHost(fleet)
    fleet.clock.after(10, lambda: monkeypatch.setattr(shutting_down, "has_lost_task", lambda: True))
    with pytest.raises(Aborted, match="was asked to shut down and may be off soon"):
        shutdown(fleet, host, tmp_path, wait_seconds=86400).carry_out()
    assert (count_shutdown_calls(fleet), fleet.clock() < 11) == (1, True)
    Ownership(UUID, str(tmp_path)).release_lock()
    # One that is a part of a move is not given up.
    own = dataclasses.replace(shutdown(fleet, host, tmp_path, wait_seconds=60), is_own=True)
    with pytest.raises(TimedOut):
        own.carry_out()
