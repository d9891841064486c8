# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the ledger knows of a guest is older than its images: a snapshot was made since, its owner runs the image elsewhere under another UUID, or it runs on
an image that its definition does not name."""

from __future__ import annotations

import re
import shutil

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.test_elsewhere import MIGRATE
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


@pytest.mark.long
def test_a_guest_is_not_started_from_an_image_that_it_does_not_run_on(site: Site, guest: Make) -> None:
    """The definition of one guest was edited while it runs, and another one was moved to a new image by hand: its definition has the old one."""
    guest("edited")
    guest("moved", on=2)
    guest("web")
    site.protect()
    images = {name: site.lab.layout.shared / f"{name}.qcow2" for name in ("edited", "moved")}
    copies = {name: image.with_name(f"{name}-copy.qcow2") for name, image in images.items()}
    definition = site.lab.path(2, "/run/moved.xml")
    try:
        for name, image in images.items():
            shutil.copyfile(image, copies[name])
        edited = site.lab.virsh(1, "dumpxml", "--inactive", "edited").replace(str(images["edited"]), str(copies["edited"]))
        site.lab("virsh", site.lab.host(1), "define", "/dev/stdin", stdin=edited)
        definition.write_text(site.lab.virsh(2, "dumpxml", "--migratable", "moved").replace(str(images["moved"]), str(copies["moved"])))
        site.lab.virsh(2, *MIGRATE, "--xml", "/run/moved.xml", "moved", f"qemu+tcp://{site.lab.host(1)}/system")

        code, text = site.playbook("protect", target="kvmfleet_hosts", protect_host_guard=False)
        reasons = {
            "edited": f"the running domain has {images['edited']} as this disk, and its definition has {copies['edited']}, which may be outdated",
            "moved": f"the running domain has {copies['moved']} as this disk, and its definition has {images['moved']}, which may be outdated",
        }
        assert (code, [name for name, reason in reasons.items() if reason in text]) == (0, ["edited", "moved"]), text
        site.lose(1)
        done = site.evacuate(2)
        assert {name: reason for name, reason in reasons.items() if reason in str(done.result["lost_until_return"])} == reasons, done.text
        assert site.fleet() == {2: {"web"}, 3: set()}
        forced = site.evacuate(2, domains=["edited", "moved"], force=True)
        assert forced.code != 0, forced.text
        assert site.fleet() == {2: {"web"}, 3: set()}
    finally:
        definition.unlink(missing_ok=True)
        for copy in copies.values():
            copy.unlink(missing_ok=True)
