# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS 3 after a power cut: a person accepts the lock of the dead host, QEMU does not, and says what helps; once the server has dropped it, the guest starts."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

FOLDER = "/srv/images3"
WEB, OTHER = f"{FOLDER}/web.qcow2", f"{FOLDER}/other.qcow2"
MOUNT = f"mkdir -p {FOLDER}; mount -t nfs -o vers=3 nfs:/srv/images {FOLDER}; findmnt -n -o OPTIONS {FOLDER}"
HELD = "cat /proc/locks; ls /var/lib/nfs/sm"
GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "guides" / "evacuation.md"


def guided(host: str) -> str:
    """Return what the guide lets an operator run on the NFS server, for that host."""
    found = re.search(r"^(python3 - )kvm1( <<'END'\n.*?\nEND)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{GUIDE} does not say how locks are freed"
    return f"{found[1]}{host}{found[2]}"


def is_locked(machines: Machines, image: str) -> bool:
    return "lock" in machines.run(3, "qemu-img", "info", image).err


def test_an_accepted_lock_has_to_be_freed_on_the_server(machines: Machines, site: Site) -> None:
    for number in machines.numbers:
        assert "vers=3" in machines.on(number, MOUNT)
    machines("guest", "web", "--host", "m1", "--mib", "24", "--storage", FOLDER)
    machines("guest", "other", "--host", "m2", "--mib", "24", "--storage", FOLDER)
    site.succeed("protect", target="kvmfleet_hosts")

    machines("poweroff", "m1")
    assert is_locked(machines, WEB), "the lock ended with its host: " + machines.on("nfs", HELD)
    refused = site.play_book("evacuate", source="m1", evacuate_host_accept_locked=[WEB], evacuate_host_reason="The BMC says that m1 is off")
    assert refused.code != 0, refused.text
    said = " ".join(refused.text.split())
    assert "was accepted, and QEMU needs it" in said, refused.text
    assert "tell its statd that the dead host has lost its locks" in said, refused.text
    assert machines.active() == {2: {"other"}, 3: set()}
    (failed,) = site.told()
    assert failed[:4] == ("web", "failed", None, "m1"), failed

    machines.on("nfs", guided("m1"))
    assert not is_locked(machines, WEB), "the lock of the dead client is still there: " + machines.on("nfs", HELD)
    assert is_locked(machines, OTHER), "the lock of a guest that runs is gone, too"

    site.succeed("evacuate", source="m1")
    active = machines.active()
    (host,) = [number for number in (2, 3) if "web" in active[number]]
    site.ended({2: {"other"}, 3: set(), host: active[host]}, failed, ("web", "done", None, "m1", machines.host(host)))
    assert sorted([*active[2], *active[3]]) == ["other", "web"]
