# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook C(fleet_check) on three hosts: it ends with 0 if any of them can be lost, and with 2 if a guest or a host needs a person."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Believe = t.Callable[..., None]
Remake = t.Callable[..., str]
MET, NOT_MET = 0, 2
# The scenario protects no host.
IGNORED = ["protection"]


def check(control: Desk, **variables: t.Any) -> tuple[int, str]:
    process = control.popen(control.playbook_command("fleet_check", {"fleet_check_ignore": IGNORED, **variables}))
    text = process.communicate(timeout=300)[0]
    return process.returncode, " ".join(text.split())


@pytest.mark.long
def test_a_fleet_whose_hosts_are_equal_can_lose_any_of_them(lab: Lab, control: Desk, web: str) -> None:
    code, text = check(control)
    assert code == MET, text
    assert "The fleet can lose any host." in text
    assert f"can be lost alone: {lab.host(1)}, {lab.host(2)}, {lab.host(3)}" in text
    assert f"{web}: 3 of 3 hosts" in text
    assert f"for {lab.host(1)}, {lab.host(2)}, {lab.host(3)}" in text
    assert "never protected" in text
    assert check(control, fleet_check_hosts_lost=2)[0] == MET


def test_a_guest_with_a_feature_that_others_lack_is_named(lab: Lab, control: Desk, web: str, believing: Believe) -> None:
    believing(2, "--without-feature", "cx16")
    believing(3, "--without-feature", "cx16")
    code, text = check(control)
    assert code == NOT_MET, text
    assert f"cannot be lost alone: {lab.host(1)}" in text
    assert f"can be lost alone: {lab.host(2)}, {lab.host(3)}" in text
    assert f"blocked on {lab.host(2)}, {lab.host(3)} by cpu_model: According to libvirt's comparison" in text
    assert "use CPU features that not all hosts have: cx16." in text
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_a_guest_of_host_model_can_start_on_a_host_with_a_lesser_cpu(lab: Lab, control: Desk, web: str, remade: Remake, believing: Believe) -> None:
    """It cannot move there, but a start gives it a CPU of that host. The other guest asks for the CPU that it has."""
    asked = "<cpu mode='custom' match='exact' check='none'>\n    <model fallback='forbid'>qemu64</model>\n  </cpu>"
    name = remade("anew", parts={asked: "<cpu mode='host-model'/>"})
    believing(2, "--without-feature", "cx16")
    believing(3, "--without-feature", "cx16")
    code, text = check(control)
    assert code == NOT_MET, text
    assert f"{web} of {lab.host(1)}, 64 MiB: {lab.host(2)}, {lab.host(3)}: According to libvirt's comparison" in text
    assert f"{name} of {lab.host(1)}" not in text
    assert f"{name}: 1 of 3 hosts; blocked on {lab.host(2)}, {lab.host(3)} by cpu_model: According to libvirt's comparison" in text
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_another_mtu_and_a_silent_host_are_found(lab: Lab, control: Desk, stopped: t.Callable[[int], None]) -> None:
    lab.on(3, "ip", "link", "set", "br0", "mtu", "1400")
    try:
        code, text = check(control)
        assert code == NOT_MET, text
        assert f"The MTU of br0 differs: 1500 on {lab.host(1)}, {lab.host(2)}; 1400 on {lab.host(3)}." in text
        assert check(control, fleet_check_ignore=[*IGNORED, "network"])[0] == MET
    finally:
        lab.on(3, "ip", "link", "set", "br0", "mtu", "1500")
    stopped(3)
    code, text = check(control)
    assert code == NOT_MET, text
    assert f"{lab.host(3)} did not answer" in text
    assert f"can be lost alone: {lab.host(1)}, {lab.host(2)}" in text
    assert f"not known whether it can be lost alone: {lab.host(3)}" in text


def test_fence_devices_that_would_fail_an_evacuation_are_found(lab: Lab, control: Desk, tmp_path: pathlib.Path) -> None:
    of_lab = agents.of_the_lab(tmp_path)
    another = agents.write(tmp_path, "fence_another", agents.SAYS_OFF)
    for number, agent, plug in ((1, another, "1"), (2, of_lab, "no-such-host"), (3, of_lab, lab.host(3))):
        control.variables(number, kvmfleet_fencing={"agent": agent, "options": {"plug": plug}})
    code, text = check(control)
    assert code == NOT_MET, text
    assert f"{another} of {lab.host(1)} reports it as off, and {lab.host(1)} answers: it is probably the device of another machine." in text
    assert f"{of_lab} of {lab.host(2)} does not report a power state: status exited with" in text
    assert f"of {lab.host(3)}" not in text
    assert check(control, fleet_check_ignore=[*IGNORED, "fencing"])[0] == MET


def test_a_host_whose_new_ssh_key_another_host_does_not_accept_is_found(lab: Lab, control: Desk, web: str) -> None:
    """It was installed anew. The control node has its new key, and in an evacuation its silence would forbid every start on that host."""
    for number in (1, 2, 3):
        control.variables(number, kvmfleet_transport="ssh")
    assert check(control)[0] == MET
    config = lab.path(1, "/etc/ssh/ssh_config")
    before = config.read_text()
    known = re.search(r"UserKnownHostsFile (\S+)", before)
    assert known
    keys = pathlib.Path(known[1]).read_text().splitlines()
    mine = config.parent / "known_hosts_of_kvm1"
    address = lab.rows()[lab.host(3)]["address"]
    mine.write_text("".join(f"{line}\n" for line in keys if not {address, lab.host(3)} & set(line.split()[0].split(","))))
    config.write_text(before.replace(known[1], "/etc/ssh/known_hosts_of_kvm1"))
    try:
        code, text = check(control)
    finally:
        config.write_text(before)
        mine.unlink()
    assert code == NOT_MET, text
    assert f"{lab.host(1)} cannot ask libvirt on {lab.host(3)}." in text, text
    assert f"cannot ask libvirt on {lab.host(2)}" not in text
    assert "Host key verification failed" in text
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_an_invalid_uri_of_one_host_is_a_finding_about_it(lab: Lab, control: Desk, web: str) -> None:
    control.variables(3, kvmfleet_libvirt_uri=lab.host(3))
    code, text = check(control)
    assert code == NOT_MET, text
    assert f"cannot ask libvirt on {lab.host(3)}." in text, text
    assert f"kvmfleet_libvirt_uri of {lab.host(3)} is '{lab.host(3)}', which is not a libvirt URI" in text, text
    assert lab.places(web) == {1: "running"}
