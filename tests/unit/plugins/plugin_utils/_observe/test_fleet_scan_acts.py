# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others have done to a domain: what proves it, what does not, and that it is written once."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import SeenDomain
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document, DomainEntry, MissingNote
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.fleet_scan import HostLook, find_foreign_act, find_seen_twice, record_foreign_acts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry

DOMAIN = "55555555-0000-4000-8000-000000000005"
KVM1, KVM2, KVM3 = (HostRef(f"kvm{number}", f"33333333-0000-4000-8000-00000000000{number}", None) for number in (1, 2, 3))
Given = dict[str, t.Any]
RUNNING = SeenDomain(DOMAIN, "web1", True, "running", "booted", False, "boot A", None)
ARRIVED: Given = {"reason": "migrated"}
OFF: Given = {"active": False, "state": "shut off", "reason": "shutdown"}
WAS_OFF: Given = {"state": "shut off"}


def seen(**told: t.Any) -> SeenDomain:
    return dataclasses.replace(RUNNING, **told)


def known(*hosts: HostRef, generation: int = 3, **saved: t.Any) -> DomainEntry:
    """Return the document of a domain that was seen running on the first host, in the boot A."""
    kept = {"host": encode(hosts[0]), "state": "running", "boot_id": "boot A", "own_act": None, **saved}
    return domain_entry({"uuid": DOMAIN, "name": "web1", "possible_hosts": encode(hosts), "generation": generation, "protected": kept})


def act_of(entry: DomainEntry, host: HostRef, **told: t.Any) -> str | None:
    found = find_foreign_act(entry, seen(**told), host, "me")
    return found.act if found else None


@pytest.mark.parametrize(
    ("saved", "host", "told", "expected"),
    [
        ({}, KVM1, {}, None),
        ({}, KVM2, ARRIVED, "moved"),
        ({}, KVM2, {"reason": "unpaused"}, "moved"),
        # It was stopped there and started here.
        ({}, KVM2, {"reason": "booted"}, "started"),
        (WAS_OFF, KVM2, {}, "started"),
        ({}, KVM1, OFF, "stopped"),
        ({"state": "paused"}, KVM1, {**OFF, "reason": "destroyed"}, "stopped"),
        ({}, KVM1, {**OFF, "reason": "saved"}, "stopped"),
        # The daemon of the host was started again, and has forgotten the reason.
        ({}, KVM1, {**OFF, "reason": "unknown"}, "stopped"),
        (WAS_OFF, KVM1, {}, "started"),
        (WAS_OFF, KVM1, {"state": "paused"}, "started"),
        (WAS_OFF, KVM1, {"boot_id": "boot B"}, "started"),
    ],
)
def test_a_difference_to_the_document_is_an_act_of_others(saved: Given, host: HostRef, told: Given, expected: str | None) -> None:
    assert act_of(known(KVM1, **saved), host, **told) == expected


@pytest.mark.parametrize(
    ("saved", "told"),
    [
        # The guest or its host has failed.
        ({}, {**OFF, "reason": "crashed"}),
        ({}, {**OFF, "reason": "failed"}),
        ({}, {**OFF, "reason": "daemon"}),
        ({}, {**OFF, "reason": "unknown", "boot_id": "boot B"}),
        ({}, {**OFF, "reason": "unknown", "boot_id": None}),
        # It was moved: the host that it runs on reports that.
        ({}, {**OFF, "reason": "migrated"}),
        # libvirt has started it after a boot.
        (WAS_OFF, {"autostart": True, "boot_id": "boot B"}),
        (WAS_OFF, {"autostart": True, "boot_id": None}),
        # A job uses the domain, or its host is held.
        (WAS_OFF, {"state": None}),
        ({}, {**OFF, "state": None}),
        # The collection has done it since: a drain has shut it down, a recovery has started it.
        ({}, {**OFF, "own_act": "1"}),
        (WAS_OFF, {"own_act": "1"}),
        ({"own_act": "1"}, {**OFF, "own_act": "2"}),
        # This user may not know what the collection has done.
        ({}, {**OFF, "own_act": ABSENT}),
        (WAS_OFF, {"own_act": ABSENT}),
    ],
)
def test_what_others_have_not_done_is_no_act(saved: Given, told: Given) -> None:
    assert act_of(known(KVM1, **saved), KVM1, **told) is None


def test_an_own_stop_that_was_seen_does_not_hide_a_later_one() -> None:
    assert act_of(known(KVM1, own_act="1"), KVM1, **OFF, own_act="1") == "stopped"


def test_a_document_of_an_earlier_version_proves_no_stop() -> None:
    entry = known(KVM1)
    saved = {key: value for key, value in (entry.protected or {}).items() if key != "own_act"}
    assert act_of(dataclasses.replace(entry, protected=saved), KVM1, **OFF) is None
    assert act_of(dataclasses.replace(entry, protected=saved), KVM2, **ARRIVED) == "moved"


@pytest.mark.parametrize(("host", "told"), [(KVM2, ARRIVED), (KVM2, OFF), (KVM1, OFF), (KVM1, {})])
def test_a_domain_that_may_be_on_several_hosts_proves_nothing(host: HostRef, told: Given) -> None:
    assert act_of(known(KVM1, KVM2), host, **told) is None


def test_a_domain_that_is_still_arriving_proves_nothing() -> None:
    assert act_of(known(KVM1), KVM2, state="paused", reason="migration") is None


def test_a_definition_that_is_off_on_another_host_proves_nothing() -> None:
    assert act_of(known(KVM1), KVM2, **OFF) is None


def test_a_domain_that_was_never_protected_can_only_be_moved() -> None:
    entry = domain_entry({"uuid": DOMAIN, "name": "web1", "possible_hosts": [encode(KVM1)], "generation": 1})
    assert act_of(entry, KVM2, **ARRIVED) == "moved"
    assert act_of(entry, KVM1, **OFF) is None
    assert act_of(dataclasses.replace(entry, possible_hosts=()), KVM2, **ARRIVED) is None


def test_a_move_that_was_written_is_new_again_only_after_another_one() -> None:
    act = find_foreign_act(known(KVM1), seen(**ARRIVED), KVM2, "me")
    assert act is not None
    again = dataclasses.replace(known(KVM1), foreign_acts=(act,))
    assert act_of(again, KVM2, **ARRIVED) is None
    # The collection has moved it back since, or somebody else has.
    assert act_of(dataclasses.replace(again, generation=4), KVM2, **ARRIVED) == "moved"
    assert act_of(dataclasses.replace(again, foreign_acts=(act, dataclasses.replace(act, host=KVM1))), KVM2, **ARRIVED) == "moved"


@pytest.mark.parametrize(
    ("host", "told", "expected"),
    [
        (KVM2, ARRIVED, "was moved from kvm1 to kvm2 without this collection"),
        (KVM2, {"reason": "booted"}, "was started on kvm2 instead of kvm1 without this collection"),
        (KVM1, OFF, "was stopped on kvm1 without this collection (libvirt's reason: shutdown)"),
    ],
)
def test_an_act_is_described_with_its_hosts(host: HostRef, told: Given, expected: str) -> None:
    found = find_foreign_act(known(KVM1), seen(**told), host, "me")
    assert found is not None
    assert found.description == expected


class Desk:
    """A ledger with the domain on kvm1, and looks of hosts."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.ledger.put_domain(known(KVM1), None)

    def documents(self) -> dict[str, Document]:
        return {document.domain.uuid: document for document in self.ledger.list_domains()}

    def entry(self) -> DomainEntry:
        return self.documents()[DOMAIN].domain

    def look(self, *looks: tuple[HostRef, Given], **given: t.Any) -> list[str]:
        """Return the texts of the acts that these looks of hosts prove."""
        reports = [(host, HostLook(host.host_id, None, (seen(**told),))) for host, told in looks]
        options = {"documents": self.documents(), "excluded": frozenset(), "write": True, **given}
        return [found.text for found in record_foreign_acts(self.ledger, looks=reports, by="me", **options)]


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(("host", "told"), [(KVM2, ARRIVED), (KVM1, OFF)])
def test_the_same_act_is_written_once(desk: Desk, host: HostRef, told: Given) -> None:
    assert len(desk.look((host, told))) == 1
    assert desk.look((host, told)) == []
    assert len(desk.entry().foreign_acts or ()) == 1


def test_a_stop_and_a_start_are_two_acts(desk: Desk) -> None:
    desk.look((KVM1, OFF))
    assert desk.look((KVM1, {})) == ["web1 was started on kvm1 without this collection"]
    assert [act.act for act in desk.entry().foreign_acts or ()] == ["stopped", "started"]


def test_what_was_seen_is_kept_and_the_definition_stays(desk: Desk) -> None:
    desk.look((KVM2, ARRIVED))
    desk.look((KVM2, {**OFF, "own_act": None}))
    entry = desk.entry()
    assert entry.possible_hosts == (KVM2,)
    assert entry.saved is not None
    assert (entry.saved.state, entry.saved.boot_id, entry.saved.host) == ("shut off", "boot A", KVM1)


@pytest.mark.parametrize("looks", [[(KVM1, {})], [(KVM2, ARRIVED), (KVM1, ARRIVED)]])
def test_a_missing_domain_that_is_seen_again_is_not_missing_any_more(desk: Desk, looks: list[tuple[HostRef, Given]]) -> None:
    """The next evacuation of its host has to start it."""
    (document,) = desk.documents().values()
    note = MissingNote("2026-11-23T18:00:00.000Z", "me", KVM1)
    desk.ledger.put_domain(dataclasses.replace(document.domain, protected={**document.domain.protected, **WAS_OFF}, missing=note), document.version)
    assert desk.entry().is_missing
    for look in looks:
        assert len(desk.look(look)) == 1
    assert (desk.entry().possible_hosts, desk.entry().is_missing) == ((KVM1,), False)


def test_two_looks_at_once_write_an_act_once(desk: Desk) -> None:
    read = desk.documents()
    assert len(desk.look((KVM2, ARRIVED), documents=read)) == 1
    assert desk.look((KVM2, ARRIVED), documents=read) == []
    assert len(desk.entry().foreign_acts or ()) == 1


def test_a_report_that_is_older_than_the_document_proves_nothing(desk: Desk) -> None:
    read = desk.documents()
    now = read[DOMAIN]
    # Meanwhile the collection has moved the domain.
    desk.ledger.put_domain(dataclasses.replace(now.domain, possible_hosts=(KVM2,)), now.version)
    assert desk.look((KVM1, OFF), (KVM3, {**OFF}), documents=read) == []
    assert desk.entry().foreign_acts is ABSENT


def test_a_clock_that_was_set_back_hides_no_act_and_makes_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = "ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.fleet_scan.utc_now"
    monkeypatch.setattr(clock, lambda: "1970-01-01T00:00:00.000Z")
    assert len(desk.look((KVM2, ARRIVED))) == 1
    assert desk.look((KVM2, ARRIVED)) == []
    monkeypatch.setattr(clock, lambda: "2199-01-01T00:00:00.000Z")
    assert desk.look((KVM2, ARRIVED)) == []


@pytest.mark.parametrize("given", [{"excluded": frozenset({DOMAIN})}, {"documents": {}}])
def test_a_domain_that_is_moved_by_the_collection_or_unknown_proves_nothing(desk: Desk, given: Given) -> None:
    assert desk.look((KVM2, ARRIVED), **given) == []


def test_a_domain_that_two_hosts_report_as_active_proves_nothing(desk: Desk) -> None:
    assert desk.look((KVM1, {}), (KVM2, ARRIVED)) == []


def test_a_host_that_does_not_answer_proves_nothing(desk: Desk) -> None:
    assert desk.look() == []


def test_check_mode_returns_an_act_and_writes_nothing(desk: Desk) -> None:
    before = desk.documents()
    assert len(desk.look((KVM2, ARRIVED), write=False)) == 1
    assert desk.documents() == before


def test_an_act_that_cannot_be_written_says_why(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> t.NoReturn:
        raise Internal("The disk is full.")

    monkeypatch.setattr(desk.ledger, "put_domain", refuse)
    looks = [(KVM2, HostLook(None, None, (seen(**ARRIVED),)))]
    (found,) = record_foreign_acts(desk.ledger, desk.documents(), frozenset(), looks, "me", write=True)
    assert (found.text, found.problem) == ("web1 was moved from kvm1 to kvm2 without this collection", "The disk is full.")


def test_domains_on_several_hosts_are_named_with_all_hosts() -> None:
    looks = {host.label: HostLook(host.host_id, None, (seen(), seen(uuid=str(host.host_id)))) for host in (KVM3, KVM1, KVM2)}
    (found,) = find_seen_twice(looks, frozenset())
    assert (found.kind, found.hosts, found.domains) == ("domain_twice", ("kvm1", "kvm2", "kvm3"), (DOMAIN,))
    assert found.msg.startswith(f"Domain web1 ({DOMAIN}) was seen active on kvm1 and kvm2 and kvm3, and no move of it is known.")
    assert found.msg.endswith("If the domain is on several hosts then, find out immediately which copy is correct, and stop the others.")
    assert find_seen_twice(looks, frozenset([DOMAIN])) == []


def test_two_hosts_with_a_copied_id_are_two_hosts() -> None:
    looks = {name: HostLook(KVM1.host_id, number * 8, (seen(),)) for name, number in (("kvm1", "1"), ("kvm2", "2"))}
    assert [found.hosts for found in find_seen_twice(looks, frozenset())] == [("kvm1", "kvm2")]
