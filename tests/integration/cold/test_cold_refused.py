# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves that are refused: nothing of them is on the destination afterwards."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, forget_collection

Make = t.Callable[..., str]


def test_what_a_method_cannot_move_is_refused_with_the_reason(lab: Lab, control: Control, guest: Make) -> None:
    running, off, passing, local = guest("running"), guest("off", "--off"), guest("passing", "--transient"), guest("local", "--off", "--storage", "local")
    shared, there = str(lab.layout.shared), lab.host(2)
    asked: list[tuple[dict[str, t.Any], str, str]] = [
        ({"name": running, "method": "offline"}, "invalid_state", "the method offline moves a domain that is shut off"),
        ({"name": off, "method": "save", "save_folder": shared}, "invalid_state", "Use the method offline"),
        ({"name": passing, "method": "save", "save_folder": shared}, "not_supported", "transient"),
        ({"name": running, "method": "save", "save_folder": "/var/lib/libvirt/images"}, "unsafe", "is not proved to be one folder"),
        ({"name": local, "method": "offline"}, "unsafe", "disk vda"),
        ({"name": "nobody", "method": "offline"}, "not_found", "There is no domain 'nobody'"),
        ({"name": running}, "invalid_argument", "has no method"),
        ({"name": running, "method": "save"}, "invalid_argument", "needs save_folder"),
        ({"name": running, "method": "shutdown", "shutdown_wait_seconds": 0}, "invalid_argument", "shutdown_wait_seconds is 0"),
    ]
    results = control.play(1, [("cold_migrate", {"destination": there, **arguments}) for arguments, _code, _text in asked])
    for result, (arguments, code, text) in zip(results, asked, strict=True):
        assert (result["error_code"], result["changed"]) == (code, False), (arguments, result["msg"])
        assert text in result["msg"], result["msg"]
    assert [lab.places(name) for name in (running, off, passing, local)] == [{1: "running"}, {1: "shut off"}, {1: "running"}, {1: "shut off"}]


@pytest.mark.long
def test_a_managed_save_image_and_snapshots_are_named(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("asleep", "--mib", "64", "--storage", "bindfs")
    lab.virsh(1, "managedsave", name)
    refused = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "shutdown"})
    assert (refused.refused(), "managed-save image, which the method shutdown does not move" in refused.msg) == ("invalid_state", True), refused.msg
    lab.virsh(1, "managedsave-remove", name)
    lab.virsh(1, "snapshot-create-as", name, "first")
    refused = control.task(1, "cold_migrate", {"name": name, "destination": lab.host(2), "method": "offline"})
    assert (refused.refused(), "1 snapshots" in refused.msg) == ("not_supported", True), refused.msg
    assert lab.places(name) == {1: "shut off"}


@pytest.fixture
def protected(lab: Lab, control: Control) -> t.Iterator[t.Callable[[], None]]:
    """Return a function that protects all hosts; they forget the collection afterwards."""

    def protect() -> None:
        process = control.popen(control.playbook_command("protect", {"target": "kvmfleet_hosts", "protect_host_guard": False}))
        text, _none = process.communicate(timeout=300)
        assert process.returncode == 0, text

    yield protect
    forget_collection(lab, 3)


@pytest.mark.long
def test_a_definition_that_virsh_has_left_over_is_refused(lab: Lab, control: Control, guest: Make, protected: t.Callable[[], None]) -> None:
    """C(virsh migrate) keeps the definition on the source unless it is told otherwise. The guest runs on the second host."""
    name = guest("left", "--storage", "bindfs")
    lab.virsh(1, "migrate", "--live", "--p2p", "--persistent", name, f"qemu+tcp://{lab.host(2)}/system")
    protected()
    document, running = control.ledger.find_domains(name)[0].body, lab.virsh(2, "dumpxml", name)
    for result in control.play(1, [("cold_migrate", {"name": name, "destination": lab.host(to), "method": "offline"}) for to in (2, 3)]):
        assert (result["error_code"], result["changed"]) == ("conflict", False), result["msg"]
        assert f"the definition on {lab.host(1)} may be left over" in result["msg"], result["msg"]
    assert (control.records(), control.ledger.find_domains(name)[0].body) == ([], document)
    assert lab.places(name) == {1: "shut off", 2: "running"}
    assert lab.virsh(2, "dumpxml", name) == running
