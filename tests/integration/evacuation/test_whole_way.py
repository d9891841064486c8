# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that die and come back: whatever happens between, each guest runs once, and each host is cleaned by its own records."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations

Make = t.Callable[..., str]


def test_power_off_evacuate_power_on_clean(site: Site, guest: Make) -> None:
    for name, storage in (("web", "shared"), ("db", "bindfs")):
        guest(name, storage=storage)
    guest("idle", "--off")
    guest("other", on=3)
    site.protect()
    assert not site.changes_by_protecting()
    site.lose(1)

    predicted = site.evacuate(2, 1, "--check")
    assert (predicted.code, predicted.changed) == (0, True), predicted.text
    site.ended({2: [], 3: ["other"]})

    done = site.evacuate(2)
    assert (done.code, done.changed) == (0, True), done.text
    lines = sorted(site.line(name, "done", 1, 2) for name in ("web", "db", "idle"))
    assert sorted(site.told()) == lines
    assert site.fleet() == {2: {"web", "db"}, 3: {"other"}}
    assert site.lab.places("idle") == {2: "shut off"}
    again = site.evacuate(2)
    assert (again.code, again.changed, evacuations(again)) == (0, False, []), again.text

    site.bring_back(1)
    assert site.fleet() == {1: set(), 2: {"web", "db"}, 3: {"other"}}
    assert all(site.knows(name, 1) for name in ("web", "db", "idle"))
    would = site.clean(1, "--check")
    assert (would.code, would.changed) == (0, True), would.text
    assert sorted(site.told()) == lines
    cleaned = site.clean()
    assert (cleaned.code, cleaned.changed) == (0, True), cleaned.text
    assert sorted(one["name"] for one in cleaned.result["cleaned"]) == ["db", "idle", "web"]
    assert not any(site.knows(name, 1) for name in ("web", "db", "idle"))
    assert site.lab.places("idle") == {2: "shut off"}
    assert sorted(site.told()) == sorted(site.line(name, "completed", 1, 2) for name in ("web", "db", "idle"))
    assert site.fleet() == {1: set(), 2: {"web", "db"}, 3: {"other"}}
    assert not site.clean().changed


@pytest.mark.long
def test_the_destination_dies_too_and_in_the_end_the_guest_is_where_it_began(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    site.ended({2: ["web"], 3: []}, site.line("web", "done", 1, 2))

    site.lose(2)
    unaccepted = site.evacuate(3, 2)
    assert unaccepted.refused() == "unsafe"
    assert site.name(1) in unaccepted.msg
    assert site.evacuate(3, 2, accept_silent=[site.name(1)]).code == 0
    site.ended({3: ["web"]}, site.line("web", "done", 1, 2), site.line("web", "done", 2, 3))
    assert site.possible_hosts("web") == [site.name(3)]

    site.bring_back(1)
    assert site.clean(1).code == 0
    site.ended({1: [], 3: ["web"]}, site.line("web", "completed", 1, 2), site.line("web", "done", 2, 3))
    site.lose(3)
    back = site.evacuate(1, 3, accept_silent=[site.name(2)])
    assert back.code == 0, back.text
    for number in (2, 3):
        site.bring_back(number)
        cleaned = site.clean(number)
        assert (cleaned.code, cleaned.changed) == (0, True), cleaned.text
    assert (site.knows("web", 2), site.knows("web", 3)) == (False, False)
    site.ended({1: ["web"], 2: [], 3: []}, *(site.line("web", "completed", *way) for way in ((1, 2), (2, 3), (3, 1))))


@pytest.mark.long
def test_a_host_that_still_has_its_old_copy_is_no_destination_before_that_is_gone(site: Site, guest: Make) -> None:
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
    assert site.knows("web", 1)
    assert site.evacuate(3, 2).code == 0
    assert site.clean(1).code == 0
    site.bring_back(2)
    assert site.clean(2).code == 0
    assert [site.knows("web", number) for number in (1, 2)] == [False, False]
    assert site.fleet() == {1: set(), 2: set(), 3: {"web"}}
    assert [line[1:] for line in site.told() if line[1] != "failed"] == [site.line("web", "completed", *way)[1:] for way in ((1, 2), (2, 3))]


@pytest.mark.long
def test_the_guest_has_moved_on_before_its_old_host_returns(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    moved = site.task(2, "live_migrate", {"name": "web", "destination": site.name(3), "unsafe": True})
    assert moved.code == 0, moved.text
    site.bring_back(1)
    cleaned = site.clean()
    assert cleaned.code == 0, cleaned.text
    assert not site.knows("web", 1)
    site.ended({1: [], 2: [], 3: ["web"]}, site.line("web", "completed", 1, 2), site.line("web", "completed", 2, 3))


@pytest.mark.long
def test_a_host_that_was_scrapped(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    assert site.evacuate(2).code == 0
    discard = {"name": site.name(1), "source_discarded": True}
    assert site.task(2, "host", discard).refused() == "invalid_argument"
    site.ended({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
    done = site.task(2, "host", {**discard, "reason": "its mainboard went to the scrap yard"})
    assert (done.code, done.changed) == (0, True), done.text
    site.ended({2: ["web"], 3: []}, site.line("web", "completed", 1, 2, "source_discarded"))
    assert "scrap yard" in str(site.only_record()["history"])


@pytest.mark.long
def test_a_host_that_was_scrapped_and_is_back_all_the_same(site: Site, guest: Make) -> None:
    """Its copy of the guest is in no open record any more: it is not released before a person has looked at it."""
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
    site.ended({1: [], 2: ["web"], 3: []}, site.line("web", "completed", 1, 2, "source_discarded"))
    site.lab.virsh(1, "undefine", "web")
    assert site.task(1, "host", {"adopt_identity": True, "reason": "looked at, and emptied"}).code == 0
    code, text = site.playbook("recover", target=site.name(1))
    assert code == 0, text
    assert site.task(1, "host", {}).result["host"]["state"] == "enabled"
    assert site.fleet() == {1: set(), 2: {"web"}, 3: set()}


@pytest.mark.long
def test_a_guest_that_starts_with_its_host_is_held_on_the_host_that_returns(site: Site, guest: Make) -> None:
    guest("auto", "--autostart")
    guest("home", "--autostart", storage="local")
    site.protect(guard=True)
    site.lose(1)
    done = site.evacuate(2, domains=["auto"])
    assert done.code == 0, done.text
    assert site.lab.info("auto", 2)["Autostart"] == "enable"
    site.bring_back(1)
    site.ended({1: [], 2: ["auto"], 3: []}, site.line("auto", "done", 1, 2))
    code, text = site.playbook("recover", target=site.name(1))
    assert code == 0, text
    assert not site.knows("auto", 1)
    site.ended({1: ["home"], 2: ["auto"], 3: []}, site.line("auto", "completed", 1, 2))


@pytest.mark.long
def test_all_survivors_share_the_work_and_guests_come_home(site: Site, guest: Make) -> None:
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
    assert {line[1] for line in site.told()} == {"completed"}
    assert len(site.told()) == 2 * (len(names) + 1)
