# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host under two names of the inventory, and a second host that was installed from a copy of the disk of another one."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.protect.conftest import Protection
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import disk_of

Make = t.Callable[..., str]
IDENTITY, MACHINE_ID, LIBVIRTD_CONF = "var-lib-kvmfleet/host-id", "etc-machine-id", "etc-libvirt/libvirtd.conf"


def entries(control: Protection) -> dict[str, dict[str, t.Any]]:
    """Return the hosts of the ledger by their names."""
    return {document.body["name"]: document.body for document in control.ledger.list_hosts()}


def hosts_of(control: Protection, name: str) -> list[str]:
    """Return where a guest may be according to the ledger; nothing where it is noted as missing."""
    document = control.document(name)
    return [] if document.get("missing") else [place["host"] for place in document["possible_hosts"]]


def host_task(control: Protection, name: str, *options: str, **arguments: t.Any) -> Outcome:
    """Run the module C(host) on a host of that name in the inventory."""
    given = json.dumps({"ledger": control.where, **arguments})
    return Running(control.popen(["ansible", "-i", control.inventory, name, "-m", "kvmfleet.migration.host", "-a", given, *options])).wait()


@pytest.mark.long
def test_the_second_inventory_name_of_a_host_is_refused_and_the_first_works_on(lab: Lab, control: Protection, guests: Make) -> None:
    one, two, second = lab.host(1), lab.host(2), f"{lab.prefix}x"
    guests("web")
    assert control.protect().code == 0
    before = entries(control)
    inventory = control.folder / "second.yml"
    # The address of a new host was copied from the first one.
    inventory.write_text(json.dumps({"kvmfleet_hosts": {"hosts": {second: {"ansible_host": lab.rows()[one]["address"]}}}}))
    names = ("-i", str(inventory))

    run = control.protect(*names)
    assert (run.code != 0, run.changed) == (True, {one: 0, two: 0, second: 0}), run.text
    assert f"{second} and {one} of the inventory lead to one host" in run.result[second]["error"]
    assert run.names(one, "unchanged") == ["web"]
    refused = host_task(control, second, *names, state="maintenance")
    assert (refused.refused(), "lead to one host" in refused.msg) == ("conflict", True), refused.msg
    assert (entries(control), hosts_of(control, "web")) == (before, [one])

    assert host_task(control, one, *names, state="maintenance").changed
    assert entries(control)[one]["state"] == "maintenance"


@pytest.fixture
def copied(lab: Lab, control: Protection) -> t.Iterator[Protection]:
    """The same control node; the second host has its own machine ID and libvirt UUID again afterwards."""
    kept = {path: disk_of(lab, 2) / path for path in (MACHINE_ID, LIBVIRTD_CONF)}
    texts = {path: file.read_text() for path, file in kept.items()}
    yield control
    for path, file in kept.items():
        file.write_text(texts[path])
    lab("libvirtd", lab.host(2), "restart")
    lab("up", "--hosts", "2")


def copy_to_second(lab: Lab, path: str) -> None:
    (disk_of(lab, 2) / path).write_text((disk_of(lab, 1) / path).read_text())


@pytest.mark.long
def test_the_copy_of_a_whole_host_is_refused_until_a_person_decides_which_one_is_the_host(lab: Lab, copied: Protection, guests: Make) -> None:
    control, one, two = copied, lab.host(1), lab.host(2)
    guests("web")
    assert control.protect("-e", f"target={one}").code == 0
    before = entries(control)
    for path in (IDENTITY, MACHINE_ID):
        copy_to_second(lab, path)

    run = control.protect()
    assert (run.code != 0, run.changed) == (True, {one: 0, two: 0}), run.text
    assert f"Two hosts report the host ID {before[one]['host_id']}" in run.result[two]["error"]
    # Its libvirt has the UUID of the original, too, if that is in the configuration.
    copy_to_second(lab, LIBVIRTD_CONF)
    lab("libvirtd", two, "restart")
    lab("up", "--hosts", "2")
    run = control.protect()
    assert (run.code != 0, run.changed) == (True, {one: 0, two: 0}), run.text
    assert "to one and a copy of its disk" in run.result[two]["error"]
    assert (run.names(one, "unchanged"), entries(control), hosts_of(control, "web")) == (["web"], before, [one])

    adopted = host_task(control, two, adopt_identity=True, reason="its disk is in this machine now")
    assert adopted.changed, adopted.text
    assert list(entries(control)) == [two]
    run = control.protect()
    assert "to one and a copy of its disk" in run.result[one]["error"], run.text
    assert run.result[two]["error"] == ""
    # That was wrong: the guest runs on the original.
    assert run.names(two, "missing") == ["web"]
    assert host_task(control, one, adopt_identity=True, reason="it is the original").changed
    run = control.protect()
    assert (run.result[one]["error"], hosts_of(control, "web")) == ("", [one]), run.text
    assert "to one and a copy of its disk" in run.result[two]["error"]
    assert lab.places("web") == {1: "running"}


@pytest.mark.long
def test_a_host_that_was_installed_anew_is_the_same_host_when_a_person_says_so(lab: Lab, copied: Protection, guests: Make) -> None:
    control, one, two = copied, lab.host(1), lab.host(2)
    guests("web")
    assert control.protect().code == 0
    before = entries(control)[two]
    lab.on(2, "sh", "-c", "rm -rf /var/lib/kvmfleet/*")
    (disk_of(lab, 2) / MACHINE_ID).write_text("5f0c2b1e7d3a4c55902b7f6e1d8a4c33\n")
    run = control.protect()
    assert f"{two} has lost its identity: the ledger has {before['host_id']} for it" in run.result[two]["error"], run.text
    assert host_task(control, two, adopt_identity=True, reason="installed anew").changed
    # Nothing is known of the boot guard of the new system.
    assert "guard" not in entries(control)[two]["protected"]
    run = control.protect()
    assert (run.code, run.result[two]["error"], entries(control)[two]["host_id"]) == (0, "", before["host_id"]), run.text
    assert entries(control)[two]["protected"]["guard"]["installed"]
    assert control.protect().changed == {one: 0, two: 0}
