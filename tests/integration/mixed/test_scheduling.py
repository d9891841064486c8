# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of hosts of two releases, and the verdicts of the scheduler about them."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


def test_hosts_report_versions_machine_types_and_traits(control: m.Mixed) -> None:
    old, new = control.facts(m.OLD), control.facts(m.NEW)
    assert old["versions"]["libvirt"] < 9_004_000 < 11_001_000 <= new["versions"]["libvirt"] < 11_004_000
    assert old["versions"]["hypervisor"] < 8_000_000 <= new["versions"]["hypervisor"] < 10_001_000
    assert [m.NEW_MACHINE in machines(facts) for facts in (old, new)] == [False, True]
    assert [m.OLD_MACHINE in machines(facts) for facts in (old, new)] == [True, True]
    for facts in (old, new):
        assert sorted(facts["traits"]) == ["COMPUTE_MIGRATE_AUTO_CONVERGE", "COMPUTE_MIGRATE_POST_COPY"]


def machines(facts: dict[str, t.Any]) -> set[str]:
    return {machine for platform in facts["platforms"] for machine in platform["machines"]}


def test_a_guest_with_a_newer_machine_type_is_refused_by_an_older_host_despite_force(lab: Lab, control: m.Mixed, guest: Make) -> None:
    name = guest("web", "--mib", "64", "--dirty-mib", "16", "--rate", "500", "--integrity", on=m.NEW)
    assert m.machine_of(lab, name, m.NEW) == m.NEW_MACHINE
    for force in (False, True):
        refused = control.migrate(name, m.NEW, m.OLD, force=force)
        assert (refused.refused(), refused.ended()[0]) == ("conflict", "conflict"), refused.text
        assert f"It does not have the machine type {m.NEW_MACHINE}: the newest of that family is {m.OLD_MACHINE}." in refused.msg
        assert lab.state_file(lab.uuid(name, m.NEW), m.NEW) is None
        m.check_stayed(lab, name, m.NEW)
    m.check_moved(lab, control.migrate(name, m.NEW, m.NEWER), name, m.NEWER)


def test_scheduler_check_refuses_only_the_direction_to_the_older_release(lab: Lab, control: m.Mixed, guest: Make) -> None:
    up, down, newest = guest("up"), guest("down", "--machine", m.OLD_MACHINE, on=m.NEW), guest("newest", on=m.NEW)
    seen = control.check(m.NEW, m.NEWER, on=m.OLD, name=up)
    assert seen.code == 0, seen.text
    assert [verdict(seen.result, lab.host(number))["passed"] for number in (m.NEW, m.NEWER)] == [True, True]
    for name, filters in ((down, {"hypervisor"}), (newest, {"hypervisor", "machine_type"})):
        back = control.check(m.OLD, m.NEWER, on=m.NEW, name=name)
        assert set(reasons(back.result, lab.host(m.OLD))) == filters, back.text
        assert back.result["selected"] == lab.host(m.NEWER)


def test_the_scheduler_chooses_a_host_with_a_compatible_qemu(lab: Lab, control: m.Mixed, guest: Make) -> None:
    name = guest("web", "--mib", "64", "--dirty-mib", "16", "--rate", "500", "--integrity", "--machine", m.OLD_MACHINE, on=m.NEW)
    chosen = control.task(m.NEW, "live_migrate", {"name": name})
    m.check_moved(lab, chosen, name, m.NEWER)
