# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that is moved, stopped and started with virsh is a line in its document and in the audit, once, whoever looks."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.protect.conftest import Body, Protection
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
Look = t.Callable[..., list[str]]
MIGRATE = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--unsafe")


def acts(control: Protection, name: str) -> list[tuple[str, str]]:
    """Return what others have done to a guest, according to its document: the act, and the host on which it was found."""
    return [(act["act"], act["host"]["host"]) for act in control.document(name).get("foreign_acts", [])]


def protect(control: Protection, *options: str) -> list[str]:
    """Run C(protect); return what it reports of acts of others."""
    done = control.protect(*options)
    assert done.code == 0, done.text
    return [note for host in done.result.values() for note in host["notes"] if "without this collection" in note]


def status(control: Protection, *options: str) -> list[str]:
    """Run C(status); return what it reports of acts of others."""
    given = json.dumps({"kvmfleet_ledger": str(control.path)})
    control.environment["ANSIBLE_SHOW_CUSTOM_STATS"] = "true"
    process = control.popen(["ansible-playbook", "-i", control.inventory, "kvmfleet.migration.status", "-e", given, *options])
    text, _none = process.communicate(timeout=300)
    assert process.returncode == 0, text
    _head, _found, tail = text.partition("RUN: ")
    result: Body = json.JSONDecoder().raw_decode(tail)[0]["status_result"]
    return [found["msg"] for found in result["foreign_acts"]]


@pytest.mark.long
@pytest.mark.parametrize("look", [protect, status])
def test_what_virsh_does_to_a_guest_is_written_once(lab: Lab, control: Protection, guests: Make, look: Look) -> None:
    one, two, name = lab.host(1), lab.host(2), guests("web1")
    assert protect(control) == []

    lab.virsh(1, *MIGRATE, name, f"qemu+tcp://{lab.rows()[two]['address']}/system")
    moved = f"Domain {name} was moved from {one} to {two} without this collection."
    assert look(control, "--check") == [moved]
    assert acts(control, name) == []
    assert look(control) == [moved]
    assert (look(control), protect(control)) == ([], [])

    lab.virsh(2, "destroy", name)
    (stopped,) = look(control)
    assert stopped.startswith(f"Domain {name} was stopped on {two} without this collection")
    assert look(control) == []

    lab.virsh(2, "start", name)
    assert look(control) == [f"Domain {name} was started on {two} without this collection."]
    assert (look(control), protect(control)) == ([], [])
    assert acts(control, name) == [("moved", two), ("stopped", two), ("started", two)]
    assert control.ledger.verify_audit() == []


@pytest.mark.long
def test_what_the_collection_does_to_a_guest_is_no_act_of_others(lab: Lab, control: Protection, guests: Make) -> None:
    one, two, name = lab.host(1), lab.host(2), guests("web1")
    protect(control)
    for host, module, arguments in (
        (one, "live_migrate", {"name": name, "destination": two}),
        (two, "domain_start", {"name": name}),
        (two, "live_migrate", {"name": name, "destination": one}),
    ):
        given = json.dumps({**arguments, **({"ledger": str(control.path)} if module == "live_migrate" else {})})
        process = control.popen(["ansible", "-i", control.inventory, host, "-m", f"kvmfleet.migration.{module}", "-a", given])
        text, _none = process.communicate(timeout=300)
        assert process.returncode == 0, text
        assert status(control) == []
    assert protect(control) == []
    assert acts(control, name) == []
