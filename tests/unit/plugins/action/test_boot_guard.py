# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(boot_guard)'s control half with a fake host and a real ledger: what forbids a release."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.boot_guard import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, NotFound, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

ID, UUID, DOMAIN, OTHER = (str(uuid.UUID(int=number)) for number in (1, 2, 3, 9))
GUARD = {"installed": True, "systemd": True, "boot_id": "boot B", "ran": True, "held": {"at": "now", "why": "boot"}, "released": None, "would_start": []}


class Host:
    """The module's half: a held host with one domain that is to be started again."""

    def __init__(self) -> None:
        self.host_id: str | None = ID
        self.ledger_id: str | None = None
        self.phases: list[str] = []
        self.checks: set[bool] = set()
        self.boots: list[str | None] = []
        self.remembered: list[dict[str, t.Any]] = []
        self.when_asked: t.Callable[[], object] = lambda: None

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        work = module_args["_work"]
        self.phases.append(work["phase"])
        self.checks.add(work["check"])
        self.boots.append(work.get("boot_id"))
        self.when_asked()
        if work["phase"] == "forget":
            return {"changed": True, "forgotten": work["uuids"]}
        identity = {"host_id": self.host_id, "machine_id": "m1", "hostname": "kvm1", "host_uuid": UUID, "ledger_id": self.ledger_id}
        told = {"guard": GUARD, "to_start": [{"uuid": DOMAIN, "name": "web1", "why": ["autostart"], "at": "now"}], "damaged": []}
        return {"changed": work["phase"] == "release", "identity": identity, "libvirt_error": None, "remembered": self.remembered, **told}


class Fleet:
    """Runs the action as a task of the host kvm1 would."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "ledger"
        self.host = Host()
        self.check_mode = False
        self.facts: dict[str, dict[str, t.Any]] = {}

    def task(self, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None)
        action._execute_module = self.host.run
        others = {name: {"ansible_facts": {"kvmfleet_host": facts}} for name, facts in self.facts.items()}
        return action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": str(self.folder)}, others))

    def known(self) -> FileLedger:
        ledger = FileLedger(str(self.folder))
        ledger.put_host(host_entry({"name": "kvm1", "host_id": ID, "host_uuid": UUID, "machine_id": "m1", "state": "fenced", "since": "then"}), None)
        return ledger

    def evacuation(self, *statuses: str) -> str:
        ledger = self.known()
        stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(DOMAIN, "web1"), HostRef("kvm1", ID, None), HostRef("kvm2", OTHER, None), {}, "test"))
        for status in statuses:
            stored = ledger.update_record(stored, stored.record.advance(status, "test"))
        return stored.record.record_id


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def test_boot_guard_without_options_reads_the_state_without_a_ledger(fleet: Fleet) -> None:
    result = fleet.task()
    assert (result["changed"], result["guard"], result["withheld_by"], result["open_records"]) == (False, GUARD, [], [])
    assert (fleet.host.phases, fleet.folder.exists()) == (["read"], False)


def test_a_known_host_without_open_evacuations_is_released(fleet: Fleet) -> None:
    fleet.known()
    result = fleet.task(state="released")
    assert (result["changed"], [entry["name"] for entry in result["to_start"]]) == (True, ["web1"])
    assert (fleet.host.phases, fleet.host.checks) == (["read", "release"], {False})
    assert fleet.host.boots == [None, "boot B"]


def test_check_mode_is_passed_to_the_host(fleet: Fleet) -> None:
    fleet.known()
    fleet.check_mode = True
    assert fleet.task(state="released")["changed"]
    assert fleet.host.checks == {True}


@pytest.mark.parametrize("statuses", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.DONE), (s.PRE_MIGRATING, s.ERROR)])
def test_an_open_evacuation_withholds_the_release(fleet: Fleet, statuses: tuple[str, ...]) -> None:
    record = fleet.evacuation(*statuses)
    with pytest.raises(Unsafe, match=r"cannot be released: .*web1.*stay held") as caught:
        fleet.task(state="released")
    assert [entry["id"] for entry in caught.value.as_result()["withheld_by"]] == [record]
    assert fleet.host.phases == ["read"]
    assert [entry["id"] for entry in fleet.task()["withheld_by"]] == [record]


@pytest.mark.parametrize("by", ["this host", "another host"])
@pytest.mark.parametrize(("record_type", "status"), [(s.EVACUATION, s.PRE_MIGRATING), (s.LIVE_MIGRATION, s.COMPLETED)])
def test_a_remembered_move_that_the_ledger_lost_withholds_the_release(fleet: Fleet, by: str, record_type: str, status: str) -> None:
    """The host is the source or the destination of the move, and its own memory or that of the other host has the record."""
    ledger = fleet.known()
    ends = (HostRef("kvm1", ID, None), HostRef("kvm2", OTHER, None)) if by == "another host" else (HostRef("kvm2", OTHER, None), HostRef("kvm1", ID, None))
    made = new_record(record_type, DomainRef(DOMAIN, "web1"), *ends, {}, "test")
    lost = {**encode(made), "generation": 1, "status": status, "ledger_id": ledger.ledger_id}
    elsewhere = {"source": HostRef("kvm3", str(uuid.UUID(int=10)), None), "destination": HostRef("kvm2", OTHER, None)}
    unrelated = {**lost, "id": str(uuid.UUID(int=11)), **encode(elsewhere)}
    if by == "another host":
        fleet.facts["kvm2"] = {"remembered": [lost, unrelated]}
    else:
        fleet.host.remembered = [lost, unrelated]
    with pytest.raises(Unsafe, match=r"cannot be released: .*web1.*which the ledger does not have.*settle: .*stay held") as caught:
        fleet.task(state="released")
    assert fleet.host.phases == ["read"]
    assert [entry["id"] for entry in caught.value.as_result()["withheld_by"]] == [lost["id"]]
    told = fleet.task()
    assert [[entry["id"] for entry in told[key]] for key in ("withheld_by", "open_records")] == [[lost["id"]]] * 2


@pytest.mark.parametrize("statuses", [(s.PRE_MIGRATING, s.DONE, s.COMPLETED), (s.FAILED,)])
def test_a_closed_evacuation_does_not_withhold_the_release(fleet: Fleet, statuses: tuple[str, ...]) -> None:
    fleet.evacuation(*statuses)
    assert fleet.task(state="released")["changed"]


def test_an_evacuation_whose_record_was_damaged_withholds_the_release(fleet: Fleet) -> None:
    """The record was set aside, and the entry of the domain still has its generation."""
    record = fleet.evacuation(s.PRE_MIGRATING, s.DONE)
    ledger = FileLedger(str(fleet.folder))
    fleet.facts["kvm2"] = {"remembered": [{**encode(ledger.read_record(record).record), "ledger_id": ledger.ledger_id}]}
    (path,) = (fleet.folder / "migrations" / "open").glob("*.json")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(Unsafe, match=r"cannot be released: .*web1.*which the ledger does not have.*stay held"):
        fleet.task(state="released")
    assert fleet.host.phases == ["read"]
    assert [entry["id"] for entry in fleet.task()["withheld_by"]] == [record]


def test_an_open_record_of_a_later_version_withholds_every_release(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    record = fleet.evacuation(s.PRE_MIGRATING, s.DONE)
    path = fleet.folder / "migrations" / "open" / f"{record}.json"
    path.write_text(json.dumps({**(envelope := json.loads(path.read_text())), "body": {**envelope["body"], "schema": 2}}))
    for args in ({"state": "released"}, {"_work": {"recover": CLEANUP}}):
        with pytest.raises(NotSupported, match=f"later version.*{record}.*Nothing was released.*Update the collection"):
            fleet.task(**args)
    monkeypatch.setitem(GUARD, "installed", False)
    with pytest.raises(NotSupported, match="later version"):
        fleet.task(_work={"recover": CLEANUP})
    assert set(fleet.host.phases) == {"read"}
    assert fleet.task()["to_start"]


def test_a_host_that_the_ledger_does_not_know_is_not_released(fleet: Fleet) -> None:
    with pytest.raises(NotFound, match="Nothing was released"):
        fleet.task(state="released")
    FileLedger(str(fleet.folder))
    with pytest.raises(NotFound):
        fleet.task(state="released")
    assert "release" not in fleet.host.phases


def test_a_host_of_another_ledger_is_not_released(fleet: Fleet) -> None:
    ledger, fleet.host.ledger_id = fleet.known(), DOMAIN
    with pytest.raises(Conflict, match=f"kvm1 was protected under the ledger {DOMAIN}"):
        fleet.task(state="released")
    assert fleet.host.phases == ["read"]
    fleet.host.ledger_id = ledger.ledger_id
    assert fleet.task(state="released")["changed"]


def test_a_host_with_the_identity_of_another_host_of_the_inventory_is_not_released(fleet: Fleet) -> None:
    """The copy of a whole disk has all of it, where the configuration of libvirt's daemon sets the UUID: it would start the guests of the original."""
    ledger = fleet.known()
    (entry,) = ledger.list_hosts()
    ledger.put_host(host_entry({**entry.body, "name": "kvm9"}), entry.version)
    fleet.facts = {"kvm9": {}}
    with pytest.raises(Conflict, match="kvm1 and kvm9 of the inventory lead to one host, or to one and a copy of its disk"):
        fleet.task(state="released")
    assert fleet.host.phases == ["read"]
    # The host was renamed: the inventory has its former name no more.
    fleet.facts = {}
    assert fleet.task(state="released")["changed"]


def test_a_host_that_was_discarded_is_not_released(fleet: Fleet) -> None:
    ledger = fleet.known()
    (entry,) = ledger.list_hosts()
    ledger.put_host(host_entry({**entry.body, "discarded": {"at": "then", "by": "Ada", "reason": "burnt"}}), entry.version)
    with pytest.raises(Unsafe, match="adopt_identity"):
        fleet.task(state="released")
    assert fleet.host.phases == ["read"]


def test_a_host_that_lost_its_identity_is_not_released(fleet: Fleet) -> None:
    fleet.known()
    fleet.host.host_id = None
    with pytest.raises(Conflict, match="lost its identity"):
        fleet.task(state="released")
    assert "release" not in fleet.host.phases


def test_a_forgotten_domain_is_not_started(fleet: Fleet) -> None:
    result = fleet.task(forget=[DOMAIN.upper()])
    assert (result["changed"], result["forgotten"], result["to_start"]) == (True, [DOMAIN], [])


def test_bad_input_is_refused_before_the_host_is_asked(fleet: Fleet) -> None:
    with pytest.raises(InvalidArgument):
        fleet.task(forget=["../web1"])
    with pytest.raises(InvalidArgument):
        fleet.task(state="held")
    assert fleet.host.phases == []


CLEANUP: dict[str, t.Any] = {"cleaned": [], "superseded": [], "refused": [], "missing_records": []}


def test_a_host_is_released_after_the_cleanup_of_a_recovery(fleet: Fleet) -> None:
    fleet.known()
    result = fleet.task(_work={"recover": CLEANUP})
    assert (result["changed"], [entry["name"] for entry in result["to_start"]]) == (True, ["web1"])
    assert fleet.host.phases == ["read", "release"]


def test_a_cleanup_with_evacuations_that_the_ledger_lost_prevents_the_release(fleet: Fleet) -> None:
    lost = {**CLEANUP, "refused": [{"name": "web1", "record": "r1"}], "missing_records": [{"id": "r1"}]}
    with pytest.raises(Unsafe, match="lacks the evacuations of web1 from kvm1"):
        fleet.task(_work={"recover": lost})
    assert fleet.host.phases == []


def test_a_host_that_is_held_by_a_guard_with_missing_files_is_released(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GUARD, "installed", False)
    fleet.known()
    assert fleet.task(_work={"recover": CLEANUP})["changed"]
    assert fleet.host.phases == ["read", "release"]


def test_a_host_that_a_guard_with_missing_files_held_is_asked_again_after_its_release(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery before may have died while it released the host."""
    monkeypatch.setitem(GUARD, "installed", False)
    monkeypatch.setitem(GUARD, "held", None)
    monkeypatch.setitem(GUARD, "released", {"at": "2026-11-21T01:00:00Z", "by": "control"})
    fleet.known()
    fleet.task(_work={"recover": CLEANUP})
    assert fleet.host.phases == ["read", "release"]


def test_a_host_without_a_boot_guard_is_not_asked_to_release(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GUARD, "installed", False)
    monkeypatch.setitem(GUARD, "held", None)
    fleet.known()
    assert not fleet.task(_work={"recover": CLEANUP})["changed"]
    assert fleet.host.phases == ["read"]


def test_an_open_evacuation_of_a_host_without_a_boot_guard_ends_the_recovery(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GUARD, "installed", False)
    monkeypatch.setitem(GUARD, "held", None)
    fleet.evacuation(s.PRE_MIGRATING, s.DONE)
    with pytest.raises(Unsafe, match="kvm1 has no boot guard, and its evacuations of web1 are open"):
        fleet.task(_work={"recover": CLEANUP})


def test_check_mode_ignores_records_that_the_cleanup_would_complete(fleet: Fleet) -> None:
    record = fleet.evacuation(s.PRE_MIGRATING, s.DONE)
    fleet.check_mode = True
    result = fleet.task(_work={"recover": {**CLEANUP, "cleaned": [{"record": record, "superseded": []}]}})
    assert ([entry["id"] for entry in result["withheld_by"]], result["open_records"]) == ([record], [])
    assert fleet.host.phases == ["read"]


def test_an_open_evacuation_withholds_the_release_after_a_cleanup(fleet: Fleet) -> None:
    fleet.evacuation(s.PRE_MIGRATING, s.DONE)
    with pytest.raises(Unsafe, match="kvm1 cannot be released"):
        fleet.task(_work={"recover": CLEANUP})


WATCHDOG = {"boot_id": "boot A", "held_at_boot": True, "armed": True, "device": "/dev/watchdog0", "identity": "iTCO_wdt", "timeout_seconds": 10}


def evidence_when_asked(fleet: Fleet, boot_id: str) -> list[bool]:
    """Let the ledger have what C(protect) saw of the watchdog in that boot; return whether it still has it each time the host is asked."""
    ledger = fleet.known()
    (entry,) = ledger.list_hosts()
    watchdog = {**WATCHDOG, "boot_id": boot_id, "nowayout": True, "bound": True, "reset_seconds": 44}
    ledger.put_host(host_entry({**entry.body, "protected": {"at": "then", "watchdog": watchdog}}), entry.version)
    seen: list[bool] = []
    fleet.host.when_asked = lambda: seen.append(bool(ledger.list_hosts()[0].body["protected"]["watchdog"]))
    return seen


@pytest.mark.parametrize("args", [{"state": "released"}, {"_work": {"recover": CLEANUP}}])
def test_what_a_watchdog_was_seen_to_do_in_an_earlier_boot_is_withdrawn_before_the_release(fleet: Fleet, args: dict[str, t.Any]) -> None:
    """The guests run in this boot from now on, and it may never have a lease: the last one stays that of the earlier boot."""
    seen = evidence_when_asked(fleet, "boot A")
    fleet.task(**args)
    assert (fleet.host.phases, seen) == (["read", "release"], [True, False])


def test_what_a_watchdog_was_seen_to_do_is_withdrawn_without_a_boot_guard(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests are started after this, whether there is a guard or not."""
    monkeypatch.setitem(GUARD, "installed", False)
    monkeypatch.setitem(GUARD, "held", None)
    seen = evidence_when_asked(fleet, "boot A")
    fleet.task(_work={"recover": CLEANUP})
    fleet.host.when_asked()
    assert seen == [True, False]


def test_what_a_watchdog_was_seen_to_do_in_this_boot_stays_evidence(fleet: Fleet) -> None:
    seen = evidence_when_asked(fleet, "boot B")
    fleet.task(state="released")
    assert seen == [True, True]


def test_nothing_is_withdrawn_by_a_task_that_releases_nothing(fleet: Fleet) -> None:
    seen = evidence_when_asked(fleet, "boot A")
    fleet.task()
    fleet.check_mode = True
    fleet.task(state="released")
    assert seen == [True, True, True]
