# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""logind ends what a session leaves behind, the operator is not root, and his session ends while a move runs: the watcher and its limits stay."""

from __future__ import annotations

import json

from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import access
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

KILL = """
mkdir -p /etc/systemd/logind.conf.d
printf '[Login]\\nKillUserProcesses=yes\\n' >/etc/systemd/logind.conf.d/kill.conf
systemctl restart systemd-logind
"""
SESSIONS = "loginctl list-sessions --no-legend | awk '$3 == \"operator\"'"
# So slow that it never ends by itself: what ends it is the limit, and only a watcher knows that.
TIMEOUT_SECONDS = 150
CAPPED = {"bandwidth_mib": 1, "timeout_seconds": TIMEOUT_SECONDS, "on_timeout": "abort"}


def last_word(machines: Machines, uuid: str) -> tuple[str, str] | None:
    """Return status and reason that the watcher on m1 has left; none while it is still at work."""
    state = json.loads(machines.on(1, f"cat /run/kvmfleet/{uuid}.json"))
    return None if state["status"] in ("queued", "preparing", "running") else (state["status"], state["reason"])


def test_the_timeout_of_a_move_is_enforced_after_logind_ends_the_session(machines: Machines, operator: Site) -> None:
    machines.on(1, KILL)
    machines("guest", "busy", "--host", "m1", "--mib", "48", "--dirty-mib", "32", "--rate", "600")
    uuid = machines.uuid("busy")

    task = operator.begin_task(1, "live_migrate", name="busy", destination="m2", **CAPPED)
    operator.wait_until_moving(task, "busy")
    task.kill()
    task.communicate()
    access.close_connections(machines.fleet)
    eventually(lambda: not machines.on(1, SESSIONS), "the operator's session on m1 has ended")
    assert machines.is_moving("busy"), "libvirt's job ended with the session"

    eventually(lambda: not machines.is_moving("busy"), "the limit ended the move", TIMEOUT_SECONDS + 200)
    assert machines.active() == {1: {"busy"}, 2: set(), 3: set()}
    # The watcher asks both hosts before it writes its last word.
    assert eventually(lambda: last_word(machines, uuid), "the watcher has settled the move") == ("cancelled", "timeout")

    again = operator.do(1, "live_migrate", name="busy", destination="m2", timeout_seconds=600, on_timeout="force_complete")
    assert again.code == 0, again.text
    operator.check_end_state({1: set(), 2: {"busy"}, 3: set()}, ("busy", "cancelled", "timeout", "m1", "m2"), ("busy", "completed", None, "m1", "m2"))
