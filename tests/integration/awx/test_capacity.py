# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two simultaneous drains into one host that has capacity for some of the guests, and receives one at a time."""

from __future__ import annotations

import collections

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.awx.support.jobs import Awx
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.findings import most_at_once
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.stores import audit_lines

EACH, ROOM = 3, 4
# A guest of the site.
GUEST_MIB = 32


@pytest.mark.long
@pytest.mark.parametrize("kept", [pytest.param("awx", marks=pytest.mark.long), "diskless"])
def test_two_drain_jobs_at_once_never_exceed_the_capacity_of_a_host(lab: Lab, site: Site, guest: Make, kept: str, request: pytest.FixtureRequest) -> None:
    """The guests of one host would fit; those of both do not."""
    names = {number: [guest(f"web{number}{one}", on=number) for one in range(EACH)] for number in (1, 2)}
    total = site.facts(3)["memory"]["total_bytes"] // 1024**2
    site.variable(3, "kvmfleet_scheduler", {"reserved_memory_mib": total - ROOM * GUEST_MIB - GUEST_MIB // 2, "limits": {"moves_in": 1}})
    awx: Awx = request.getfixturevalue(kept)
    jobs = {number: awx.launch("drain", target=lab.host(number), drain_host_candidates=[lab.host(3)]) for number in names}
    ended = {number: job.wait() for number, job in jobs.items()}

    results = {number: job.artifacts["drain_host_result"][lab.host(number)] for number, job in ended.items()}
    moved = [one["name"] for result in results.values() for one in result["moved"]]
    there = [guest for guest in [*names[1], *names[2]] if lab.places(guest) == {3: "running"}]
    assert sorted(moved) == sorted(there), (results, there)
    assert len(there) == ROOM, results
    left = collections.Counter(number for number, guests in names.items() for one in guests if lab.places(one) == {number: "running"})
    assert sum(left.values()) == 2 * EACH - ROOM
    assert {number for number, job in ended.items() if job.status == "failed"} == set(left)
    assert {number for number, result in results.items() if result["safe_to_reboot"]} == set(results) - set(left)
    most = most_at_once(audit_lines(*awx.ledger), encode(list(open_ledger(*awx.ledger).list_records())))
    assert most["moves_in", lab.host(3)] == 1
