# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves after which a guest could not come back: they are refused, with the reason, where the operator has excluded them."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import f, fleet, host, judge_with, request, silent_host

OLD, NEW, MENDED = ({"libvirt": libvirt, "hypervisor": qemu} for libvirt, qemu in ((9000000, 7002022), (11003000, 10000013), (11010000, 10001000)))

PLATFORM = f.host("x")["platforms"][0]
NEWER_PLATFORM = {**PLATFORM, "cpu": {**PLATFORM["cpu"], "features": [*PLATFORM["cpu"]["features"], "amx"]}}


def of_kvm1(**needs: t.Any) -> Request:
    return dataclasses.replace(request(hypervisor=7002022, **needs), source="kvm1", one_way=False)


def reason(asked: Request, home: dict[str, int], there: dict[str, int]) -> str | None:
    return judge_with("one_way", asked, host("kvm2", versions=there), host("kvm1", versions=home)).reason


def test_a_host_with_a_newer_qemu_is_refused_with_what_would_refuse_the_way_back() -> None:
    assert reason(of_kvm1(), OLD, NEW) == "web1 could not come back to kvm1, which would refuse it: its QEMU is older: 7.2.22, and web1 runs on 10.0.13."


@pytest.mark.parametrize(
    ("home", "there"),
    [(OLD, OLD), (NEW, OLD), (NEW, NEW), (OLD, {**OLD, "hypervisor": 7002030}), (OLD, {"libvirt": 11003000, "hypervisor": 7002022}), (OLD, {}), ({}, NEW)],
)
def test_a_host_from_which_the_guest_could_come_back_passes(home: dict[str, int], there: dict[str, int]) -> None:
    assert reason(of_kvm1(), home, there) is None


def test_threads_of_a_processor_that_only_the_other_host_accepts() -> None:
    cpu = {"mode": "custom", "model": "EPYC", "features": {}, "xml": None, "package_threads": 4, "shows_threads": False}
    assert "would refuse web1: its QEMU" in str(reason(of_kvm1(cpu=cpu), {"libvirt": 9000000, "hypervisor": 7002022}, MENDED))
    assert reason(of_kvm1(cpu={**cpu, "package_threads": 1}), MENDED, MENDED) is None


def test_a_machine_type_that_its_own_host_has_no_longer() -> None:
    found = judge_with("one_way", of_kvm1(machine="pc-i440fx-2.1"), host("kvm2", versions=OLD), host("kvm1", versions=OLD))
    assert "does not have the machine type pc-i440fx-2.1" in str(found.reason)


def test_nothing_is_judged_if_such_moves_are_allowed_or_the_own_host_is_not_known() -> None:
    allowed = dataclasses.replace(of_kvm1(), one_way=True)
    there = host("kvm2", versions=NEW)
    homes = [host("kvm1", versions=OLD), silent_host("kvm1")]
    assert [failure["filter"] for failure in check_host(of_kvm1(), there, fleet(there, homes[0])).failures] == ["one_way"]
    assert check_host(allowed, there, fleet(there, homes[0])).passed
    assert check_host(of_kvm1(), there, fleet(there, homes[1])).passed
    assert check_host(of_kvm1(), there, fleet(there)).passed


def test_a_forced_move_is_made_with_a_warning() -> None:
    there = host("kvm2", versions=NEW)
    verdict = check_host(of_kvm1(), there, fleet(there, host("kvm1", versions=OLD)), force=True)
    assert verdict.passed
    assert any("could not come back to kvm1" in warning for warning in verdict.warnings)


def test_the_cpu_that_a_guest_is_given_when_it_starts_on_the_other_host() -> None:
    """It returns with that CPU. A guest that is moved live keeps the one of its own host."""
    asked = dataclasses.replace(of_kvm1(cpu={"mode": "host-passthrough"}), starts=True)
    less, more = ({"model": "Haswell", "vendor": "Intel", "features": features} for features in (["avx2"], ["avx2", "avx512f"]))
    there, home = (host(name, versions=OLD, platforms=None, host_cpu=cpu) for name, cpu in (("kvm2", more), ("kvm1", less)))
    refused = judge_with("one_way", asked, there, home).reason
    assert refused == ("web1 could not come back to kvm1, which would refuse it: its CPU lacks avx512f, and web1 has been given the whole CPU of its host.")
    assert judge_with("one_way", asked, dataclasses.replace(there, hardware=home.hardware), home).reason is None
    assert judge_with("one_way", dataclasses.replace(asked, needs=dataclasses.replace(asked.needs, cpu=None)), there, home).reason is None


def test_the_cpu_that_host_model_makes_of_the_other_host() -> None:
    start_cpu = {"mode": "host-model", "model": None, "features": {}}
    asked = dataclasses.replace(of_kvm1(cpu={"mode": "custom", "model": "Haswell"}, start_cpu=start_cpu), starts=True)
    home, there = (host(name, versions=OLD, platforms=[platform]) for name, platform in (("kvm1", PLATFORM), ("kvm2", NEWER_PLATFORM)))
    refused = judge_with("one_way", asked, there, home).reason
    assert refused == "web1 could not come back to kvm1, which would refuse it: its CPU lacks amx, which web1 has been using."
    assert judge_with("one_way", dataclasses.replace(asked, starts=False), there, home).reason is None
    assert judge_with("one_way", asked, dataclasses.replace(there, hardware=home.hardware), home).reason is None
