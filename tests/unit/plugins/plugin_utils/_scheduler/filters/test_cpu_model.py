# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Finding, f, host, judged, request, uuid_of

PLATFORM = f.host("x")["platforms"][0]
HOST_CPU = {"model": "Haswell", "vendor": "Intel", "features": ["aes", "avx2"], "microcode": 38}


def cpu(mode: str | None = "custom", model: str | None = "Haswell", **features: str) -> dict[str, t.Any]:
    return {"mode": mode, "model": model, "features": features, "xml": "<cpu/>"}


def of(cpu_needed: dict[str, t.Any] | None, **facts: t.Any) -> Finding:
    source = host("kvm1", host_cpu=HOST_CPU)
    return judged("cpu_model", request(cpu=cpu_needed), host(**facts), source)


@pytest.mark.parametrize("needed", [None, cpu(None, None), cpu(), cpu("host-model"), cpu(aes="require"), cpu(amx="disable"), cpu(amx="optional")])
def test_what_the_platform_gives_passes_silently(needed: dict[str, t.Any] | None) -> None:
    finding = of(needed)
    assert (finding.reason, finding.warnings) == (None, ())


def test_missing_features_are_named_and_cannot_be_forced() -> None:
    finding = of(cpu(amx="require", aes="require", la57="require"))
    assert finding.reason == "Its CPU lacks amx, la57, which web1 has been using."
    assert finding.overridable is None


def test_a_model_that_it_cannot_give_refuses() -> None:
    assert of(cpu(model="Sapphire")).reason == "It cannot give web1 its CPU model Sapphire."


def test_a_model_of_which_the_guest_does_without_some_features_is_a_warning() -> None:
    finding = of(cpu(model="Skylake", hle="disable"))
    assert finding.reason is None
    assert "does without some features" in finding.warnings[0]


def test_what_the_platform_can_give_is_not_always_known() -> None:
    finding = of(cpu(), platforms=[{**PLATFORM, "cpu": None}])
    assert finding.reason is None
    assert "could not be told" in finding.warnings[0]
    assert of(cpu(), platforms=None).warnings
    assert judged("cpu_model", request(cpu=cpu(), arch=None), host()).warnings


def test_a_platform_that_is_not_there_is_told_by_the_machine_type_alone() -> None:
    finding = judged("cpu_model", request(cpu=cpu(), arch="aarch64"), host())
    assert (finding.reason, finding.warnings) == (None, ())


def test_libvirt_s_own_comparison_decides() -> None:
    verdicts = {uuid_of("web1"): {"passed": True, "reason": None}}
    finding = of(cpu(model="Sapphire", amx="require"), cpu_verdicts=verdicts)
    assert (finding.reason, finding.warnings) == (None, ())
    refused = {uuid_of("web1"): {"passed": False, "reason": "its CPU lacks amx"}}
    assert of(cpu(), cpu_verdicts=refused).reason == "By libvirt's own comparison it cannot run web1: its CPU lacks amx."


def test_equal_hosts_pass_a_cpu_through() -> None:
    finding = of(cpu("host-passthrough", None), host_cpu=HOST_CPU)
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_feature_missing_of_a_passed_through_cpu_is_named_and_cannot_be_forced() -> None:
    finding = of(cpu("host-passthrough", None), host_cpu={**HOST_CPU, "features": ["aes"]})
    assert finding.reason == "Its CPU lacks avx2, and web1 has been given the whole CPU of its host."
    assert finding.overridable is None


@pytest.mark.parametrize("change", [{"model": "Broadwell"}, {"vendor": "AMD"}, {"features": ["aes", "avx2", "amx"]}])
def test_another_cpu_is_no_match_for_a_passed_through_one_yet_may_be_forced(change: dict[str, t.Any]) -> None:
    finding = of(cpu("host-passthrough", None), host_cpu={**HOST_CPU, **change})
    assert "the whole CPU of its host, Intel Haswell, and here is another: " in str(finding.reason)
    assert finding.overridable is True


def test_libvirt_s_comparison_does_not_vouch_for_a_passed_through_cpu() -> None:
    verdicts = {uuid_of("web1"): {"passed": True, "reason": None}}
    assert of(cpu("host-passthrough", None), cpu_verdicts=verdicts, host_cpu={**HOST_CPU, "model": "Broadwell"}).reason


def test_another_microcode_or_an_unknown_cpu_is_a_warning() -> None:
    assert "microcode" in of(cpu("host-passthrough", None), host_cpu={**HOST_CPU, "microcode": 40}).warnings[0]
    unknown = judged("cpu_model", request(cpu=cpu("host-passthrough", None)), host(host_cpu=HOST_CPU))
    assert unknown.reason is None
    assert "the CPU of one of the two hosts is not known" in unknown.warnings[0]
