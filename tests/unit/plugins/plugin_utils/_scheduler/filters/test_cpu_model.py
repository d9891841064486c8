# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.reserve import SAVE_FILTERS, START_FILTERS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Finding, f, host, judge_with, request, uuid_of

PLATFORM = f.host("x")["platforms"][0]
HOST_CPU = {"model": "Haswell", "vendor": "Intel", "features": ["aes", "avx2"], "microcode": 38}


def cpu(mode: str | None = "custom", model: str | None = "Haswell", **features: str) -> dict[str, t.Any]:
    return {"mode": mode, "model": model, "features": features, "xml": "<cpu/>"}


def judge_cpu(cpu_needed: dict[str, t.Any] | None, **facts: t.Any) -> Finding:
    source = host("kvm1", host_cpu=HOST_CPU)
    return judge_with("cpu_model", request(cpu=cpu_needed), host(**facts), source)


@pytest.mark.parametrize("needed", [None, cpu(None, None), cpu(), cpu("host-model"), cpu(aes="require"), cpu(amx="disable"), cpu(amx="optional")])
def test_a_cpu_that_the_platform_offers_passes_without_a_warning(needed: dict[str, t.Any] | None) -> None:
    finding = judge_cpu(needed)
    assert (finding.reason, finding.warnings) == (None, ())


def test_missing_features_are_named_and_cannot_be_forced() -> None:
    finding = judge_cpu(cpu(amx="require", aes="require", la57="require"))
    assert finding.reason == "Its CPU lacks amx, la57, which web1 has been using."
    assert finding.overridable is None


def test_an_unknown_cpu_model_is_refused() -> None:
    assert judge_cpu(cpu(model="Sapphire")).reason == "It cannot give web1 its CPU model Sapphire."


def test_a_cpu_model_with_disabled_features_is_a_warning() -> None:
    finding = judge_cpu(cpu(model="Skylake", hle="disable"))
    assert finding.reason is None
    assert "without some of its features" in finding.warnings[0]


def test_an_unknown_cpu_of_the_platform_is_a_warning() -> None:
    finding = judge_cpu(cpu(), platforms=[{**PLATFORM, "cpu": None}])
    assert finding.reason is None
    assert "could not be determined" in finding.warnings[0]
    withheld = judge_cpu(cpu(), platforms=[{**PLATFORM, "cpu": None}], unverified_reasons={"platforms.cpu": "libvirt withholds it"})
    assert (withheld.reason, "are not known (libvirt withholds it)" in withheld.warnings[0]) == (None, True)
    assert judge_cpu(cpu(), platforms=None).warnings
    assert judge_with("cpu_model", request(cpu=cpu(), arch=None), host()).warnings


def test_a_missing_platform_is_not_refused_by_the_cpu_filter() -> None:
    finding = judge_with("cpu_model", request(cpu=cpu(), arch="aarch64"), host())
    assert (finding.reason, finding.warnings) == (None, ())


def test_the_cpu_comparison_of_libvirt_decides() -> None:
    verdicts = {uuid_of("web1"): CpuVerdict(True, None)}
    finding = judge_cpu(cpu(model="Sapphire", amx="require"), cpu_verdicts=verdicts)
    assert (finding.reason, finding.warnings) == (None, ())
    refused = {uuid_of("web1"): CpuVerdict(False, "its CPU lacks amx")}
    assert judge_cpu(cpu(), cpu_verdicts=refused).reason == "According to libvirt's comparison, it cannot run web1: its CPU lacks amx."


def test_host_passthrough_passes_between_equal_cpus() -> None:
    finding = judge_cpu(cpu("host-passthrough", None), host_cpu=HOST_CPU)
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_missing_feature_of_host_passthrough_cannot_be_forced() -> None:
    finding = judge_cpu(cpu("host-passthrough", None), host_cpu={**HOST_CPU, "features": ["aes"]})
    assert finding.reason == "Its CPU lacks avx2, and web1 has been given the whole CPU of its host."
    assert finding.overridable is None


@pytest.mark.parametrize("change", [{"model": "Broadwell"}, {"vendor": "AMD"}, {"features": ["aes", "avx2", "amx"]}])
def test_another_cpu_refuses_host_passthrough_and_can_be_forced(change: dict[str, t.Any]) -> None:
    finding = judge_cpu(cpu("host-passthrough", None), host_cpu={**HOST_CPU, **change})
    assert "the whole CPU of its host, Intel Haswell, and here is another: " in str(finding.reason)
    assert finding.overridable is True


def test_cpus_that_libvirt_does_not_describe_are_not_equal() -> None:
    """libvirt describes the CPU of no host with s390x, and on other architectures only those that it knows."""
    silent: dict[str, t.Any] = {"host_cpu": {"model": None, "vendor": None, "features": []}}
    asked = request(cpu=cpu("host-passthrough", None))
    unknown = judge_with("cpu_model", asked, host(**silent, platforms=[]), host("kvm1", **silent, platforms=[]))
    assert (unknown.reason, "one of the two hosts is not known. Libvirt does not check a CPU" in unknown.warnings[0]) == (None, True)
    older = [{**PLATFORM, "cpu": {**PLATFORM["cpu"], "features": ["aes"]}}]
    assert judge_with("cpu_model", asked, host(**silent), host("kvm1", **silent)) == Finding()
    assert "Its CPU lacks" in str(judge_with("cpu_model", asked, host(**silent, platforms=older), host("kvm1", **silent)).reason)


@pytest.mark.parametrize(("virt_type", "compares"), [("kvm", True), (None, True), ("qemu", False)])
def test_the_maximum_cpu_of_an_emulated_guest_does_not_depend_on_its_host(virt_type: str | None, compares: bool) -> None:
    asked = request(cpu=cpu("maximum", None), virt_type=virt_type)
    found = judge_with("cpu_model", asked, host(host_cpu={**HOST_CPU, "vendor": "AMD", "features": ["aes"]}), host("kvm1", host_cpu=HOST_CPU))
    assert (found != Finding()) == compares


def test_the_cpu_comparison_of_libvirt_does_not_decide_on_host_passthrough() -> None:
    verdicts = {uuid_of("web1"): CpuVerdict(True, None)}
    assert judge_cpu(cpu("host-passthrough", None), cpu_verdicts=verdicts, host_cpu={**HOST_CPU, "model": "Broadwell"}).reason


def test_another_microcode_or_an_unknown_cpu_is_a_warning() -> None:
    assert "microcode" in judge_cpu(cpu("host-passthrough", None), host_cpu={**HOST_CPU, "microcode": 40}).warnings[0]
    unknown = judge_with("cpu_model", request(cpu=cpu("host-passthrough", None)), host(host_cpu=HOST_CPU))
    assert unknown.reason is None
    assert "the CPU of one of the two hosts is not known" in unknown.warnings[0]


def test_another_cpu_does_not_matter_for_host_passthrough_if_the_guest_starts_anew() -> None:
    asked = replace(request(cpu=cpu("host-passthrough", None)), starts=True)
    assert judge_with("cpu_model", asked, host(host_cpu={**HOST_CPU, "vendor": "AMD", "features": []}), host("kvm1", host_cpu=HOST_CPU)) == Finding()
    missing = replace(request(cpu=cpu(amx="require")), starts=True)
    assert "amx" in str(judge_with("cpu_model", missing, host()).reason)


def test_a_guest_of_host_model_that_starts_anew_is_given_a_cpu_of_the_new_host() -> None:
    """The CPU that it has been using was made for its own host."""
    newer = {"cpu": cpu(model="Sapphire", amx="require"), "start_cpu": {"mode": "host-model", "model": None, "features": {}}}
    verdicts = {uuid_of("web1"): CpuVerdict(passed=False, reason="its CPU lacks amx")}
    there, source = host(cpu_verdicts=verdicts), host("kvm1")
    assert judge_with("cpu_model", request(**newer), there, source).reason
    assert judge_with("cpu_model", replace(request(**newer), starts=True), there, source) == Finding()
    demanding = {**newer, "start_cpu": {"mode": "host-model", "model": None, "features": {"la57": "require"}}}
    assert "lacks la57" in str(judge_with("cpu_model", replace(request(**demanding), starts=True), there, source).reason)


def test_a_guest_that_is_shut_down_for_its_move_starts_anew_and_one_that_is_saved_does_not() -> None:
    other, source = host(host_cpu={**HOST_CPU, "features": []}), host("kvm1", host_cpu=HOST_CPU)
    asked, fleet = request(cpu=cpu("host-passthrough", None)), Fleet({"kvm1": source, "kvm2": other})
    found = [check_host(asked, other, fleet, rules).failures for rules in (START_FILTERS, SAVE_FILTERS)]
    assert [[failure["filter"] for failure in failures] for failures in found] == [[], ["cpu_model"]]
