# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that need files of the dead host: none of them is started with a different file of the same name."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]

# SeaBIOS serves as firmware in flash memory as well, and needs no further package.
FIRMWARE = "/usr/share/seabios/bios-256k.bin"
VARIABLES = "/var/lib/libvirt/qemu/nvram"
BASE = "/var/lib/libvirt/images/base.qcow2"


def with_os(site: Site, name: str, pieces: str) -> None:
    """Put pieces into the C(os) of a guest that is off, and start it."""
    text = site.lab.virsh(1, "dumpxml", "--inactive", name).replace("</os>", f"{pieces}</os>")
    path = site.folder / f"{name}.xml"
    path.write_text(text, encoding="utf-8")
    site.lab.virsh(1, "define", str(path))
    site.lab.virsh(1, "start", name)


def with_variables(site: Site, name: str, path: str) -> None:
    """Give a guest firmware in flash memory, with variables of its own."""
    template = site.folder / "template.fd"
    template.write_bytes(bytes(128 * 1024))
    with_os(site, name, f"<loader readonly='yes' type='pflash'>{FIRMWARE}</loader><nvram template='{template}'>{path}</nvram>")


def lost(outcome: t.Any) -> dict[str, str]:
    return {one["name"]: " ".join(one["reasons"]) for one in outcome.result["lost_until_return"]}


@pytest.mark.long
def test_firmware_variables_are_replaced_by_fresh_ones_only_with_accept_fresh(site: Site, guest: Make) -> None:
    guest("plain")
    guest("web", "--off")
    with_variables(site, "web", f"{VARIABLES}/web_VARS.fd")
    site.protect()
    site.lose(1)
    done = site.evacuate(2)
    assert done.code == 0, done.text
    assert site.fleet() == {2: {"plain"}, 3: set()}
    assert list(lost(done)) == ["web"]
    assert f"{VARIABLES}/web_VARS.fd" in lost(done)["web"]
    named = site.evacuate(2, domains=["web"])
    assert named.refused() == "unsafe"
    assert "accept_fresh" in named.msg
    accepted = site.evacuate(2, domains=["web"], accept_fresh=["nvram"])
    assert accepted.code == 0, accepted.text
    assert "fresh" in accepted.warnings
    assert site.fleet() == {2: {"plain", "web"}, 3: set()}


@pytest.mark.long
def test_old_firmware_variables_on_the_survivor_are_not_taken_for_fresh_ones(site: Site, guest: Make) -> None:
    guest("web", "--off")
    with_variables(site, "web", f"{VARIABLES}/web_VARS.fd")
    site.protect()
    site.lab.on(2, "sh", "-c", f"mkdir -p {VARIABLES} && echo old > {VARIABLES}/web_VARS.fd")
    site.lose(1)
    refused = site.evacuate(2, accept_fresh=["nvram"])
    assert refused.code != 0, refused.text
    assert f"{VARIABLES}/web_VARS.fd" in refused.msg
    assert site.fleet() == {2: set(), 3: set()}


@pytest.mark.long
def test_firmware_variables_on_shared_storage_go_with_the_guest(site: Site, guest: Make) -> None:
    guest("web", "--off")
    with_variables(site, "web", f"{site.lab.layout.shared}/web_VARS.fd")
    site.protect()
    site.lose(1)
    done = site.evacuate(2)
    assert done.code == 0, done.text
    assert site.fleet() == {2: {"web"}, 3: set()}


@pytest.mark.long
def test_a_domain_whose_backing_file_only_the_dead_host_had_is_not_started(site: Site, guest: Make) -> None:
    """The guest is off, so that only the image says what it is built on."""
    guest("web", "--off")
    image = f"{site.lab.layout.shared}/web.qcow2"
    for number in (2, 1):
        site.lab.on(number, "sh", "-c", f"mkdir -p {BASE.rpartition('/')[0]} && head -c 4M /dev/urandom > {BASE}")
    site.lab.on(1, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", BASE, image)
    try:
        site.protect()
        site.lose(1)
        done = site.evacuate(2, state="running")
        assert done.code == 0, done.text
        assert site.fleet() == {2: set(), 3: set()}
        assert BASE in lost(done)["web"]
    finally:
        site.lab("up", "--hosts", "3")
        for number in (1, 2):
            site.lab.on(number, "rm", "-f", BASE)
