# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the stream itself, with figures that only a move that used them can show."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

from .conftest import WEB, Disks

MIB = 1024**2
Make = t.Callable[..., str]


@pytest.fixture
def busy(guest: Make) -> str:
    """A guest of 128 MiB that writes to 48 MiB of them over and over."""
    return guest("busy", "--mib", "128", "--dirty-mib", "48", "--rate", "500", "--integrity")


def arrived(lab: Lab, name: str) -> bool:
    """Whether the guest runs on the second host alone, with its memory whole."""
    return lab.places(name) == {2: "running"} and lab.try_("check", name).returncode == 0


def seconds(record: t.Mapping[str, t.Any]) -> float:
    return float(record["result"]["elapsed_ms"] / 1000)


@pytest.mark.long
def test_a_bandwidth_cap_limits_the_speed_of_the_move(lab: Lab, control: Control, busy: str) -> None:
    record = control.move(busy, transport="tcp", bandwidth_mib=16).record
    assert record["status"] == "completed"
    # 48 MiB are full, the rest is zero pages that take no room.
    assert seconds(record) > 0.6 * 48 / 16
    assert max(sample["bandwidth_bytes"] for sample in record["samples"]) < 2 * 16 * MIB
    assert arrived(lab, busy)


@pytest.mark.long
def test_a_bandwidth_cap_limits_copied_disks_too(lab: Lab, control: Control, disks: Disks, web: str) -> None:
    record = control.move(web, transport="tcp", copy_storage="auto", bandwidth_mib=16).record
    assert record["status"] == "completed"
    assert seconds(record) > 0.6 * record["progress"]["disk_total_bytes"] / (16 * MIB)
    assert disks.content(WEB, 2) == disks.content(WEB, 1)


@pytest.mark.parametrize("options", [{"parallel_connections": 4}, pytest.param({"compression": "xbzrle"}, marks=pytest.mark.long)], ids=["parallel", "xbzrle"])
def test_memory_arrives_intact_with_parallel_connections_or_compression(lab: Lab, control: Control, busy: str, options: dict[str, t.Any]) -> None:
    outcome = control.move(busy, transport="tcp", **options)
    assert outcome.ended() == ("completed", None), outcome.text
    assert outcome.record["result"]["bytes"] > 40 * MIB
    assert arrived(lab, busy)


@pytest.mark.long
def test_post_copy_has_its_own_bandwidth_cap(lab: Lab, control: Control, busy: str) -> None:
    options: dict[str, t.Any] = {"post_copy": True, "on_timeout": "force_complete", "timeout_seconds": 2, **HELD}
    outcome = control.move(busy, transport="tcp", post_copy_bandwidth_mib=8, **options)
    assert outcome.ended() == ("completed", None), outcome.text
    assert outcome.record["result"]["mode"] == "post-copy"
    # More than 40 MiB were left at the switch; without the second cap they come over in a fraction of a second.
    assert seconds(outcome.record) > 3.5
    assert arrived(lab, busy)


@pytest.mark.long
@pytest.mark.parametrize(("post_copy", "modes"), [(True, ["post-copy", "pre-copy"]), (False, ["pre-copy", "paused"])])
def test_a_move_is_forced_only_after_its_disks_are_copied(lab: Lab, control: Control, disks: Disks, web: str, post_copy: bool, modes: list[str]) -> None:
    """The limit falls into the copying of the disk; the guest is not stopped for that. Its memory may well be over before it is switched."""
    options: dict[str, t.Any] = {"post_copy": post_copy, "on_timeout": "force_complete", "timeout_seconds": 1, "bandwidth_mib": 16}
    outcome = control.move(web, transport="tcp", copy_storage="auto", force_suspend_seconds=1, **options)
    assert outcome.ended() == ("completed", None), outcome.text
    assert outcome.record["result"]["mode"] in modes
    # On a busy machine, a post-copy can be over before anyone has asked how long the guest stood still.
    downtime_ms = outcome.record["result"]["downtime_ms"]
    assert (downtime_ms is None and outcome.record["result"]["mode"] == "post-copy") or downtime_ms < 10_000
    assert disks.content(WEB, 2) == disks.content(WEB, 1)
    assert lab.places(web) == {2: "running"}


@pytest.mark.long
def test_a_paused_guest_moves_with_post_copy_options(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("still", "--mib", "64", "--dirty-mib", "16", "--paused")
    outcome = control.move(name, transport="tcp", post_copy=True, post_copy_bandwidth_mib=8)
    assert outcome.ended() == ("completed", None), outcome.text
    assert lab.places(name) == {2: "paused"}


# The versions of the hosts decide about the first; the others are bad input, which leaves no record.
REFUSED = [
    ({"post_copy": True, "parallel_connections": 2}, "the guest is lost", ["conflict"]),
    pytest.param({"post_copy_bandwidth_mib": 8}, "works only together with post_copy", [], marks=pytest.mark.long),
    pytest.param({"compression": "xbzrle", "parallel_connections": 2}, "cannot be combined with compression xbzrle", [], marks=pytest.mark.long),
    pytest.param({"compression": "zstd"}, "works only together with parallel_connections", [], marks=pytest.mark.long),
    pytest.param({"copy_storage_overwrite": ["vda"]}, "works only together with copy_storage", [], marks=pytest.mark.long),
]


@pytest.mark.parametrize(("options", "words", "statuses"), REFUSED)
def test_options_that_exclude_each_other_are_refused(
    lab: Lab, control: Control, guest: Make, options: dict[str, t.Any], words: str, statuses: list[str]
) -> None:
    name = guest("idle", "--mib", "64")
    outcome = control.move(name, transport="tcp", **options)
    assert outcome.refused() == "not_supported"
    assert words in " ".join(outcome.msg.split())
    assert lab.places(name) == {1: "running"}
    assert [record["status"] for record in control.records()] == statuses


def test_compression_on_a_libvirt_that_is_too_old_is_refused(lab: Lab, control: Control, guest: Make) -> None:
    version = tuple(int(part) for part in lab.virsh(1, "version", "--daemon").split("API: QEMU")[0].split("libvirt ")[1].split()[0].split("."))
    name = guest("idle", "--mib", "64")
    outcome = control.move(name, transport="tcp", compression="zstd", parallel_connections=2)
    if version >= (9, 4, 0):
        assert outcome.ended() == ("completed", None), outcome.text
    else:
        assert outcome.refused() == "not_supported"
        assert "compression zstd needs libvirt 9.4.0 on both hosts" in outcome.msg
