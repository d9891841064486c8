# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""For how long the answers of other hosts hold."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.elsewhere import ANSWERS_SECONDS, ask_elsewhere, moment, still_holds
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

WEB, APP = "web-uuid", "app-uuid"
ASKED = {"active": {}, "silent": [], "uuids": [APP, WEB], "moment": {"boot_id": "one", "seconds": 1000.0}}


class Host:
    """A host on which one domain is active."""

    def __init__(self, uri: str) -> None:
        if uri == "silent":
            raise Unreachable("It is off.")

    def view(self, uuid: str) -> h.GuestView:
        view = h.GuestView(present=True, active=True, persistent=True, state=h.RUNNING, reason="", job=h.JOB_NONE)
        return view if uuid == WEB else h.NOT_THERE

    def host_uuid(self) -> str:
        return "uuid"

    def close(self) -> None:
        pass


def test_active_domains_and_silent_hosts_are_named() -> None:
    found = ask_elsewhere({"kvm2": "answers", "kvm3": "silent"}, {WEB, APP}, t.cast("t.Any", Host))
    assert (found["active"], found["silent"], found["uuids"]) == ({WEB: "kvm2"}, ["kvm3: It is off."], [APP, WEB])
    assert 0 <= moment()["seconds"] - found["moment"]["seconds"] < ANSWERS_SECONDS


@pytest.mark.parametrize(
    ("change", "uuids", "seconds", "boot_id", "expected"),
    [
        ({}, {WEB}, 1000.0, "one", True),
        ({}, {WEB, APP}, 999.9 + ANSWERS_SECONDS, "one", True),
        ({}, {WEB}, 1000.0 + ANSWERS_SECONDS, "one", False),
        ({}, {WEB}, 999.0, "one", False),
        ({}, {WEB}, 1001.0, "another", False),
        ({}, {WEB, "another"}, 1001.0, "one", False),
        ({"silent": ["kvm3: It is off."]}, {WEB}, 1001.0, "one", False),
    ],
)
def test_only_whole_and_recent_answers_of_this_boot_hold(change: dict[str, t.Any], uuids: set[str], seconds: float, boot_id: str, expected: bool) -> None:
    assert still_holds({**ASKED, **change}, uuids, {"boot_id": boot_id, "seconds": seconds}) is expected


def test_without_earlier_answers_nothing_holds() -> None:
    assert not still_holds(None, {WEB}, moment())


def test_answers_grow_older_while_their_host_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 7000.0, time.CLOCK_MONOTONIC: 5.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert moment()["seconds"] == 7000.0
