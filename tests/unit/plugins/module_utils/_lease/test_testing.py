# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the watchdog daemon is told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import testing as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE

from .conftest import OWN, PEER, THIRD, make_config
from .test_state import make_state

FLEET = [[OWN, PEER, THIRD]]


class Asked(Exception):
    """The peers were asked."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> t.Dict[str, t.Any]:
    """What the files of the host and its peers say."""
    told: t.Dict[str, t.Any] = {"states": [None], "answers": Asked(), "config": make_config(), "tested": False}

    def answer(value: t.Any) -> t.Any:
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(m, "read_lease_state", lambda: answer(told["states"].pop(0) if len(told["states"]) > 1 else told["states"][0]))
    monkeypatch.setattr(m, "ask_peers", lambda peers, stores: {store: told.get(store, answer(told["answers"])) for store in stores})
    monkeypatch.setattr(m, "read_config", lambda: answer(told["config"]))
    monkeypatch.setattr(m, "has_been_tested", lambda: told["tested"], raising=False)
    return told


def state_ending_in(seconds: float) -> t.Any:
    return make_state(held_until=boot_moment().seconds + seconds, held_since=3, fleets=FLEET)


def test_a_host_with_its_lease_asks_nobody(told: t.Dict[str, t.Any]) -> None:
    told["states"] = [state_ending_in(10)]
    assert m.decide().keeps_running


def test_a_host_before_its_first_lease_asks_nobody(told: t.Dict[str, t.Any]) -> None:
    assert m.decide().keeps_running
    told["states"] = [make_state(fleets=FLEET)]
    assert m.decide().keeps_running


@pytest.mark.parametrize(
    ("answers", "keeps_running"),
    [({}, False), ({PEER: HELD, THIRD: HELD}, False), ({PEER: HELD}, False), ({PEER: NONE}, True), ({PEER: NONE, THIRD: HELD}, True)],
)
def test_a_host_without_its_lease_asks_its_peers(told: t.Dict[str, t.Any], answers: t.Dict[str, str], keeps_running: bool) -> None:
    told.update(states=[state_ending_in(-1)], answers=answers)
    assert m.decide().keeps_running == keeps_running


def test_a_lease_that_comes_while_the_peers_are_asked_counts(told: t.Dict[str, t.Any]) -> None:
    told.update(states=[state_ending_in(-1), state_ending_in(10)], answers={})
    assert m.decide().keeps_running


def test_a_configuration_with_fewer_hosts_saves_nobody_before_etcd_has_it(told: t.Dict[str, t.Any]) -> None:
    told.update(states=[state_ending_in(-1)], answers={}, config=make_config(fleet=make_config().fleet[:1]))
    assert not m.decide().keeps_running


def test_without_configuration_a_host_that_lost_its_lease_is_reset_and_one_that_has_it_is_not(told: t.Dict[str, t.Any]) -> None:
    told.update(states=[state_ending_in(-1)], config=Internal("The configuration of the lease cannot be read."))
    verdict = m.decide()
    assert (verdict.keeps_running, "the peers are unknown" in verdict.why) == (False, True)
    told["states"] = [state_ending_in(10)]
    assert m.decide().keeps_running


def test_a_state_that_cannot_be_read_counts_as_a_lease_that_has_ended(told: t.Dict[str, t.Any]) -> None:
    told.update(states=[Internal("damaged")], answers={PEER: HELD, THIRD: HELD})
    assert not m.decide().keeps_running
    told["answers"] = {PEER: NONE, THIRD: NONE}
    assert m.decide().keeps_running


@pytest.mark.parametrize("state", [None, make_state(fleets=FLEET)], ids=["no state", "a state without a lease"])
def test_a_state_that_is_lost_counts_as_a_lease_that_has_ended(told: t.Dict[str, t.Any], state: t.Any) -> None:
    """The test has found before, in this boot, that the host has had a lease."""
    told.update(states=[state], tested=True, answers={PEER: HELD, THIRD: HELD})
    assert not m.decide().keeps_running
    told["answers"] = {PEER: NONE, THIRD: NONE}
    assert m.decide().keeps_running


def test_the_service_itself_is_asked_too(told: t.Dict[str, t.Any]) -> None:
    """A file that is lost for a moment resets no host that has its lease."""
    told.update(states=[None], tested=True, answers={OWN: HELD, PEER: HELD, THIRD: HELD})
    assert m.decide().keeps_running
    told["answers"] = {OWN: NONE, PEER: HELD, THIRD: HELD}
    assert not m.decide().keeps_running


@pytest.mark.parametrize(
    ("decision", "code", "text"),
    [("time.sleep(60)", m.RESET, "did not end in time"), ("Verdict(True, 'Held.')", m.KEEPS_RUNNING, "Held."), ("Verdict(False, 'Lost.')", m.RESET, "Lost.")],
)
def test_the_test_ends_in_time_with_a_verdict(decision: str, code: int, text: str) -> None:
    """The daemon would reset the host for a test that takes longer, without any word of why."""
    program = f"""
import sys, time
from {m.__name__} import Verdict
import {m.__name__} as m
m.LIMIT_SECONDS, m.decide = 1, lambda: {decision}
sys.exit(m.run_test())
"""
    begin = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True)
    assert (ended.returncode, text in ended.stdout + ended.stderr) == (code, True)
    assert time.monotonic() - begin < 30
