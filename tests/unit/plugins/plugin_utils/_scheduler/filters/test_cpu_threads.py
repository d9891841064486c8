# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests whose processor packages have several threads, between QEMU that tells of them and QEMU that does not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.reservation import START_FILTERS as OF_A_START
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judge_with, request

OLD, NEW, MENDED = ({"libvirt": libvirt, "hypervisor": qemu} for libvirt, qemu in ((9000000, 7002022), (11003000, 10000013), (11010000, 10001000)))


def cpu(threads: int = 2, shown: t.Optional[bool] = False) -> dict[str, t.Any]:
    return {"mode": "custom", "model": "EPYC", "features": {}, "xml": None, "package_threads": threads, "shows_threads": shown}


@pytest.mark.parametrize(
    ("shown", "versions", "refused"),
    [(False, OLD, False), (False, NEW, True), (False, MENDED, False), (True, OLD, True), (True, NEW, False), (True, MENDED, False), (False, {}, False)],
)
def test_different_thread_reporting_is_refused_before_libvirt_11_10(shown: bool, versions: dict[str, int], refused: bool) -> None:
    assert bool(judge_with("cpu_threads", request(cpu=cpu(4, shown)), host(versions=versions)).reason) == refused


@pytest.mark.parametrize("one", [cpu(1), cpu(2, None), None, {"mode": "custom", "model": "EPYC", "features": {}, "xml": None}])
def test_one_thread_or_unknown_threads_pass(one: t.Optional[dict[str, t.Any]]) -> None:
    assert judge_with("cpu_threads", request(cpu=one), host(versions=NEW)).reason is None


def test_the_reason_names_the_versions_and_an_alternative() -> None:
    reason = str(judge_with("cpu_threads", request(cpu=cpu(4)), host(versions=NEW)).reason)
    assert reason.startswith("Its libvirt 11.3.0 would refuse web1: its QEMU 10.0.13 reports 4 threads in a processor package to libvirt,")
    assert "From libvirt 11.10.0 on" in reason
    assert "could be started there" in reason
    assert "to libvirt, but the QEMU of the guest does." in str(judge_with("cpu_threads", request(cpu=cpu(4, True)), host(versions=OLD)).reason)


def test_the_cpu_threads_filter_does_not_apply_to_starts() -> None:
    assert "cpu_threads" not in {rule.name for rule in OF_A_START}


def test_a_start_depends_on_the_machine_type_and_not_on_the_age_of_qemu() -> None:
    assert {"machine_type", "hypervisor"} & {rule.name for rule in OF_A_START} == {"machine_type"}
