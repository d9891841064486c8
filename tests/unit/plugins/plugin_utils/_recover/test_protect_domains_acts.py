# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run of protect that finds what others have done to a domain since the last one."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
import uuid as uuid_module

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import TooLarge
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_domains import DomainSaver, ProtectOutcome, SaveAnswer, list_notes
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import (
    DOMAIN,
    KVM1,
    KVM2,
    KVM3,
    OTHER,
    Body,
    move,
    reported_domain,
)

SEEN: Body = {"reason": "booted", "boot_id": "boot A", "own_act": None}
OFF: Body = {**SEEN, "active": False, "state": "shut off", "reason": "shutdown"}
ARRIVED: Body = {**SEEN, "reason": "migrated"}


class Fleet:
    """A ledger in which the domain runs on kvm1, and hosts that report it. C(meanwhile) is called once, while a host is asked."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.meanwhile: t.Callable[[], object] = lambda: None
        self.remembered: list[Body] = []
        self.protect(KVM1, SEEN)

    def protect(self, host: HostRef, told: Body | None, write: bool = True, peers: list[Body] | None = None) -> ProtectOutcome:
        """Protect a host that reports the domain like this, or does not have it."""

        def ask(_uuids: list[str] | None) -> SaveAnswer:
            act, self.meanwhile = self.meanwhile, lambda: None
            act()
            domains = [reported_domain(**told)] if told else []
            return decode(SaveAnswer, {"domains": domains, "arriving": [], "unreadable": [], "remembered": self.remembered})

        return DomainSaver(self.ledger, host, ask, "me", write, [("kvm3", peers)]).save_domains()

    def acts(self) -> tuple[ForeignAct, ...]:
        document = self.ledger.read_domain(DOMAIN)
        assert document is not None
        return document.domain.foreign_acts or ()

    def move(self, source: HostRef, destination: HostRef) -> None:
        """Move the domain with the collection."""
        stored = self.ledger.open_record(move(source, destination))
        for status in (s.SCHEDULED, s.COMPLETED):
            stored = self.ledger.update_record(stored, dataclasses.replace(stored.record, status=status))


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


@pytest.mark.parametrize(
    ("host", "told", "act", "text"),
    [
        (KVM2, ARRIVED, "moved", "Domain web1 was moved from kvm1 to kvm2 without this collection."),
        (KVM1, OFF, "stopped", "Domain web1 was stopped on kvm1 without this collection (libvirt's reason: shutdown)."),
    ],
)
def test_an_act_of_others_is_written_and_reported_once(fleet: Fleet, host: HostRef, told: Body, act: str, text: str) -> None:
    outcome = fleet.protect(host, told)
    assert [(one.name, one.act, one.msg) for one in outcome.foreign_acts] == [("web1", act, text)]
    assert text in list_notes(outcome, "", {})
    assert [one.act for one in fleet.acts()] == [act]
    assert fleet.protect(host, told).foreign_acts == []
    assert len(fleet.acts()) == 1
    assert fleet.ledger.verify_audit() == []


def test_a_guest_in_conflict_may_be_on_the_host_that_reports_it(fleet: Fleet) -> None:
    """A person has moved it on while the record of its move is unsettled. It is not saved, and an evacuation of its new host does not leave it out."""
    stored = fleet.ledger.open_record(move(KVM1, KVM3))
    fleet.ledger.update_record(stored, stored.record.advance(s.SCHEDULED, "me").advance(s.ERROR, "me"))
    results = [fleet.protect(KVM2, ARRIVED, write) for write in (False, True, True)]
    assert [(len(one.conflicts), one.saved, one.unproved, one.is_changed) for one in results] == [(1, [], [], True), (1, [], [], True), (1, [], [], False)]
    document = fleet.ledger.read_domain(DOMAIN)
    assert document is not None
    assert [host.host for host in document.domain.possible_hosts] == ["kvm1", "kvm2"]


def test_a_guest_that_was_stopped_and_started_again_has_two_acts(fleet: Fleet) -> None:
    fleet.protect(KVM1, OFF)
    fleet.protect(KVM1, SEEN)
    assert [one.act for one in fleet.acts()] == ["stopped", "started"]


def test_a_guest_that_moved_there_and_back_has_two_acts(fleet: Fleet) -> None:
    fleet.protect(KVM2, ARRIVED)
    fleet.protect(KVM1, ARRIVED)
    assert [(one.act, one.host.host) for one in fleet.acts()] == [("moved", "kvm2"), ("moved", "kvm1")]


def test_the_old_host_adds_nothing_to_a_move(fleet: Fleet) -> None:
    fleet.protect(KVM1, {**OFF, "reason": "migrated"})
    fleet.protect(KVM2, ARRIVED)
    fleet.protect(KVM1, {**OFF, "reason": "migrated"})
    assert [(one.act, one.host.host) for one in fleet.acts()] == [("moved", "kvm2")]


def test_a_move_of_the_collection_is_no_act_of_others(fleet: Fleet) -> None:
    fleet.move(KVM1, KVM2)
    assert fleet.protect(KVM2, ARRIVED).foreign_acts == []
    assert fleet.protect(KVM1, None).foreign_acts == []
    assert fleet.acts() == ()


def test_a_move_in_flight_is_no_act_of_others(fleet: Fleet) -> None:
    fleet.ledger.open_record(move(KVM1, KVM2))
    assert fleet.protect(KVM2, ARRIVED).foreign_acts == []
    assert fleet.protect(KVM1, OFF).foreign_acts == []
    assert fleet.acts() == ()


def test_a_move_that_ends_while_its_host_is_asked_is_no_act_of_others(fleet: Fleet) -> None:
    fleet.meanwhile = lambda: fleet.move(KVM1, KVM2)
    fleet.protect(KVM2, ARRIVED)
    assert fleet.acts() == ()


@pytest.mark.parametrize("by_peer", [True, False])
def test_a_move_that_the_ledger_has_lost_is_no_act_of_others(fleet: Fleet, by_peer: bool) -> None:
    lost = {**encode(move(KVM1, KVM2)), "id": str(uuid_module.uuid4()), "generation": 9, "status": s.COMPLETED, "ledger_id": fleet.ledger.ledger_id}
    fleet.remembered = [] if by_peer else [lost]
    assert fleet.protect(KVM2, ARRIVED, peers=[lost] if by_peer else None).foreign_acts == []
    assert fleet.acts() == ()


def test_a_start_or_stop_by_the_collection_is_no_act_of_others(fleet: Fleet) -> None:
    assert fleet.protect(KVM1, {**OFF, "own_act": "1"}).foreign_acts == []
    assert fleet.protect(KVM1, {**SEEN, "own_act": "2"}).foreign_acts == []
    # A later one is.
    assert [one.act for one in fleet.protect(KVM1, {**OFF, "own_act": "2"}).foreign_acts] == ["stopped"]


def test_check_mode_reports_an_act_and_writes_nothing(fleet: Fleet) -> None:
    assert [one.act for one in fleet.protect(KVM2, ARRIVED, write=False).foreign_acts] == ["moved"]
    assert fleet.acts() == ()
    assert [one.act for one in fleet.protect(KVM2, ARRIVED).foreign_acts] == ["moved"]


def test_another_control_node_that_looks_at_the_same_time_writes_nothing(fleet: Fleet) -> None:
    fleet.meanwhile = lambda: fleet.protect(KVM2, ARRIVED)
    assert fleet.protect(KVM2, ARRIVED).foreign_acts == []
    assert len(fleet.acts()) == 1


def refuse_large(ledger: FileLedger, entry: DomainEntry, *rest: t.Any, put: t.Any = FileLedger.put_domain) -> t.Any:
    """Write the document of a domain, unless it is that of C(large). etcd takes no request above 1.5 MiB."""
    if entry.name == "large":
        raise TooLarge("The etcd ledger rejected a document. Nothing was written.", "Raise --max-request-bytes of its members.")
    return put(ledger, entry, *rest)


def test_a_domain_that_the_ledger_finds_too_large_hinders_no_other(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes after it in the order of the host would never be saved, and could not be evacuated."""
    ledger = FileLedger(str(tmp_path / "ledger"))
    monkeypatch.setattr(FileLedger, "put_domain", refuse_large)
    told = [reported_domain(uuid=OTHER, name="large", active=False, state="shutoff", autostart=True), reported_domain()]
    outcome = DomainSaver(ledger, KVM1, lambda uuids: decode(SaveAnswer, {"domains": told, "arriving": [], "unreadable": []}), "me", True).save_domains()
    assert [one.name for one in outcome.saved] == ["web1"]
    why = "The etcd ledger rejected a document. Nothing was written. Raise --max-request-bytes of its members."
    assert f"Domain large is not saved now: {why}" in list_notes(outcome, "", {})
    assert outcome.refused == [f"Domain large is not saved, and would not be started elsewhere as it is now: {why}"]
    # The ledger does not know that it is on this host alone, so the host may not start it by itself after a boot.
    assert outcome.left_over == ["large"]


def test_a_guest_that_may_run_twice_is_reported_although_the_ledger_finds_it_too_large(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = fleet.ledger.open_record(move(KVM1, KVM3))
    fleet.ledger.update_record(stored, stored.record.advance(s.SCHEDULED, "me").advance(s.ERROR, "me"))
    monkeypatch.setattr(FileLedger, "put_domain", lambda ledger, entry, *rest: refuse_large(ledger, dataclasses.replace(entry, name="large"), *rest))
    outcome = fleet.protect(KVM2, ARRIVED)
    assert ["assigns it to another host" in one.msg for one in outcome.conflicts] == [True]
    assert not outcome.is_changed
