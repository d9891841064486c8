# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Queries of a host whose libvirt accepts connections and answers nothing: they end with an error."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _time_limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import fleet_cpus
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import ComparedCpu, FleetQuestions
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    fleet, end = FakeFleet(), threading.Event()

    class HungHost(FakeHost):
        def __getattribute__(self, name: str) -> t.Any:
            if name in ("find_domain", "compare_cpu"):
                with _time_limits.timed_question(f"call {name}"):
                    end.wait(10)
            return super().__getattribute__(name)

    def open_hung(uri: str) -> HungHost:
        return HungHost(fleet, fleet.machine_of(uri), uri)

    monkeypatch.setattr(intervene, "open_host", open_hung)
    monkeypatch.setattr(fleet_cpus, "open_reader", open_hung)
    for name, seconds in (("QUESTION_SECONDS", 0.2), ("_CHECK_SECONDS", 0.05), ("_END_SECONDS", 3600.0)):
        monkeypatch.setattr(_time_limits, name, seconds)
    yield
    end.set()


@pytest.mark.usefixtures("hung")
def test_an_abort_on_such_a_host_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervene, "require_root", lambda: None)
    with pytest.raises(Unreachable, match=r"Failed to call find_domain: libvirt did not answer .*Nothing was changed"):
        intervene.look_at_move(LOCAL_URI, {"act": "abort", "name": "web1", "uuid": None})


@pytest.mark.usefixtures("hung")
def test_the_cpus_of_a_fleet_are_not_compared_on_such_a_host() -> None:
    questions = encode(FleetQuestions((ComparedCpu("x86_64", "kvm", None, "<cpu/>"),), ()))
    with pytest.raises(Unreachable, match="Failed to call compare_cpu: libvirt did not answer"):
        fleet_cpus.answer_questions(LOCAL_URI, {"questions": questions})
