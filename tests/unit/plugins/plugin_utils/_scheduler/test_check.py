# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.check import Verdict, best, check, rank
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters import DEFAULT
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import HostState, domain, fleet, host, request, silent, uuid_of

NOT_OVERRIDABLE = ["not_source", "up", "cpu_model", "cpu_threads", "machine_type"]


def test_the_filters_and_their_order_are_the_documented_ones() -> None:
    names = "not_source up enabled memory cpus disk traits cpu_model cpu_threads machine_type hypervisor numa hugepages host_devices storage boot_files"
    assert [rule.name for rule in DEFAULT] == [*names.split(), "networks", "labels", "max_domains", "max_moves", "affinity", "anti_affinity", "migratable"]
    assert [rule.name for rule in DEFAULT if not rule.overridable] == NOT_OVERRIDABLE


def test_a_host_of_the_same_kind_passes_without_a_word() -> None:
    verdict = check(request(), host(), fleet(host()))
    assert verdict.as_dict() == {"host": "kvm2", "passed": True, "failures": [], "warnings": [], "weight": 0.0, "forced": False}


def test_all_reasons_are_given_and_warnings_stand_apart() -> None:
    there = host("kvm2", domain("db1", 8192), entry={"state": "fenced"}, mounts=None)
    verdict = check(request(), there, fleet(there))
    assert [failure["filter"] for failure in verdict.failures] == ["enabled", "memory"]
    assert verdict.reason == " ".join(failure["reason"] for failure in verdict.failures)
    assert len(verdict.warnings) == 1


def test_a_silent_host_is_refused_once_and_not_for_what_is_not_known() -> None:
    verdict = check(request(group={"name": "web", "policy": "affinity"}, devices=[{"kind": "pci", "address": "0000:00:01.0"}]), silent(), fleet(silent()))
    assert list(verdict.failures) == [{"filter": "up", "reason": "It did not answer: no route to host."}]
    assert not verdict.warnings


def test_a_silent_host_keeps_its_state() -> None:
    there = HostState.of("kvm2", {"answered": False, "msg": "no route"}, entry={"state": "maintenance", "reason": "disk"})
    assert [failure["filter"] for failure in check(request(), there, fleet(there)).failures] == ["up", "enabled"]


def test_force_turns_what_may_be_overridden_into_warnings() -> None:
    there = host("kvm2", domain("db1", 8192), entry={"state": "maintenance", "reason": ""})
    verdict = check(request(), there, fleet(there), force=True)
    assert (verdict.passed, verdict.forced, list(verdict.failures)) == (True, True, [])
    assert verdict.warnings[0] == "bypassed by force: It is in maintenance."
    assert "bypassed by force: It is 1024 MiB short of memory" in verdict.warnings[1]


def test_force_that_had_nothing_to_skip_has_forced_nothing() -> None:
    assert check(request(), host(), fleet(host()), force=True).forced is False


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("not_source", host("kvm1")),
        ("up", silent()),
        ("cpu_model", host(cpu_verdicts={uuid_of("web1"): {"passed": False, "reason": "its CPU lacks amx"}})),
        ("machine_type", host(platforms=[])),
    ],
)
def test_force_skips_nothing_that_cannot_work(name: str, there: HostState) -> None:
    verdict = check(request(), there, fleet(there), force=True)
    assert not verdict.passed
    assert [failure["filter"] for failure in verdict.failures] == [name]


def test_a_finding_may_be_overridable_where_its_filter_is_not() -> None:
    cpu = {"model": "Haswell", "vendor": "Intel", "features": ["aes"]}
    source, there = host("kvm1", host_cpu=cpu), host(host_cpu={**cpu, "model": "Broadwell"})
    asked = request(cpu={"mode": "host-passthrough", "model": None, "features": {}, "xml": ""})
    assert not check(asked, there, fleet(there, source)).passed
    assert check(asked, there, fleet(there, source), force=True).forced


def test_hosts_are_ranked_in_their_order_with_weights_among_those_that_passed() -> None:
    hosts = [host("c", memory_mib=4096), host("a", memory_mib=8192), host("b", memory_mib=16), silent("d")]
    verdicts = rank(request(), fleet(*hosts), ["c", "a", "b", "d"])
    assert [(verdict.host, verdict.passed, verdict.weight) for verdict in verdicts] == [
        ("c", True, 0.0),
        ("a", True, 1.0),
        ("b", False, 0.0),
        ("d", False, 0.0),
    ]


def test_the_best_has_the_highest_weight_and_then_the_first_name() -> None:
    passed = [Verdict("b", True, weight=1.0), Verdict("a", True, weight=1.0), Verdict("c", True, weight=0.5), Verdict("0", False)]
    assert best(passed) == passed[1]
    assert best(passed[3:]) is None
    assert best([]) is None


def test_an_empty_fleet_ranks_nobody() -> None:
    assert rank(request(), fleet(), []) == []


def test_a_verdict_is_a_value() -> None:
    verdict = Verdict("a", True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.passed = False  # type: ignore[misc]
