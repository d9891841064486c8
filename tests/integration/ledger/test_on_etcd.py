# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves and drains with the ledger on etcd: by several control nodes, and while its members die."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.ledger.conftest import Node
from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

Make = t.Callable[..., str]
Etcd = t.Callable[..., str]
# A guest of which a move takes two minutes where it is held, longer than a task waits for its ledger; and a small one.
SLOW = ("--mib", "160", "--dirty-mib", "128")
SMALL = ("--mib", "32", "--dirty-mib", "8", "--rate", "200", "--integrity")
MEMBERS = ("1", "2", "3")


def leader(etcd: Etcd) -> str:
    """Return the number of the member that leads, which C(etcd status) marks."""
    return next(line.split()[0] for line in etcd("status").splitlines() if "leads" in line)


def check_arrived(lab: Lab, name: str, to: int) -> None:
    assert lab.places(name) == {to: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_a_move_completes_when_the_etcd_leader_dies(lab: Lab, nodes: list[Node], etcd: Etcd, guest: Make) -> None:
    slow = guest("slow", *SLOW)
    running = nodes[0].begin_move(slow, **HELD)
    lab.under_way(lab.uuid(slow))
    etcd("kill", leader(etcd))
    lab.hurry(slow)
    done = running.wait()
    assert (done.code, done.ended()) == (0, ("completed", None)), done.text
    assert nodes[1].records() == [done.record]
    check_arrived(lab, slow, 2)


@pytest.mark.long
def test_a_move_completes_while_all_etcd_members_are_down_and_is_recorded_later(lab: Lab, nodes: list[Node], etcd: Etcd, guest: Make) -> None:
    slow, other = guest("slow", *SLOW), guest("other", *SMALL)
    running = nodes[0].begin_move(slow, **HELD)
    lab.under_way(lab.uuid(slow))
    for number in MEMBERS:
        etcd("kill", number)
    refused = nodes[1].move(other)
    assert refused.refused() == "unreachable", refused.text
    assert lab.places(other) == {1: "running"}
    assert lab.has_job(slow)
    lab.hurry(slow)
    # The guest has arrived, and nobody could write that yet.
    eventually(lambda: lab.places(slow) == {2: "running"}, "the watcher ends the move alone")
    for number in MEMBERS:
        etcd("start", number)
    done = running.wait()
    assert (done.code, done.ended()) == (0, ("completed", None)), done.text
    assert nodes[1].records() == [done.record]
    check_arrived(lab, slow, 2)


@pytest.mark.long
def test_another_control_node_takes_over_the_move_of_a_dead_one(lab: Lab, nodes: list[Node], guest: Make) -> None:
    slow = guest("slow", *SLOW)
    running = nodes[0].begin_move(slow, **HELD)
    lab.under_way(lab.uuid(slow))
    running.kill()
    done = nodes[1].join_move(slow, **HELD)
    assert (done.code, done.ended()) == (0, ("completed", None)), done.text
    assert nodes[0].records() == [done.record]
    check_arrived(lab, slow, 2)


@pytest.mark.long
def test_two_drains_at_once_never_exceed_the_capacity_of_a_host(lab: Lab, nodes: list[Node], etcd: Etcd, guest: Make) -> None:
    homes = {guest(f"web{on}{number}", *SMALL, on=on): on for on in (1, 2) for number in (1, 2)}
    for number in (1, 2):
        assert nodes[0].task(number, "host", {"state": "maintenance", "reason": "drain"}).code == 0
    room = {"kvmfleet_scheduler": {"limits": {"domains": 3}}}
    drains = [node.begin_drain(number, **room) for node, number in zip(nodes, (1, 2), strict=True)]
    texts = [drain.communicate(timeout=LIMIT_SECONDS)[0] for drain in drains]
    places = {name: lab.places(name) for name in homes}
    assert sorted(list(place) == [3] for place in places.values()) == [False, True, True, True], texts
    assert all(list(place) in ([3], [homes[name]]) for name, place in places.items()), places
    assert sorted(drain.returncode == 0 for drain in drains) in ([False, False], [False, True]), texts
    assert [record["status"] for record in nodes[0].records()].count("completed") == 3
    for name, place in places.items():
        assert list(place.values()) == ["running"]
        assert lab.check(name)["intact"]
    for number in (1, 2):
        assert nodes[1].task(number, "host", {"state": "enabled"}).code == 0
