# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS, Verdict, best_verdict, check_host, rank_hosts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import (
    HostState,
    domain,
    fleet,
    host,
    request,
    silent_host,
    uuid_of,
)

NOT_OVERRIDABLE = ["not_source", "up", "cpu_model", "cpu_threads", "machine_type", "tpm", "resource_maps"]


def test_filters_and_their_order_are_as_documented() -> None:
    names = "not_source up enabled memory cpus disk traits cpu_model cpu_threads machine_type hypervisor one_way numa hugepages host_devices storage"
    assert [rule.name for rule in DEFAULT_FILTERS] == [
        *names.split(),
        "boot_files",
        "firmware",
        "tpm",
        "secrets",
        "resource_maps",
        "networks",
        "labels",
        "max_domains",
        "max_moves",
        "affinity",
        "anti_affinity",
        "migratable",
    ]
    assert [rule.name for rule in DEFAULT_FILTERS if not rule.overridable] == NOT_OVERRIDABLE


def test_an_equal_host_passes_without_warnings() -> None:
    verdict = check_host(request(), host(), fleet(host()))
    assert verdict.as_dict() == {"host": "kvm2", "passed": True, "failures": [], "warnings": [], "weight": 0.0, "forced": False, "filters_off": []}


def test_a_verdict_has_all_reasons_and_separate_warnings() -> None:
    there = host("kvm2", domain("db1", 8192), entry={"state": "fenced"}, mounts=None)
    verdict = check_host(request(), there, fleet(there))
    assert [failure["filter"] for failure in verdict.failures] == ["enabled", "memory"]
    assert verdict.reason == " ".join(failure["reason"] for failure in verdict.failures)
    assert len(verdict.warnings) == 1


def test_a_silent_host_is_refused_only_for_its_silence() -> None:
    verdict = check_host(
        request(group={"name": "web", "policy": "affinity"}, devices=[{"kind": "pci", "address": "0000:00:01.0"}]), silent_host(), fleet(silent_host())
    )
    assert list(verdict.failures) == [{"filter": "up", "reason": "It did not answer: no route to host."}]
    assert not verdict.warnings


def test_a_silent_host_in_maintenance_is_refused_for_both() -> None:
    there = HostState.from_facts("kvm2", HostFacts(answered=False, msg="no route"), entry=host_entry({"state": "maintenance", "reason": "disk"}))
    assert [failure["filter"] for failure in check_host(request(), there, fleet(there)).failures] == ["up", "enabled"]


def test_force_turns_overridable_findings_into_warnings() -> None:
    there = host("kvm2", domain("db1", 8192), entry={"state": "maintenance", "reason": ""})
    verdict = check_host(request(), there, fleet(there), force=True)
    assert (verdict.passed, verdict.forced, list(verdict.failures)) == (True, True, [])
    assert verdict.warnings[0] == "bypassed by force: It is in maintenance."
    assert "bypassed by force: It is 1024 MiB short of memory" in verdict.warnings[1]


def test_force_without_a_refusal_is_not_marked_as_forced() -> None:
    assert check_host(request(), host(), fleet(host()), force=True).forced is False


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("not_source", host("kvm1")),
        ("up", silent_host()),
        ("cpu_model", host(cpu_verdicts={uuid_of("web1"): CpuVerdict(False, "its CPU lacks amx")})),
        ("machine_type", host(platforms=[])),
    ],
)
def test_force_does_not_bypass_filters_that_are_not_overridable(name: str, there: HostState) -> None:
    verdict = check_host(request(), there, fleet(there), force=True)
    assert not verdict.passed
    assert [failure["filter"] for failure in verdict.failures] == [name]


def test_a_finding_can_be_overridable_although_its_filter_is_not() -> None:
    cpu = {"model": "Haswell", "vendor": "Intel", "features": ["aes"]}
    source, there = host("kvm1", host_cpu=cpu), host(host_cpu={**cpu, "model": "Broadwell"})
    asked = request(cpu={"mode": "host-passthrough", "model": None, "features": {}, "xml": ""})
    assert not check_host(asked, there, fleet(there, source)).passed
    assert check_host(asked, there, fleet(there, source), force=True).forced


def test_hosts_that_passed_are_weighed_and_the_order_is_kept() -> None:
    hosts = [host("c", memory_mib=4096), host("a", memory_mib=8192), host("b", memory_mib=16), silent_host("d")]
    verdicts = rank_hosts(request(), fleet(*hosts), ["c", "a", "b", "d"])
    assert [(verdict.host, verdict.passed, verdict.weight) for verdict in verdicts] == [
        ("c", True, 0.0),
        ("a", True, 1.0),
        ("b", False, 0.0),
        ("d", False, 0.0),
    ]


def test_the_best_host_has_the_highest_weight_then_the_first_name() -> None:
    passed = [Verdict("b", True, weight=1.0), Verdict("a", True, weight=1.0), Verdict("c", True, weight=0.5), Verdict("0", False)]
    assert best_verdict(passed) == passed[1]
    assert best_verdict(passed[3:]) is None
    assert best_verdict([]) is None


def test_an_empty_fleet_has_no_verdicts() -> None:
    assert rank_hosts(request(), fleet(), []) == []


def test_a_verdict_is_immutable() -> None:
    verdict = Verdict("a", True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.passed = False  # type: ignore[misc]
