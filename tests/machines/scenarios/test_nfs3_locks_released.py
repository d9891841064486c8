# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS 3 after a power cut: an accepted lock is QEMU's to judge, the others keep their guests off; once the server has dropped them, all guests start."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support import nfs3
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "guides" / "evacuation.md"
ON_DEAD_HOST = ("web", "mail")


def guided(host: str) -> str:
    """Return what the guide lets an operator run on the NFS server, for that host."""
    found = re.search(r"^(python3 - )kvm1( <<'END'\n.*?\nEND)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{GUIDE} does not say how locks are freed"
    return f"{found[1]}{host}{found[2]}"


def test_guests_start_after_the_nfs_server_drops_the_locks_of_the_dead_host(machines: Machines, site: Site) -> None:
    nfs3.mount_everywhere(machines)
    for name, host in (*((name, "m1") for name in ON_DEAD_HOST), ("other", "m2")):
        machines("guest", name, "--host", host, "--mib", "24", "--storage", nfs3.FOLDER)
    site.succeed("protect", target="kvmfleet_hosts")

    machines("poweroff", "m1")
    refused = site.play_book("evacuate", source="m1", evacuate_host_accept_locked=[nfs3.image_of("mail")], evacuate_host_reason="Its rack has no power")
    assert refused.code != 0, refused.text
    said = " ".join(refused.text.split())
    assert f"{nfs3.image_of('web')} is still open for writing" in said, refused.text
    assert "tell its statd that the dead host has lost its locks" in said, refused.text
    active = machines.active()
    running = active[2] | active[3]
    # QEMU asks the server, which on some kernels does not tell of the lock.
    assert running == {"other", "mail"} or (running == {"other"} and "was accepted, but QEMU needs it" in said), refused.text

    machines.on("nfs", guided("m1"))
    assert not nfs3.is_locked(machines, "web"), "the lock of the dead client is still there"
    assert nfs3.is_locked(machines, "other"), "the lock of a guest that runs is gone, too"

    site.succeed("evacuate", source="m1")
    active = machines.active()
    assert sorted([*active[2], *active[3]]) == ["mail", "other", "web"]
    failed = [one for one in site.record_summaries() if one[1] == "failed"]
    done = [(name, "done", None, "m1", machines.host(number)) for number in (2, 3) for name in active[number] & set(ON_DEAD_HOST)]
    site.check_end_state(active, *failed, *done)
