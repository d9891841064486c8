# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A package upgrade restarts libvirt's daemon on the survivor that is starting a dead host's guest: each guest runs once, and the records say where."""

from __future__ import annotations

import subprocess

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support import upgrade
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

SURVIVORS = (2, 3)
# Holds every start until it is told to let go: the daemon is in the middle of it then. Libvirt looks for its hooks when it starts.
HOLD = """
mkdir -p /etc/libvirt/hooks
cat >/etc/libvirt/hooks/qemu <<'END'
#!/bin/sh
if [ "$2" = prepare ] && [ -e /run/hold ]; then
    touch /run/holding
    while [ -e /run/hold ]; do sleep 1; done
fi
exit 0
END
chmod 0755 /etc/libvirt/hooks/qemu
touch /run/hold
systemctl restart libvirtd.service
virsh -q list >/dev/null
"""
IS_HOLDING = "test -e /run/holding && echo holding || true"


def holding(site: Site, task: subprocess.Popen[str]) -> int | None:
    """Return a survivor on which a start has begun; none before. Fails when the evacuation has ended without one."""
    assert task.poll() is None, f"the evacuation ended before a survivor started a guest: {site.finish(task)}"
    return next((number for number in SURVIVORS if site.machines.on(number, IS_HOLDING).strip()), None)


def test_each_guest_runs_once_when_libvirtd_of_a_survivor_is_reinstalled(protected: Site) -> None:
    site, machines = protected, protected.machines
    for number in SURVIVORS:
        machines.on(number, HOLD)
    machines("poweroff", "m1")
    task = site.begin_book("evacuate", source="m1")
    starting = eventually(lambda: holding(site, task), "a survivor starts a guest")
    upgrade.reinstall_libvirt(machines, starting)
    for number in SURVIVORS:
        machines.on(number, "rm -f /run/hold")
    text = site.finish(task)

    # A start whose daemon was ended may have been made or not: only the next run can tell.
    first = site.record_summaries()
    assert first, text
    if task.returncode != 0:
        assert {status for _name, status, _reason, _source, _destination in first} & {"pre-migrating", "failed"}, (first, text)
        site.succeed("evacuate", source="m1")
    else:
        assert {status for _name, status, _reason, _source, _destination in first} == {"done"}, (first, text)

    active = machines.active()
    assert active.keys() == set(SURVIVORS)
    assert sorted([*active[2], *active[3]]) == ["db", "web"], active
    done = [(name, "done", None, "m1", machines.host(number)) for number in SURVIVORS for name in active[number]]
    failed = [one for one in site.record_summaries() if one[1] == "failed"]
    site.check_end_state(active, *done, *failed)
