# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import fleet_cpus as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import BaselineQuestion, ComparedCpu, FleetAnswers, FleetQuestions
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet


def cpu(*features: str) -> str:
    listed = "".join(f"<feature name='{name}' policy='require'/>" for name in features)
    return f"<cpu>{listed}</cpu>"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    monkeypatch.setattr(module, "open_reader", fleet.open)
    return fleet


def answer(cpus: t.Tuple[ComparedCpu, ...], baselines: t.Tuple[BaselineQuestion, ...] = ()) -> FleetAnswers:
    result = module.FLEET_PHASES["answer"](LOCAL_URI, {"questions": encode(FleetQuestions(cpus, baselines))})
    assert result["changed"] is False
    return decode(FleetAnswers, result["answers"])


def test_each_cpu_is_compared_with_the_host(fleet: FakeFleet) -> None:
    fleet.source.lacking = {"avx2"}
    found = answer((ComparedCpu("x86_64", "kvm", None, cpu("avx2")), ComparedCpu("x86_64", "kvm", "pc", cpu("aes"))))
    assert [verdict and verdict.passed for verdict in found.verdicts] == [False, True]
    assert abs(found.seconds - time.time()) < 5


def test_what_libvirt_withholds_is_not_known(fleet: FakeFleet) -> None:
    fleet.source.is_read_only = True
    found = answer((ComparedCpu("x86_64", "kvm", None, cpu("aes")),), (BaselineQuestion("x86_64", "kvm", (cpu("aes"),), (cpu("aes"),)),))
    assert found.verdicts == (None,)
    (baseline,) = found.baselines
    assert (baseline.common, baseline.guests) == (None, (None,))
    assert baseline.problem


def test_the_cpu_that_all_hosts_have_in_common_is_computed_with_the_features_of_guests(fleet: FakeFleet) -> None:
    question = BaselineQuestion("x86_64", "kvm", (cpu("aes", "avx", "avx2"), cpu("aes", "avx")), (cpu("avx2"), cpu("aes")))
    (baseline,) = answer((), (question,)).baselines
    assert baseline.common is not None
    assert baseline.common.features == ("aes", "avx")
    assert baseline.guests == (("avx2",), ("aes",))
    assert baseline.problem is None


def test_hosts_without_a_common_cpu_have_the_reason_of_libvirt(fleet: FakeFleet) -> None:
    (baseline,) = answer((), (BaselineQuestion("x86_64", "kvm", (cpu("aes"), cpu("svm")), ()),)).baselines
    assert baseline.common is None
    assert "incompatible" in str(baseline.problem)
