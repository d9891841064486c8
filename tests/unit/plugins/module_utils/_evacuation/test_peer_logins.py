# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import peer_logins as module
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet

PEERS = {"kvm2": "qemu+tls://kvm2/system", "kvm9": "qemu+tls://kvm9/system"}


def try_peers(uri: str = LOCAL_URI) -> t.Tuple[t.List[str], t.Dict[str, str]]:
    result = module.PEER_PHASES["try"](uri, {"peers": PEERS})
    assert result["changed"] is False
    return t.cast("t.Tuple[t.List[str], t.Dict[str, str]]", (result["asked"], result["silent"]))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> t.List[str]:
    fleet, opened = FakeFleet(), t.cast("t.List[str]", [])

    def open_host(uri: str) -> t.Any:
        opened.append(uri)
        return fleet.open(uri)

    monkeypatch.setattr(module, "open_host", open_host)
    monkeypatch.setattr(module, "is_root", lambda: True)
    return opened


def test_a_host_that_cannot_be_asked_is_returned_with_the_reason(opened: t.List[str]) -> None:
    asked, failed = try_peers()
    assert asked == ["kvm2", "kvm9"]
    assert (list(failed), sorted(opened)) == (["kvm9"], sorted(PEERS.values()))
    assert "no such host" in failed["kvm9"]


def test_only_root_on_the_host_itself_tries_others(opened: t.List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert try_peers("qemu+tls://kvm1/system") == ([], {})
    monkeypatch.setattr(module, "is_root", lambda: False)
    assert (try_peers(), opened) == (([], {}), [])
