# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
import uuid as uuid_module

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, HostEntry, MissingNote
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_domains import list_notes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_steps import ProtectSteps
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import (
    DOMAIN,
    FOLDER,
    ID1,
    KVM1,
    KVM2,
    NONCE,
    OTHER,
    SECRET,
    UUID1,
    Body,
    evacuation,
    move,
    reported_domain,
)

DEVICE = {"device": "/dev/watchdog0", "identity": "i6300ESB timer", "timeout_seconds": 10, "reset_seconds": 36}


class Host:
    """The module's half. C(meanwhile) is called once, after the host was asked for its domains and before it answers."""

    def __init__(self) -> None:
        self.host_id: str | None = None
        self.domains = [reported_domain()]
        self.folders = {FOLDER: NONCE}
        self.unseen: set[str] = set()
        self.unread: Body = {}
        self.error: str | None = None
        self.remembered: list[Body] = []
        self.meanwhile: t.Callable[[], None] = lambda: None
        self.asked: list[tuple[str, Body]] = []
        self.watchdog: t.Optional[Body] = None

    def phase(self, phase: str, work: Body) -> Body:
        self.asked.append((phase, work))
        return t.cast("Body", getattr(self, phase)(work))

    def identify(self, _work: Body) -> Body:
        return {"identity": {"host_id": self.host_id, "host_uuid": UUID1, "machine_id": "m1"}, "libvirt_error": self.error}

    def leave(self, work: Body) -> Body:
        if work["check"]:
            return {"changed": True, "host_id": self.host_id, "folders": {}, "unwritable": {}, "devices": {}}
        self.host_id = ID1
        return {"changed": FOLDER not in work["known"], "host_id": ID1, "folders": self.folders, "unwritable": {}, "devices": {}}

    def see(self, work: Body) -> Body:
        sees = {host_id: {path: nonce for path, nonce in seen.items() if path not in self.unseen} for host_id, seen in work["folders"].items()}
        return {"sees": sees, "unread": self.unread}

    def save(self, work: Body) -> Body:
        act, self.meanwhile = self.meanwhile, lambda: None
        act()
        wanted = [domain for domain in self.domains if work["uuids"] is None or domain["uuid"] in work["uuids"]]
        return {"domains": wanted, "arriving": [], "unreadable": [], "remembered": self.remembered, "boot_id": "boot B"}

    def guard(self, work: Body) -> Body:
        guard = {"installed": work["install"], "systemd": True, "held_at_boot": work["install"], "held": False, "note": ""}
        return {"changed": False, "guard": guard, "watchdog": self.watchdog}


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def steps_of(ledger: FileLedger | None, host: Host, check: bool = False) -> ProtectSteps:
    return ProtectSteps("kvm1", ledger, host.phase, "somebody", check)


@pytest.fixture
def steps(ledger: FileLedger, host: Host) -> ProtectSteps:
    return steps_of(ledger, host)


def all_of(steps: ProtectSteps) -> tuple[list[bool], Body]:
    """Do all steps; return what each has changed, and what was saved."""
    changed = [steps.leave_tokens({"ssh_port": 22}).changed, steps.read_tokens().changed]
    outcome = steps.save_domains()
    return [*changed, bool(outcome.saved), steps.set_up_guard(install=True, with_token=False).changed], outcome.as_result()


def names(outcome: Body) -> dict[str, list[str]]:
    return {key: [entry["name"] for entry in value] for key, value in outcome.items() if value and key != "unproved"}


def test_a_second_inventory_name_of_a_host_is_refused(ledger: FileLedger, host: Host) -> None:
    def steps_as(name: str, fleet: t.Collection[str]) -> ProtectSteps:
        return ProtectSteps(name, ledger, host.phase, "somebody", False, fleet=fleet)

    all_of(steps_as("kvm1", ("kvm1", "kvm2")))
    before = ledger.list_hosts()[0].body
    with pytest.raises(Conflict, match="kvm2 and kvm1 of the inventory lead to one host"):
        steps_as("kvm2", ("kvm1", "kvm2")).leave_tokens({})
    assert [document.body for document in ledger.list_hosts()] == [before]
    # A host that was renamed: the inventory has its former name no more.
    all_of(steps_as("kvm2", ("kvm2",)))
    assert [document.host.name for document in ledger.list_hosts()] == ["kvm2"]


def test_a_second_inventory_name_that_another_task_has_just_protected_is_refused(ledger: FileLedger, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    leave = host.leave

    def leave_late(work: Body) -> Body:
        ledger.put_host(HostEntry("kvm2", ID1, UUID1, "enabled", machine_id="m1"), None)
        return leave(work)

    monkeypatch.setattr(host, "leave", leave_late)
    with pytest.raises(Conflict, match="lead to one host"):
        ProtectSteps("kvm1", ledger, host.phase, "somebody", False, fleet=("kvm1", "kvm2")).leave_tokens({})
    assert [one.host.name for one in ledger.list_hosts()] == ["kvm2"]


def test_a_second_run_of_protect_changes_nothing(ledger: FileLedger, steps: ProtectSteps) -> None:
    changed, outcome = all_of(steps)
    assert (changed, names(outcome)) == ([True, False, True, False], {"saved": ["web1"]})
    changed, outcome = all_of(steps)
    assert (changed, names(outcome)) == ([False] * 4, {"unchanged": ["web1"]})
    entry = ledger.list_hosts()[0].body
    assert (entry["host_id"], entry["state"], entry["folders"], entry["addresses"]) == (ID1, "enabled", {FOLDER: NONCE}, {"ssh_port": 22})
    assert entry["protected"]["guard"] == {"installed": True, "systemd": True, "held_at_boot": True}


def test_the_watchdog_that_was_seen_is_in_the_entry_of_the_host(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    assert "watchdog" not in find_protected(ledger)
    host.watchdog = {"boot_id": ID1, "held_at_boot": True, "armed": True, "nowayout": True, "bound": True, **DEVICE}
    assert encode(steps.set_up_guard(install=False, with_token=False).watchdog) == host.watchdog
    assert find_protected(ledger)["watchdog"] == host.watchdog
    host.watchdog = {**host.watchdog, "boot_id": OTHER, "bound": False}
    steps.set_up_guard(install=True, with_token=False)
    assert find_protected(ledger)["watchdog"] == host.watchdog
    host.watchdog = None
    steps.set_up_guard(install=True, with_token=False)
    assert find_protected(ledger)["watchdog"] is None


def test_a_watchdog_is_no_evidence_while_its_host_may_start_guests_by_a_token(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    host.watchdog = {"boot_id": ID1, "held_at_boot": True, "armed": True, "nowayout": True, "bound": True, **DEVICE}
    steps.set_up_guard(install=True, with_token=False)
    answer = host.guard

    def receive_and_die(work: Body) -> Body:
        raise Unreachable("gone")

    # What was seen before the grant counts no more, whether the answer of the host arrives or not.
    host.guard = receive_and_die  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        steps.set_up_guard(install=True, with_token=True)
    assert (bool(protected_of_kvm1(ledger)["token_id"]), protected_of_kvm1(ledger)["watchdog"]["held_at_boot"]) == (True, False)
    host.guard = answer  # type: ignore[method-assign]
    steps.set_up_guard(install=True, with_token=True)
    assert not protected_of_kvm1(ledger)["watchdog"]["held_at_boot"]
    # What was seen after the grant was taken back counts.
    steps.set_up_guard(install=True, with_token=False)
    assert protected_of_kvm1(ledger)["watchdog"] == host.watchdog


def protected_of_kvm1(ledger: FileLedger) -> Body:
    return t.cast("Body", own_entry(ledger)["protected"])


def test_a_token_stays_until_the_domains_that_left_are_saved_where_they_are(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    (document,) = ledger.list_domains()
    moved = ledger.put_domain(dataclasses.replace(document.domain, possible_hosts=(KVM2,)), document.version)
    host.domains, host.folders = [], {}
    assert not steps.leave_tokens({"ssh_port": 22}).changed
    assert ledger.list_hosts()[0].host.folders == {FOLDER: NONCE}

    saved_there = {**(moved.domain.protected or {}), "host": encode(KVM2)}
    ledger.put_domain(dataclasses.replace(moved.domain, protected=saved_there), moved.version)
    assert not steps.leave_tokens({"ssh_port": 22}).changed
    assert ledger.list_hosts()[0].host.folders == {}
    host.folders = {FOLDER: NONCE}
    assert steps.leave_tokens({"ssh_port": 22}).changed


def find_protected(ledger: FileLedger) -> Body:
    return t.cast("Body", ledger.list_hosts()[0].body.get("protected") or {})


def test_tokens_are_read_where_the_host_has_the_folders_of_others(ledger: FileLedger, host: Host) -> None:
    maps = {"kvm1": ResourceMaps(images={"fast": "/data"}), "kvm2": ResourceMaps(images={"fast": "/srv/fast", "slow": "/srv/slow"})}
    steps = dataclasses.replace(steps_of(ledger, host), maps_of=lambda name: maps[name])
    steps.leave_tokens({})
    folders = {"/srv/fast/web": NONCE, "/srv/slow": NONCE, "/iso": NONCE}
    ledger.put_host(host_entry({"name": "kvm2", "host_id": OTHER, "host_uuid": None, "state": "enabled", "reason": None, "folders": folders}), None)
    result = steps.read_tokens()
    (work,) = [work for phase, work in host.asked if phase == "see"]
    assert work["folders"] == {OTHER: {"/data/web": NONCE, "/iso": NONCE}}
    # The ledger has them as their owner calls them, which is how its domains name them.
    assert result.sees == {"kvm2": ("/iso", "/srv/fast/web")}
    assert not steps.read_tokens().changed


def test_a_token_that_a_host_has_forgotten_is_no_change_for_those_who_saw_it(ledger: FileLedger, host: Host) -> None:
    steps = steps_of(ledger, host)
    steps.leave_tokens({})
    entry = {"name": "kvm2", "host_id": OTHER, "host_uuid": None, "state": "enabled", "reason": None}
    written = ledger.put_host(host_entry({**entry, "folders": {FOLDER: NONCE, "/iso": NONCE}}), None)
    assert steps.read_tokens().changed
    ledger.put_host(host_entry({**entry, "folders": {FOLDER: NONCE}}), written.version)
    assert not steps.read_tokens().changed
    assert ledger.read_sights(ID1) == {OTHER: {FOLDER: NONCE}}
    # One that it has, and that is not seen any more, is a change.
    host.unseen = {FOLDER}
    assert steps.read_tokens().changed


def test_tokens_that_cannot_be_read_now_are_still_seen_unless_they_were_replaced(ledger: FileLedger, host: Host) -> None:
    """Protecting a fleet while a file server hangs must not keep its guests down when their host dies."""
    maps = {"kvm1": ResourceMaps(images={"fast": "/data"}), "kvm2": ResourceMaps(images={"fast": "/srv/fast"})}
    steps = dataclasses.replace(steps_of(ledger, host), maps_of=lambda name: maps[name])
    steps.leave_tokens({})
    entry = {"name": "kvm2", "host_id": OTHER, "host_uuid": None, "state": "enabled", "reason": None}
    written = ledger.put_host(host_entry({**entry, "folders": {"/srv/fast": NONCE, "/iso": NONCE}}), None)
    steps.read_tokens()
    host.unseen = {"/data", "/iso"}
    host.unread = {OTHER: ["/data", "/iso"]}
    result = steps.read_tokens()
    assert (result.changed, result.sees, ledger.read_sights(ID1)) == (False, {"kvm2": ("/iso", "/srv/fast")}, {OTHER: {"/srv/fast": NONCE, "/iso": NONCE}})
    assert result.notes == (
        "The tokens of kvm2 in /iso, /srv/fast cannot be read now, so what is known of them stays. Find out whether their storage answers.",
    )
    ledger.put_host(host_entry({**entry, "folders": {"/srv/fast": ID1, "/iso": NONCE}}), written.version)
    assert steps.read_tokens().sees == {"kvm2": ("/iso",)}
    host.unread = {}
    assert not any(steps.read_tokens().sees.values())


def test_check_mode_writes_nothing_with_or_without_a_ledger(ledger: FileLedger, host: Host) -> None:
    for given in (None, ledger):
        changed, outcome = all_of(steps_of(given, host, check=True))
        assert (changed, names(outcome)) == ([True, False, True, False], {"saved": ["web1"]})
    assert (ledger.list_hosts(), ledger.list_domains(), host.host_id) == ([], [], None)


def test_a_remembered_move_that_the_ledger_lost_is_reported_and_not_written(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    lost = new_record(s.LIVE_MIGRATION, DomainRef(str(uuid_module.uuid4()), "gone"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "x")
    host.remembered = [{**encode(lost), "generation": 2, "status": s.COMPLETED, "ledger_id": ledger.ledger_id}]
    outcome = steps.save_domains()
    (told,) = outcome.missing_records
    assert (told.id, told.remembered_by) == (lost.id, "kvm1")
    assert list(ledger.list_records()) == []
    assert [document.body["name"] for document in ledger.list_domains()] == ["web1"]
    sentences = list_notes(outcome, "", {})
    assert [one for one in sentences if lost.record_id in one]


def test_no_result_contains_a_definition(steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    outcome = steps.save_domains()
    assert SECRET not in json.dumps([outcome.as_result(), outcome.before, outcome.after])


def test_a_host_in_maintenance_stays_there_with_its_reason(ledger: FileLedger, steps: ProtectSteps) -> None:
    ledger.put_host(host_entry({"name": "kvm1", "host_id": None, "host_uuid": UUID1, "state": "maintenance", "reason": "disk"}), None)
    all_of(steps)
    assert [(found.body["state"], found.body["reason"], found.body["host_id"]) for found in ledger.list_hosts()] == [("maintenance", "disk", ID1)]


def test_a_silent_libvirt_ends_protect_before_any_change(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    host.error = "no socket"
    with pytest.raises(Unreachable, match="no socket"):
        steps.leave_tokens({})
    assert [phase for phase, _work in host.asked] == ["identify"]
    assert ledger.list_hosts() == []


def test_a_move_that_ends_during_the_save_is_not_overwritten(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)

    def moves_away() -> None:
        stored = ledger.open_record(move(KVM1, KVM2))
        for status in (s.SCHEDULED, s.COMPLETED):
            stored = ledger.update_record(stored, dataclasses.replace(stored.record, status=status))
        host.domains = []

    host.domains = [reported_domain(autostart=True)]
    host.meanwhile = moves_away
    steps.save_domains()
    after = ledger.read_domain(DOMAIN)
    assert after is not None
    assert after.body["possible_hosts"] == [encode(KVM2)]
    assert after.body["protected"]["autostart"] is False


def test_a_document_that_others_keep_changing_is_skipped_without_its_content(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)

    def write() -> None:
        found = ledger.read_domain(DOMAIN)
        assert found is not None
        ledger.put_domain(domain_entry({**found.body, "touched": str(uuid_module.uuid4())}), found.version)
        host.meanwhile = write

    host.domains = [reported_domain(autostart=True), reported_domain(OTHER, "db1")]
    host.meanwhile = write
    outcome = steps.save_domains().as_result()
    assert names(outcome) == {"saved": ["db1"], "skipped": ["web1"]}
    assert SECRET not in json.dumps(outcome)


def test_a_domain_that_has_left_keeps_its_document_and_is_missing(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []
    missing = steps.save_domains().as_result()["missing"]
    assert [(entry["name"], entry["state"], entry["possible_hosts"]) for entry in missing] == [("web1", "running", ["kvm1"])]
    assert ledger.read_domain(DOMAIN) is not None


def read_entry(ledger: FileLedger) -> DomainEntry:
    found = ledger.read_domain(DOMAIN)
    assert found is not None
    return found.domain


def test_a_domain_that_its_host_does_not_have_any_more_is_noted_once_and_told_once(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []
    predicted = steps_of(ledger, host, check=True).save_domains()
    assert (predicted.is_changed, read_entry(ledger).is_missing) == (True, False)
    outcome = steps.save_domains()
    assert (outcome.is_changed, read_entry(ledger).is_missing) == (True, True)
    assert (outcome.after["web1"]["missing"]["host"], outcome.after["web1"]["missing"]["boot_id"]) == (encode(KVM1), "boot B")
    (told,) = list_notes(outcome, "", {})
    assert told.startswith("Domain web1 is no longer on this host (saved 2")
    assert told.endswith("), so an evacuation of this host does not start it. If it was moved by hand, start it on its new host, and protect that.")
    again = steps.save_domains()
    assert (again.is_changed, list_notes(again, "", {})) == (False, [])
    (listed,) = again.as_result()["missing"]
    assert listed["missing_since"] == outcome.as_result()["missing"][0]["missing_since"]


def test_a_missing_domain_that_is_seen_again_is_not_missing_any_more(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []
    steps.save_domains()
    host.domains = [reported_domain()]
    outcome = steps.save_domains()
    assert [entry.changes for entry in outcome.saved] == [("missing",)]
    assert (read_entry(ledger).is_missing, "missing" in encode(read_entry(ledger))) == (False, False)


@pytest.mark.parametrize(("active", "taken_over"), [(True, True), (False, False)])
def test_a_missing_domain_is_taken_over_by_the_host_that_runs_it(ledger: FileLedger, host: Host, steps: ProtectSteps, active: bool, taken_over: bool) -> None:
    """An inactive definition may be left over from an earlier stay."""
    all_of(steps)
    found = ledger.read_domain(DOMAIN)
    assert found is not None
    ledger.put_domain(dataclasses.replace(found.domain, possible_hosts=(KVM2,), missing=MissingNote("then", "somebody", KVM2)), found.version)
    host.domains = [reported_domain(active=active, state="running" if active else "shut off")]
    steps.save_domains()
    assert (read_entry(ledger).possible_hosts == (KVM1,), read_entry(ledger).is_missing) == (taken_over, not taken_over)


def test_a_missing_domain_that_is_moved_is_not_missing_any_more_even_if_it_comes_back(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []
    steps.save_domains()
    for source, destination in ((KVM1, KVM2), (KVM2, KVM1)):
        stored = ledger.open_record(move(source, destination))
        for status in (s.SCHEDULED, s.COMPLETED):
            stored = ledger.update_record(stored, dataclasses.replace(stored.record, status=status))
    assert read_entry(ledger).possible_hosts == (KVM1,)
    assert not read_entry(ledger).is_missing


def test_an_evacuation_that_is_refused_leaves_the_domain_missing(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []
    steps.save_domains()
    stored = ledger.open_record(evacuation(KVM1, KVM2))
    ledger.update_record(stored, stored.record.advance(s.CONFLICT, "somebody"))
    assert read_entry(ledger).is_missing


def test_a_domain_that_arrives_while_its_host_is_asked_is_not_missing(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []

    def comes_back() -> None:
        found = ledger.read_domain(DOMAIN)
        assert found is not None
        ledger.put_domain(domain_entry({**found.body, "touched": "while it was asked"}), found.version)

    host.meanwhile = comes_back
    outcome = steps.save_domains()
    assert (outcome.missing, outcome.is_changed, read_entry(ledger).is_missing) == ([], False, False)


def test_a_host_that_suddenly_reports_no_domain_at_all_proves_nothing(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    host.domains = [reported_domain(), reported_domain(OTHER, "db1")]
    all_of(steps)
    host.domains = []
    outcome = steps.save_domains()
    assert (len(outcome.missing), outcome.is_changed, read_entry(ledger).is_missing) == (2, False, False)
    assert len(list_notes(outcome, "", {})) == 2
    host.domains = [reported_domain(OTHER, "db1")]
    assert (steps.save_domains().is_changed, read_entry(ledger).is_missing) == (True, True)


def test_the_last_domain_of_a_host_that_has_lost_others_before_is_noted(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    host.domains = [reported_domain(), reported_domain(OTHER, "db1")]
    all_of(steps)
    for left in ([reported_domain()], []):
        host.domains = left
        assert steps.save_domains().is_changed
    assert read_entry(ledger).is_missing


def test_a_domain_that_another_host_may_have_too_is_left_to_that_host(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    """Otherwise nothing could be decided about it if the other host is lost."""
    all_of(steps)
    found = ledger.read_domain(DOMAIN)
    assert found is not None
    ledger.put_domain(dataclasses.replace(found.domain, possible_hosts=(KVM1, KVM2)), found.version)
    host.domains = []
    outcome = steps.save_domains()
    assert (outcome.is_changed, read_entry(ledger).possible_hosts, read_entry(ledger).is_missing) == (True, (KVM2,), False)
    assert [len(one["web1"]["possible_hosts"]) for one in (outcome.before, outcome.after)] == [2, 1]
    assert "it may be on kvm2 now" in list_notes(outcome, "", {})[0]
    assert not steps.save_domains().is_changed


def test_a_domain_of_which_the_ledger_has_lost_a_move_is_not_noted_as_missing(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    all_of(steps)
    host.domains = []
    lost = dataclasses.replace(move(KVM1, KVM2, s.COMPLETED), generation=7)
    host.remembered = [{**encode(lost), "ledger_id": ledger.ledger_id}]
    assert not steps.save_domains().is_changed
    assert not read_entry(ledger).is_missing


def test_a_ledger_that_fails_halfway_reports_a_change(ledger: FileLedger, host: Host, steps: ProtectSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.leave_tokens({})
    host.domains = [reported_domain(), reported_domain(OTHER, "db1")]
    put = ledger.put_domain

    def full(entry: DomainEntry, version: int | None, *_act: object) -> t.Any:
        if entry.name == "db1":
            raise Internal("No space left on device.")
        return put(entry, version)

    monkeypatch.setattr(ledger, "put_domain", full)
    with pytest.raises(KvmfleetError) as caught:
        steps.save_domains()
    assert caught.value.as_result()["changed"] is True


def peer(ledger: FileLedger, sees: Body, **more: t.Any) -> None:
    """Write another host's entry: what it sees of the first host."""
    ledger.put_host(host_entry({"name": "kvm2", "host_id": OTHER, "host_uuid": None, "state": "enabled", "reason": None, "sees": {ID1: sees}, **more}), None)


def own_entry(ledger: FileLedger) -> Body:
    found = ledger.find_host(name="kvm1")
    assert found is not None
    return found.body


class Granted:
    """What the host was told of grants, and what the ledger said when it was told."""

    def __init__(self, ledger: FileLedger, host: Host) -> None:
        self.told: list[tuple[Body | None, list[str]]] = []
        self.in_ledger: list[str | None] = []
        self.revoked_in: list[list[str]] = []
        self.withdrawn: list[str] = []
        self.spent: list[str] = []
        self.is_installed_anew = False
        self.unrevoked = ""
        self.to_revoke: list[Body | None] = []
        """The grants that the host was told to revoke on storage."""
        self.meanwhile: list[t.Callable[[], object]] = []
        """What other processes do after the host was told and before its answer arrives."""
        guard = host.guard

        def remembering(work: Body) -> Body:
            if work["install"] or work["taken_back"]:
                self.told.append((work["grant"], work["taken_back"]))
                self.to_revoke += [work["withdrawn"]] if work["taken_back"] else []
                self.in_ledger.append((own_entry(ledger).get("protected") or {}).get("token_id"))
            for act in [self.meanwhile.pop() for _ in self.meanwhile]:
                act()
            revoked_in = self.revoked_in.pop() if work["grant"] and self.revoked_in else []
            return {
                **guard(work),
                "withdrawn": bool(work["grant"]) and work["grant"]["grant"] in self.withdrawn,
                "revoked_in": revoked_in,
                "spent": bool(work["grant"]) and (work["grant"]["grant"] in self.spent or (work["granted"] and self.is_installed_anew)),
                "unrevoked": self.unrevoked if work["taken_back"] else "",
            }

        host.guard = remembering  # type: ignore[method-assign]


def test_a_grant_is_in_the_ledger_before_the_host_has_it_and_until_it_is_revoked(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    granted = Granted(ledger, host)
    assert steps.set_up_guard(install=True, with_token=True).guard.note == ""
    protected = own_entry(ledger)["protected"]
    grant = {"grant": protected["token_id"], "host_id": ID1, "folders": {FOLDER: NONCE}}
    assert (granted.told, granted.in_ledger) == ([(grant, [])], [grant["grant"]])
    assert protected["token_folders"] == {FOLDER: NONCE}
    assert steps.set_up_guard(install=True, with_token=True).changed is False
    assert granted.told[1:] == [(grant, [])]
    assert steps.set_up_guard(install=False, with_token=False).changed is False
    assert own_entry(ledger)["protected"]["token_id"] == grant["grant"]
    assert steps.set_up_guard(install=True, with_token=False).changed is True
    assert granted.told[2:] == [(None, [grant["grant"]]), (None, [])]
    assert granted.in_ledger[2:] == [grant["grant"], None]
    assert own_entry(ledger)["protected"]["token_id"] is None


def test_a_withdrawal_that_died_before_the_ledger_was_written_is_repeated_with_the_folders(
    ledger: FileLedger, host: Host, steps: ProtectSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has forgotten the grant by then, and could not revoke it on storage by itself."""
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    granted = Granted(ledger, host)
    steps.set_up_guard(install=True, with_token=True)
    grant = granted.told[0][0]

    def kill(*_args: object) -> t.NoReturn:
        raise KeyboardInterrupt

    granted.meanwhile.append(lambda: killing.setattr(FileLedger, "put_host", kill))
    with monkeypatch.context() as killing, pytest.raises(KeyboardInterrupt):
        steps.set_up_guard(install=True, with_token=False)
    assert own_entry(ledger)["protected"]["token_id"] == (grant or {})["grant"]
    steps.set_up_guard(install=True, with_token=False)
    assert granted.to_revoke == [grant, grant]
    assert own_entry(ledger)["protected"]["token_id"] is None


def test_a_grant_that_the_host_could_not_revoke_on_storage_is_named(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    granted = Granted(ledger, host)
    steps.set_up_guard(install=True, with_token=True)
    granted.unrevoked = "It was not revoked on storage."
    assert steps.set_up_guard(install=True, with_token=False).guard.note == granted.unrevoked
    assert own_entry(ledger)["protected"]["token_id"] is None


@pytest.mark.parametrize("sees", [None, {}, {FOLDER: OTHER}, {"/elsewhere": NONCE}])
def test_a_host_without_storage_of_other_hosts_gets_no_grant(ledger: FileLedger, host: Host, steps: ProtectSteps, sees: Body | None) -> None:
    steps.leave_tokens({})
    if sees is not None:
        peer(ledger, sees)
    granted = Granted(ledger, host)
    assert "nobody could revoke" in steps.set_up_guard(install=True, with_token=True).guard.note
    assert granted.told == [(None, [])]
    assert own_entry(ledger)["protected"]["token_id"] is None


@pytest.mark.parametrize(
    ("places", "domain", "left_over"),
    [
        ([KVM2], {"autostart": True}, ["web1"]),
        ([KVM1, KVM2], {"autostart": True}, ["web1"]),
        ([KVM1], {"autostart": True}, []),
        ([KVM2], {"autostart": False}, []),
        ([KVM2], {"autostart": True, "active": True, "state": "running"}, []),
    ],
)
def test_a_domain_that_the_host_would_start_beside_another_host_is_left_over(
    ledger: FileLedger, host: Host, steps: ProtectSteps, places: list[HostRef], domain: Body, left_over: list[str]
) -> None:
    steps.leave_tokens({})
    document = {"uuid": DOMAIN, "name": "web1", "possible_hosts": list(map(encode, places)), "last_record": None, "protected": None}
    ledger.put_domain(domain_entry(document), None)
    host.domains = [reported_domain(**{"active": False, "state": "shut off", **domain})]
    assert steps.save_domains().left_over == left_over


@pytest.mark.parametrize("install", [True, False])
def test_a_host_that_would_start_a_domain_of_another_host_has_no_grant(ledger: FileLedger, host: Host, steps: ProtectSteps, install: bool) -> None:
    """A token releases a boot without the ledger, and libvirt would then start the definition that is left over."""
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    granted = Granted(ledger, host)
    steps.set_up_guard(install=True, with_token=True)
    (grant,) = granted.in_ledger
    asked = len(host.asked)
    done = steps.set_up_guard(install, with_token=install, left_over=["web1"])
    assert {work["install"] for phase, work in host.asked[asked:] if phase == "guard"} == {install}
    assert (done.changed, granted.told[1]) == (True, (None, [grant]))
    assert "may be, on another host: web1." in done.guard.note
    assert own_entry(ledger)["protected"]["token_id"] is None
    assert steps.set_up_guard(install, with_token=install).guard.note == ""


@pytest.mark.parametrize("folders", [None, {}, {FOLDER: NONCE, "/gone": NONCE}])
def test_a_grant_with_other_folders_is_revoked_before_a_new_one(ledger: FileLedger, host: Host, steps: ProtectSteps, folders: Body | None) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    found = ledger.find_host(name="kvm1")
    assert found is not None
    ledger.put_host(host_entry({**found.body, "protected": {"token_id": DOMAIN, **({} if folders is None else {"token_folders": folders})}}), found.version)
    granted = Granted(ledger, host)
    assert steps.set_up_guard(install=True, with_token=True).changed is True
    (first, taken_back), (second, _none) = granted.told
    assert (first, taken_back, granted.in_ledger[0]) == (None, [DOMAIN], DOMAIN)
    assert second is not None
    assert (second["folders"], second["grant"]) == ({FOLDER: NONCE}, granted.in_ledger[1])
    assert second["grant"] not in (DOMAIN, None)


def test_a_grant_stays_in_the_ledger_if_its_revocation_on_the_host_fails(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    steps.set_up_guard(install=True, with_token=True)
    grant = own_entry(ledger)["protected"]["token_id"]

    def dead(_work: Body) -> Body:
        raise Unreachable("gone")

    host.guard = dead  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        steps.set_up_guard(install=True, with_token=False)
    assert own_entry(ledger)["protected"]["token_id"] == grant


def test_a_discarded_host_does_not_count_as_able_to_revoke(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE}, discarded={"at": "then", "by": "somebody", "reason": "burnt"})
    granted = Granted(ledger, host)
    steps.set_up_guard(install=True, with_token=True)
    assert granted.told == [(None, [])]


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_grant_with_an_unrecorded_revocation_is_replaced(ledger: FileLedger, host: Host, steps: ProtectSteps, is_withdrawn: bool) -> None:
    """A revocation died after it had written the tombstone, or had withdrawn the grant on the host itself, and before it wrote the ledger."""
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    steps.set_up_guard(install=True, with_token=True)
    before = own_entry(ledger)["protected"]["token_id"]
    granted = Granted(ledger, host)
    if is_withdrawn:
        granted.withdrawn = [before]
    else:
        granted.revoked_in = [[FOLDER]]
    assert steps.set_up_guard(install=True, with_token=True).changed is True
    (same, _none), (nothing, taken_back), (other, _again) = granted.told
    assert same is not None
    assert other is not None
    assert (same["grant"], nothing, taken_back) == (before, None, [before])
    assert own_entry(ledger)["protected"]["token_id"] == other["grant"] != before


@pytest.mark.parametrize("check", [False, True])
def test_a_grant_whose_token_has_released_a_boot_is_replaced(ledger: FileLedger, host: Host, steps: ProtectSteps, check: bool) -> None:
    """An earlier copy of the host's disk may have the token, and storage would confirm it again."""
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    steps.set_up_guard(install=True, with_token=True)
    before = own_entry(ledger)["protected"]["token_id"]
    granted = Granted(ledger, host)
    granted.spent, granted.unrevoked = [before], "No folder took a tombstone."
    result = dataclasses.replace(steps, check=check).set_up_guard(install=True, with_token=True)
    now = own_entry(ledger)["protected"]["token_id"]
    assert (result.changed, now == before, result.guard.note) == (True, check, "" if check else granted.unrevoked)
    if not check:
        assert [(told or {}).get("grant") for told, _taken_back in granted.told] == [before, None, now]
        assert granted.to_revoke == [{"grant": before, "host_id": ID1, "folders": {FOLDER: NONCE}}]
        assert steps.set_up_guard(install=True, with_token=True).changed is False


def test_a_host_that_was_installed_anew_gets_another_grant(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    """Its former disk may have a token of the grant before. The host did not have a new one yet, of course."""
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    steps.set_up_guard(install=True, with_token=True)
    before = own_entry(ledger)["protected"]["token_id"]
    granted = Granted(ledger, host)
    granted.is_installed_anew = True
    assert steps.set_up_guard(install=True, with_token=True).changed is True
    now = own_entry(ledger)["protected"]["token_id"]
    assert [(told or {}).get("grant") for told, _taken_back in granted.told] == [before, None, now]
    assert granted.to_revoke == [{"grant": before, "host_id": ID1, "folders": {FOLDER: NONCE}}]


@pytest.mark.parametrize("install", [False, True])
def test_a_grant_of_another_process_stays_in_the_ledger(ledger: FileLedger, host: Host, steps: ProtectSteps, install: bool) -> None:
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    granted = Granted(ledger, host)
    granted.meanwhile = [lambda: steps.set_up_guard(install=True, with_token=True)]
    steps.set_up_guard(install=install, with_token=False)
    told = granted.told[-1][0]
    assert told is not None
    assert own_entry(ledger)["protected"]["token_id"] == told["grant"]


@pytest.mark.parametrize("with_token", [True, False])
def test_two_processes_that_change_the_grant_of_a_host_at_once_leave_the_one_that_it_holds(
    ledger: FileLedger, host: Host, steps: ProtectSteps, monkeypatch: pytest.MonkeyPatch, with_token: bool
) -> None:
    """The second one has read the entry before the first one changed it."""
    steps.leave_tokens({})
    peer(ledger, {FOLDER: NONCE})
    if not with_token:
        steps.set_up_guard(install=True, with_token=True)
    read_before = steps.find_entry()
    granted = Granted(ledger, host)
    steps.set_up_guard(install=True, with_token=False)
    steps.set_up_guard(install=True, with_token=True)
    held = granted.told[-1][0]
    assert held is not None
    second = dataclasses.replace(steps)
    monkeypatch.setattr(ProtectSteps, "find_entry", lambda _self: read_before)
    with pytest.raises(Conflict, match="Another task changed the clean-shutdown grant of kvm1"):
        second.set_up_guard(install=True, with_token=with_token)
    assert own_entry(ledger)["protected"]["token_id"] == held["grant"]


def test_a_cordon_during_the_write_of_the_entry_is_kept(ledger: FileLedger, steps: ProtectSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    all_of(steps)
    put = ledger.put_host
    cordons = iter([True])

    def overtaken(entry: HostEntry, version: int | None) -> t.Any:
        if next(cordons, False):
            found = ledger.list_hosts()[0]
            put(dataclasses.replace(found.host, state="maintenance", reason="disk"), found.version)
        return put(entry, version)

    monkeypatch.setattr(ledger, "put_host", overtaken)
    steps.set_up_guard(install=False, with_token=False)
    entry = ledger.list_hosts()[0].body
    assert (entry["state"], entry["reason"], entry["protected"]["guard"]["installed"]) == ("maintenance", "disk", False)


def test_an_entry_of_another_host_with_the_same_name_is_a_conflict(ledger: FileLedger, steps: ProtectSteps) -> None:
    ledger.put_host(host_entry({"name": "kvm1", "host_id": OTHER, "host_uuid": None, "state": "enabled", "reason": None}), None)
    with pytest.raises(Conflict, match="identity"):
        steps.leave_tokens({})


@pytest.mark.parametrize(("state", "check", "forgets"), [("enabled", False, True), ("enabled", True, False), ("maintenance", False, False)])
def test_notes_of_starts_are_given_up_only_on_hosts_in_service(ledger: FileLedger, host: Host, state: str, check: bool, forgets: bool) -> None:
    """In a drain, an active domain may have been noted because it is about to be shut down."""
    steps_of(ledger, host).leave_tokens({})
    found = ledger.find_host(name="kvm1")
    assert found
    ledger.put_host(dataclasses.replace(found.host, state=state), found.version)
    steps_of(ledger, host, check).save_domains()
    assert [work["forget_started"] for phase, work in host.asked if phase == "save"] == [forgets]


def test_a_host_whose_document_was_damaged_gets_no_new_entry(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    found = ledger.list_hosts()[0]
    ledger.put_host(dataclasses.replace(found.host, state="fenced"), found.version)
    pathlib.Path(ledger.path, "hosts", f"{ID1}.json").write_text("torn")
    host.asked.clear()
    for check in (True, False):
        with pytest.raises(Conflict, match=r"was damaged and set aside\. The host may be fenced or in maintenance"):
            steps_of(ledger, host, check).leave_tokens({})
    assert [phase for phase, _work in host.asked] == ["identify", "identify"]
    assert ledger.list_hosts() == []


def test_a_grant_that_nobody_knows_is_withdrawn_by_the_next_protect(ledger: FileLedger, host: Host, steps: ProtectSteps) -> None:
    steps.leave_tokens({})
    entry = ledger.list_hosts()[0].host
    pathlib.Path(ledger.path, "hosts", f"{ID1}.json").write_text("torn")
    stated = ledger.put_host(dataclasses.replace(entry, protected=None), None, is_stated=True).host
    steps.leave_tokens({})
    steps.set_up_guard(install=True, with_token=True)
    assert host.asked[-2][1]["taken_back"] == [stated.protected and stated.protected.token_id]
    assert find_protected(ledger)["token_id"] is None
