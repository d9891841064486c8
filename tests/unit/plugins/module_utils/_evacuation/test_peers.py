# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""For how long the answers of other hosts hold."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import ANSWERS_VALID_SECONDS, are_answers_valid, ask_peers
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import PeerAnswers

WEB, APP = "web-uuid", "app-uuid"
ASKED = PeerAnswers(active={}, silent=(), uuids=(APP, WEB), moment=BootMoment("one", 1000.0))


class Host:
    """A host on which one domain is active."""

    def __init__(self, uri: str) -> None:
        if uri == "silent":
            raise Unreachable("It is off.")

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        view = domain_states.DomainView(present=True, active=True, persistent=True, state=domain_states.RUNNING, reason="", job=domain_states.JOB_NONE)
        return view if uuid == WEB else domain_states.NOT_THERE

    def host_uuid(self) -> str:
        return "uuid"

    def close(self) -> None:
        pass


def test_peer_answers_name_active_domains_and_silent_hosts() -> None:
    found = ask_peers({"kvm2": "answers", "kvm3": "silent"}, {WEB, APP}, t.cast("t.Any", Host))
    assert (found.active, found.silent, found.uuids) == ({WEB: "kvm2"}, ("kvm3: It is off.",), (APP, WEB))
    assert are_answers_valid(dataclasses.replace(found, silent=()), {WEB}, boot_moment())


@pytest.mark.parametrize(
    ("change", "uuids", "seconds", "boot_id", "expected"),
    [
        ({}, {WEB}, 1000.0, "one", True),
        ({}, {WEB, APP}, 999.9 + ANSWERS_VALID_SECONDS, "one", True),
        ({}, {WEB}, 1000.0 + ANSWERS_VALID_SECONDS, "one", False),
        ({}, {WEB}, 999.0, "one", False),
        ({}, {WEB}, 1001.0, "another", False),
        ({}, {WEB, "another"}, 1001.0, "one", False),
        ({"silent": ("kvm3: It is off.",)}, {WEB}, 1001.0, "one", False),
    ],
)
def test_only_complete_and_recent_answers_of_this_boot_hold(change: dict[str, t.Any], uuids: set[str], seconds: float, boot_id: str, expected: bool) -> None:
    assert are_answers_valid(dataclasses.replace(ASKED, **change), uuids, BootMoment(boot_id, seconds)) is expected


def test_without_earlier_answers_nothing_holds() -> None:
    assert not are_answers_valid(None, {WEB}, boot_moment())
