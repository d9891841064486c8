# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook C(protect) saves of real hosts, and its result."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.tests.integration.protect.conftest import PASSWORD, Protection
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


def with_password(lab: Lab, name: str, number: int) -> None:
    """Give a guest that is off a screen with a password."""
    graphics = f"<graphics type='vnc' port='-1' autoport='yes' listen='127.0.0.1' passwd='{PASSWORD}'/></devices>"
    definition = lab.virsh(number, "dumpxml", name, "--security-info").replace("</devices>", graphics)
    lab("exec", lab.host(number), "--", "tee", f"/var/lib/libvirt/{name}.xml", stdin=definition)
    lab.virsh(number, "define", f"/var/lib/libvirt/{name}.xml")


def seen_by(control: Protection, name: str) -> set[str]:
    """Return the names of the hosts that see a guest's only disk."""
    names = {document.body["host_id"]: document.body["name"] for document in control.ledger.list_hosts()}
    (disk,) = control.document(name)["protected"]["disks"]
    return {names[host_id] for host_id in disk["seen_by"]}


def test_protect_saves_all_domains_and_a_second_run_changes_nothing(lab: Lab, control: Protection, guests: Make) -> None:
    one, two = lab.host(1), lab.host(2)
    for kind in ("shared", "bindfs", "local", "nbd"):
        guests(kind, "--storage", kind)
    guests("held", "--paused", "--autostart", on=2)
    guests("quiet", "--off", on=2)
    guests("passing", "--transient", on=2)
    with_password(lab, "quiet", 2)

    predicted = control.protect("--check", "--diff")
    assert (predicted.code, predicted.changed) == (0, {one: 2, two: 2}), predicted.text
    assert not control.path.exists()

    first = control.protect("-vvv", "--diff")
    assert first.code == 0, first.text
    assert (first.names(one, "saved"), first.names(two, "saved")) == (["bindfs", "local", "nbd", "shared"], ["held", "passing", "quiet"])
    assert PASSWORD not in first.text
    assert {name: seen_by(control, name) for name in ("shared", "bindfs", "local", "nbd")} == {
        "shared": {one, two},
        "bindfs": {one, two},
        "local": {one},
        "nbd": {one, two},
    }
    assert [(disk["name"], disk["target"]) for disk in first.result[one]["unproved"]] == [("local", "vda")]
    assert first.result[two]["unproved"] == []
    assert first.result[one]["guard"]["installed"] is True

    second = control.protect()
    assert (second.code, second.changed) == (0, {one: 0, two: 0}), second.text
    assert second.names(one, "unchanged") == ["bindfs", "local", "nbd", "shared"]
    saved = {name: control.document(name)["protected"] for name in ("held", "quiet", "passing")}
    assert {name: (one["state"], one["persistent"], one["autostart"]) for name, one in saved.items()} == {
        "held": ("paused", True, True),
        "quiet": ("shut off", True, False),
        "passing": ("running", False, False),
    }
    assert PASSWORD in saved["quiet"]["definition"]
    shown = control.lookup("domains")
    assert "quiet" in shown
    assert PASSWORD not in shown
    assert {path.stat().st_mode & 0o777 for path in (control.path / "domains").iterdir()} == {0o600}


@pytest.mark.long
def test_only_changed_domains_are_saved_again_and_vanished_ones_are_missing(lab: Lab, control: Protection, guests: Make) -> None:
    one, two = lab.host(1), lab.host(2)
    guests("still")
    guests("mover", "--storage", "bindfs")
    guests("passing", "--transient")
    control.protect()
    lab.virsh(1, "autostart", "still")
    lab.virsh(1, "destroy", "passing")
    lab.virsh(1, "migrate", "--live", "--p2p", "--persistent", "--undefinesource", "mover", f"qemu+tcp://{lab.rows()[two]['address']}/system")

    run = control.protect()
    assert run.code == 0, run.text
    assert [(entry["name"], entry["changes"]) for entry in run.result[one]["saved"]] == [("still", ["autostart"])]
    assert run.names(two, "saved") == ["mover"]
    assert [place["host"] for place in control.document("mover")["possible_hosts"]] == [two]
    # The first host may have been asked before the second one took the guest over.
    assert "passing" in run.names(one, "missing")
    again = control.protect()
    assert (again.changed, again.names(one, "missing")) == ({one: 0, two: 0}, ["passing"])
    assert control.document("passing")["protected"]["state"] == "running"


@pytest.mark.long
def test_a_domain_that_a_record_places_on_another_host_is_a_conflict(lab: Lab, control: Protection, guests: Make) -> None:
    one, two = lab.host(1), lab.host(2)
    guests("twice")
    guests("plain")
    control.protect()
    entries = {document.body["name"]: document.body for document in control.ledger.list_hosts()}
    ends = [HostRef(name, entries[name]["host_id"], entries[name]["host_uuid"]) for name in (one, two)]
    record = new_record(s.EVACUATION, DomainRef(lab.uuid("twice"), "twice"), *ends, policy={}, by="a test")
    stored = control.ledger.open_record(record)
    for status in (s.PRE_MIGRATING, s.DONE):
        stored = control.ledger.update_record(stored, stored.record.advance(status, "a test"))

    lab.virsh(1, "autostart", "plain")
    run = control.protect()
    assert run.code != 0
    assert [entry["name"] for entry in run.result[one]["conflicts"]] == ["twice"]
    assert record.record_id in run.text
    assert run.names(one, "saved") == ["plain"]
    assert [place["host"] for place in control.document("twice")["possible_hosts"]] == [two]


@pytest.mark.long
def test_another_ledger_is_refused_and_a_dead_host_does_not_stop_the_others(lab: Lab, control: Protection, guests: Make) -> None:
    one, two = lab.host(1), lab.host(2)
    guests("still")
    control.protect()
    other = control.protect(ledger=control.folder / "other")
    assert other.code != 0
    assert control.ledger.ledger_id in other.result[one]["error"]
    assert other.changed == {one: 0, two: 0}

    lab("poweroff", two)
    run = control.protect()
    assert run.code != 0
    assert run.names(one, "unchanged") == ["still"]
    assert "cannot be reached" in run.result[two]["error"]


@pytest.mark.long
def test_protect_keeps_the_saved_states_of_a_held_host(lab: Lab, control: Protection, guests: Make) -> None:
    one = lab.host(1)
    guests("ran", "--autostart")
    guests("rested", "--off")
    control.protect()
    lab("poweroff", one)
    lab("poweron", one)
    assert lab.places("ran") == {1: "shut off"}
    run = control.protect()
    assert (run.code, run.result[one]["guard"]["held"], run.changed[one]) == (0, True, 0), run.text
    assert {name: control.document(name)["protected"]["state"] for name in ("ran", "rested")} == {"ran": "running", "rested": "shut off"}


@pytest.mark.parametrize("target", ["", "nobody"])
def test_a_target_without_hosts_is_refused(control: Protection, target: str) -> None:
    process = control.popen(["ansible-playbook", "-i", control.inventory, "kvmfleet.migration.protect", "-e", f"target={target}"])
    text, _none = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "Nothing was changed" in text
