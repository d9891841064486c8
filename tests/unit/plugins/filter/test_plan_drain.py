# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.filter.drain_apply import FilterModule as Apply
from ansible_collections.kvmfleet.migration.plugins.filter.drain_result import FilterModule as Result
from ansible_collections.kvmfleet.migration.plugins.filter.drain_table import FilterModule as Table
from ansible_collections.kvmfleet.migration.plugins.filter.plan_drain import FilterModule as Plan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts

drain_apply = Apply().filters()["drain_apply"]
plan_drain = Plan().filters()["plan_drain"]
drain_result = Result().filters()["drain_result"]
drain_table = Table().filters()["drain_table"]
FACTS = {"kvm1": facts("kvm1", domain("web1")), "kvm2": facts("kvm2")}


def test_plan_result_and_tables_go_together_and_are_json() -> None:
    plan = plan_drain(FACTS, sources=["kvm1"], candidates=["kvm2"])
    result = drain_result(plan, FACTS, {})
    assert json.loads(json.dumps([plan, result])) == [plan, result]
    assert drain_table(plan)[1].split()[:2] == ["1", "web1"]
    assert drain_table(result)[-1].startswith("kvm1: 0 moved, 1 failed")


@pytest.mark.parametrize(
    ("input_", "sources", "candidates", "words"),
    [
        ([], ["kvm1"], ["kvm2"], "dictionary of kvmfleet_host facts"),
        (FACTS, "kvm1", ["kvm2"], "sources is 'kvm1'"),
        (FACTS, ["kvm1"], None, "candidates is None"),
        (FACTS, ["kvm9"], ["kvm2"], "no facts of kvm9"),
        ({"kvm1": {"host_uuid": "x"}}, ["kvm1"], [], "expected form"),
    ],
)
def test_wrong_input_is_a_sentence(input_: object, sources: object, candidates: object, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        plan_drain(input_, sources=sources, candidates=candidates)


def test_what_is_neither_plan_nor_result_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="neither"):
        drain_table({"kvm1": {}})
    with pytest.raises(AnsibleFilterError, match="expected form"):
        drain_result({"sources": ["kvm1"]}, FACTS, {})


def test_a_file_that_is_no_json_is_said_once() -> None:
    with pytest.raises(AnsibleFilterError, match="The saved plan is not JSON") as caught:
        drain_apply("no plan", FACTS, sources=["kvm1"], candidates=["kvm2"])
    # Ansible adds each cause to what it shows.
    assert caught.value.__cause__ is None
