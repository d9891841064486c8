# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils import _facts_age as module

FACTS = {"gathered_at": "2026-11-21T03:00:00.000Z", "host_uuid": "a"}


@pytest.mark.parametrize("clock", ["2026-11-21T03:00:00.000Z", "1970-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z", "yesterday", None])
def test_the_host_s_own_clock_has_no_say(clock: t.Any) -> None:
    age = module.age_seconds(module.received({**FACTS, "gathered_at": clock}))
    assert age is not None
    assert 0 <= age < 60


def test_what_was_received_is_as_old_as_that_is_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "clock_gettime", lambda clock: now[0])
    monkeypatch.setattr(module.time, "time", lambda: math.nan)
    facts = module.received(FACTS)
    now[0] += 61.5
    assert module.age_seconds(facts) == 61.5
    assert module.is_since(facts, {**module.moment(), "seconds": 1000.0})
    assert not module.is_since(facts, {**module.moment(), "seconds": 1000.5})


@pytest.mark.parametrize(
    "stamp",
    [
        None,
        "now",
        5,
        {},
        {"boot_id": "another start", "seconds": 1.0},
        {"boot_id": None, "seconds": 1.0},
        {"boot_id": "", "seconds": 1.0},
        {"seconds": 1.0},
        {"boot_id": "own", "seconds": "1"},
        {"boot_id": "own", "seconds": True},
        {"boot_id": "own"},
    ],
)
def test_facts_of_another_start_or_an_older_form_are_of_unknown_age(monkeypatch: pytest.MonkeyPatch, stamp: t.Any) -> None:
    monkeypatch.setattr(module, "_boot_id", lambda: "own")
    facts = {**FACTS, "received": stamp} if stamp is not None else FACTS
    assert module.age_seconds(facts) is None
    assert not module.is_since(facts, {"boot_id": "own", "seconds": 0.0})


def test_a_control_node_without_a_name_for_its_start_knows_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_boot_id", lambda: "")
    assert module.age_seconds(module.received(FACTS)) is None


def test_this_machine_has_a_name_for_its_start() -> None:
    assert len(module.moment()["boot_id"]) > 8
