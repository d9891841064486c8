# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root disk of the source or of the destination is full: a move says so or comes through, the guest runs once, and with room it moves."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

# Also what is kept for root.
FILL = "cat /dev/zero >/filler 2>/dev/null || true; sync; df --output=avail / | tail -n 1"
EMPTY = "rm -f /filler; sync"


@pytest.mark.parametrize("number", [1, 2], ids=["source", "destination"])
def test_a_move_with_a_full_root_disk_completes_or_reports_it_with_one_running_copy(number: int, machines: Machines, site: Site) -> None:
    machines("guest", "web", "--host", "m1", "--mib", "24")
    # Eight of its GiB would take long to fill.
    machines.on(number, "fallocate -l $(( $(df --output=avail -B1 / | tail -n 1) - 67108864 )) /filler.first", seconds=600)
    assert int(machines.on(number, FILL, seconds=600)) == 0, "there is still room"

    first = site.do(1, "live_migrate", name="web", destination="m2")
    active = machines.active()
    assert active in ({1: {"web"}, 2: set(), 3: set()}, {1: set(), 2: {"web"}, 3: set()}), (active, first.text)
    moved = bool(active[2])
    assert (first.code == 0) == moved, first.text
    if not moved:
        # Where not even the module can be begun, Python says so in its own way; libvirt on a full destination says what failed, and not why.
        said = ("No space left on device", "no file can be written there", "look for a full disk")
        assert any(words in first.text for words in said), first.text

    machines.on(number, EMPTY + "; rm -f /filler.first")
    again = site.do(1, "live_migrate", name="web", destination="m2")
    assert again.code == 0, again.text
    assert machines.active() == {1: set(), 2: {"web"}, 3: set()}
    told = site.record_summaries()
    assert told[-1][1:] == ("completed", None, "m1", "m2"), told
    assert len(told) <= 2, told
