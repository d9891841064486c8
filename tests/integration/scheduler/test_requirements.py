# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks, devices and the CPU that a guest needs: a host without them is refused, with all reasons at once."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support import fittings
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_refused, check_untouched, reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
Remake = t.Callable[..., str]
Add = t.Callable[[Lab, int], None]
SMALL = ("--mib", "48", "--dirty-mib", "8", "--rate", "500", "--integrity")
END = "  </devices>"


@pytest.fixture
def fitted(lab: Lab, remade: Remake) -> str:
    """A guest with cards in a bridge and in a network, and with an image in its drive. The third host has all that, too; the second an inactive network."""
    for number in (1, 3):
        fittings.add_bridge(lab, number)
        fittings.add_network(lab, number)
        fittings.add_image(lab, number)
    fittings.add_network(lab, 2, active=False)
    return remade("fitted", parts={END: fittings.CARDS + fittings.DRIVE + END})


@pytest.fixture(autouse=True)
def as_before(lab: Lab, nothing_else_moves: None) -> t.Iterator[None]:
    """Set up before the guests, so undone after them."""
    yield
    for number in (1, 2, 3):
        fittings.remove_all(lab, number)


def test_every_missing_network_bridge_and_image_of_a_host_is_named(lab: Lab, control: Desk, fitted: str) -> None:
    seen = control.play(1, [("scheduler_check", {"name": fitted})], facts=True)[0]
    found = reasons(seen, lab.host(2))
    assert set(found) == {"storage", "networks"}, found
    assert fittings.ISO in found["storage"]
    assert fittings.BRIDGE in found["networks"]
    assert fittings.NETWORK in found["networks"]
    assert seen.get("selected") == lab.host(3), seen
    refused = control.play(1, [("live_migrate", {"name": fitted, "destination": lab.host(2)})], facts=True)[0]
    assert (refused["error_code"], refused["migrations"][0]["status"]) == ("conflict", "conflict")
    for text in (fittings.ISO, fittings.BRIDGE, fittings.NETWORK):
        assert text in refused["msg"]
    check_untouched(lab, fitted)


def check_network(lab: Lab, control: Desk, remade: Remake, own: str, other: str, card: str, word: str) -> None:
    """Require that a guest with that card, on a network of one definition, is refused by the second host, which has another one, and moves to the third."""
    for number, definition in ((1, own), (2, other), (3, own)):
        fittings.add_bridge(lab, number)
        fittings.add_network(lab, number, definition=definition)
    name = remade("connected", parts={END: card + END})
    check_refused(lab, control, control.move(name, 2), name, fittings.NETWORK, word)
    check_moved(lab, control.move(name, None), name, 3)


@pytest.mark.long
def test_a_network_without_the_port_group_of_the_guest_is_refused(lab: Lab, control: Desk, remade: Remake) -> None:
    """libvirt itself would connect the guest without it."""
    check_network(lab, control, remade, fittings.GROUPED, fittings.DEFINITION, fittings.GROUPED_CARD, fittings.PORT_GROUP)


@pytest.mark.long
def test_a_network_without_a_default_port_group_is_refused(lab: Lab, control: Desk, remade: Remake) -> None:
    """An interface that names no group belongs to the default one."""
    check_network(lab, control, remade, fittings.DEFAULTED, fittings.GROUPED, fittings.NETWORK_CARD, fittings.PORT_GROUP)


@pytest.mark.long
def test_a_network_of_that_name_and_another_kind_is_refused(lab: Lab, control: Desk, remade: Remake) -> None:
    """libvirt itself would connect the guest, and it would reach nobody."""
    check_network(lab, control, remade, fittings.DEFINITION, fittings.ISOLATED, fittings.NETWORK_CARD, "isolated")


def check_missing(lab: Lab, control: Desk, remade: Remake, add_other: Add, add_needed: Add, part: str, needed: str) -> None:
    """Require that a guest with that part is refused by the second host, which alone lacks what it needs, and moves to the third."""
    for number in (1, 2, 3):
        add_other(lab, number)
    for number in (1, 3):
        add_needed(lab, number)
    name = remade("equipped", parts={END: part + END})
    check_refused(lab, control, control.move(name, 2), name, needed)
    check_moved(lab, control.move(name, None), name, 3)


@pytest.mark.long
def test_a_host_without_the_network_filter_of_the_guest_is_refused(lab: Lab, control: Desk, remade: Remake) -> None:
    check_missing(lab, control, remade, fittings.add_bridge, fittings.add_filter, fittings.FILTERED_CARD, fittings.FILTER)


@pytest.mark.long
def test_a_host_without_the_secret_of_the_guest_is_refused(lab: Lab, control: Desk, remade: Remake) -> None:
    check_missing(lab, control, remade, fittings.add_locked_image, fittings.add_secret, fittings.LOCKED_DISK, fittings.SECRET)


@pytest.mark.long
def test_a_host_without_facts_is_refused_by_what_libvirt_reports_remotely(lab: Lab, control: Desk, fitted: str) -> None:
    """Without facts of this run: libvirt knows networks and images; a bridge that nothing tells of is at most a warning."""
    check_refused(lab, control, control.move(fitted, 2), fitted, fittings.ISO, fittings.NETWORK)
    check_moved(lab, control.move(fitted, None), fitted, 3)


@pytest.mark.long
def test_a_host_without_the_image_of_a_disk_is_refused_even_with_unsafe(lab: Lab, control: Desk, guest: Make) -> None:
    name = guest("stored", *SMALL, "--storage", "shared")
    image = lab.virsh(1, "domblklist", name, "--details").split()[-1]
    with fittings.hidden(lab, 2, str(pathlib.PurePosixPath(image).parent)):
        check_refused(lab, control, control.move(name, 2, unsafe=True), name, image, lab.host(2))
        seen = control.check(2, 3, name=name)
        assert set(reasons(seen.result, lab.host(2))) == {"storage"}, seen.text
        assert image in " ".join(verdict(seen.result, lab.host(3))["warnings"])
    # It is there, but no kind of storage that is proved to be shared: still not without the confirmation of a person.
    assert control.move(name, 2).refused() == "unsafe"
    check_moved(lab, control.move(name, 2, unsafe=True), name, 2)


@pytest.mark.long
def test_hosts_without_the_pinned_cpu_are_refused(lab: Lab, control: Desk, remade: Remake) -> None:
    name = remade("wide", parts={"</vcpu>": "</vcpu><cputune><vcpupin vcpu='0' cpuset='0,7'/></cputune>"})
    done = control.move(name, None)
    check_refused(lab, control, done, name, "7", lab.host(2), lab.host(3))
    assert set(reasons(control.check(2, name=name).result, lab.host(2))) == {"numa"}


@pytest.mark.long
def test_a_host_whose_pinned_cpu_is_dedicated_to_another_guest_is_refused(lab: Lab, control: Desk, guest: Make) -> None:
    here, there = guest("here", *SMALL), guest("there", *SMALL, on=2)
    for name, on in ((here, 1), (there, 2)):
        lab.virsh(on, "vcpupin", name, "0", "1", "--live", "--config")
    check_refused(lab, control, control.move(here, 2), here, "CPU 1", there)
    lab.virsh(2, "vcpupin", there, "0", "0", "--live", "--config")
    check_moved(lab, control.move(here, 2), here, 2)
