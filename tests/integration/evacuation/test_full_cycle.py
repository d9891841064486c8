# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that die and return: each guest runs once, and each host is cleaned by its own records."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations

Make = t.Callable[..., str]


def test_guests_of_a_dead_host_are_evacuated_once_and_the_returned_host_is_cleaned(site: Site, guest: Make) -> None:
    for name, storage in (("web", "shared"), ("db", "bindfs")):
        guest(name, storage=storage)
    guest("idle", "--off")
    guest("other", on=3)
    site.protect()
    assert not site.changes_by_protecting()
    site.lose(1)

    predicted = site.evacuate(2, 1, "--check")
    assert (predicted.code, predicted.changed) == (0, True), predicted.text
    site.check_end_state({2: [], 3: ["other"]})

    done = site.evacuate(2)
    assert (done.code, done.changed) == (0, True), done.text
    lines = sorted(site.line(name, "done", 1, 2) for name in ("web", "db", "idle"))
    assert sorted(site.record_summaries()) == lines
    assert site.fleet() == {2: {"web", "db"}, 3: {"other"}}
    assert site.lab.places("idle") == {2: "shut off"}
    again = site.evacuate(2)
    assert (again.code, again.changed, evacuations(again)) == (0, False, []), again.text

    site.bring_back(1)
    assert site.fleet() == {1: set(), 2: {"web", "db"}, 3: {"other"}}
    assert all(site.has_definition(name, 1) for name in ("web", "db", "idle"))
    would = site.clean(1, "--check")
    assert (would.code, would.changed) == (0, True), would.text
    assert sorted(site.record_summaries()) == lines
    cleaned = site.clean()
    assert (cleaned.code, cleaned.changed) == (0, True), cleaned.text
    assert sorted(one["name"] for one in cleaned.result["cleaned"]) == ["db", "idle", "web"]
    assert not any(site.has_definition(name, 1) for name in ("web", "db", "idle"))
    assert site.lab.places("idle") == {2: "shut off"}
    assert sorted(site.record_summaries()) == sorted(site.line(name, "completed", 1, 2) for name in ("web", "db", "idle"))
    assert site.fleet() == {1: set(), 2: {"web", "db"}, 3: {"other"}}
    assert not site.clean().changed


@pytest.mark.long
def test_the_destination_dies_too_and_the_guest_is_evacuated_again_and_back(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))

    site.lose(2)
    # Nobody has to accept the silence of the first host, whose agent reports it as off.
    second = site.evacuate(3, 2)
    assert second.code == 0, second.text
    assert sorted(one["host"] for one in second.result["evidence"]) == [site.name(1), site.name(2)]
    site.check_end_state({3: ["web"]}, site.line("web", "done", 1, 2), site.line("web", "done", 2, 3))
    assert site.possible_hosts("web") == [site.name(3)]

    site.bring_back(1)
    assert site.clean(1).code == 0
    site.check_end_state({1: [], 3: ["web"]}, site.line("web", "completed", 1, 2), site.line("web", "done", 2, 3))
    site.lose(3)
    back = site.evacuate(1, 3)
    assert back.code == 0, back.text
    for number in (2, 3):
        site.bring_back(number)
        cleaned = site.clean(number)
        assert (cleaned.code, cleaned.changed) == (0, True), cleaned.text
    assert (site.has_definition("web", 2), site.has_definition("web", 3)) == (False, False)
    site.check_end_state({1: ["web"], 2: [], 3: []}, *(site.line("web", "completed", *way) for way in ((1, 2), (2, 3), (3, 1))))


@pytest.mark.long
def test_a_host_with_an_old_copy_of_the_guest_is_refused_as_a_destination(site: Site, guest: Make) -> None:
    """Its definition and its disk may be older than what the guest was when it ran elsewhere."""
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    site.bring_back(1)
    site.lose(2)
    back = site.evacuate(1, 2)
    assert back.code != 0, back.text
    assert "web" in back.msg
    assert site.fleet() == {1: set(), 3: set()}
    assert not site.clean(1).changed
    assert site.has_definition("web", 1)
    assert site.evacuate(3, 2).code == 0
    assert site.clean(1).code == 0
    site.bring_back(2)
    assert site.clean(2).code == 0
    assert [site.has_definition("web", number) for number in (1, 2)] == [False, False]
    assert site.fleet() == {1: set(), 2: set(), 3: {"web"}}
    assert [line[1:] for line in site.record_summaries() if line[1] != "conflict"] == [site.line("web", "completed", *way)[1:] for way in ((1, 2), (2, 3))]


@pytest.mark.long
def test_a_host_is_cleaned_when_the_guest_was_moved_on_before_its_return(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    moved = site.task(2, "live_migrate", {"name": "web", "destination": site.name(3), "unsafe": True})
    assert moved.code == 0, moved.text
    site.bring_back(1)
    cleaned = site.clean()
    assert cleaned.code == 0, cleaned.text
    assert not site.has_definition("web", 1)
    site.check_end_state({1: [], 2: [], 3: ["web"]}, site.line("web", "completed", 1, 2), site.line("web", "completed", 2, 3))


@pytest.mark.long
@pytest.mark.parametrize("alone", [1, 2])
def test_a_guest_is_evacuated_again_after_only_one_of_its_hosts_was_protected(site: Site, guest: Make, alone: int) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    site.bring_back(1)
    assert site.clean(1).code == 0
    protected = site.task(alone, "protect", {})
    assert (protected.code, protected.result["unproved"]) == (0, []), protected.text
    site.lose(2)
    back = site.evacuate(1, 2)
    assert back.code == 0, back.text
    site.check_end_state({1: ["web"], 3: []}, site.line("web", "completed", 1, 2), site.line("web", "done", 2, 1))


@pytest.mark.long
def test_records_of_a_scrapped_host_are_closed_with_source_discarded(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    discard = {"name": site.name(1), "source_discarded": True}
    alive = site.task(2, "host", {**discard, "reason": "the wrong name"})
    assert alive.refused() == "invalid_state"
    assert "answers Ansible" in alive.msg
    site.lose(1)
    assert site.evacuate(2).code == 0
    assert site.task(2, "host", discard).refused() == "invalid_argument"
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
    done = site.task(2, "host", {**discard, "reason": "its mainboard went to the scrap yard"})
    assert (done.code, done.changed) == (0, True), done.text
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "completed", 1, 2, "source_discarded"))
    assert "scrap yard" in str(site.only_record()["history"])


@pytest.mark.long
def test_a_scrapped_host_that_returns_is_held_until_it_is_adopted(site: Site, guest: Make) -> None:
    """No open record has its copy of the guest any more: it is not released before an operator has checked it."""
    guest("web", "--autostart")
    site.protect(guard=True)
    site.lose(1)
    assert site.evacuate(2).code == 0
    assert site.task(2, "host", {"name": site.name(1), "source_discarded": True, "reason": "scrapped"}).code == 0
    site.bring_back(1)
    code, text = site.playbook("recover", target=site.name(1))
    assert (code != 0, "adopt_identity" in text) == (True, True), text
    for module in ("boot_guard", "host"):
        assert site.task(1, module, {"state": "released" if module == "boot_guard" else "enabled"}).refused() == "unsafe"
    assert not site.clean(1).changed
    site.check_end_state({1: [], 2: ["web"], 3: []}, site.line("web", "completed", 1, 2, "source_discarded"))
    site.lab.virsh(1, "undefine", "web")
    assert site.task(1, "host", {"adopt_identity": True, "reason": "looked at, and emptied"}).code == 0
    code, text = site.playbook("recover", target=site.name(1))
    assert code == 0, text
    assert site.task(1, "host", {}).result["host"]["state"] == "enabled"
    assert site.fleet() == {1: set(), 2: {"web"}, 3: set()}


@pytest.mark.long
def test_an_evacuated_guest_with_autostart_is_not_started_by_the_returned_host(site: Site, guest: Make) -> None:
    guest("auto", "--autostart")
    guest("home", "--autostart", storage="local")
    site.protect(guard=True)
    site.lose(1)
    done = site.evacuate(2, domains=["auto"])
    assert done.code == 0, done.text
    assert site.lab.info("auto", 2)["Autostart"] == "enable"
    site.bring_back(1)
    site.check_end_state({1: [], 2: ["auto"], 3: []}, site.line("auto", "done", 1, 2))
    code, text = site.playbook("recover", target=site.name(1))
    assert code == 0, text
    assert not site.has_definition("auto", 1)
    site.check_end_state({1: ["home"], 2: ["auto"], 3: []}, site.line("auto", "completed", 1, 2))


@pytest.mark.long
def test_all_survivors_share_the_work_and_guests_are_moved_back(site: Site, guest: Make) -> None:
    names = [guest(f"web{number}") for number in range(4)]
    guest("held", "--paused")
    site.protect(guard=True)
    site.lose(1)
    code, text = site.playbook("evacuate", source=site.name(1))
    assert code == 0, text
    places = site.fleet()
    assert places[2]
    assert places[3]
    assert sorted(places[2] | places[3]) == sorted([*names, "held (paused)"])
    assert not places[2] & places[3]
    site.bring_back(1)
    code, text = site.playbook("recover", target=site.name(1), recover_host_bring_home=True, recover_host_options={"unsafe": True})
    assert code == 0, text
    assert site.fleet() == {1: {*names, "held (paused)"}, 2: set(), 3: set()}
    assert {line[1] for line in site.record_summaries()} == {"completed"}
    assert len(site.record_summaries()) == 2 * (len(names) + 1)
