# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups across the fleet: members that are known only from facts of their hosts, or from the ledger, and members that leave in the same task."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import OTHER, run_one_move

TOGETHER = {"name": "web", "policy": "affinity"}
APART = {"name": "web", "policy": "anti-affinity"}


def in_group(control: Control, group: dict[str, t.Any], **domains: str) -> None:
    """Put domains (name to host) into the group; web1 is on the source."""
    for number, (name, host) in enumerate(domains.items(), 1):
        uuid = UUID if name == "web1" else f"{OTHER[:-2]}{number:02d}"
        control.fleet.guest(name, uuid, on=host)
        control.source.needs[uuid] = {"group": group}
        control.source.policies[uuid] = {"group": group}


def test_anti_affinity_refuses_a_destination_with_another_member(control: Control) -> None:
    in_group(control, APART, web1="kvm1", web2="kvm2")
    refused = run_one_move(control, check=True)
    assert refused.error.error_code == "conflict"
    assert "web" in str(refused.error)
    assert run_one_move(control, destination="kvm3", check=True).error is None


def test_affinity_counts_a_member_known_from_fresh_facts_of_a_third_host(control: Control) -> None:
    in_group(control, TOGETHER, web1="kvm1", web2="kvm3")
    assert run_one_move(control, check=True).error is None, "nobody asked kvm3"
    control.say("kvm3")
    refused = run_one_move(control, check=True)
    assert refused.error.error_code == "conflict"
    assert "kvm3" in str(refused.error)
    assert run_one_move(control, destination="kvm3", check=True).error is None


def test_affinity_permits_members_that_move_together_in_one_task(control: Control) -> None:
    in_group(control, TOGETHER, web1="kvm1", web2="kvm1")
    alone = run_one_move(control, check=True)
    assert alone.error.error_code == "conflict"
    for check in (True, False):
        jobs = control.run(moves=[{"name": "web1"}, {"name": "web2"}], destination="kvm2", check=check)
        assert [job.error for job in jobs] == [None, None]


def test_affinity_refuses_different_destinations_in_one_task(control: Control) -> None:
    in_group(control, TOGETHER, web1="kvm1", web2="kvm1")
    jobs = control.run(moves=[{"name": "web1", "destination": "kvm2"}, {"name": "web2", "destination": "kvm3"}], check=True)
    assert [job.error and job.error.error_code for job in jobs] == [None, "conflict"]


def test_anti_affinity_refuses_one_destination_for_two_members_of_one_task(control: Control) -> None:
    in_group(control, APART, web1="kvm1", web2="kvm1")
    for check in (True, False):
        jobs = control.run(moves=[{"name": "web1"}, {"name": "web2"}], destination="kvm2", check=check)
        assert [job.error and job.error.error_code for job in jobs] == [None, "conflict"]


def test_a_group_of_a_profile_counts(control: Control) -> None:
    in_group(control, APART, web1="kvm1")
    control.fleet.guest("web2", OTHER, on="kvm2")
    control.source.facts["kvm2"] = {"domains": [{**domain, "policy": {"profile": "web"}} for domain in control.source.facts_of("kvm2")["domains"]]}
    assert run_one_move(control, check=True).error is None
    control.variables("kvm2")["kvmfleet_profiles"] = {"web": {"group": APART}}
    refused = run_one_move(control, check=True)
    assert refused.error.error_code == "conflict"
    assert "web2" in str(refused.error)


def test_labels_and_group_of_the_profile_of_the_domain_count(control: Control) -> None:
    in_group(control, APART, web1="kvm1", web2="kvm3")
    del control.source.needs[UUID]
    control.source.policies[UUID] = {"profile": "fast"}
    control.variables("kvm1")["kvmfleet_profiles"] = {"fast": {"labels": ["ssd"], "group": APART}}
    refused = run_one_move(control)
    assert refused.error.error_code == "conflict"
    assert "ssd" in str(refused.error)
    for host in ("kvm2", "kvm3"):
        control.variables(host)["kvmfleet_scheduler"] = {"labels": ["ssd"]}
    assert "web2" in str(run_one_move(control, destination="kvm3").error)
    record = run_one_move(control).record
    assert (record.status, record.request["labels"], record.request["group"]["name"]) == ("completed", ["ssd"], "web")


class Inventory(dict[str, t.Any]):
    """Variables of a host that count how often its facts were asked for, as an inventory would template them each time."""

    readings = 0

    def get(self, key: str, default: t.Any = None) -> t.Any:
        self.readings += key == "ansible_facts"
        return super().get(key, default)


@pytest.mark.parametrize(("group", "readings"), [(None, 0), (TOGETHER, 1)])
def test_facts_of_other_hosts_are_read_only_for_groups_and_once(control: Control, group: dict[str, t.Any] | None, readings: int) -> None:
    for number, name in enumerate(("web1", "web2", "web3"), 1):
        control.fleet.guest(name, f"{OTHER[:-2]}{number:02d}")
        control.source.policies[f"{OTHER[:-2]}{number:02d}"] = {"group": group} if group else {}
    control.say("kvm3")
    beside = Inventory(control.variables("kvm3"))
    control.settings._hostvars["kvm3"] = beside
    jobs = control.run(moves=[{"name": name} for name in ("web1", "web2", "web3")], destination="kvm2", check=True)
    assert [job.error for job in jobs] == [None] * 3
    assert beside.readings == readings
