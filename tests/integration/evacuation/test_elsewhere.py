# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger does not agree with the fleet: moves outside it, disks that only the dead host had, domains without protection."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]
CARD = "<interface type='network'><source network='front'/><model type='virtio'/></interface>"
MIGRATE = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--unsafe")


@contextlib.contextmanager
def networks(lab: Lab, bridges: t.Mapping[int, t.Sequence[str]]) -> t.Iterator[None]:
    """Give hosts these bridges, and a network on the first one of each. That of a host without bridges is isolated."""
    # A host that was off at the end of a scenario has kept them.
    _remove_networks(lab, bridges)
    for number, names in bridges.items():
        for name in names:
            lab.on(number, "ip", "link", "add", name, "type", "bridge")
            lab.on(number, "ip", "link", "set", name, "up")
        connected = f"<forward mode='bridge'/><bridge name='{names[0]}'/>" if names else "<bridge name='virbr77'/>"
        xml = f"<network><name>front</name>{connected}</network>"
        lab("virsh", lab.host(number), "net-define", "/dev/stdin", stdin=xml)
        lab.virsh(number, "net-start", "front")
    try:
        yield
    finally:
        _remove_networks(lab, bridges)


def _remove_networks(lab: Lab, bridges: t.Mapping[int, t.Sequence[str]]) -> None:
    for number, names in bridges.items():
        for verb in ("net-destroy", "net-undefine"):
            lab.try_("virsh", lab.host(number), verb, "front")
        for name in names:
            lab.try_("exec", lab.host(number), "--", "ip", "link", "delete", name)


def move_by_hand(site: Site, guest: str, source: int, destination: int) -> None:
    site.lab.virsh(source, *MIGRATE, guest, f"qemu+tcp://{site.lab.host(destination)}/system")


@pytest.mark.long
def test_a_guest_that_was_moved_away_by_hand_is_not_started_again(site: Site, guest: Make) -> None:
    guest("web")
    guest("app")
    site.protect()
    move_by_hand(site, "web", 1, 3)
    site.lose(1)
    done = site.evacuate(2)
    assert "web" in done.warnings, done.text
    assert site.fleet() == {2: {"app"}, 3: {"web"}}
    assert [line[:2] for line in site.record_summaries() if line[1] not in ("conflict", "failed")] == [("app", "done")]


@pytest.mark.long
def test_a_guest_moved_to_the_dead_host_by_hand_is_unaccounted_and_not_started(site: Site, guest: Make) -> None:
    guest("web", on=3)
    guest("app")
    site.protect()
    move_by_hand(site, "web", 3, 1)
    site.lose(1)
    done = site.evacuate(2)
    assert done.code == 0, done.text
    assert "web" in str(done.result["unaccounted"])
    assert site.fleet() == {2: {"app"}, 3: set()}
    assert site.lab.places("web") == {}
    site.bring_back(1)
    site.lab.virsh(1, "start", "web")
    assert site.clean().code == 0
    assert site.fleet() == {1: {"web"}, 2: {"app"}, 3: set()}


@pytest.mark.long
def test_domains_with_disks_of_the_dead_host_alone_wait_for_its_return(site: Site, guest: Make) -> None:
    guest("web")
    guest("local", storage="local")
    site.protect()
    site.lose(1)
    done = site.evacuate(2, 1, "--check")
    assert "local" in str(done.result["lost_until_return"]), done.text
    done = site.evacuate(2)
    assert "local" in str(done.result["lost_until_return"]), done.text
    assert site.fleet() == {2: {"web"}, 3: set()}
    assert site.lab.places("local") == {}
    forced = site.evacuate(2, domains=["local"], force=True)
    assert forced.code != 0, forced.text
    assert site.lab.places("local") == {}
    site.bring_back(1)
    assert site.clean().code == 0
    assert site.has_definition("local", 1)
    site.lab.virsh(1, "start", "local")
    assert site.fleet() == {1: {"local"}, 2: {"web"}, 3: set()}


@pytest.mark.long
def test_a_host_without_capacity_is_used_only_with_force(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    full = ("-e", json.dumps({"kvmfleet_scheduler": {"reserved_memory_mib": 100_000_000}}))
    refused = site.evacuate(2, 1, *full)
    assert (refused.code != 0, "memory" in refused.msg) == (True, True), refused.text
    site.check_end_state({2: [], 3: []}, site.line("web", "conflict", 1, 2))
    forced = site.evacuate(2, 1, *full, force=True)
    assert forced.code == 0, forced.text
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "conflict", 1, 2), site.line("web", "done", 1, 2))
    (record,) = (record for record in site.records() if record["status"] == "done")
    assert record["forced"] == "FORCED_REBUILD"
    assert "memory" in str(record["history"])


@pytest.mark.long
def test_an_unprotected_domain_is_left_alone_by_evacuation_and_cleanup(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    guest("late")
    site.lose(1)
    assert site.evacuate(2).code == 0
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
    site.bring_back(1)
    cleaned = site.clean()
    assert cleaned.code == 0, cleaned.text
    assert site.has_definition("late", 1)
    assert not site.has_definition("web", 1)
    site.check_end_state({1: [], 2: ["web"], 3: []}, site.line("web", "completed", 1, 2))


@pytest.mark.long
def test_a_transient_guest_is_started_on_its_network_and_not_on_a_bridge_of_that_name(site: Site, guest: Make) -> None:
    """The network has another bridge on each host, and the name of the first one is that of another network's on the second."""
    guest("passing", "--transient")
    with networks(site.lab, {1: ("br-one",), 2: ("br-two", "br-one")}):
        xml = site.lab.virsh(1, "dumpxml", "--security-info", "--migratable", "passing").replace("</devices>", f"{CARD}</devices>")
        site.lab.virsh(1, "destroy", "passing")
        site.lab("virsh", site.lab.host(1), "create", "/dev/stdin", stdin=xml)
        site.protect()
        site.lose(1)
        done = site.evacuate(2)
        assert done.code == 0, done.text
        assert "bridge='br-two'" in site.lab.virsh(2, "dumpxml", "passing")
        site.lab.virsh(2, "destroy", "passing")


@pytest.mark.long
def test_a_guest_is_not_started_on_an_isolated_network_of_that_name(site: Site, guest: Make) -> None:
    """libvirt would start it there, and it would reach nobody."""
    guest("web", "--off")
    xml = site.lab.virsh(1, "dumpxml", "--inactive", "--security-info", "web").replace("</devices>", f"{CARD}</devices>")
    site.lab("virsh", site.lab.host(1), "define", "/dev/stdin", stdin=xml)
    with networks(site.lab, {1: ("br-one",), 2: (), 3: ("br-one",)}):
        site.lab.virsh(1, "start", "web")
        site.protect()
        assert not site.changes_by_protecting()
        site.lose(1)
        refused = site.evacuate(2)
        assert (refused.code != 0, "isolated" in refused.msg) == (True, True), refused.text
        done = site.evacuate(3)
        assert done.code == 0, done.text
        site.check_end_state({2: [], 3: ["web"]}, site.line("web", "conflict", 1, 2), site.line("web", "done", 1, 3))


@pytest.mark.long
def test_domains_are_started_in_their_saved_state_or_in_the_state_of_the_task(site: Site, guest: Make) -> None:
    guest("web")
    guest("held", "--paused")
    guest("idle", "--off")
    guest("passing", "--transient")
    site.protect()
    site.lose(1)
    assert site.evacuate(2, domains=["held", "idle", "passing"]).code == 0
    assert site.fleet() == {2: {"held (paused)", "passing"}, 3: set()}
    assert site.lab.info("passing", 2)["Persistent"] == "no"
    assert site.lab.places("idle") == {2: "shut off"}
    assert site.evacuate(2, domains=["web"], state="defined").code == 0
    assert site.lab.places("web") == {2: "shut off"}
    site.bring_back(1)
    cleaned = site.clean()
    assert cleaned.code == 0, cleaned.text
    assert not any(site.has_definition(name, 1) for name in ("web", "held", "idle", "passing"))
    assert {line[1] for line in site.record_summaries()} == {"completed"}
