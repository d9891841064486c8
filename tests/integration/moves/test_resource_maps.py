# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves between hosts that call a bridge, a folder of images, CPUs and a console address by other names, and the way home."""

from __future__ import annotations

import contextlib
import pathlib
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.host_names import (
    BRIDGE,
    FOLDER,
    Make,
    definitions_on,
    give_maps,
    make_named,
    maps_of,
    names_in,
)


def test_a_guest_gets_the_names_of_each_host_and_is_the_same_again_at_home(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = make_named(lab, guest, "named")
    give_maps(control, maps_of(lab))
    before = definitions_on(lab, name, 1)
    foreseen = control.move(name, 2, "--check", "--diff")
    assert (foreseen.code, foreseen.changed) == (0, True), foreseen.text
    assert f"-{name}: devices[1]/interface[1]/source[1]/@bridge: br0" in foreseen.text
    assert f"+{name}: devices[1]/interface[1]/source[1]/@bridge: {BRIDGE}" in foreseen.text
    assert definitions_on(lab, name, 1) == before
    assert control.records() == []

    moved = control.move(name, 2)
    assert moved.ended() == ("completed", None), moved.text
    assert moved.record["rewritten"] == foreseen.record["rewritten"]
    changes = {(one["path"], one["before"], one["after"]): one["definitions"] for one in moved.record["rewritten"]}
    assert changes["devices[1]/interface[1]/source[1]/@bridge", "br0", BRIDGE] == ["live", "persistent"]
    address = lab.layout.host_address(lab.host(2))
    there = {"bridge": BRIDGE, "image": f"{FOLDER}/{name}.qcow2", "cpu": "1", "graphics": address, "listen": address}
    assert [names_in(one) for one in definitions_on(lab, name, 2)] == [there, there]
    assert lab.places(name) == {2: "running"}
    assert FOLDER in lab.on(2, "sh", "-c", f"tr '\\0' ' ' < /proc/$(cat /run/libvirt/qemu/{name}.pid)/cmdline")
    assert moved.record["request"]["networks"] == [{"type": "bridge", "source": BRIDGE}]

    home = control.task(2, "live_migrate", {"name": name, "destination": lab.host(1)})
    assert home.ended() == ("completed", None), home.text
    assert lab.places(name) == {1: "running"}
    assert definitions_on(lab, name, 1) == before


@pytest.mark.long
def test_a_transient_guest_gets_the_names_of_its_host(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = guest("passing", "--bridge", "br0", "--storage", "bindfs", "--mib", "64", "--transient")
    give_maps(control, maps_of(lab))
    moved = control.move(name, 2)
    assert moved.ended() == ("completed", None), moved.text
    assert {one["path"]: one["definitions"] for one in moved.record["rewritten"]} == {
        "devices[1]/disk[1]/source[1]/@file": ["live"],
        "devices[1]/interface[1]/source[1]/@bridge": ["live"],
    }
    assert f"bridge='{BRIDGE}'" in lab.virsh(2, "dumpxml", name)
    assert lab.info(name, 2)["Persistent"] == "no"


@pytest.mark.long
def test_post_copy_keeps_the_names_of_the_destination(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = guest("late", "--bridge", "br0", "--storage", "bindfs", "--mib", "96", "--dirty-mib", "64", "--rate", "6000")
    give_maps(control, maps_of(lab))
    running = control.begin_move(name, 2, post_copy=True, timeout_seconds=5, on_timeout="force_complete", **HELD)
    moved = running.wait()
    assert moved.ended() == ("completed", None), moved.text
    assert moved.record["result"]["mode"] == "post-copy"
    for definition in (lab.virsh(2, "dumpxml", name), lab.virsh(2, "dumpxml", name, "--inactive")):
        assert f"bridge='{BRIDGE}'" in definition
        assert f"{FOLDER}/{name}.qcow2" in definition


@contextlib.contextmanager
def untouched(lab: Lab, control: Control, name: str) -> t.Iterator[None]:
    """Check that a refusal moved and defined nothing, and changed no definition."""
    before, known = definitions_on(lab, name, 1), lab.places(name)
    yield
    assert definitions_on(lab, name, 1) == before
    assert lab.places(name) == known == {1: "running"}
    refused = [record for record in control.records() if record["status"] == "conflict"]
    assert all(record["status"] == "failed" for record in control.records() if record not in refused)
    assert not any(line["status"] == "scheduled" for record in refused for line in record["history"])


@pytest.mark.long
def test_what_the_maps_cannot_express_is_refused_before_anything_is_booked(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = make_named(lab, guest, "odd")
    maps = maps_of(lab)
    with untouched(lab, control, name):
        give_maps(control, {1: maps[1], 2: {**maps[2], "bridge": {"test": BRIDGE}}})
        for options in (["--check"], []):
            refused = control.move(name, 2, *options)
            assert refused.refused() == "not_supported", refused.text
            assert f"{lab.host(2)} has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on {lab.host(1)}." in refused.msg
        assert [record["status"] for record in control.records()] == ["conflict"]
        give_maps(control, {1: maps[1], 2: {**maps[2], "bridge": {"prod": "br-nowhere"}}})
        (refused,) = control.play(1, [("live_migrate", {"name": name, "destination": lab.host(2)})], *control.options, facts=True)
        assert refused["error_code"] == "conflict", refused
        assert "It has no bridge br-nowhere." in refused["msg"]
        give_maps(control, {1: maps[1], 2: {**maps[2], "bridge": {"prod": BRIDGE, "test": BRIDGE}}})
        invalid = control.move(name, 2)
        assert invalid.refused() == "invalid_argument"
        assert f"kvmfleet_bridge_map of {lab.host(2)} gives '{BRIDGE}' two names" in invalid.msg


@pytest.mark.long
def test_a_map_to_a_folder_with_other_files_is_refused(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = make_named(lab, guest, "other")
    maps = maps_of(lab)
    image = pathlib.Path(lab.layout.gluster_store / f"{name}.qcow2")
    lab.on(2, "sh", "-ec", f"mkdir -p /var/lib/libvirt/else; cp {image} /var/lib/libvirt/else/")
    give_maps(control, {1: maps[1], 2: {**maps[2], "image": {"fast": "/var/lib/libvirt/else"}}})
    with untouched(lab, control, name):
        (refused,) = control.play(1, [("live_migrate", {"name": name, "destination": lab.host(2)})], *control.options, facts=True)
        assert refused.get("error_code") == "conflict", refused
        assert "It is not proved that the image /var/lib/libvirt/else" in refused["msg"]
    lab.on(2, "rm", "-r", "/var/lib/libvirt/else")


@pytest.mark.long
def test_a_refusal_inside_the_call_leaves_guest_and_definitions_as_they_were(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    """Without facts of the destination nobody knows its bridges: only libvirt sees that the name leads nowhere."""
    name = make_named(lab, guest, "second-line")
    maps = maps_of(lab)
    give_maps(control, {1: maps[1], 2: {**maps[2], "bridge": {"prod": "br-nowhere"}}})
    with untouched(lab, control, name):
        refused = control.move(name, 2)
        assert refused.refused() == "migration_failed", refused.text
        assert "br-nowhere" in refused.msg
        assert refused.record["status"] == "failed"
        assert {one["after"] for one in refused.record["rewritten"]} >= {"br-nowhere"}
    give_maps(control, maps)
    assert control.move(name, 2).ended() == ("completed", None)


def test_libvirt_refuses_a_definition_that_would_show_the_guest_something_else(lab: Lab, control: Control, guest: Make) -> None:
    """No map can express this: it is what libvirt says inside the call to a definition with another network card."""
    name = make_named(lab, guest, "abi")
    uris = {number: f"qemu+tcp://{lab.layout.host_address(lab.host(number))}/system" for number in (1, 2)}
    host = open_host(uris[1])
    with untouched(lab, control, name), contextlib.closing(host):
        definition = host.read_movable_definition(lab.uuid(name), persistent=False)
        other = re.sub(r"<mac address='..", "<mac address='56", definition)
        assert other != definition
        with pytest.raises(KvmfleetError, match="network card mac"):
            host.migrate_domain(lab.uuid(name), uris[2], ["LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE"], {"destination_xml": other})
