# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dead hosts, isolated hosts and a switch that takes all of them, as rulebooks on two control nodes see them."""

from __future__ import annotations

import time

from ansible_collections.kvmfleet.migration.tests.integration.eda.conftest import LEASE, Begin
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import EVENT_SECONDS, PLAY_SECONDS, Rulebook
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import BEFORE
from ansible_collections.kvmfleet.migration.tests.integration.support.leased import LeasedSite
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document


def states(site: LeasedSite) -> dict[str, str]:
    return {document.host.name: document.host.state for document in site.ledger.list_hosts()}


def slots(site: LeasedSite) -> list[str]:
    found = site.ledger.read_brake()
    return [slot.host for slot in found.brake.slots] if found else []


def has_reacted(rulebook: Rulebook) -> bool:
    """Whether the playbooks of all hosts have ended, after that of the start. ansible-rulebook prints the one that fails, that of the guest's host, twice."""
    return rulebook.text().count("PLAY RECAP") >= len(HOSTS) + 2


def active_on(site: LeasedSite, guest: str) -> list[int]:
    return [number for number, active in site.fleet().items() if guest in active]


def test_another_control_node_continues_a_reaction_that_died_in_the_middle(leased: LeasedSite, begin_leased: Begin) -> None:
    leader, follower = begin_leased(), begin_leased()
    for number in (2, 3):
        leased.hooks[number].hold(BEFORE, "web")
    leased.lose(1)
    leader.meanwhile(lambda: any(status == "pre-migrating" for _name, status, *_rest in leased.record_summaries()), "the guest is being started", PLAY_SECONDS)
    assert "PLAY [Evacuate" not in follower.text()
    leader.kill()
    # The host goes on with what it was told.
    for number in (2, 3):
        leased.hooks[number].let_go(BEFORE, "web")
    follower.meanwhile(lambda: [status for _name, status, *_rest in leased.record_summaries()] == ["done"], "the evacuation has ended", PLAY_SECONDS)
    follower.meanwhile(lambda: follower.text().count("PLAY RECAP") >= 2, "the playbook has ended", PLAY_SECONDS)
    assert len(active_on(leased, "web")) == 1
    assert (slots(leased), states(leased)[leased.name(1)]) == ([leased.name(1)], "fenced")
    follower.end()
    leased.verify_audit()


def test_a_switch_that_takes_all_hosts_is_one_notice_and_nothing_is_fenced(leased: LeasedSite, begin_leased: Begin, receiver: Receiver) -> None:
    leader, follower = begin_leased(), begin_leased()
    for number in HOSTS:
        leased.lab("cut", leased.lab.host(number), "--all")
    leader.meanwhile(lambda: has_reacted(leader), "each host was reacted to", PLAY_SECONDS)
    leader.says("hosts are silent at once")
    leader.kill()
    # The one that takes over finds the incident.
    follower.meanwhile(lambda: has_reacted(follower), "each host was reacted to again", PLAY_SECONDS)
    follower.says("hosts are silent at once")
    eventually(receiver.kinds, "the notice arrives")
    assert receiver.kinds() == ["brake.held"]
    check_document("brake-notice.json", receiver.events()[0])
    assert set(states(leased).values()) == {"enabled"}
    assert (slots(leased), leased.record_summaries()) == ([], [])
    for number in HOSTS:
        leased.lab("heal", leased.lab.host(number))
    eventually(lambda: active_on(leased, "web") == [1], "the guest runs where it ran")


def test_an_isolated_host_is_one_notice_and_never_fenced(leased: LeasedSite, begin_leased: Begin, receiver: Receiver) -> None:
    """Its management network is cut: neither libvirt nor Ansible reach it, but it renews its lease."""
    leader = begin_leased()
    leased.lab("cut", leased.lab.host(1), "--control", "--ssh")
    leader.says("PLAY [Notify people of an isolated host]", EVENT_SECONDS)
    leader.says("PLAY RECAP", PLAY_SECONDS)
    eventually(receiver.kinds, "the notice arrives")
    time.sleep(3 * LEASE["lease_seconds"])
    assert receiver.kinds() == ["host.isolated"]
    check_document("host-notice.json", receiver.events()[0])
    assert "lease: renewed" in receiver.events()[0]["data"]["detail"]
    assert "Evacuate a host that is gone" not in leader.text()
    assert (slots(leased), leased.record_summaries(), set(states(leased).values())) == ([], [], {"enabled"})
    # Then it dies, and is evacuated.
    leased.lose(1)
    leader.meanwhile(lambda: [status for _name, status, *_rest in leased.record_summaries()] == ["done"], "it is evacuated", PLAY_SECONDS)
    assert len(active_on(leased, "web")) == 1
