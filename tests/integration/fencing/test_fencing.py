# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that are really switched off, by an agent as clusters use it."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import ask_power, check_evidence, confirm_evidence, fence_host, is_fresh
from ansible_collections.kvmfleet.migration.tests.integration.fencing.conftest import Configure
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

IsOn = t.Callable[[int], bool]

BY = "root@control pid 4711"


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def test_a_host_with_a_running_guest_is_fenced_and_confirmed_as_off(lab: Lab, power: IsOn, configure: Configure) -> None:
    lab("guest", "web", "--host", lab.host(1), "--mib", "32")
    config = configure(1)
    assert ask_power(config).reply.power is PowerState.ON
    assert lab.places("web") == {1: "running"}

    evidence = fence_host(config, "id-1", BY)
    assert (evidence.host, evidence.action, evidence.status) == (lab.host(1), "off", "off")
    assert evidence.output == f"action=status\nplug={lab.host(1)}\npassword=***\nStatus: OFF"
    assert is_fresh(evidence, now())
    assert check_evidence(encode(evidence), lab.host(1), "id-1", BY, now()) == evidence
    assert (power(1), power(2)) == (False, True)
    assert lab.places("web").get(1) != "running"

    assert is_fresh(confirm_evidence(evidence, config, now()), now())
    lab("poweron", lab.host(1))
    with pytest.raises(Unsafe, match=f"{lab.host(1)} is on, says .*fence_lab"):
        confirm_evidence(evidence, config, now())
    lab("rmguest", "web")


def test_a_host_that_is_off_already_is_not_switched_off_again(lab: Lab, power: IsOn, configure: Configure) -> None:
    lab("poweroff", lab.host(2))
    assert fence_host(configure(2), None, BY).action == "status"
    assert (power(1), power(2)) == (True, False)


def test_an_agent_that_does_not_know_the_plug_fences_nothing(lab: Lab, power: IsOn, configure: Configure) -> None:
    with pytest.raises(Unreachable, match=f"{lab.host(1)} could not be fenced: .*{lab.prefix}9.*force_down"):
        fence_host(configure(1, plug=f"{lab.prefix}9"), None, BY)
    assert (power(1), power(2)) == (True, True)
