# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task fleet_status finds what others have done to domains since they were seen last, and writes it once."""

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import fleet_status
from ansible_collections.kvmfleet.migration.plugins.action.fleet_status import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, HostProtection, MissingNote
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.test_fleet_status import EMPTY, FLEET, HOST_IDS, Desk, Result
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry

WEB = "55555555-0000-4000-8000-000000000005"
KVM1, KVM2, KVM3 = (HostRef(name, HOST_IDS[name], None) for name in FLEET)
MOVED_TEXT = "web1 was moved from kvm1 to kvm2 without this collection"


def web(**told: t.Any) -> Result:
    """Return what the host of the domain reports of it."""
    state = {"active": True, "state": "running", "reason": "migrated", "autostart": False, "boot_id": "boot A", "own_act": None}
    return {"uuid": WEB, "name": "web1", **state, **told}


OFF = web(active=False, state="shut off", reason="shutdown")


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    desk = Desk(tmp_path)
    for name in FLEET:
        desk.host(name)
    saved = {"host": encode(KVM1), "state": "running", "boot_id": "boot A", "own_act": None}
    desk.ledger.put_domain(domain_entry({"uuid": WEB, "name": "web1", "possible_hosts": [encode(KVM1)], "protected": saved}), None)
    return desk


def acts(desk: Desk) -> tuple[ForeignAct, ...]:
    document = desk.ledger.read_domain(WEB)
    assert document is not None
    return document.domain.foreign_acts or ()


def test_a_move_by_hand_is_shown_and_written_once(desk: Desk) -> None:
    desk.look("kvm1")
    desk.look("kvm2", web())
    seen = desk.show_all()
    assert (seen["changed"], seen["attention"]) == (True, [])
    assert seen["foreign_acts"] == [{"uuid": WEB, "name": "web1", "act": "moved", "msg": f"Domain {MOVED_TEXT}."}]
    assert seen["lines"][1:3] == ["DONE BY OTHERS", f"  {MOVED_TEXT}"]
    again = desk.show_all()
    assert (again["changed"], again["foreign_acts"]) == (False, [])
    assert [(act.act, act.host.host) for act in acts(desk)] == [("moved", "kvm2")]
    assert desk.ledger.verify_audit() == []


def test_a_host_that_did_not_report_its_domains_is_named(desk: Desk) -> None:
    desk.looks["kvm2"] = {"failed": True, "msg": "libvirt does not answer"}
    assert desk.show_all()["lines"][1:3] == ["DONE BY OTHERS", "  not known on kvm2: libvirt does not answer"]


@pytest.mark.parametrize(("told", "act"), [(OFF, "stopped"), (web(), None)])
def test_a_stop_by_hand_is_written(desk: Desk, told: Result, act: str | None) -> None:
    desk.look("kvm1", told)
    assert [found["act"] for found in desk.show_all()["foreign_acts"]] == ([act] if act else [])


def test_check_mode_shows_an_act_and_writes_nothing(desk: Desk) -> None:
    desk.look("kvm2", web())
    assert [found["act"] for found in desk.show_all(check_mode=True)["foreign_acts"]] == ["moved"]
    assert acts(desk) == ()
    assert [found["act"] for found in desk.show_all()["foreign_acts"]] == ["moved"]


def test_a_ledger_that_cannot_be_written_is_a_finding(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> t.NoReturn:
        raise Forbidden("The ledger cannot be written: Permission denied.")

    monkeypatch.setattr(FileLedger, "put_domain", refuse)
    desk.look("kvm2", web())
    seen = desk.show_all()
    assert (seen["changed"], seen["foreign_acts"]) == (False, [])
    assert seen["attention"] == [f"{MOVED_TEXT}. This cannot be written to the ledger: The ledger cannot be written: Permission denied."]


def test_a_move_of_the_collection_in_flight_is_no_act(desk: Desk) -> None:
    desk.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    desk.look("kvm2", web())
    assert desk.show_all()["foreign_acts"] == []


def test_a_move_of_the_collection_that_ended_after_its_host_was_asked_is_no_act(desk: Desk) -> None:
    desk.look("kvm1", OFF)
    desk.look("kvm3", web())
    versions = desk.note()
    stored = desk.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    for status in (s.SCHEDULED, s.COMPLETED):
        stored = desk.ledger.update_record(stored, dataclasses.replace(stored.record, status=status))
    seen = desk.show(_work={"answers": desk.answers, "looks": desk.looks, "versions": versions})
    assert (seen["changed"], seen["foreign_acts"], acts(desk)) == (False, [], ())


def test_a_move_that_the_ledger_has_lost_is_no_act(desk: Desk) -> None:
    lost = encode(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    desk.look("kvm1", remembered=[{**lost, "generation": 5, "status": s.COMPLETED, "ledger_id": desk.ledger.ledger_id}])
    desk.look("kvm2", web())
    assert desk.show_all()["foreign_acts"] == []


def test_a_guest_of_a_host_that_was_shut_down_with_a_token_is_a_finding_when_others_have_started_it_elsewhere(desk: Desk) -> None:
    (document,) = [one for one in desk.ledger.list_hosts() if one.host.name == "kvm1"]
    granted = dataclasses.replace(document.host, protected=HostProtection(at="2026-01-01T00:00:00.000Z", token_id=WEB, token_folders={"/images": WEB}))
    desk.ledger.put_host(granted, document.version)
    desk.answers["kvm1"] = {"unreachable": True, "msg": "no route"}
    assert [line for line in desk.show_all()["attention"] if "token" in line] == []
    desk.look("kvm2", web(reason="booted"))
    assert [found["act"] for found in desk.show_all()["foreign_acts"]] == ["started"]
    (finding,) = [line for line in desk.show_all()["attention"] if "token" in line]
    assert finding == (
        "kvm1 may hold a clean-shutdown token, with which it would start its guests by itself when it is switched on, also web1, which others have started"
        " elsewhere meanwhile. Revoke it on a host that sees its shared storage: kvmfleet.migration.host with name=kvm1, revoke_token and a reason"
    )
    desk.answers["kvm1"] = EMPTY
    assert [line for line in desk.show_all()["attention"] if "token" in line] == []


TWICE = (
    f"Domain web1 ({WEB}) was seen active on kvm1 and kvm2, and no move of it is known. The hosts are not asked at one moment: run the playbook again. "
    "If the domain is on both hosts then, find out immediately which copy is correct, and stop the other."
)


def see_twice(desk: Desk, **answer: t.Any) -> None:
    """Let both hosts report the domain as active."""
    desk.look("kvm1", web(reason="booted"))
    desk.look("kvm2", web(), **answer)


@pytest.mark.parametrize("uuid_text", [WEB, "0d2c1b7e-5a7f-4c88-9b41-2f6f7a0e9d31"])
def test_a_domain_that_two_hosts_report_as_active_is_a_finding(desk: Desk, uuid_text: str) -> None:
    desk.look("kvm1", web(uuid=uuid_text))
    desk.look("kvm2", web(uuid=uuid_text))
    desk.look("kvm3", *(web(uuid=one, active=False, state="shut off") for one in {uuid_text, WEB}))
    seen = desk.show_all()
    assert (seen["attention"], seen["foreign_acts"]) == ([TWICE.replace(WEB, uuid_text)], [])
    assert seen["lines"][0].endswith("1 finding for a person.")


def test_a_domain_of_a_dead_host_that_runs_there_again_is_a_finding(desk: Desk) -> None:
    desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION, uuid_text=WEB)
    see_twice(desk)
    assert TWICE in desk.show_all()["attention"]


def test_a_domain_whose_move_an_evacuation_has_superseded_is_not_in_a_move(desk: Desk) -> None:
    see_twice(desk)
    stored = desk.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    desk.ledger.update_record(stored, stored.record.supersede(str(uuid.UUID(int=7))))
    assert TWICE in desk.show_all()["attention"]


def test_a_domain_in_a_move_is_not_on_two_hosts(desk: Desk) -> None:
    see_twice(desk)
    foreign = dataclasses.replace(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, HostRef(None, None, None), {}, "libvirt"), id=None)
    desk.report("kvm1", foreign)
    assert TWICE not in desk.show_all()["attention"]
    desk.answers["kvm1"] = desk.answers["kvm2"]
    assert desk.show_all()["attention"] == [TWICE]
    desk.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    assert desk.show_all()["attention"] == []


def test_a_domain_that_the_collection_has_moved_since_a_host_was_asked_is_not_on_two_hosts(desk: Desk) -> None:
    see_twice(desk)
    versions = desk.note()
    stored = desk.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    for status in (s.SCHEDULED, s.COMPLETED):
        stored = desk.ledger.update_record(stored, dataclasses.replace(stored.record, status=status))
    assert desk.show(_work={"answers": desk.answers, "looks": desk.looks, "versions": versions})["attention"] == []


@pytest.mark.parametrize("identity", [{"host_id": HOST_IDS["kvm1"]}, {"host_id": None, "host_uuid": "6f6f6f6f-0000-4000-8000-000000000001"}])
def test_one_host_under_two_names_is_not_two_hosts(desk: Desk, identity: Result) -> None:
    see_twice(desk, **identity)
    desk.look("kvm1", web(), **identity)
    assert desk.show_all()["attention"] == []


@pytest.mark.parametrize("identity", [{"host_id": str(uuid.uuid4())}, {"host_id": None, "host_uuid": str(uuid.uuid4())}, {"host_id": None}])
def test_another_host_under_the_name_proves_nothing(desk: Desk, identity: Result) -> None:
    desk.look("kvm2", web(), **identity)
    assert desk.show_all()["foreign_acts"] == []


@pytest.mark.parametrize(
    "answer",
    [
        {"unreachable": True, "changed": False, "msg": "No route to host"},
        {"changed": False, "failed": True, "msg": "libvirt does not answer"},
        {"changed": False, "skipped": True},
    ],
)
def test_a_host_that_does_not_answer_proves_nothing(desk: Desk, answer: Result) -> None:
    desk.looks = {"kvm1": answer, "kvm2": answer}
    seen = desk.show_all()
    assert (seen["foreign_acts"], acts(desk)) == ([], ())


def test_a_screen_without_looks_writes_nothing(desk: Desk) -> None:
    assert desk.show()["foreign_acts"] == []


def test_an_act_is_a_notice(desk: Desk, tmp_path: pathlib.Path) -> None:
    desk.variables["kvmfleet_notices"] = {"url": "http://127.0.0.1:9/x", "spool": str(tmp_path / "spool"), "retries": 0, "wait_seconds": 1}
    desk.look("kvm2", web())
    desk.show_all()
    (kept,) = (tmp_path / "spool").rglob("*.json")
    assert '"io.github.kvmfleet.migration.domain.moved"' in kept.read_text(encoding="utf-8")


def test_a_look_asks_the_host_and_not_the_ledger(desk: Desk) -> None:
    asked = []

    def execute(module_name: str, module_args: Result, task_vars: Result) -> Result:
        asked.append((module_name, module_args["_work"], module_args["uri"]))
        return {"changed": False, "domains": []}

    action = ActionModule.__new__(ActionModule)
    action._loader = None
    action._execute_module = execute
    given = {"fleet": FLEET, "_work": {"step": "look"}}
    action._task = types.SimpleNamespace(args=given, async_val=0, check_mode=False, diff=False, delegate_to=None)
    result = action.run_with_options({"inventory_hostname": "kvm1", "hostvars": {}, "groups": {}})
    assert asked == [("kvmfleet.migration.fleet_status", {"phase": "look"}, "qemu:///system")]
    assert result["seen"] == {"changed": False, "domains": []}


def test_a_ledger_that_was_lost_while_the_documents_were_noted_is_a_finding(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells then whether the domain was moved since its hosts were asked."""

    def lose(*location: t.Any, **named: t.Any) -> t.NoReturn:
        raise Unreachable("etcd at lost:2379 did not answer.", "Start it.")

    with monkeypatch.context() as lost:
        lost.setattr(fleet_status, "open_ledger", lose)
        versions = desk.note()
    for name in ("kvm1", "kvm2"):
        desk.look(name, web())
    seen = desk.show(_work={"answers": desk.answers, "looks": desk.looks, "versions": versions})
    (finding,) = seen["attention"]
    assert finding.startswith("The ledger could not be read before the hosts were asked")
    assert acts(desk) == ()


@pytest.mark.parametrize("work", [{"looks": 7}, {"versions": {WEB: "two"}}, {"looks": {"kvm1": {"seen": {"domains": 7}}}}])
def test_work_of_another_form_is_refused_and_nothing_is_written(desk: Desk, work: Result) -> None:
    with pytest.raises(KvmfleetError):
        desk.show(_work={"answers": desk.answers, **work})
    assert acts(desk) == ()


GONE = (
    "kvm1 should have web1 according to the ledger, and does not report it; nor does another host that answers. If that is intended, protect the host: "
    "kvmfleet.migration.protect -e target=kvm1. If not, find out what happened; the ledger has the definition that protect saved (docs/ledger.md)."
)


def test_a_domain_that_no_host_reports_any_more_is_a_finding_until_its_host_is_protected(desk: Desk) -> None:
    assert GONE not in desk.show_all()["attention"]
    desk.look("kvm1", held=True)
    desk.look("kvm2")
    assert GONE not in desk.show_all()["attention"]
    desk.look("kvm1")
    assert desk.show_all()["attention"] == [GONE]
    document = desk.ledger.read_domain(WEB)
    assert document is not None
    note = MissingNote(at="2026-11-21T01:00:00.000Z", by="ann", host=KVM1)
    desk.ledger.put_domain(dataclasses.replace(document.domain, missing=note), document.version)
    assert desk.show_all()["attention"] == []


def test_the_finding_about_a_host_that_has_lost_all_its_domains_says_that_protect_would_not_note_it(desk: Desk) -> None:
    desk.domain("db1", "kvm1")
    desk.look("kvm1")
    (finding,) = desk.show_all()["attention"]
    assert finding.startswith("kvm1 should have db1, web1 according to the ledger, and does not report them; nor does another host that answers. As kvm1")
    assert "protect would not note this. If it is intended, define any domain there, and protect the host: kvmfleet.migration.protect" in finding
    desk.look("kvm1", web(uuid="0d2c1b7e-5a7f-4c88-9b41-2f6f7a0e9d31", name="new1"))
    (finding,) = desk.show_all()["attention"]
    assert "nor does another host that answers. If that is intended, protect the host: " in finding


def test_a_domain_that_was_created_anew_under_its_name_is_named_with_the_uuid_of_the_old_one(desk: Desk) -> None:
    desk.look("kvm1", web(uuid="0d2c1b7e-5a7f-4c88-9b41-2f6f7a0e9d31"))
    (finding,) = desk.show_all()["attention"]
    assert finding.startswith(f"kvm1 should have web1 ({WEB}) according to the ledger, and does not report it")


def test_a_domain_that_is_reported_moved_or_transient_is_accounted_for(desk: Desk) -> None:
    desk.look("kvm1")
    for where, told in (("kvm1", OFF), ("kvm2", OFF)):
        desk.look(where, told)
        assert desk.show_all()["attention"] == []
        desk.look(where)
    document = desk.ledger.read_domain(WEB)
    assert document is not None
    transient = dataclasses.replace(document.domain, protected={**(document.domain.protected or {}), "persistent": False})
    desk.ledger.put_domain(transient, document.version)
    assert desk.show_all()["attention"] == []
    desk.ledger.put_domain(document.domain, document.version + 1)
    assert desk.show_all()["attention"] == [GONE]
    desk.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web1"), KVM1, KVM2, {}, "ann"))
    assert GONE not in desk.show_all()["attention"]


def test_only_domains_that_no_host_reports_are_compared_with_each_host(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 300 hosts and 12000 domains, to compare all of them took longer than everything else."""
    compared: list[HostRef] = []
    monkeypatch.setattr(DomainEntry, "is_only_on", lambda _entry, host: bool(compared.append(host)))
    for name in FLEET:
        desk.look(name)
    desk.look("kvm2", OFF)
    desk.show_all()
    assert compared == []
    desk.look("kvm2")
    desk.show_all()
    assert [host.host for host in compared] == list(FLEET)
