# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A destination whose QEMU or processor is older than the source's. Its libvirt believes so itself, so that it would refuse, too."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_refused, reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Believe = t.Callable[..., None]
MACHINE = "pc-i440fx-7.2"
OLDER = "pc-i440fx-7.1"


@pytest.mark.long
def test_a_host_without_the_machine_type_is_refused_even_with_force(lab: Lab, control: Desk, web: str, believing: Believe) -> None:
    believing(2, "--without-machine", MACHINE, "--qemu", "6.2.0")
    by_libvirt = lab.try_("virsh", lab.host(1), "migrate", "--live", "--p2p", "--persistent", web, f"qemu+tcp://{lab.host(2)}/system")
    assert by_libvirt.returncode != 0
    assert MACHINE in by_libvirt.stderr
    check_refused(lab, control, control.move(web), web, MACHINE, OLDER, "6.2.0", lab.host(2))
    forced = control.move(web, force=True)
    check_refused(lab, control, forced, web, MACHINE)
    assert "6.2.0" not in forced.msg
    assert set(reasons(control.check(name=web).result, lab.host(2))) == {"machine_type", "hypervisor"}


@pytest.mark.long
def test_a_host_without_a_cpu_feature_is_refused_even_with_force(lab: Lab, control: Desk, web: str, believing: Believe) -> None:
    believing(2, "--without-feature", "cx16")
    check_refused(lab, control, control.move(web), web, "cx16", lab.host(2))
    check_refused(lab, control, control.move(web, force=True), web, "cx16")
    assert set(reasons(control.check(name=web).result, lab.host(2))) == {"cpu_model"}
    check_moved(lab, control.move(web, None), web, 3)


@pytest.mark.long
def test_a_host_with_an_older_qemu_is_refused_unless_forced(lab: Lab, control: Desk, web: str, believing: Believe) -> None:
    believing(2, "--qemu", "7.2.1")
    seen = control.check(2, name=web)
    assert seen.code == 0, seen.text
    assert "7.2.1" in " ".join(verdict(seen.result, lab.host(2))["warnings"])
    believing(2, "--qemu", "6.2.0")
    check_refused(lab, control, control.move(web), web, "6.2.0", "7.2")
    check_moved(lab, control.move(web, force=True), web, 2)
