# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import clock
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import variables as module

FACTS = {"gathered_at": "2026-11-21T03:00:00.000Z", "host_uuid": "a"}


@pytest.mark.parametrize("clock", ["2026-11-21T03:00:00.000Z", "1970-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z", "yesterday", None])
def test_the_clock_of_the_host_does_not_affect_the_age_of_facts(clock: t.Any) -> None:
    age = module.age_seconds(module.with_receipt({**FACTS, "gathered_at": clock}))
    assert age is not None
    assert 0 <= age < 60


def test_the_age_of_facts_counts_from_their_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now[0])
    monkeypatch.setattr(time, "time", lambda: math.nan)
    facts = module.with_receipt(FACTS)
    now[0] += 61.5
    assert module.age_seconds(facts) == 61.5
    assert module.is_since(facts, BootMoment(clock.boot_moment().boot_id, 1000.0))
    assert not module.is_since(facts, BootMoment(clock.boot_moment().boot_id, 1000.5))


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
def test_facts_of_another_boot_or_an_older_form_have_an_unknown_age(monkeypatch: pytest.MonkeyPatch, stamp: t.Any) -> None:
    monkeypatch.setattr(clock, "_boot_id", lambda: "own")
    facts = {**FACTS, "received": stamp} if stamp is not None else FACTS
    assert module.age_seconds(facts) is None
    assert not module.is_since(facts, BootMoment("own", 0.0))


def test_facts_have_an_unknown_age_on_a_control_node_without_a_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_boot_id", lambda: "")
    assert module.age_seconds(module.with_receipt(FACTS)) is None
