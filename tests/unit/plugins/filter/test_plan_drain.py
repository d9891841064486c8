# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.filter.plan_drain import FilterModule as Plan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts

plan_drain = Plan().filters()["plan_drain"]
FACTS = {"kvm1": facts("kvm1", domain("web1")), "kvm2": facts("kvm2")}


def test_plan_drain_returns_a_plan_that_is_json() -> None:
    plan = plan_drain(FACTS, sources=["kvm1"], candidates=["kvm2"])
    assert json.loads(json.dumps(plan)) == plan
    assert [move["name"] for move in plan["moves"]] == ["web1"]


@pytest.mark.parametrize(
    ("input_", "sources", "candidates", "words"),
    [
        ([], ["kvm1"], ["kvm2"], "dictionary of kvmfleet_host facts"),
        (FACTS, "kvm1", ["kvm2"], "sources is 'kvm1'"),
        (FACTS, ["kvm1"], None, "candidates is None"),
        (FACTS, ["kvm9"], ["kvm2"], "no facts for kvm9"),
        ({"kvm1": {"host_uuid": "x"}}, ["kvm1"], [], "expected form"),
    ],
)
def test_wrong_input_is_refused_with_a_message(input_: object, sources: object, candidates: object, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        plan_drain(input_, sources=sources, candidates=candidates)


def test_the_message_of_an_error_is_not_repeated() -> None:
    with pytest.raises(AnsibleFilterError, match="There are no facts for kvm9") as caught:
        plan_drain(FACTS, sources=["kvm9"], candidates=["kvm2"])
    # Ansible adds each cause to what it shows.
    assert caught.value.__cause__ is None
