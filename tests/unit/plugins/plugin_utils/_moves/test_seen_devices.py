# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What protect wrote about two hosts proves a device only if all of it matches what the source has now."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.seen_devices import seen_devices
from ansible_collections.kvmfleet.migration.tests.simulator.facts import disk
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._moves.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._moves.situations import one

PATH, STORE = "/dev/vg0/web", "lvm:x"
DEVICE = {"target": "vda", "path": PATH, "store": STORE}
SOURCE = {"name": "kvm1", "host_id": "id1", "host_uuid": "u1", "devices": {PATH: STORE}}
PEER = {"name": "kvm2", "host_id": "id2", "host_uuid": "u2", "sees": {"id1": {PATH: STORE}}}
HERE, THERE = {"host_id": "id1", "host_uuid": "u1"}, {"host_id": None, "host_uuid": "u2"}


def test_a_device_with_one_identity_on_both_is_proved() -> None:
    assert seen_devices([DEVICE], [SOURCE, PEER], HERE, THERE) == [PATH]


@pytest.mark.parametrize(
    ("device", "entries"),
    [
        (DEVICE, []),
        (DEVICE, [SOURCE]),
        (DEVICE, [PEER]),
        ({**DEVICE, "store": None}, [{**SOURCE, "devices": {PATH: None}}, {**PEER, "sees": {"id1": {PATH: None}}}]),
        ({**DEVICE, "store": "lvm:new"}, [SOURCE, PEER]),
        (DEVICE, [{**SOURCE, "devices": {PATH: "lvm:old"}}, PEER]),
        (DEVICE, [SOURCE, {**PEER, "sees": {"id1": {PATH: "lvm:other"}}}]),
        (DEVICE, [SOURCE, {**PEER, "sees": {"id9": {PATH: STORE}}}]),
        (DEVICE, [SOURCE, {**PEER, "host_uuid": "u9"}]),
        (DEVICE, [SOURCE, PEER, {**PEER, "host_id": "id3"}]),
        (DEVICE, [{**SOURCE, "host_id": None}, PEER]),
    ],
    ids=["no ledger", "no peer", "no source", "no identity", "changed here", "changed since", "another there", "another's", "another host", "twins", "no id"],
)
def test_anything_less_proves_nothing(device: dict[str, t.Any], entries: list[dict[str, t.Any]]) -> None:
    assert seen_devices([device], entries, HERE, THERE) == []


def test_a_move_is_refused_without_the_proof_and_started_with_it(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    prepare = control.source._prepare
    monkeypatch.setattr(control.source, "_prepare", lambda asked: with_device(prepare(asked)))
    refused = one(control)
    assert (refused.error.error_code, "is not known to see" in str(refused.error)) == ("unsafe", True)
    assert control.records() == []

    ids = {"kvm1": "11111111-1111-4111-8111-111111111111", "kvm2": "22222222-2222-4222-8222-222222222222"}
    for name, told in (("kvm1", {"devices": {PATH: STORE}}), ("kvm2", {"sees": {ids["kvm1"]: {PATH: STORE}}})):
        body = {"schema": 1, "host_id": ids[name], "name": name, "machine_id": None, "host_uuid": control.fleet.machines[name].host_uuid, "state": "enabled"}
        control.ledger.put_host({**body, "ledger_id": control.ledger.ledger_id, "reason": "", "since": None, "by": "x", **told}, None)
    moved = one(control)
    assert moved.error is None
    assert moved.record["status"] == "completed"
    assert moved.record["domain"]["uuid"] == UUID
    assert [warning for warning in control.warnings if PATH in warning] == []


def with_device(answer: dict[str, t.Any]) -> dict[str, t.Any]:
    for domain in answer["survey"]["domains"]:
        domain["unproved_devices"] = [DEVICE]
        domain["request"]["disks"] = [disk("vda", None, kind="block", source=PATH, store=STORE)]
    return answer
