# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.filter.drain_facts import FilterModule as Facts
from ansible_collections.kvmfleet.migration.plugins.filter.drain_moves import FilterModule as Moves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import moment
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, uuid_of

drain_facts = Facts().filters()["drain_facts"]
drain_moves = Moves().filters()["drain_moves"]
# As many seconds as a whole run of all tests may take: hosts are described when it begins.
AN_HOUR = 3600


def gathered(name: str, seconds_ago: float, *domains: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return facts that were received so long ago, of a host whose own clock is years behind."""
    now = moment()
    return {**facts(name, *domains), "received": {**now, "seconds": now["seconds"] - seconds_ago}}


HOSTVARS: dict[str, t.Any] = {
    "kvm1": {"ansible_facts": {"kvmfleet_host": gathered("kvm1", 5, domain("web1"))}},
    "kvm2": {"ansible_facts": {"kvmfleet_host": gathered("kvm2", 10 * AN_HOUR)}},
    "kvm3": {"ansible_facts": {"kvmfleet_host": {**gathered("kvm3", 0), "received": {"boot_id": "of another control node", "seconds": 5.0}}}},
    "kvm4": {"ansible_facts": {}},
    "kvm5": {"ansible_facts": {"kvmfleet_host": gathered("kvm5", 5, domain("web1"))}},
}
NAMES = [*HOSTVARS, "unknown"]


def test_hosts_without_facts_are_left_out() -> None:
    assert list(drain_facts(HOSTVARS, NAMES)) == ["kvm1", "kvm2", "kvm3", "kvm5"]


def test_old_facts_and_those_of_unknown_age_are_left_out() -> None:
    assert list(drain_facts(HOSTVARS, NAMES, AN_HOUR)) == ["kvm1", "kvm5"]


def test_what_was_asked_now_counts_and_not_what_was_known() -> None:
    now = gathered("kvm4", 0)
    asked = [
        {"item": "kvm4", "ansible_facts": {"kvmfleet_host": now}},
        {"item": "kvm1", "unreachable": True, "msg": "no route"},
        {"item": "kvm2", "failed": True, "msg": "no libvirt"},
        {"item": "kvm3", "skipped": True},
    ]
    assert list(drain_facts(HOSTVARS, NAMES, asked=asked)) == ["kvm3", "kvm4", "kvm5"]


def test_facts_that_contradict_a_source_s_are_left_out() -> None:
    assert list(drain_facts(HOSTVARS, ["kvm2", "kvm5"], undisputed_by=["kvm1"])) == ["kvm2"]


def moved(source: str, destination: str, status: str = "completed", name: str = "web1", generation: int = 1) -> dict[str, t.Any]:
    """A record whose clock is nobody's."""
    places = {"source": {"host": source, "host_uuid": None}, "destination": {"host": destination, "host_uuid": None}}
    return {**places, "domain": {"uuid": uuid_of(name)}, "status": status, "generation": generation, "updated_at": "1970-01-01T00:00:00.000Z"}


@pytest.mark.parametrize(
    ("moves", "left"),
    [
        ([moved("kvm1", "kvm9")], ["kvm5"]),
        ([moved("kvm9", "kvm5", name="web2")], ["kvm1"]),
        ([moved("kvm1", "kvm5", name="web2")], ["kvm1"]),
        ([moved("kvm1", "kvm5")], ["kvm5"]),
        ([moved("kvm9", "kvm1"), moved("kvm1", "kvm9", generation=2)], ["kvm5"]),
        ([moved("kvm1", "kvm9", generation=2), moved("kvm9", "kvm1", generation=3)], ["kvm1", "kvm5"]),
        ([moved("kvm1", "kvm9", "running")], ["kvm5"]),
        ([moved("kvm1", "kvm9", "failed")], ["kvm1", "kvm5"]),
        ([{**moved("old name", "kvm9"), "source": {"host": "old name", "host_uuid": facts("kvm1")["host_uuid"]}}], ["kvm5"]),
    ],
    ids=["away", "towards", "towards, known", "towards, seen", "there and away again", "away and back", "under way", "failed", "by its UUID"],
)
def test_facts_from_before_the_end_of_a_move_are_left_out(moves: list[dict[str, t.Any]], left: list[str]) -> None:
    """By what they say, and not by when; each of the two hosts says that it runs web1."""
    assert list(drain_facts(HOSTVARS, ["kvm1", "kvm5"], moves=moves)) == left


def test_a_host_that_receives_a_domain_is_left_out_where_moves_matter() -> None:
    arriving = {**domain("web1"), "job": "incoming migration"}
    hostvars = {"kvm1": {"ansible_facts": {"kvmfleet_host": gathered("kvm1", 5, arriving)}}}
    assert list(drain_facts(hostvars, ["kvm1"])) == ["kvm1"]
    assert list(drain_facts(hostvars, ["kvm1"], moves=[])) == []


def test_what_is_told_counts_before_all_else() -> None:
    now = gathered("kvm2", 0)
    asked = [{"item": "kvm2", "unreachable": True, "msg": "no route"}]
    assert drain_facts(HOSTVARS, ["kvm2"], asked=asked, told={"kvm2": now}) == {"kvm2": now}


@pytest.mark.parametrize("facts", [{"domains": 5}, {"x": 1}, 7])
def test_facts_of_another_form_are_a_sentence(facts: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="have not the expected form"):
        drain_facts({"kvm1": {"ansible_facts": {"kvmfleet_host": facts}}}, ["kvm1"], 60, undisputed_by=["kvm1"])


def test_hostvars_are_wanted() -> None:
    with pytest.raises(AnsibleFilterError, match="give hostvars"):
        drain_facts(["kvm1"], NAMES)


PLAN = {"moves": [{"uuid": uuid_of("a"), "source": "kvm1", "destination": "kvm2"}, {"uuid": uuid_of("b"), "source": "kvm3", "destination": "kvm2"}]}


def test_a_host_s_share_comes_with_the_options() -> None:
    assert drain_moves(PLAN, "kvm1", {"timeout_seconds": 9}) == [{"uuid": uuid_of("a"), "destination": "kvm2", "timeout_seconds": 9}]
    assert drain_moves(PLAN, "kvm2") == []


def begun(name: str, source: str = "kvm1") -> dict[str, t.Any]:
    return {"domain": {"uuid": uuid_of(name)}, "source": {"host": source}, "destination": {"host": "kvm3"}}


def test_a_domain_that_arrived_in_a_run_before_is_settled() -> None:
    plan = {**PLAN, "shutdowns": [], "unplaced": [], "skipped": [{"uuid": uuid_of("d"), "drain": "leave"}, {"uuid": uuid_of("e"), "drain": ""}]}
    records = [begun("a"), begun("c"), begun("d"), begun("e"), begun("f", source="kvm2")]
    settled = [{"uuid": uuid_of(name), "destination": "kvm3"} for name in ("c", "e")]
    assert drain_moves(plan, "kvm1", {"timeout_seconds": 9}, records=records)[1:] == settled
    assert drain_moves(PLAN, "kvm1", records=[])[1:] == []


@pytest.mark.parametrize("option", ["name", "uuid", "destination", "moves", "parallel"])
def test_what_the_plan_decides_cannot_be_an_option(option: str) -> None:
    with pytest.raises(AnsibleFilterError, match=option):
        drain_moves(PLAN, "kvm1", {option: "x"})


def test_no_plan_is_a_sentence() -> None:
    with pytest.raises(AnsibleFilterError, match="not a drain's plan"):
        drain_moves({}, "kvm1")
