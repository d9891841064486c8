# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the status of the fleet reads on a host of its boot guard."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, seen_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.status import is_boot_held, release_host
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._boot_guard.boots import Machine


def test_a_boot_is_held_until_it_is_released(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    install.install_guard(str(tmp_path))
    machine.boot()
    machine.guard.hold_boot()
    assert is_boot_held(str(tmp_path)) is True
    release_host(str(tmp_path))
    assert is_boot_held(str(tmp_path)) is False


def test_a_host_without_a_guard_holds_nothing(tmp_path: pathlib.Path) -> None:
    assert is_boot_held(str(tmp_path)) is False


def test_another_user_than_root_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert is_boot_held() is None


def test_a_host_reports_it_beside_its_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_host, "report_seen_domains", lambda uri, work: {"changed": False, "domains": []})
    monkeypatch.setattr(seen_host, "is_boot_held", lambda: True)
    monkeypatch.setattr(seen_host, "find_ledger_id", lambda: "l1")
    assert seen_host.SEEN_PHASES["look"]("qemu:///system", {}) == {"changed": False, "domains": [], "held": True, "ledger_id": "l1"}
