# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host's half of boot_guard returns."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.status import GuardState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import BootHold, BootStatus
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, Unreachable

BOOT = "9d6c2f0e-7c1e-4b0e-8d53-0c6a1f2b3d44"
HELD = BootHold(BOOT, "2026-11-21T01:00:00Z", "there is no clean-shutdown token")


@pytest.mark.parametrize("held", [HELD, None])
def test_the_boot_is_named_whether_or_not_it_is_held(monkeypatch: pytest.MonkeyPatch, held: BootHold | None) -> None:
    boot = BootStatus(BOOT, ran=True, held=held, released=None, marked=held is not None, grant=None, token=None, would_start=())
    monkeypatch.setattr(phases, "require_root", lambda: None)
    monkeypatch.setattr(phases, "read_identity", lambda _uri, _work: {"identity": {"host_id": BOOT}, "libvirt_error": None})
    monkeypatch.setattr(phases, "list_remembered", list)
    monkeypatch.setattr(phases, "read_guard_state", lambda: GuardState(installed=True, systemd=True, boot=boot))
    monkeypatch.setattr(phases.start_notes, "list_notes", lambda: ((), ()))
    guard = phases.read_guard("qemu:///system", {})["guard"]
    assert (guard["boot_id"], guard["held"] is None) == (BOOT, held is None)


@pytest.mark.parametrize(("state", "running"), [("running", True), ("paused", False), ("shut off", False), (None, None)])
def test_a_recalled_record_says_whether_its_domain_runs_here(monkeypatch: pytest.MonkeyPatch, state: str | None, running: bool | None) -> None:
    """A libvirt that does not answer says nothing, and the record is recalled all the same."""

    def view_domain(_uuid: str) -> t.Any:
        if state is None:
            raise Unreachable("libvirt did not answer.", "")
        return types.SimpleNamespace(state=state)

    told = {"record": {"domain": {"uuid": BOOT}}, "watched": False}
    monkeypatch.setattr(phases, "require_root", lambda: None)
    monkeypatch.setattr(phases, "find_remembered", lambda record_id: told if record_id == "known" else None)
    monkeypatch.setattr(phases, "open_reader", lambda _uri: types.SimpleNamespace(view_domain=view_domain, close=lambda: None))
    assert phases.recall_record("qemu:///system", {"id": "known"})["told"] == {**told, "running": running}
    assert phases.recall_record("qemu:///system", {"id": "unknown"})["told"] is None


def test_a_host_that_was_booted_since_the_ledger_was_read_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been fenced and evacuated meanwhile. Released, it would leave a token at its next shutdown, and then start outdated copies."""
    boot = BootStatus(BOOT, ran=True, held=HELD, released=None, marked=True, grant=None, token=None, would_start=())
    monkeypatch.setattr(phases, "require_root", lambda: None)
    monkeypatch.setattr(phases, "read_guard_state", lambda: GuardState(installed=True, systemd=True, boot=boot))
    monkeypatch.setattr(phases, "release_host", lambda check_mode: pytest.fail("released"))
    with pytest.raises(InvalidState, match=r"was booted while its release was decided\. It was not released\..*Run the task again"):
        phases.release_boot("qemu:///system", {"check": False, "boot_id": "0" + BOOT[1:]})
