# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A returned host's clock is wrong when it puts files aside, and is stepped while they wait: their retention becomes neither shorter nor longer."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

DAY = 86400
# As with a clock whose battery is empty, before anybody has told it the time.
WRONG_SECONDS = -400 * DAY
QUARANTINED = "find / -xdev -path '*/.kvmfleet-quarantine/*' -type f"


def test_a_stepped_clock_does_not_change_the_retention_of_a_quarantine(protected: Site) -> None:
    site, machines = protected, protected.machines
    machines.on(1, "virsh -q managedsave db; sync")
    machines("poweroff", "m1")
    site.succeed("evacuate", source="m1")
    evacuated = machines.active()
    assert sorted([*evacuated[2], *evacuated[3]]) == ["db", "web"]

    machines("poweron", "m1")
    machines("clock", "m1", "--ahead", str(WRONG_SECONDS))
    site.succeed("recover", target="m1")
    put_aside = machines.on(1, QUARANTINED)
    assert put_aside.strip().endswith("db.save"), put_aside

    machines("clock", "m1", "--ahead", "0")
    early = site.do(1, "evacuation_cleanup", storage="delete", retention_days=14)
    assert early.code == 0, early.text
    assert early.result["deleted"] == [], early.text
    assert machines.on(1, QUARANTINED) == put_aside, "what was put aside a minute ago is gone"

    # By this clock they will not have been put aside before a year has passed.
    machines("clock", "m1", "--ahead", str(2 * WRONG_SECONDS))
    due = site.do(1, "evacuation_cleanup", storage="delete", retention_days=0)
    assert due.code == 0, due.text
    assert sorted(one["name"] for one in due.result["deleted"]) == ["db", "web"], due.text
    assert machines.on(1, QUARANTINED).strip() == "", "the retention is over, and the files are still there"

    closed = [(name, "completed", None, "m1", machines.host(number)) for number in (2, 3) for name in evacuated[number]]
    site.check_end_state({1: set(), **evacuated}, *closed)
