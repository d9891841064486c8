# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A saved plan against hosts that have changed since."""

from __future__ import annotations

import copy
import json
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.filter.plan_drain import FilterModule as Plan
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.drift import apply_saved_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

plan_drain = Plan().filters()["plan_drain"]

Facts = dict[str, dict[str, t.Any]]

GUESTS = [f.domain("web", 1024), f.domain("db", 2048), f.domain("batch", drain="shutdown"), f.domain("pinned", drain="leave"), f.domain("huge", 60000)]
OFF = f.domain("off", state="shut off", active=False)
FACTS: Facts = {"kvm1": f.host("kvm1", domains=[*GUESTS, OFF]), "kvm2": f.host("kvm2", 4096), "kvm3": f.host("kvm3", 3000)}
HOSTS: dict[str, t.Any] = {"sources": ["kvm1"], "candidates": ["kvm2", "kvm3"]}
PLAN = plan_drain(FACTS, **HOSTS)
FILE = json.dumps(PLAN, indent=2)


def apply_plan(saved: t.Any, facts: t.Any, sources: list[str], candidates: list[str], **arguments: t.Any) -> dict[str, t.Any]:
    given = {key: arguments.pop(key) for key in ("parallel", "n_plus_one", "options") if key in arguments}
    with readable_facts():
        return t.cast("dict[str, t.Any]", encode(apply_saved_plan(saved, DrainInputs(facts, **arguments), sources, candidates, given)))


def fresh_facts() -> Facts:
    return copy.deepcopy(FACTS)


def find_domain(facts: Facts, name: str, host: str = "kvm1") -> dict[str, t.Any]:
    return next(domain for domain in facts[host]["domains"] if domain["name"] == name)


def describe_drift(facts: Facts, saved: t.Any = FILE, **arguments: t.Any) -> str:
    with pytest.raises(KvmfleetError) as caught:
        apply_plan(saved, facts, **{**HOSTS, **arguments})
    assert "Nothing was moved." in str(caught.value)
    return str(caught.value)


def move_guest(facts: Facts, name: str, host: str) -> None:
    guest = find_domain(facts, name)
    facts["kvm1"]["domains"].remove(guest)
    facts[host]["domains"].append(guest)


def test_a_plan_without_drift_is_applied_unchanged() -> None:
    assert apply_plan(FILE, fresh_facts(), **HOSTS) == PLAN
    assert apply_plan(PLAN, fresh_facts(), parallel="auto", options={}, n_plus_one=False, **HOSTS) == PLAN


def test_a_plan_that_was_saved_with_a_number_is_applied_with_it() -> None:
    earlier = plan_drain(fresh_facts(), parallel=4, **HOSTS)
    assert earlier["options"]["parallel"] == 4
    assert apply_plan(earlier, fresh_facts(), **HOSTS) == earlier


def test_a_domain_that_is_at_its_destination_already_is_no_drift() -> None:
    facts = fresh_facts()
    for move in PLAN["moves"]:
        move_guest(facts, move["name"], move["destination"])
    assert apply_plan(FILE, facts, **HOSTS) == PLAN


def test_a_domain_that_was_shut_down_already_is_no_drift() -> None:
    facts = fresh_facts()
    find_domain(facts, "batch").update(active=False, state="shut off")
    find_domain(facts, "pinned").update(active=False, state="shut off")
    assert apply_plan(FILE, facts, **HOSTS) == PLAN


def test_a_domain_that_moves_to_another_destination_is_drift() -> None:
    facts, way = fresh_facts(), {move["name"]: move["destination"] for move in PLAN["moves"]}["web"]
    find_domain(facts, "web").update(job="outgoing migration")
    assert apply_plan(FILE, facts, records=[record("web", "kvm1", way)], **HOSTS) == PLAN
    assert f"web is on its way to kvm9, and not to {way}." in describe_drift(facts, records=[record("web", "kvm1", "kvm9")])


def test_a_domain_that_left_the_host_is_drift() -> None:
    facts = fresh_facts()
    move_guest(facts, "db", "kvm3" if PLAN["moves"][0]["destination"] == "kvm2" else "kvm2")
    find_domain(facts, "web").update(active=False, state="shut off")
    text = describe_drift(facts)
    assert "db is no longer on kvm1, and active on" in text
    assert "web is shut off on kvm1, and not active on" in text


def test_a_domain_that_became_active_is_drift() -> None:
    facts = fresh_facts()
    facts["kvm1"]["domains"].append(f.domain("new"))
    find_domain(facts, "off").update(active=True, state="running")
    text = describe_drift(facts)
    assert "new is active on kvm1, but was not when the plan was made." in text
    assert "off is active on kvm1, but was not when the plan was made." in text


def test_a_new_inactive_domain_is_no_drift() -> None:
    facts = fresh_facts()
    facts["kvm1"]["domains"].append(f.domain("new", state="shut off", active=False))
    assert apply_plan(FILE, facts, **HOSTS) == PLAN


def test_changes_of_a_request_are_drift() -> None:
    facts = fresh_facts()
    find_domain(facts, "web")["request"].update(memory_mib=1025, vcpus=2, machine="pc-q35-7.1", networks=[])
    text = describe_drift(facts)
    assert "web has 1025 MiB of memory now, 1024 when the plan was made." in text
    assert "web has 2 vCPUs now, 1 when the plan was made." in text
    assert "its machine, networks changed" in text


def test_what_an_earlier_version_did_not_save_of_an_interface_is_no_drift() -> None:
    facts = fresh_facts()
    (network,) = find_domain(facts, "web")["request"]["networks"]
    network.update(virtualport="openvswitch")
    assert apply_plan(FILE, facts, **HOSTS) == PLAN
    network.update(network_filter="own-rules")
    facts["kvm2"]["network_filters"] = facts["kvm3"]["network_filters"] = []
    assert "can no longer accept web: It has no network filter own-rules." in describe_drift(facts)


def test_secrets_of_which_an_earlier_version_saved_nothing_are_no_drift() -> None:
    facts = fresh_facts()
    find_domain(facts, "web")["request"]["secrets"] = ["ceph x"]
    facts["kvm2"]["secrets"] = facts["kvm3"]["secrets"] = ["ceph x"]
    assert apply_plan(FILE, facts, **HOSTS) == PLAN
    facts["kvm2"]["secrets"] = facts["kvm3"]["secrets"] = []
    assert "can no longer accept web: It has no libvirt secret ceph x." in describe_drift(facts)


def test_what_an_interface_no_longer_has_is_drift() -> None:
    facts = fresh_facts()
    find_domain(facts, "web")["request"]["networks"][0]["network_filter"] = "own-rules"
    facts["kvm2"]["network_filters"] = ["own-rules"]
    assert "its networks changed" in describe_drift(fresh_facts(), plan_drain(facts, **HOSTS))


def test_a_larger_image_is_no_drift() -> None:
    facts = fresh_facts()
    disk = find_domain(facts, "web")["request"]["disks"][0]
    disk.update(bytes=disk["bytes"] + 4096, below_bytes=8192)
    assert apply_plan(FILE, facts, **HOSTS) == PLAN


@pytest.mark.parametrize(
    ("name", "policy", "words"),
    [
        ("web", {"drain": "leave"}, "web was to move to .* will not be safe to reboot"),
        ("web", {"drain": "shutdown"}, "web was to move to .*drain: shutdown"),
        ("batch", {}, "batch on kvm1 had the drain strategy shutdown. It is to be moved now"),
        ("pinned", {"drain": "shutdown"}, "pinned on kvm1 had the drain strategy leave. Its policy shuts it down"),
        ("web", {"priority": 4}, "its priority changed"),
    ],
)
def test_a_changed_drain_policy_is_drift(name: str, policy: dict[str, t.Any], words: str) -> None:
    facts = fresh_facts()
    find_domain(facts, name).update(policy=policy)
    assert re.search(words, describe_drift(facts))


def test_a_domain_that_can_no_longer_move_is_drift() -> None:
    facts = fresh_facts()
    find_domain(facts, "web").update(state="crashed", reason="panicked")
    assert "web was to move to" in describe_drift(facts)
    assert "It is crashed" in describe_drift(facts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"entries": [host_entry({"name": "kvm2", "state": "maintenance", "reason": "new disks"})]},
            "kvm2 can no longer accept db: It is in maintenance (new disks).",
        ),
        ({"unreachable": {"kvm2": "No route to host"}}, "kvm2 can no longer accept db: It did not answer: No route to host."),
        ({"candidates": ["kvm3"]}, "kvm2, where db was to move, is no longer a candidate."),
        ({"scheduler": {"kvm2": {"reserved_memory_mib": 4000}}}, "kvm2 can no longer accept db: It is"),
        ({"scheduler": {"kvm3": {"labels": ["ssd"]}}}, "kvmfleet_scheduler of kvm3 is new since the plan was made."),
        ({"options": {"unsafe": True}}, "The option moves.unsafe is True now; the plan was made with None."),
        ({"parallel": 1}, "The option parallel is 1 now; the plan was made with 'auto'."),
    ],
)
def test_changed_destinations_settings_and_options_are_drift(arguments: dict[str, t.Any], words: str) -> None:
    assert words in describe_drift(fresh_facts(), **arguments)


def test_a_destination_without_capacity_is_drift() -> None:
    facts = fresh_facts()
    facts["kvm2"]["domains"].append(f.domain("other", 4000))
    assert "kvm2 can no longer accept db: It is 1952 MiB short of memory" in describe_drift(facts)


def test_capacity_is_checked_for_all_moves_of_the_plan_together() -> None:
    facts: Facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", 600), f.domain("b", 500)]), "kvm2": f.host("kvm2", 1100)}
    hosts: dict[str, t.Any] = {"sources": ["kvm1"], "candidates": ["kvm2"]}
    plan = plan_drain(facts, **hosts)
    facts["kvm2"] = f.host("kvm2", 1099)
    text = describe_drift(facts, plan, **hosts)
    assert "kvm2 can no longer accept b" in text
    assert "can no longer accept a" not in text


def test_a_changed_scheduler_setting_is_named_by_its_key() -> None:
    plan = plan_drain(FACTS, scheduler={"kvm2": {"reserved_memory_mib": 256}}, **HOSTS)
    assert apply_plan(plan, fresh_facts(), scheduler={"kvm2": {"reserved_memory_mib": "256"}}, **HOSTS) == plan
    text = describe_drift(fresh_facts(), plan, scheduler={"kvm2": {"reserved_memory_mib": 300}})
    assert "In kvmfleet_scheduler of kvm2 reserved_memory_mib is 300 now; the plan was made with 256." in text
    assert "kvmfleet_scheduler of kvm2 was removed" in describe_drift(fresh_facts(), plan)


def test_n_plus_one_that_no_longer_holds_is_drift() -> None:
    facts = fresh_facts()
    find_domain(facts, "huge").update(active=False, state="shut off")
    plan = plan_drain(facts, n_plus_one=True, **HOSTS)
    assert plan["n_plus_one"]["holds"] is False
    wide = {**facts, "kvm2": f.host("kvm2", 8000), "kvm3": f.host("kvm3", 8000)}
    plan = plan_drain(wide, n_plus_one=True, **HOSTS)
    assert plan["n_plus_one"]["holds"] is True
    assert apply_plan(plan, wide, **HOSTS) == plan
    other = f.domain("other", 5500)
    assert "N+1 no longer holds" in describe_drift({**wide, "kvm2": f.host("kvm2", 9000, domains=[other])}, plan)


def test_n_plus_one_counts_a_domain_that_is_at_its_destination_already() -> None:
    facts = fresh_facts()
    find_domain(facts, "huge").update(active=False, state="shut off")
    wide = {**facts, "kvm2": f.host("kvm2", 8000), "kvm3": f.host("kvm3", 8000)}
    plan = plan_drain(wide, n_plus_one=True, **HOSTS)
    assert plan["n_plus_one"]["holds"] is True
    move_guest(wide, "db", next(move["destination"] for move in plan["moves"] if move["name"] == "db"))
    assert apply_plan(plan, wide, **HOSTS) == plan


def test_a_plan_of_other_hosts_is_refused() -> None:
    assert "made to drain kvm1, and not kvm2" in describe_drift(fresh_facts(), sources=["kvm2"], candidates=["kvm1"])
    assert "made to drain kvm1, and not kvm1, kvm2" in describe_drift(fresh_facts(), sources=["kvm2", "kvm1"])


def test_all_drift_is_named_at_once() -> None:
    facts = fresh_facts()
    facts["kvm1"]["domains"].append(f.domain("new"))
    find_domain(facts, "web")["request"].update(memory_mib=2)
    move_guest(facts, "db", "kvm3")
    text = describe_drift(facts, entries=[host_entry({"name": "kvm2", "state": "fenced"})])
    assert all(words in text for words in ("new is active", "web has 2 MiB", "db is no longer on kvm1"))


def test_an_edited_plan_is_refused_before_it_is_compared() -> None:
    text = describe_drift(fresh_facts(), FILE.replace('"kvm2"', '"kvm3"'))
    assert "was changed after it was made" in text


@pytest.mark.parametrize("facts", [[], {"kvm1": {"host_uuid": "x"}}, {"kvm1": None}, {}])
def test_invalid_facts_are_refused_with_a_message(facts: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"expected form|no facts"):
        apply_plan(FILE, facts, **HOSTS)
