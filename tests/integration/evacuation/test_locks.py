# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that are open while their host is evacuated: a lock keeps its own domain from being started, and no other."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]


def attach(site: Site, number: int, guest: str, path: str, *options: str) -> None:
    """Open an image in a guest that runs."""
    site.lab.virsh(number, "attach-disk", guest, path, "vdb", *options)


def test_a_locked_image_prevents_the_start_of_its_domain_alone(site: Site, guest: Make) -> None:
    """A living member of a cluster has the shareable disk open, and by mistake a running guest has the image of another one open."""
    shared = site.lab.layout.shared
    cluster = shared / "cluster.raw"
    try:
        site.lab.on(1, "truncate", "-s", "1M", str(cluster))
        for name, number in (("web", 1), ("member", 2)):
            guest(name, on=number)
            attach(site, number, name, str(cluster), "--subdriver", "raw", "--mode", "shareable", "--persistent")
        guest("held")
        guest("thief", on=3)
        site.protect()
        site.lose(1)
        attach(site, 3, "thief", str(shared / "held.qcow2"), "--subdriver", "qcow2")
        done = site.evacuate(2, lock_wait_seconds=1)
        assert (done.code != 0, done.result["error_code"]) == (True, "unsafe"), done.text
        assert "Domain held was not started" in done.msg
        assert "held.qcow2 is still open for writing" in done.msg
        assert site.fleet() == {2: {"member", "web"}, 3: {"thief"}}
        assert "vdb" in site.lab.virsh(2, "domblklist", "web")
        assert not site.has_definition("held", 2)
        assert [line for line in site.record_summaries() if line[1] == "done"] == [site.line("web", "done", 1, 2)]
    finally:
        cluster.unlink(missing_ok=True)
