# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet whose third host runs Debian 13: each machine runs its release and its libvirt.

The machines have only booted, so the playbook exchange_keys comes first. A guest moves to the newer QEMU; one that began there stays.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

VERSION = "virsh -q version --daemon"


@pytest.fixture
def other(fleet: Machines) -> t.Iterator[Machines]:
    """Return a second fleet, beside the one of all other scenarios."""
    other = Machines(f"{fleet.prefix}two")
    other("down")
    try:
        other("up", "--hosts", "3", "--release", "trixie:3", "--cold", seconds=3600)
        yield other
    finally:
        other("down")


def test_guests_move_only_to_the_newer_release_in_a_mixed_fleet(other: Machines, tmp_path: pathlib.Path) -> None:
    told = {row["machine"]: row["release"] for row in json.loads(other("status", "--json"))}
    assert told == {"m1": "bookworm", "m2": "bookworm", "m3": "trixie", "nfs": "bookworm"}
    assert {number: other.release(number) for number in other.numbers} == {1: "bookworm", 2: "bookworm", 3: "trixie"}
    older, newer = other.on(1, VERSION), other.on(3, VERSION)
    assert "Running against daemon: 9.0" in older, older
    assert "Running against daemon: 11.3" in newer, newer
    for name, host in (("new", "m3"), ("old", "m1")):
        other("guest", name, "--host", host, "--mib", "24")
    assert other.active() == {1: {"old"}, 2: set(), 3: {"new"}}

    site = Site(other, tmp_path)
    site.succeed("exchange_keys")
    refused = site.do(3, "live_migrate", name="new", destination="m1")
    assert refused.refused() == "conflict", refused.text
    assert "It does not have the machine type pc-i440fx-10.0" in refused.msg
    moved = site.do(1, "live_migrate", name="old", destination="m3")
    assert moved.code == 0, moved.text
    site.check_end_state(
        {1: set(), 2: set(), 3: {"new", "old"}}, ("new", "conflict", refused.record["reason"], "m3", "m1"), ("old", "completed", None, "m1", "m3")
    )
