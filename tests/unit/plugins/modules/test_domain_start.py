# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module domain_start on a host whose boot is held, or was released."""

from __future__ import annotations

import functools
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.program import BY_CONTROL
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.starting import DomainStart
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.modules import domain_start
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._boot_guard.boots import Machine

Result = dict[str, t.Any]


class StartingHost(FakeHost):
    def start_domain(self, uuid: str, paused: bool = False) -> None:
        self._machine.domain(uuid).enter(domain_states.RUNNING, "booted")


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A host with a domain that is off."""
    machine, fleet = Machine(tmp_path), FakeFleet()
    fleet.guest(state=domain_states.SHUTOFF, reason="unknown")

    def start_of(_params: object) -> DomainStart:
        host = StartingHost(fleet, fleet.source, LOCAL_URI)
        return DomainStart(host, host.find_domain(uuid=UUID), str(tmp_path), str(tmp_path / "notes"))

    monkeypatch.setattr(domain_start, "start_of", start_of)
    for check in ("check_not_held", "check_same_boot"):
        monkeypatch.setattr(domain_start, check, functools.partial(getattr(domain_start, check), root=str(tmp_path)))
    return machine


def start(check_mode: bool = False, boot_id: str | None = None, noted: JsonObject | None = None) -> Result:
    params = {"_work": {"boot_id": boot_id, "noted": noted} if boot_id else None}
    return t.cast(Result, domain_start.domain_start(t.cast(t.Any, types.SimpleNamespace(params=params, check_mode=check_mode))))


def test_a_domain_starts_on_a_host_without_a_boot_guard(machine: Machine) -> None:
    assert (start()["changed"], start()["changed"]) == (True, False)


def test_a_domain_is_not_started_in_a_boot_that_is_held(machine: Machine) -> None:
    """Only the release asks the ledger whether the guest runs elsewhere, and withdraws what would make the host look like one that is off."""
    machine.guard.hold_boot()
    with pytest.raises(InvalidState, match=r"Domain web1 on .* cannot be started: the boot guard holds this boot.*It was not started"):
        start()
    machine.guard.release_boot(BY_CONTROL)
    assert start()["changed"]


def test_check_mode_predicts_the_start_after_a_release_that_was_only_predicted(machine: Machine) -> None:
    machine.guard.hold_boot()
    assert start(check_mode=True)["changed"]


def test_a_hold_of_an_earlier_boot_does_not_count(machine: Machine) -> None:
    machine.guard.hold_boot()
    machine.write("proc/sys/kernel/random/boot_id", f"{UUID}\n")
    assert start()["changed"]


def test_a_decision_of_an_earlier_boot_starts_nothing(machine: Machine) -> None:
    """The control node was suspended after a recovery had asked the fleet; the host, which has no guard, was fenced, evacuated and booted meanwhile."""
    decided_in = machine.guard.boot_id()
    machine.write("proc/sys/kernel/random/boot_id", f"{UUID}\n")
    with pytest.raises(InvalidState, match=r"web1 on .* was not started: the host was booted since .* Run recover"):
        start(boot_id=decided_in)
    assert start(boot_id=machine.guard.boot_id())["changed"]


def test_a_domain_whose_note_is_gone_is_not_started_by_a_recovery(machine: Machine) -> None:
    """Another recovery has started it, and its owner has stopped it."""
    noted = {"uuid": UUID, "name": "web1", "why": ["drain"], "at": "2026-01-02T03:04:05Z", "boot_id": machine.guard.boot_id()}
    with pytest.raises(InvalidState, match="since that was decided, somebody has started it"):
        start(boot_id=machine.guard.boot_id(), noted=noted)
    assert start(check_mode=True, boot_id=machine.guard.boot_id(), noted=noted)["changed"]
    (machine.root / "notes").mkdir()
    (machine.root / "notes" / f"{UUID}.json").write_text(json.dumps(noted))
    assert start(boot_id=machine.guard.boot_id(), noted=noted)["changed"]
