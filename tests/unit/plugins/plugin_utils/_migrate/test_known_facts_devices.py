# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What protect wrote about two hosts proves a device only if all of it matches what the source has now."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDisk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import UnprovedDevice
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import write_sights
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.known_facts import SeenStorage, find_seen_devices
from ansible_collections.kvmfleet.migration.tests.simulator.facts import disk
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import run_one_move

PATH, STORE = "/dev/vg0/web", "lvm:x"
DEVICE = {"target": "vda", "path": PATH, "store": STORE}
SOURCE = {"name": "kvm1", "host_id": "id1", "host_uuid": "u1", "devices": {PATH: STORE}}
PEER = {"name": "kvm2", "host_id": "id2", "host_uuid": "u2", "sees": {"id1": {PATH: STORE}}}
HERE, THERE = HostRef(None, "id1", "u1"), HostRef(None, None, "u2")


def seen(device: dict[str, t.Any], *entries: dict[str, t.Any]) -> tuple[str, ...]:
    hosts = list(map(host_entry, entries))
    return find_seen_devices([decode(UnprovedDevice, device)], SeenStorage(hosts, HERE, {str(one.host_id): one.seen_of("id1") for one in hosts}), THERE)


def test_a_device_with_the_same_identity_on_both_hosts_is_proved() -> None:
    assert seen(DEVICE, SOURCE, PEER) == (PATH,)


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
def test_a_device_with_a_missing_or_different_identity_is_not_proved(device: dict[str, t.Any], entries: list[dict[str, t.Any]]) -> None:
    assert seen(device, *entries) == ()


SAVED = {"target": "vda", "kind": "block", "path": PATH, "readonly": False, "optional": False, "folders": [], "wwn": STORE, "seen_by": ["id2", "id9"]}
BASE = {**SAVED, "kind": "file", "path": "/images/vda", "wwn": None, "backing_devices": {PATH: STORE}}
UNSEEN = {**PEER, "sees": {}}


def seen_when_saved(device: dict[str, t.Any], saved: dict[str, t.Any], *entries: dict[str, t.Any]) -> tuple[str, ...]:
    return find_seen_devices([decode(UnprovedDevice, device)], SeenStorage(list(map(host_entry, entries)), HERE, {}, {}, [decode(SavedDisk, saved)]), THERE)


@pytest.mark.parametrize("saved", [SAVED, BASE])
@pytest.mark.parametrize("entries", [[SOURCE, UNSEEN], [{**SOURCE, "devices": {}}, UNSEEN], [UNSEEN], [{**SOURCE, "devices": {PATH: "lvm:old"}}, UNSEEN]])
def test_a_device_that_the_destination_saw_when_the_guest_was_saved_is_proved(entries: list[dict[str, t.Any]], saved: dict[str, t.Any]) -> None:
    """The guest has moved since: the host that has it now has not reported its devices."""
    assert seen_when_saved(DEVICE, saved, *entries) == (PATH,)


@pytest.mark.parametrize(
    ("device", "saved", "entries"),
    [
        ({**DEVICE, "store": None}, {**SAVED, "wwn": None}, [UNSEEN]),
        ({**DEVICE, "store": "lvm:new"}, SAVED, [UNSEEN]),
        (DEVICE, {**SAVED, "path": "/dev/vg0/db"}, [UNSEEN]),
        (DEVICE, {**SAVED, "seen_by": ["id9"]}, [UNSEEN]),
        (DEVICE, {key: value for key, value in SAVED.items() if key != "seen_by"}, [UNSEEN]),
        (DEVICE, SAVED, []),
        (DEVICE, SAVED, [{**UNSEEN, "host_uuid": "u9"}]),
        (DEVICE, SAVED, [UNSEEN, {**UNSEEN, "host_id": "id3"}]),
        (DEVICE, SAVED, [{**UNSEEN, "host_id": None}]),
        ({**DEVICE, "path": "/dev/sdb"}, {**SAVED, "path": "/dev/sdb"}, [UNSEEN]),
    ],
    ids=["no identity", "changed here", "another path", "unseen", "not known", "no peer", "another host", "twins", "no id", "a name of one boot"],
)
def test_what_was_not_seen_when_the_guest_was_saved_is_not_proved(device: dict[str, t.Any], saved: dict[str, t.Any], entries: list[dict[str, t.Any]]) -> None:
    assert seen_when_saved(device, saved, SOURCE, *entries) == ()


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/sdb", "/dev/dm-3", "/dev/nvme0n1", "/dev/nvme1n2p3", "/dev/mapper/mpatha", "/srv/disks/web1"),
        *("/dev//sdb", "//dev/sdb", "/dev/./sdb", "/dev/mapper/../sdb", "/dev/block/8:16", "/dev/disk/by-diskseq/9", "/dev/disk/by-diskseq/9-part1"),
    ],
)
def test_a_name_that_a_host_assigns_itself_counts_for_one_boot(path: str) -> None:
    """After the next one, the destination may have another device of the same SAN there, to which the guest would write."""
    device, hosts = UnprovedDevice("vda", path, "wwn:1"), [host_entry({**SOURCE, "devices": {path: "wwn:1"}}), host_entry(PEER)]

    def seen_in(boots: dict[str, str], boot_there: str | None) -> tuple[str, ...]:
        return find_seen_devices([device], SeenStorage(hosts, HERE, {"id2": {path: "wwn:1"}}, boots), THERE, boot_there=boot_there)

    assert seen_in({"id2": "b1"}, "b1") == (path,)
    for boots, there in (({"id2": "b1"}, "b2"), ({"id2": "b1"}, None), ({}, "b1"), ({}, None), ({"id1": "b1"}, "b1")):
        assert seen_in(boots, there) == ()


@pytest.mark.parametrize(
    "path",
    ["/dev/disk/by-id/wwn-0x1", "/dev/disk/by-path/ip-10.0.0.9:3260-iscsi-iqn.a:b-lun-1", "/dev/disk/by-id/nvme-eui.1", "/dev/mapper/vm1", "/dev/vg0/web"],
)
def test_another_name_is_proved_for_all_boots(path: str) -> None:
    hosts = [host_entry({**SOURCE, "devices": {path: "wwn:1"}}), host_entry(PEER)]
    known = SeenStorage(hosts, HERE, {"id2": {path: "wwn:1"}}, {"id2": "b1"})
    assert find_seen_devices([UnprovedDevice("vda", path, "wwn:1")], known, THERE, boot_there="b2") == (path,)


def test_a_volume_is_proved_by_the_device_that_the_pools_of_both_hosts_have() -> None:
    volume = decode(UnprovedDevice, {"target": "vda", "path": "vms/web", "store": STORE})
    own, other = StoragePool("vms", "logical", path="/dev/vg0"), StoragePool("vms", "logical", path="/dev/vg1")
    hosts = [host_entry(SOURCE), host_entry(PEER)]
    known = SeenStorage(hosts, HERE, {str(one.host_id): one.seen_of("id1") for one in hosts})
    assert find_seen_devices([volume], known, THERE, [own], [own]) == ("vms/web",)
    for there in ([other], []):
        assert find_seen_devices([volume], known, THERE, [own], there) == ()
    assert find_seen_devices([volume], known, THERE) == ()


def test_a_move_with_a_block_device_is_refused_without_the_proof_of_protect(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    prepare = control.source._prepare
    monkeypatch.setattr(control.source, "_prepare", lambda asked: with_device(prepare(asked)))
    refused = run_one_move(control)
    assert (refused.error.error_code, "is not known to see" in str(refused.error)) == ("unsafe", True)
    assert [record.status for record in control.records()] == ["conflict"]

    ids = {"kvm1": "11111111-1111-4111-8111-111111111111", "kvm2": "22222222-2222-4222-8222-222222222222"}
    for name, told in (("kvm1", {"devices": {PATH: STORE}}), ("kvm2", {"sees": {ids["kvm1"]: {PATH: STORE}}})):
        body = {"schema": 1, "host_id": ids[name], "name": name, "machine_id": None, "host_uuid": control.fleet.machines[name].host_uuid, "state": "enabled"}
        control.ledger.put_host(host_entry({**body, "ledger_id": control.ledger.ledger_id, "reason": "", "since": None, "by": "x", **told}), None)
    moved = run_one_move(control)
    assert moved.error is None
    assert moved.record.status == "completed"
    assert moved.record.domain.uuid == UUID
    assert [warning for warning in control.warnings if PATH in warning] == []


@pytest.mark.parametrize(("saved_on", "error"), [("kvm3", None), ("kvm1", "unsafe")])
def test_a_guest_that_has_moved_since_it_was_saved_moves_on(control: Control, monkeypatch: pytest.MonkeyPatch, saved_on: str, error: str | None) -> None:
    """While it is on the host that was saved, what other hosts have seen of that host is newer."""
    control.fleet.guest()
    prepare = control.source._prepare
    monkeypatch.setattr(control.source, "_prepare", lambda asked: with_device(prepare(asked)))
    ids = {name: f"{number}1111111-1111-4111-8111-111111111111" for number, name in enumerate(("kvm1", "kvm2"), 1)}
    uuids = {"kvm3": "u3", **{name: control.fleet.machines[name].host_uuid for name in ids}}
    for name, host_id in ids.items():
        control.ledger.put_host(host_entry({"host_id": host_id, "name": name, "host_uuid": uuids[name], "state": "enabled"}), None)
    saved = {"host": {"host": saved_on, "host_id": ids.get(saved_on, "id3"), "host_uuid": uuids[saved_on]}, "disks": [{**SAVED, "seen_by": [ids["kvm2"]]}]}
    here = {"host": "kvm1", "host_id": ids["kvm1"], "host_uuid": uuids["kvm1"]}
    control.ledger.put_domain(domain_entry({"uuid": UUID, "name": "web1", "possible_hosts": [here], "protected": saved}), None)
    moved = run_one_move(control)
    assert (moved.error.error_code if moved.error else None) == error


def test_a_move_with_a_numbered_name_needs_the_boot_in_which_protect_has_seen_it(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    prepare = control.source._prepare
    monkeypatch.setattr(control.source, "_prepare", lambda asked: with_device(prepare(asked), "/dev/sdb"))
    ids = {"kvm1": "11111111-1111-4111-8111-111111111111", "kvm2": "22222222-2222-4222-8222-222222222222"}
    for name, told in (("kvm1", {"devices": {"/dev/sdb": STORE}}), ("kvm2", {})):
        body = {"host_id": ids[name], "name": name, "host_uuid": control.fleet.machines[name].host_uuid, "state": "enabled"}
        control.ledger.put_host(host_entry({**body, **told}), None)
    write_sights(control.ledger, ids["kvm2"], {ids["kvm1"]: {"/dev/sdb": STORE}}, "b1")

    refused = run_one_move(control)
    assert "For /dev/sdb, that counts until kvm2 boots again" in str(refused.error)
    control.say("kvm2", boot_id="b2")
    assert run_one_move(control).error is not None
    control.say("kvm2", boot_id="b1")
    assert run_one_move(control).error is None


def test_what_was_seen_is_not_taken_for_seen_in_a_later_boot(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protect may write the sights of a host that has booted while a task reads them."""
    ids = {"kvm1": "11111111-1111-4111-8111-111111111111", "kvm2": "22222222-2222-4222-8222-222222222222"}
    for name, host_id in ids.items():
        control.ledger.put_host(host_entry({"host_id": host_id, "name": name, "host_uuid": None, "state": "enabled"}), None)
    write_sights(control.ledger, ids["kvm2"], {ids["kvm1"]: {"/dev/sdb": STORE}}, "b1")
    read = control.ledger.list_sights_of

    def read_before_protect(host_id: str) -> t.Any:
        found = read(host_id)
        write_sights(control.ledger, ids["kvm2"], {ids["kvm1"]: {"/dev/sdb": "wwn:2"}}, "b2")
        return found

    monkeypatch.setattr(control.ledger, "list_sights_of", read_before_protect)
    known = SeenStorage.from_ledger(control.ledger, HostRef("kvm1", ids["kvm1"], None), UUID)
    assert (known.sights, known.boots) == ({ids["kvm2"]: {"/dev/sdb": STORE}}, {ids["kvm2"]: "b1"})


def test_a_move_onto_another_file_at_the_destination_is_refused(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    prepare = control.source._prepare
    monkeypatch.setattr(control.source, "_prepare", lambda asked: with_other_file(prepare(asked)))
    refused = run_one_move(control)
    assert "The image /srv/images/vda.qcow2 of disk vda is another file on kvm2" in str(refused.error)
    assert [record.status for record in control.records()] == ["conflict"]


def with_other_file(answer: dict[str, t.Any]) -> dict[str, t.Any]:
    (domain,) = answer["survey"]["domains"]
    domain["request"]["disks"] = [disk("vda")]
    domain["other_files"] = {uri: ["/srv/images/vda.qcow2"] for uri in domain["paths"]}
    return answer


def test_the_refusal_of_a_volume_with_a_numbered_name_says_what_else_it_needs(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.fleet.guest()
    prepare = control.source._prepare
    pool = {"name": "san", "type": "mpath", "active": True, "path": "/dev/mapper", "volumes": {"dm-3": "/dev/mapper/mpatha"}}

    def prepare_volume(asked: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        answer = with_device(prepare(asked), "san/dm-3")
        for facts in (answer["survey"]["source"], *answer["survey"]["destinations"].values()):
            facts["pools"] = [pool]
        return answer

    monkeypatch.setattr(control.source, "_prepare", prepare_volume)
    assert "For san/dm-3, that counts until kvm2 boots again" in str(run_one_move(control).error)


def with_device(answer: dict[str, t.Any], path: str = PATH) -> dict[str, t.Any]:
    for domain in answer["survey"]["domains"]:
        domain["unproved_devices"] = [{**DEVICE, "path": path}]
        domain["request"]["disks"] = [disk("vda", None, kind="block", source=path, store=STORE)]
    return answer
