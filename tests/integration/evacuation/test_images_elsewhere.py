# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the ledger knows of a guest is older than its images: a snapshot was made since, or its owner runs the image elsewhere under another UUID."""

from __future__ import annotations

import re

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site


def test_a_guest_is_not_started_from_the_base_of_a_later_snapshot(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lab.virsh(1, "snapshot-create-as", "web", "backup", "--disk-only", "--no-metadata")
    overlay = site.lab.layout.shared / "web.backup"
    try:
        assert "web.backup" in site.lab.virsh(1, "domblklist", "web")
        site.lose(1)
        code, text = site.playbook("evacuate", source=site.name(1))
        assert (code != 0, f"{overlay} is built on it and was written later" in text) == (True, True), text
        assert site.fleet() == {2: set(), 3: set()}
        # The person who knows that the snapshot is not needed does what the message says.
        overlay.unlink()
        done = site.evacuate(2)
        assert done.code == 0, done.text
        assert site.fleet() == {2: {"web"}, 3: set()}
    finally:
        overlay.unlink(missing_ok=True)


@pytest.mark.long
def test_a_guest_is_not_started_while_its_image_is_used_under_another_uuid(site: Site, guest: Make) -> None:
    """The disk is served over the network, and has no lock that another host sees."""
    guest("web", storage="nbd")
    site.protect()
    definition = site.lab.virsh(1, "dumpxml", "--inactive", "web")
    site.lose(1)
    try:
        again = re.sub(r"<uuid>.*?</uuid>", "", definition).replace("<name>web</name>", "<name>imported</name>")
        site.lab("virsh", site.lab.host(3), "define", "/dev/stdin", stdin=again)
        site.lab.virsh(3, "start", "imported")
        code, text = site.playbook("evacuate", source=site.name(1))
        assert (code != 0, "its disk vda (web) is in use by imported" in text) == (True, True), text
        assert site.fleet() == {2: set(), 3: {"imported"}}
    finally:
        for verb in ("destroy", "undefine"):
            site.lab.virsh(3, verb, "imported")
