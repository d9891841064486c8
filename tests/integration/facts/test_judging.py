# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a destination says of a guest that would come to it: its CPU, and the paths of its disks."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather
from ansible_collections.kvmfleet.migration.tests.integration.facts.conftest import Connect
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
PLATFORM = {"arch": "x86_64", "virt_type": "qemu", "machine": "pc"}
# A CPU that emulation cannot give whole, whose guest is given what there is of it.
TOO_MUCH = "<cpu mode='custom' match='exact' check='none'><model fallback='allow'>Skylake-Server</model></cpu>"


def needs_of(connect: Connect, name: str) -> dict[str, t.Any]:
    facts, _warnings = gather(connect(1))
    (found,) = [domain["request"] for domain in facts["domains"] if domain["name"] == name]
    return t.cast("dict[str, t.Any]", found)


def image_of(needs: t.Mapping[str, t.Any]) -> pathlib.PurePosixPath:
    return pathlib.PurePosixPath(needs["disks"][0]["source"])


def test_a_guest_s_own_cpu_is_one_that_its_twin_can_give(connect: Connect, guest: Make) -> None:
    needs = needs_of(connect, guest("web", "--mib", "32"))
    assert connect(2).compare_cpu(needs, needs["cpu"]["xml"]) == {"passed": True, "reason": None}


def test_features_that_are_missing_are_named(connect: Connect) -> None:
    verdict = connect(2).compare_cpu(PLATFORM, TOO_MUCH)
    assert verdict["passed"] is False
    assert "avx512f" in verdict["reason"]
    plain = connect(2).compare_cpu(PLATFORM, "<cpu><model>qemu64</model><feature policy='require' name='avx512f'/></cpu>")
    assert plain == {"passed": False, "reason": "its CPU lacks avx512f"}


def test_a_guest_needs_what_it_was_given_and_not_what_was_asked_for(lab: Lab, connect: Connect, guest: Make) -> None:
    guest("sky", "--mib", "32", "--off")
    xml = re.sub("(?s)<cpu.*?(</cpu>|/>)", "", lab.virsh(1, "dumpxml", "--inactive", "sky"), count=1)
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=xml.replace("<devices>", f"{TOO_MUCH}<devices>"))
    lab.virsh(1, "start", "sky")
    needs = needs_of(connect, "sky")
    assert needs["cpu"]["features"]["avx512f"] == "disable"
    assert connect(2).compare_cpu(needs, needs["cpu"]["xml"])["passed"] is True


def test_a_destination_that_does_not_know_the_machine_type_gives_no_verdict(connect: Connect) -> None:
    with pytest.raises(KvmfleetError, match="pc-i440fx-99"):
        connect(2).compare_cpu({**PLATFORM, "machine": "pc-i440fx-99"}, "<cpu><model>qemu64</model></cpu>")


def test_paths_that_are_there_and_paths_that_are_not(lab: Lab, connect: Connect, guest: Make) -> None:
    shared = image_of(needs_of(connect, guest("web", "--mib", "32", "--storage", "shared")))
    alone = image_of(needs_of(connect, guest("alone", "--mib", "32", "--storage", "local")))
    there = connect(2)
    before = lab.virsh(2, "pool-list", "--all")
    assert there.has_path(str(shared)) is True
    assert there.has_path(str(shared.with_name("missing.qcow2"))) is False
    assert there.has_path(str(alone)) is False
    assert there.has_path("/nonexistent/folder/a.qcow2") is False
    assert connect(1).has_path(str(alone)) is True
    assert lab.virsh(2, "pool-list", "--all") == before


def test_what_cannot_be_told_of_a_path(connect: Connect) -> None:
    assert connect(2).has_path("/dev/nonexistent") is None
    assert connect(2).has_path("relative.qcow2") is None


def test_a_destination_that_goes_away_is_an_error(lab: Lab, connect: Connect) -> None:
    there = connect(2)
    lab("libvirtd", lab.host(2), "restart")
    with pytest.raises(Unreachable):
        there.has_path("/srv/a.qcow2")
