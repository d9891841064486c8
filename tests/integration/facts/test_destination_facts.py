# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer of a destination about a guest: its CPU, and the paths of its disks."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey import compare_cpu
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import GuestPlatform
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.tests.integration.facts.conftest import Connect
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
PLATFORM = GuestPlatform("x86_64", "qemu", "pc")
# A CPU that emulation cannot give whole, whose guest is given what there is of it.
TOO_MUCH = "<cpu mode='custom' match='exact' check='none'><model fallback='allow'>Skylake-Server</model></cpu>"


def needs_of(connect: Connect, name: str) -> DomainRequest:
    facts, _warnings = gather_facts(connect(1))
    (found,) = [domain.needs for domain in facts.domains or () if domain.name == name]
    assert found
    return found


def verdict_on(connect: Connect, needs: DomainRequest) -> t.Optional[CpuVerdict]:
    return compare_cpu(connect(2), needs)


def image_of(needs: DomainRequest) -> pathlib.PurePosixPath:
    return pathlib.PurePosixPath(encode(needs)["disks"][0]["source"])


def test_the_cpu_of_a_guest_passes_on_an_identical_host(connect: Connect, guest: Make) -> None:
    needs = needs_of(connect, guest("web", "--mib", "32"))
    assert verdict_on(connect, needs) == CpuVerdict(True, None)


def test_missing_cpu_features_are_named(connect: Connect) -> None:
    verdict = connect(2).compare_cpu(PLATFORM, TOO_MUCH)
    assert verdict.passed is False
    assert "avx512f" in str(verdict.reason)
    plain = connect(2).compare_cpu(PLATFORM, "<cpu><model>qemu64</model><feature policy='require' name='avx512f'/></cpu>")
    assert plain == CpuVerdict(False, "its CPU lacks avx512f")


def test_a_running_guest_needs_the_cpu_features_it_got_and_not_those_requested(lab: Lab, connect: Connect, guest: Make) -> None:
    guest("sky", "--mib", "32", "--off")
    xml = re.sub("(?s)<cpu.*?(</cpu>|/>)", "", lab.virsh(1, "dumpxml", "--inactive", "sky"), count=1)
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=xml.replace("<devices>", f"{TOO_MUCH}<devices>"))
    lab.virsh(1, "start", "sky")
    needs = needs_of(connect, "sky")
    assert encode(needs)["cpu"]["features"]["avx512f"] == "disable"
    assert verdict_on(connect, needs) == CpuVerdict(True, None)


def test_a_destination_that_does_not_know_the_machine_type_gives_no_verdict(connect: Connect) -> None:
    with pytest.raises(KvmfleetError, match="pc-i440fx-99"):
        connect(2).compare_cpu(dataclasses.replace(PLATFORM, machine="pc-i440fx-99"), "<cpu><model>qemu64</model></cpu>")


def test_has_path_finds_existing_paths_and_starts_no_pool(lab: Lab, connect: Connect, guest: Make) -> None:
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


def test_has_path_is_unknown_for_devices_and_relative_paths(connect: Connect) -> None:
    assert connect(2).has_path("/dev/nonexistent") is None
    assert connect(2).has_path("relative.qcow2") is None


def test_has_path_on_a_lost_connection_is_unreachable(lab: Lab, connect: Connect) -> None:
    there = connect(2)
    lab("libvirtd", lab.host(2), "restart")
    with pytest.raises(Unreachable):
        there.has_path("/srv/a.qcow2")
