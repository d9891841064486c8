# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts' clocks are minutes apart: one survivor ahead, one behind. No rule compares them, so the dead host's guests are evacuated, and it is taken back."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

WRONG_SECONDS = 300


def test_a_host_is_evacuated_and_recovered_while_clocks_are_minutes_apart(protected: Site) -> None:
    site, machines = protected, protected.machines
    machines("clock", "m2", "--ahead", str(WRONG_SECONDS))
    machines("clock", "m3", "--ahead", str(-WRONG_SECONDS))

    machines("poweroff", "m1")
    site.succeed("evacuate", source="m1")
    evacuated = machines.active()
    assert evacuated.keys() == {2, 3}
    assert sorted([*evacuated[2], *evacuated[3]]) == ["db", "web"]

    machines("poweron", "m1")
    machines("clock", "m1", "--ahead", str(-WRONG_SECONDS))
    site.succeed("recover", target="m1")
    assert abs(float(machines("clock", "m2")) - WRONG_SECONDS) < 60
    assert abs(float(machines("clock", "m3")) + WRONG_SECONDS) < 60
    closed = [(name, "completed", None, "m1", machines.host(number)) for number in (2, 3) for name in evacuated[number]]
    site.check_end_state({1: set(), **evacuated}, *closed)
    assert machines.known()[1] == {}
