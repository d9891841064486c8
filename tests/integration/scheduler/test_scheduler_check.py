# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""scheduler_check: by name, by candidates, by a saved request, by anybody who may read; it changes nothing, and bad requests get a sentence."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_untouched, reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

# What is changed in the request of a real guest: the filter that refuses it then, and what its reason names.
LACKING: dict[str, tuple[dict[str, t.Any], str, str]] = {
    "memory of ten TiB": ({"memory_mib": 10 * 1024**2}, "memory", "MiB"),
    "more CPUs than there are": ({"vcpus": 512}, "cpus", "512"),
    "huge pages": ({"hugepages": [{"size_kib": 2048, "mib": 64}]}, "hugepages", "huge pages"),
    "a CPU that is none": ({"pinning": {"vcpus": {"0": [77]}, "emulator": None}}, "numa", "77"),
    "a NUMA node that is none": ({"numa": {"mode": "strict", "nodeset": [5], "cells": []}}, "numa", "5"),
    "a machine type of tomorrow": ({"machine": "pc-i440fx-99.0"}, "machine_type", "pc-i440fx-99.0"),
    "a hypervisor of tomorrow": ({"hypervisor": 99_000_000}, "hypervisor", "99.0"),
    "a network of nobody": ({"networks": [{"type": "network", "source": "nowhere"}]}, "networks", "nowhere"),
    "a label": ({"labels": ["gpu"]}, "labels", "gpu"),
    "what cannot move": ({"blockers": ["The guest's memory is encrypted."]}, "migratable", "encrypted"),
}

BAD: dict[str, tuple[t.Any, str]] = {
    "memory in words": ({"memory_mib": "much", "vcpus": 1}, "memory_mib"),
    "negative memory": ({"memory_mib": -64, "vcpus": 1}, "memory_mib"),
    "no memory": ({"vcpus": 1}, "memory_mib"),
    "no CPU": ({"memory_mib": 64, "vcpus": 0}, "vcpus"),
    "an unknown group policy": ({"memory_mib": 64, "vcpus": 1, "group": {"name": "db", "policy": "friends"}}, "friends"),
    "a list of labels that is none": ({"memory_mib": 64, "vcpus": 1, "labels": "gpu"}, "labels"),
    "pins of nonsense": ({"memory_mib": 64, "vcpus": 1, "pinning": {"vcpus": {"zero": ["a"]}}}, "pinning"),
}


@pytest.mark.long
def test_scheduler_check_by_name_and_by_saved_request_agree(lab: Lab, control: Desk, web: str) -> None:
    whole = control.check(name=web)
    assert (whole.code, whole.changed) == (0, False), whole.text
    assert {one["host"] for one in whole.result["verdicts"]} == {lab.host(2), lab.host(3)}
    assert all(one["passed"] for one in whole.result["verdicts"])
    request = whole.result["request"]
    assert (request["uuid"], request["name"], request["memory_mib"]) == (lab.uuid(web), web, 64)
    same = control.check(uuid=lab.uuid(web), options=["--check"])
    assert same.result["verdicts"] == whole.result["verdicts"]
    one = control.check(3, request=request)
    assert [one["host"] for one in one.result["verdicts"]] == [lab.host(3)]
    assert one.result["selected"] == lab.host(3)
    other = control.check(2, request={"memory_mib": 64, "vcpus": 1}, on=3)
    assert other.result["selected"] == lab.host(2), other.text
    assert not control.path.exists()
    check_untouched(lab, web)


@pytest.mark.long
def test_a_saved_request_that_no_candidate_meets_is_refused_with_its_filter(lab: Lab, control: Desk, web: str) -> None:
    request = control.check(name=web).result["request"]
    tasks = [("scheduler_check", {"request": {**request, **change}, "candidates": [lab.host(2)]}) for change, dummy, dummy in LACKING.values()]
    for answer, (case, (dummy, name, named)) in zip(control.play(1, tasks, facts=True), LACKING.items(), strict=True):
        assert answer["error_code"] == "conflict", (case, answer)
        found = reasons(answer, lab.host(2))
        assert name in found, (case, found)
        assert named in found[name], (case, found)
        assert found[name] in answer["msg"], case


def test_invalid_requests_are_refused(lab: Lab, control: Desk) -> None:
    tasks = [("scheduler_check", {"request": request}) for request, dummy in BAD.values()]
    for answer, (case, (dummy, named)) in zip(control.play(1, tasks), BAD.items(), strict=True):
        assert answer["error_code"] == "invalid_argument", (case, answer)
        assert named in answer["msg"], (case, answer["msg"])


@pytest.mark.long
def test_unknown_domains_and_contradictory_options_are_refused(lab: Lab, control: Desk, web: str) -> None:
    tasks = [
        ("scheduler_check", {"name": "nobody"}),
        ("scheduler_check", {"name": web, "destination": lab.host(2), "candidates": [lab.host(3)]}),
        ("scheduler_check", {}),
        ("scheduler_check", {"name": web, "candidates": ["no-such-host.invalid", lab.host(3)]}),
    ]
    unknown, both, nothing, silent = control.play(1, tasks)
    assert unknown["error_code"] == "not_found"
    assert both["error_code"] == "invalid_argument"
    assert nothing["error_code"] == "invalid_argument"
    assert set(reasons(silent, "no-such-host.invalid")) == {"up"}
    assert silent["selected"] == lab.host(3)


@pytest.mark.long
def test_scheduler_check_works_without_root_over_a_remote_connection(lab: Lab, control: Desk, web: str) -> None:
    operator = Control(lab, control.folder, "--user", "operator")
    asked = {"name": web, "uri": f"qemu+tcp://{lab.host(1)}/system"}
    done = operator.task(1, "scheduler_check", asked)
    assert (done.code, done.changed) == (0, False), done.text
    assert {one["host"] for one in done.result["verdicts"]} == {lab.host(2), lab.host(3)}
    from_elsewhere = operator.task(3, "scheduler_check", {**asked, "candidates": [lab.host(2)]})
    assert from_elsewhere.result["selected"] == lab.host(2), from_elsewhere.text
    check_untouched(lab, web)


@pytest.mark.long
def test_the_request_of_a_record_can_be_checked_later(lab: Lab, control: Desk, web: str) -> None:
    """What a move recorded is enough to ask for the guest after its host is gone."""
    check_moved(lab, control.move(web), web, 2)
    request = control.only_record()["request"]
    saved = control.folder / "request.json"
    saved.write_text(json.dumps(request), encoding="utf-8")
    done = control.check(3, request=json.loads(saved.read_text(encoding="utf-8")), on=1)
    assert done.code == 0, done.text
    assert verdict(done.result, lab.host(3))["passed"]
