# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains that need other files than disk images: a different file of the same name does not replace them without acceptance."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import build_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import definition
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site, host_id


def errors(run: Evacuation) -> dict[str, str]:
    return {job.name: str(job.error) for job in run.jobs if job.error}


def save_with(site: Site, pieces: str, name: str = "web", **changes: t.Any) -> None:
    """Save a domain whose definition has these further pieces."""
    path = str(site.images / f"{name}.qcow2")
    text = definition(uuid_of(name), name, path).replace("<devices>", f"{pieces}<devices>", 1)
    site.save(name, definition=text, **changes)


def proved_file(site: Site, what: str, path: pathlib.Path, *hosts: str) -> dict[str, t.Any]:
    """Return a file as C(protect) saves it, in a folder whose token all hosts see."""
    file = {"what": what, "kind": "file", "path": str(path), "folders": [str(site.images)], "wwn": None, "present": True}
    return {**file, "seen_by": [host_id(name) for name in hosts]}


def lost(run: t.Any) -> str:
    (entry,) = build_result(run, diff=False)["lost_until_return"]
    return " ".join(entry["reasons"])


NVRAM = "<os><nvram>/var/lib/libvirt/qemu/nvram/web_VARS.fd</nvram></os>"


def test_firmware_variables_are_replaced_by_fresh_ones_only_with_accept_fresh(site: Site) -> None:
    save_with(site, NVRAM)
    run = site.evacuate()
    assert "only kvm1 is known to have its firmware variables /var/lib/libvirt/qemu/nvram/web_VARS.fd" in lost(run)
    assert "accept_fresh (evacuate_host_accept_fresh) names nvram" in lost(run)
    assert site.running() == {}
    assert "firmware variables" in lost(site.evacuate(accept_fresh=["tpm"]))
    run = site.evacuate(accept_fresh=["nvram"])
    assert site.running() == {"kvm2": ["web"]}
    assert "starts with fresh firmware variables" in " ".join(run.context.warnings)


def test_an_old_file_on_the_survivor_is_not_accepted_as_fresh(site: Site) -> None:
    old = site.folder / "web_VARS.fd"
    old.touch()
    save_with(site, f"<os><nvram>{old}</nvram></os>")
    run = site.evacuate(accept_fresh=["nvram"], force=True)
    assert f"{old}: it already exists on this host" in errors(run)["web"]
    assert site.running() == {}
    old.unlink()
    assert errors(site.evacuate(accept_fresh=["nvram"])) == {}
    assert site.running() == {"kvm2": ["web"]}


def test_a_domain_is_started_only_where_its_other_files_are_seen(site: Site) -> None:
    variables = site.images / "web_VARS.fd"
    variables.touch()
    save_with(site, f"<os><nvram>{variables}</nvram></os>", files=[proved_file(site, "nvram", variables, "kvm1", "kvm3")])
    assert "its access to firmware variables" in errors(site.evacuate(accept_fresh=["nvram"]))["web"]
    assert errors(site.evacuate(on="kvm3")) == {}
    assert site.running() == {"kvm3": ["web"]}


def test_a_file_that_vanished_from_shared_storage_prevents_the_start(site: Site) -> None:
    variables = site.images / "web_VARS.fd"
    save_with(site, f"<os><nvram>{variables}</nvram></os>", files=[proved_file(site, "nvram", variables, "kvm1", "kvm2")])
    assert "it no longer exists on this host" in errors(site.evacuate())["web"]
    assert site.running() == {}


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ("<os><kernel>/var/lib/boot/vmlinuz</kernel></os>", "kernel /var/lib/boot/vmlinuz"),
        ("<devices><filesystem type='mount'><source dir='/srv/home'/></filesystem></devices>", "shared folder /srv/home"),
        ("<devices><memory model='nvdimm'><source><path>/srv/web.pmem</path></source></memory></devices>", "persistent memory /srv/web.pmem"),
    ],
)
def test_a_domain_with_an_irreplaceable_file_is_lost_until_return(site: Site, pieces: str, told: str) -> None:
    save_with(site, pieces)
    assert told in lost(site.evacuate(accept_fresh=["nvram", "tpm"], force=True))
    assert site.running() == {}


def test_a_disk_with_a_backing_file_of_the_dead_host_is_lost_until_return(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body["protected"]["disks"][0].update(backing=["/srv/base"], seen_by=[host_id("kvm1")]))
    assert "built on /srv/base" in lost(site.evacuate(force=True))
    site.change("web", lambda body: body["protected"]["disks"][0].update(backing_problem="it could not be read"))
    assert "it could not be read" in lost(site.evacuate(force=True))


def test_a_network_disk_with_a_local_backing_file_is_lost_until_return(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body["protected"]["disks"][0].update(kind="network", folders=["/srv"], backing=["/srv/base"], seen_by=[host_id("kvm1")]))
    assert "built on /srv/base" in lost(site.evacuate(force=True))
