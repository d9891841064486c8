# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations to hosts that call a bridge, a folder of images, CPUs and a console address by other names, and the way home."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.host_names import (
    BRIDGE,
    FOLDER,
    Make,
    Maps,
    definitions_on,
    make_named,
    maps_of,
    names_in,
)
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations


def give_maps(site: Site, maps: Maps) -> None:
    for number, given in maps.items():
        for kind, names in given.items():
            site.variable(number, f"kvmfleet_{kind}_map", names)


@pytest.mark.long
def test_a_guest_starts_with_the_names_of_the_survivor_and_comes_home_as_it_was(lab: Lab, other_names: None, site: Site, guest: Make) -> None:
    name = make_named(lab, guest, "named")
    before = definitions_on(lab, name, 1)
    maps = maps_of(lab)
    give_maps(site, {**maps, 3: maps[1]})
    site.protect()
    assert not site.changes_by_protecting()
    site.lose(1)
    foreseen = site.evacuate(2, 1, "--check", "--diff")
    assert (foreseen.code, foreseen.changed) == (0, True), foreseen.text
    assert f"-{name}: devices[1]/interface[1]/source[1]/@bridge: br0" in foreseen.text
    assert f"+{name}: devices[1]/interface[1]/source[1]/@bridge: {BRIDGE}" in foreseen.text
    site.check_end_state({2: [], 3: []})

    done = site.evacuate(2)
    assert done.code == 0, done.text
    site.check_end_state({2: [name], 3: []}, site.line(name, "done", 1, 2))
    address = lab.layout.host_address(lab.host(2))
    there = {"bridge": BRIDGE, "image": f"{FOLDER}/{name}.qcow2", "cpu": "1", "graphics": address, "listen": address}
    assert [names_in(one) for one in definitions_on(lab, name, 2)] == [there, there]
    assert FOLDER in lab.on(2, "sh", "-c", f"tr '\\0' ' ' < /proc/$(cat /run/libvirt/qemu/{name}.pid)/cmdline")
    (record,) = evacuations(done)
    assert record["rewritten"] == evacuations(foreseen)[0]["rewritten"]
    assert {(one["before"], one["after"]) for one in record["rewritten"]} >= {("br0", BRIDGE), ("0", "1")}
    assert record["request"]["networks"] == [{"type": "bridge", "source": BRIDGE}]
    (locks,) = [one for one in record["evidence"] if one["kind"] == "locks"]
    assert list(locks["images"]) == [f"{FOLDER}/{name}.qcow2"]

    site.bring_back(1)
    cleaned = site.clean()
    assert cleaned.code == 0, cleaned.text
    assert [one["name"] for one in cleaned.result["cleaned"]] == [name]
    assert not cleaned.result["cleaned"][0]["quarantined"]
    assert (site.fleet()[2], site.has_definition(name, 1)) == ({name}, False)
    site.protect()
    (document,) = site.ledger.find_domains(name)
    assert f"{FOLDER}/{name}.qcow2" in document.body["protected"]["definition"]
    assert len(document.body["protected"]["disks"][0]["seen_by"]) == 3
    home = site.task(2, "live_migrate", {"name": name, "destination": site.name(1)})
    assert home.ended() == ("completed", None), home.text
    assert site.fleet() == {1: {name}, 2: set(), 3: set()}
    assert definitions_on(lab, name, 1) == before


@pytest.mark.long
def test_a_guest_without_a_name_on_any_survivor_is_named_and_others_are_started(lab: Lab, other_names: None, site: Site, guest: Make) -> None:
    """The second host has a name that leads nowhere; the third has no name for the bridge."""
    named, plain = make_named(lab, guest, "odd"), guest("plain")
    maps = maps_of(lab)
    maps[2]["bridge"] = {"prod": "br-nowhere"}
    maps[3] = {"image": maps[1]["image"], "cpu": maps[1]["cpu"], "graphics": {"console": lab.layout.host_address(lab.host(3))}}
    give_maps(site, maps)
    site.protect()
    site.lose(1)
    code, text = site.playbook("evacuate", source=site.name(1))
    flat = " ".join(text.split())
    assert code != 0, text
    assert "It has no bridge br-nowhere." in flat
    assert f"{site.name(3)} has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on {site.name(1)}." in flat
    there = site.fleet()
    assert there[2] | there[3] == {plain}
    assert {(line[0], line[1]) for line in site.record_summaries()} == {(named, "conflict"), (plain, "done")}
    assert site.possible_hosts(named) == [site.name(1)]
    site.variable(3, "kvmfleet_bridge_map", {"prod": "br0"})
    code, text = site.playbook("evacuate", source=site.name(1))
    assert code == 0, text
    assert named in site.fleet()[3]
