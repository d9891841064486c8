# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that was lost answers again: it stays held while the rulebook is disarmed, and is cleaned, released and enabled by an armed one."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.integration.eda.conftest import Begin
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import PLAY_SECONDS, START_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site


def state(site: Site, number: int) -> str:
    found = site.ledger.find_host(name=site.name(number))
    assert found
    return str(found.body["state"])


def test_a_returned_host_is_recovered_only_by_an_armed_rulebook(site: Site, guest: Make, begin: Begin) -> None:
    """The host was evacuated, so that its leftover has to be cleaned before it may start anything."""
    guest("web")
    guest("stays", "--autostart", storage="local")
    site.protect(guard=True)
    unarmed = begin("kvmfleet.migration.host_back")
    site.lose(1)
    unarmed.says(f"{site.name(1)} has been silent", START_SECONDS)
    done = site.evacuate(2, domains=["web"])
    assert done.result["evacuations"][0]["status"] == "done", done.text
    site.bring_back(1)
    unarmed.says(f"{site.name(1)} is back after")
    unarmed.says("Nothing is done")
    unarmed.end()
    assert (site.fleet()[1], site.has_definition("web", 1)) == (set(), True)
    assert not (site.folder / "events").exists()

    armed = begin("kvmfleet.migration.host_back", kvmfleet_events_return=True)
    site.lose(1)
    armed.says(f"{site.name(1)} has been silent", START_SECONDS)
    site.bring_back(1)
    armed.meanwhile(lambda: site.fleet().get(1) == {"stays"} and state(site, 1) == "enabled", "the host is recovered", PLAY_SECONDS)
    armed.says("failed=0", PLAY_SECONDS)
    armed.end()
    site.check_end_state({1: ["stays"], 2: ["web"], 3: []}, site.line("web", "completed", 1, 2))
    assert not site.has_definition("web", 1)
    brake = site.ledger.read_brake()
    assert brake
    assert [(slot.reaction, slot.host) for slot in brake.brake.slots] == [("return", site.name(1))]


def test_the_brake_and_a_maintenance_keep_a_returned_host_as_it_is(site: Site, guest: Make) -> None:
    guest("auto", "--autostart", storage="local")
    site.protect(guard=True)
    code, text = site.playbook("react_host_back", source="kvm9")
    assert (code != 0, "The source kvm9 is not a host of the inventory. Nothing was done." in " ".join(text.split())) == (True, True), text
    code, text = site.playbook("react_host_back", source="all")
    assert (code != 0, "is not a host of the inventory" in text) == (True, True), text

    site.lose(1)
    site.bring_back(1)
    folder = site.folder / "events"
    folder.mkdir()
    (folder / "disarmed").touch()
    code, text = site.playbook("react_host_back", source=site.name(1))
    assert (code != 0, "Reactions to events are disarmed" in " ".join(text.split())) == (True, True), text
    (folder / "disarmed").unlink()

    for number in HOSTS:
        site.variable(number, "kvmfleet_events_brake_return_hosts", 1)
    code, text = site.playbook("react_host_back", source=site.name(3))
    assert code == 0, text
    code, text = site.playbook("react_host_back", source=site.name(1))
    assert (code != 0, f"Nothing was done for {site.name(1)}" in " ".join(text.split())) == (True, True), text
    assert site.fleet()[1] == set()

    for number in HOSTS:
        site.variable(number, "kvmfleet_events_brake_return_hosts", 5)
    maintained = site.task(1, "host", {"state": "maintenance", "reason": "new memory"})
    assert maintained.code == 0, maintained.text
    code, text = site.playbook("react_host_back", source=site.name(1))
    assert (code, "is in maintenance, so someone is working on it. Nothing was done." in " ".join(text.split())) == (0, True), text
    assert (site.fleet()[1], state(site, 1)) == (set(), "maintenance")
