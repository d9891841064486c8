# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains that need more of their host than a disk's image: nothing of the same name takes its place unasked."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.answer import result_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.run import Evacuation
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import definition
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuation.fleet import Site, host_id


def errors(run: Evacuation) -> dict[str, str]:
    return {job.name: str(job.error) for job in run.jobs if job.error}


def needing(site: Site, pieces: str, name: str = "web", **changes: t.Any) -> None:
    """Save a domain whose definition has these further pieces."""
    path = str(site.images / f"{name}.qcow2")
    text = definition(uuid_of(name), name, path).replace("<devices>", f"{pieces}<devices>", 1)
    site.save(name, definition=text, **changes)


def seen(site: Site, what: str, path: pathlib.Path, *hosts: str) -> dict[str, t.Any]:
    """Return a file as C(protect) saves it, in a folder whose token all hosts see."""
    file = {"what": what, "kind": "file", "path": str(path), "folders": [str(site.images)], "wwn": None, "present": True}
    return {**file, "seen_by": [host_id(name) for name in hosts]}


def lost(run: t.Any) -> str:
    (entry,) = result_of(run, diff=False)["lost_until_return"]
    return " ".join(entry["reasons"])


NVRAM = "<os><nvram>/var/lib/libvirt/qemu/nvram/web_VARS.fd</nvram></os>"


def test_firmware_variables_of_the_dead_host_are_not_replaced_by_fresh_ones_unasked(site: Site) -> None:
    needing(site, NVRAM)
    run = site.evacuate()
    assert "only kvm1 is known to have its firmware variables /var/lib/libvirt/qemu/nvram/web_VARS.fd" in lost(run)
    assert "accept_fresh names nvram" in lost(run)
    assert site.running() == {}
    assert "firmware variables" in lost(site.evacuate(accept_fresh=["tpm"]))
    run = site.evacuate(accept_fresh=["nvram"])
    assert site.running() == {"kvm2": ["web"]}
    assert "starts with fresh firmware variables" in " ".join(run.context.warnings)


def test_a_file_of_a_former_stay_is_not_a_fresh_one(site: Site) -> None:
    old = site.folder / "web_VARS.fd"
    old.touch()
    needing(site, f"<os><nvram>{old}</nvram></os>")
    run = site.evacuate(accept_fresh=["nvram"], force=True)
    assert f"{old}: it is here already" in errors(run)["web"]
    assert site.running() == {}
    old.unlink()
    assert errors(site.evacuate(accept_fresh=["nvram"])) == {}
    assert site.running() == {"kvm2": ["web"]}


def test_files_that_other_hosts_see_go_with_their_domain_and_only_to_these(site: Site) -> None:
    variables = site.images / "web_VARS.fd"
    variables.touch()
    needing(site, f"<os><nvram>{variables}</nvram></os>", files=[seen(site, "nvram", variables, "kvm1", "kvm3")])
    assert "sees firmware variables" in errors(site.evacuate(accept_fresh=["nvram"]))["web"]
    assert errors(site.evacuate(on="kvm3")) == {}
    assert site.running() == {"kvm3": ["web"]}


def test_a_file_that_is_gone_from_shared_storage_is_not_made_anew(site: Site) -> None:
    variables = site.images / "web_VARS.fd"
    needing(site, f"<os><nvram>{variables}</nvram></os>", files=[seen(site, "nvram", variables, "kvm1", "kvm2")])
    assert "it is not here any more" in errors(site.evacuate())["web"]
    assert site.running() == {}


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ("<os><kernel>/var/lib/boot/vmlinuz</kernel></os>", "kernel /var/lib/boot/vmlinuz"),
        ("<devices><filesystem type='mount'><source dir='/srv/home'/></filesystem></devices>", "shared folder /srv/home"),
        ("<devices><memory model='nvdimm'><source><path>/srv/web.pmem</path></source></memory></devices>", "persistent memory /srv/web.pmem"),
    ],
)
def test_what_no_fresh_one_can_replace_keeps_its_domain_until_the_host_returns(site: Site, pieces: str, told: str) -> None:
    needing(site, pieces)
    assert told in lost(site.evacuate(accept_fresh=["nvram", "tpm"], force=True))
    assert site.running() == {}


def test_a_disk_whose_base_only_the_dead_host_had_is_lost_with_it(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body["protected"]["disks"][0].update(backing=["/srv/base"], seen_by=[host_id("kvm1")]))
    assert "built on /srv/base" in lost(site.evacuate(force=True))
    site.change("web", lambda body: body["protected"]["disks"][0].update(backing_problem="it could not be read"))
    assert "it could not be read" in lost(site.evacuate(force=True))


def test_a_network_disk_that_is_built_on_a_file_of_its_host_is_not_everywhere(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body["protected"]["disks"][0].update(kind="network", folders=["/srv"], backing=["/srv/base"], seen_by=[host_id("kvm1")]))
    assert "built on /srv/base" in lost(site.evacuate(force=True))
