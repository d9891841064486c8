# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import host
from ansible_collections.kvmfleet.migration.plugins.action.host import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, KvmfleetError, NotFound, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

ID, UUID, OTHER = (str(uuid.UUID(int=number)) for number in (1, 2, 9))


class Host:
    """The module's half: a host that may have an ID, and gets one when it is asked to."""

    def __init__(self, host_id: str | None = None) -> None:
        self.host_id = host_id
        self.ledger_id: str | None = None
        self.phases: list[str] = []

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        phase = module_args["_work"]["phase"]
        self.phases.append(phase)
        if phase == "recall":
            return {"told": None}
        if phase == "create":
            self.host_id = ID
            return {"changed": True, "host_id": ID}
        identity = {"host_id": self.host_id, "machine_id": "m1", "hostname": "kvm1", "host_uuid": UUID, "ledger_id": self.ledger_id}
        return {"identity": identity, "libvirt_error": None}


class Fleet:
    """Runs the action as a task of the host kvm1 would."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "ledger"
        self.host = Host()
        self.check_mode = False
        self.strategy = "linear"
        self.async_val = 0
        self.facts: dict[str, t.Any] = {}
        # Of the host of the task, and of others by name.
        self.variables: dict[str, t.Any] = {}
        self.others: dict[str, dict[str, t.Any]] = {"kvm2": {}}

    def task(self, target_host: str = "kvm1", **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(
            args=args,
            async_val=self.async_val,
            check_mode=self.check_mode,
            diff=True,
            delegate_to=None,
            get_play=lambda: types.SimpleNamespace(strategy=self.strategy),
        )
        action._execute_module = self.host.run
        own = {"kvmfleet_ledger": str(self.folder), "ansible_facts": {"kvmfleet_host": self.facts} if self.facts else {}, **self.variables}
        return action.run_with_options(task_vars(target_host, own, self.others))

    def entries(self) -> list[dict[str, t.Any]]:
        return [document.body for document in FileLedger(str(self.folder)).list_hosts()]


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def test_the_first_task_creates_identity_and_entry_and_the_second_changes_nothing(fleet: Fleet) -> None:
    first = fleet.task(state="maintenance", reason="disk")
    assert first["changed"]
    assert (first["host"]["host_id"], first["host"]["state"], first["host"]["reason"]) == (ID, "maintenance", "disk")
    assert first["diff"]["before"] == {}
    second = fleet.task(state="maintenance", reason="disk")
    assert not second["changed"]
    assert second["host"] == first["host"]
    assert fleet.host.phases == ["read", "create", "read"]


def test_a_second_inventory_name_of_a_host_is_neither_drained_nor_enabled(fleet: Fleet) -> None:
    fleet.task(state="maintenance", reason="disk")
    before, fleet.others = fleet.entries(), {"kvm1": {}}
    for work in ({}, {"drain": {"play": ["kvm2"], "candidates": [], "just_asked": True}}):
        with pytest.raises(Conflict, match="kvm2 and kvm1 of the inventory lead to one host"):
            fleet.task("kvm2", state="maintenance", _work=work)
    assert fleet.task("kvm2")["host"]["name"] == "kvm1"
    assert fleet.entries() == before
    fleet.others = {}
    assert fleet.task("kvm2", state="enabled")["host"]["name"] == "kvm2"


def test_a_host_of_another_ledger_is_neither_drained_nor_enabled(fleet: Fleet) -> None:
    fleet.task(state="maintenance", reason="disk")
    before, fleet.host.ledger_id = fleet.entries(), UUID
    with pytest.raises(Conflict, match=f"kvm1 was protected under the ledger {UUID}"):
        fleet.task(state="enabled")
    assert fleet.task()["host"] == before[0]
    fleet.facts = with_receipt({"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "ledger_id": UUID, "domains": []})
    with pytest.raises(Conflict, match="remove /var/lib/kvmfleet/ledger-id there"):
        fleet.task(state="maintenance", _work={"drain": {"play": ["kvm1"], "candidates": ["kvm2"], "just_asked": True}})
    assert fleet.entries() == before


@pytest.mark.parametrize("work", [{}, {"drain": {"play": ["kvm1"], "candidates": ["kvm2"], "just_asked": True}}])
def test_check_mode_refuses_a_host_for_which_the_task_would_create_another_ledger(fleet: Fleet, work: dict[str, t.Any]) -> None:
    fleet.check_mode, fleet.host.host_id, fleet.host.ledger_id = True, ID, UUID
    with pytest.raises(Conflict, match="there is no ledger where this task looks for it"):
        fleet.task(state="maintenance", reason="disk", _work=work)
    fleet.facts = with_receipt({"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "ledger_id": UUID, "domains": []})
    with pytest.raises(Conflict, match="there is no ledger where this task looks for it"):
        fleet.task(state="maintenance", reason="disk", _work=work)


DRAIN: dict[str, t.Any] = {"play": ["kvm1"], "candidates": ["kvm2"], "just_asked": True}


def test_a_task_that_is_refused_creates_no_ledger(fleet: Fleet) -> None:
    """An empty one would hide that the right one was moved away, and be in its way when it is moved back."""
    fleet.host.host_id, fleet.host.ledger_id = ID, UUID
    for args in ({"state": "enabled"}, {"state": "maintenance", "_work": {"drain": DRAIN}}):
        with pytest.raises(Conflict, match="there is no ledger where this task looks for it"):
            fleet.task(**args)
    with pytest.raises(NotFound):
        fleet.task("localhost", name="kvm1", state="fenced")
    assert not fleet.folder.exists()


def test_a_drain_uses_the_host_id_of_fresh_facts(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.host.phases = []
    fleet.facts = with_receipt({"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "domains": []})
    result = fleet.task(state="maintenance", _work={"drain": DRAIN})
    assert result["changed"]
    assert [(entry["name"], entry["host_id"], entry["state"]) for entry in fleet.entries()] == [("kvm1", ID, "maintenance")]
    assert fleet.host.phases == []
    fleet.task(state="enabled")
    fleet.facts = with_receipt({"host_id": None, "host_uuid": UUID, "machine_id": "m1", "domains": []})
    fleet.task(state="maintenance", _work={"drain": DRAIN})
    assert fleet.host.phases == ["read", "read"]


def test_a_role_does_not_change_what_a_person_has_written_in_the_meantime(fleet: Fleet) -> None:
    own = {"own_reason": "Rolling maintenance"}
    cordon: dict[str, t.Any] = {"state": "maintenance", "reason": "Rolling maintenance", "_work": {**own, "drain": DRAIN}}
    fleet.task(**cordon)
    assert fleet.task(state="enabled", _work=own)["host"]["state"] == "enabled"
    fleet.task(**cordon)
    fleet.task(state="maintenance", reason="A disk fails")
    for task in ({"state": "enabled", "_work": own}, cordon):
        result = fleet.task(**task)
        assert (result["changed"], result["host"]["state"], result["host"]["reason"]) == (False, "maintenance", "A disk fails")
    assert fleet.task(state="enabled")["host"]["state"] == "enabled"


@pytest.mark.parametrize("status", [s.DONE, s.ERROR])
def test_a_recovery_does_not_enable_a_host_that_was_evacuated_since_its_cleanup(fleet: Fleet, status: str) -> None:
    fleet.task(state="maintenance", reason="It was fenced")
    ledger = FileLedger(str(fleet.folder))
    stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(UUID, "web1"), HostRef("kvm1", ID, None), HostRef("kvm2", OTHER, None), {}, "test"))
    for step in (s.PRE_MIGRATING, status):
        stored = ledger.update_record(stored, stored.record.advance(step, "test"))
    with pytest.raises(Unsafe, match=rf"kvm1 was not enabled: .*web1.* is '{status}'.*Run recover again"):
        fleet.task(state="enabled", _work={"recovered": True})
    assert fleet.entries()[0]["state"] == "maintenance"
    fleet.task(state="fenced")
    with pytest.raises(Unsafe, match=r"The state of kvm1 was not changed: .*web1"):
        fleet.task(state="maintenance", _work={"recovered": True})
    assert fleet.entries()[0]["state"] == "fenced"
    ledger.update_record(stored, stored.record.advance(s.COMPLETED if status == s.DONE else s.FAILED, "test"))
    assert fleet.task(state="enabled", _work={"recovered": True})["host"]["state"] == "enabled"


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_person_who_enables_a_host_is_warned_of_old_copies_of_its_evacuated_domains(fleet: Fleet, check_mode: bool) -> None:
    """The record is a tombstone, which forbids nothing but the release of the host."""
    fleet.task(state="fenced", reason="It was off")
    ledger = FileLedger(str(fleet.folder))
    stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(UUID, "web1"), HostRef("kvm1", ID, None), HostRef("kvm2", OTHER, None), {}, "test"))
    for step in (s.PRE_MIGRATING, s.DONE):
        stored = ledger.update_record(stored, stored.record.advance(step, "test"))
    fleet.check_mode = check_mode
    for target_host in ("kvm1", "localhost"):
        result = fleet.task(target_host, name="kvm1", state="enabled")
        assert result["host"]["state"] == "enabled"
        (warning,) = result["warnings"]
        assert "it may still have old copies of domains that were evacuated from it (web1). They must not be started." in warning
        assert "(kvmfleet.migration.recover -e target=kvm1)" in warning
    assert "warnings" not in fleet.task(state="maintenance")
    if check_mode:
        # The cleanup of the recovery would have removed the copies.
        assert "warnings" not in fleet.task(state="enabled", _work={"recovered": True})
    fleet.check_mode = False
    ledger.update_record(stored, stored.record.advance(s.COMPLETED, "test"))
    assert "warnings" not in fleet.task(state="enabled")


def test_a_host_that_is_not_enabled_after_its_recovery_does_not_stay_fenced(fleet: Fleet) -> None:
    """It is on. The silence of a fenced host counts as that of a host without power."""
    back = {"state": "maintenance", "reason": "It is back", "_work": {"recovered": True}}
    assert (fleet.task(**back)["host"], fleet.entries()) == (None, [])
    for state in ("enabled", "maintenance"):
        fleet.task(state=state, reason="before")
        host = fleet.task(**back)["host"]
        assert (host["state"], host["reason"]) == (state, "before")
    fleet.task(state="fenced", reason="It was off")
    host = fleet.task(**back)["host"]
    assert (host["state"], host["reason"]) == ("maintenance", "It is back")


SAVED = {"uuid": UUID, "name": "web1", "active": True, "state": "running", "policy": {"drain": "save"}}


@pytest.mark.parametrize(
    ("changes", "options", "is_refused"),
    [
        ({}, {}, True),
        ({"policy": {"drain": ["save", "shutdown"]}}, {}, False),
        ({"policy": {}}, {}, False),
        ({"policy": {"drain": "nonsense"}}, {}, False),
        ({"active": False, "state": "shut off"}, {}, False),
        ({}, {"strategies": {"save_folder": "/srv/saved"}}, False),
        ({}, {"just_asked": False}, False),
    ],
)
def test_a_policy_that_only_saves_memory_needs_a_folder_before_the_host_is_put_into_maintenance(
    fleet: Fleet, changes: dict[str, t.Any], options: dict[str, t.Any], is_refused: bool
) -> None:
    fleet.task(state="enabled")
    fleet.facts = with_receipt({"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "domains": [{**SAVED, **changes}]})
    if is_refused:
        with pytest.raises(InvalidArgument, match=r"The policy of web1 on kvm1 saves its memory .* Set drain_host_save_folder"):
            fleet.task(state="maintenance", _work={"drain": {**DRAIN, **options}})
    else:
        fleet.task(state="maintenance", _work={"drain": {**DRAIN, **options}})
    assert [entry["state"] for entry in fleet.entries()] == ["enabled" if is_refused else "maintenance"]


def test_a_mistyped_candidate_is_named_before_the_host_is_put_into_maintenance(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    with pytest.raises(InvalidArgument, match="drain_host_candidates names hosts that are not in the inventory: kvm22, kvm33"):
        fleet.task(state="maintenance", _work={"drain": {**DRAIN, "candidates": ["kvm22", "kvm2", "kvm33"]}})
    assert [entry["state"] for entry in fleet.entries()] == ["enabled"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"moves": {"timeout_secs": 4}}, r"live_migrate does not accept the options of the moves: timeout_secs\. Supported .*[^.]\. Nothing was moved\.$"),
        ({"moves": {"on_timeout": "stop"}}, "value of on_timeout must be one of: abort, force_complete, got: stop"),
        ({"moves": "fast"}, "options is 'fast'"),
        ({"parallel": "many"}, "parallel is 'many'"),
        ({"parallel": 0}, "parallel is 0"),
    ],
)
def test_an_invalid_option_of_the_moves_is_refused_before_the_host_is_put_into_maintenance(fleet: Fleet, options: dict[str, t.Any], words: str) -> None:
    fleet.task(state="enabled")
    with pytest.raises(InvalidArgument, match=words):
        fleet.task(state="maintenance", _work={"drain": {**DRAIN, **options}})
    assert [entry["state"] for entry in fleet.entries()] == ["enabled"]


@pytest.mark.parametrize("text", ['{"bandwidth_mib": 100}', "bandwidth_mib=100"])
def test_options_of_the_moves_may_be_text_as_on_the_command_line(fleet: Fleet, text: str) -> None:
    fleet.task(state="maintenance", _work={"drain": {**DRAIN, "moves": text}})
    assert [entry["state"] for entry in fleet.entries()] == ["maintenance"]
    with pytest.raises(InvalidArgument, match="bandwidth_mib of the moves is -1"):
        fleet.task(state="maintenance", _work={"drain": {**DRAIN, "moves": text.replace("100", "-1")}})


def test_a_default_of_the_host_that_only_saves_memory_needs_a_folder_too(fleet: Fleet) -> None:
    fleet.facts = with_receipt({"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "domains": [{**SAVED, "policy": {}}]})
    fleet.variables = {"kvmfleet_migration_policy": {"drain": "save"}}
    with pytest.raises(InvalidArgument, match="The policy of web1"):
        fleet.task(state="maintenance", _work={"drain": DRAIN})
    assert fleet.entries() == []


def test_a_drain_keeps_the_state_fenced_and_reports_the_previous_state(fleet: Fleet) -> None:
    first = fleet.task(state="maintenance", _work={"drain": DRAIN})
    assert (first["host"]["state"], first["host"]["reason"]) == ("maintenance", "It is being drained")
    cordon = first["_drain"]["cordon"]
    assert (cordon["before"], cordon["after"]) == ({"state": "enabled", "reason": None}, {"state": "maintenance", "reason": "It is being drained"})
    assert cordon["by"] == first["host"]["by"] == fleet.entries()[0]["by"]
    fleet.task(state="fenced", reason="it burns")
    again = fleet.task(state="maintenance", _work={"drain": DRAIN})
    assert (again["changed"], again["host"]["state"], again["host"]["reason"]) == (False, "fenced", "it burns")
    assert again["_drain"]["cordon"]["before"] == again["_drain"]["cordon"]["after"] == {"state": "fenced", "reason": "it burns"}


def test_the_entry_names_who_drains_a_host_last(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    drained = []
    for name in ("ann", "bob"):
        monkeypatch.setattr(host, "describe_actor", lambda _vars, name=name: name)
        drained.append(fleet.task(state="maintenance", _work={"drain": DRAIN}))
    assert [one["changed"] for one in drained] == [True, False]
    assert [(one["_drain"]["cordon"]["by"], one["_drain"]["cordon"]["drained_by"]) for one in drained] == [("ann", "ann"), ("ann", "bob")]
    fleet.task(state="maintenance", reason="disk fails")
    monkeypatch.setattr(host, "describe_actor", lambda _vars: "eve")
    fleet.task(state="maintenance", _work={"drain": DRAIN})
    entry = fleet.entries()[0]
    assert (entry["by"], entry["reason"], entry["drained_by"]) == ("bob", "disk fails", "eve")


def test_a_host_that_is_cordoned_again_while_its_entry_is_written_is_no_conflict(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.task(state="maintenance", _work={"drain": DRAIN})
    put, others = FileLedger.put_host, [1]

    def put_after_another(ledger: FileLedger, entry: HostEntry, version: int | None) -> t.Any:
        while others:
            others.pop()
            (found,) = ledger.list_hosts()
            put(ledger, dataclasses.replace(found.host, addresses={"a": 1}), found.version)
        return put(ledger, entry, version)

    monkeypatch.setattr(FileLedger, "put_host", put_after_another)
    monkeypatch.setattr(host, "describe_actor", lambda _vars: "bob")
    fleet.task(state="maintenance", _work={"drain": DRAIN})
    entry = fleet.entries()[0]
    assert (entry["drained_by"], entry["addresses"]) == ("bob", {"a": 1})


def test_a_drain_gets_the_hosts_to_ask_and_the_settings_of_the_host(fleet: Fleet) -> None:
    fleet.variables = {"kvmfleet_scheduler": {"labels": ["ssd"]}}
    told = fleet.task(_work={"drain": DRAIN}, ledger=str(fleet.folder))["_drain"]
    assert (told["ask"], told["ask_for_all"], told["arriving"], told["cordon"]) == (("kvm1",), ("kvm2",), (), None)
    assert told["settings"] == {"scheduler": {"labels": ["ssd"]}, "policy": {}, "profiles": {}}
    assert told["ledger"] == str(fleet.folder)
    assert not fleet.folder.exists()


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_drain_knows_whether_its_task_is_in_check_mode(fleet: Fleet, check_mode: bool) -> None:
    fleet.check_mode = check_mode
    assert fleet.task(_work={"drain": DRAIN})["_drain"]["check_mode"] is check_mode


def test_a_drain_with_an_invalid_resource_map_changes_no_state(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.variables = {"kvmfleet_bridge_map": {"prod": "br0", "test": "br0"}}
    with pytest.raises(InvalidArgument, match="kvmfleet_bridge_map of kvm1 gives 'br0' two names"):
        fleet.task(state="maintenance", _work={"drain": DRAIN})
    fleet.variables = {"kvmfleet_bridge_map": {"prod": "br0"}}
    told = fleet.task(_work={"drain": DRAIN})
    assert told["host"]["state"] == "enabled"
    assert told["_drain"]["settings"]["resource_maps"]["bridges"] == {"prod": "br0"}


def test_a_role_can_refuse_to_run_before_anything_is_read(fleet: Fleet) -> None:
    with pytest.raises(InvalidArgument, match=r"No target was given\. Nothing was changed\."):
        fleet.task(state="maintenance", _work={"drain": DRAIN, "refusal": "No target was given."})
    assert fleet.host.phases == []


def test_facts_of_an_unexpected_form_are_refused_in_the_first_task_of_a_drain(fleet: Fleet) -> None:
    fleet.facts = with_receipt({"host_id": ID, "host_uuid": UUID, "machine_id": "m1", "domains": 5})
    with pytest.raises(InvalidArgument, match="expected form"):
        fleet.task(_work={"drain": DRAIN})


def test_check_mode_writes_no_entry_identity_or_ledger(fleet: Fleet) -> None:
    fleet.check_mode = True
    result = fleet.task(state="fenced")
    assert result["changed"]
    assert result["host"]["state"] == "fenced"
    assert fleet.host.phases == ["read"]
    assert not fleet.folder.exists()


def test_host_without_a_state_reads_and_creates_nothing(fleet: Fleet) -> None:
    assert fleet.task() == {"changed": False, "host": None}
    assert not fleet.folder.exists()
    fleet.task(state="maintenance")
    assert fleet.task()["host"]["state"] == "maintenance"
    assert fleet.host.phases == ["read", "read", "create", "read"]


def test_the_state_of_a_silent_host_is_set_by_name_from_another_host(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.host = Host()
    result = fleet.task(target_host="localhost", name="kvm1", state="fenced", reason="burnt")
    assert result["changed"]
    assert fleet.host.phases == []
    assert [(entry["name"], entry["host_id"], entry["state"]) for entry in fleet.entries()] == [("kvm1", ID, "fenced")]


def test_a_name_may_be_that_of_a_host_whose_document_was_damaged(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    pathlib.Path(fleet.folder, "hosts", f"{ID}.json").write_text("torn")
    with pytest.raises(NotFound, match=rf"no host 'kvm1' whose document can be read.*restore hosts/{ID}\.json"):
        fleet.task(target_host="localhost", name="kvm1", state="fenced", reason="burnt")


def test_an_unknown_name_is_not_found(fleet: Fleet) -> None:
    with pytest.raises(NotFound, match="kvm9"):
        fleet.task(name="kvm9", state="fenced")
    assert fleet.entries() == []


@pytest.mark.parametrize("name", ["", "kvm\n1"])
def test_an_invalid_host_name_is_refused(fleet: Fleet, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name is"):
        fleet.task(name=name, state="fenced")


def test_a_host_that_lost_its_identity_gets_no_new_one(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    fleet.host = Host()
    with pytest.raises(Conflict, match="lost its identity"):
        fleet.task(state="maintenance")
    assert fleet.host.phases == ["read"]


@pytest.mark.parametrize("strategy", ["free", "ansible.builtin.free", "host_pinned", "mitogen_free", "mitogen_host_pinned"])
def test_tasks_that_need_all_hosts_together_refuse_other_strategies(fleet: Fleet, strategy: str) -> None:
    fleet.strategy = strategy
    with pytest.raises(NotSupported, match="strategy"):
        fleet.task(_work={"together": True}, state="maintenance")
    assert fleet.task(state="maintenance")["changed"]


@pytest.mark.parametrize("strategy", ["linear", "debug", "mitogen_linear"])
def test_strategies_that_keep_hosts_together_are_accepted(fleet: Fleet, strategy: str) -> None:
    fleet.strategy = strategy
    assert fleet.task(_work={"together": True}, state="maintenance")["changed"]


@pytest.mark.parametrize("check", [False, True])
def test_a_role_learns_whether_its_play_is_in_check_mode(fleet: Fleet, check: bool) -> None:
    fleet.check_mode = check
    assert fleet.task(_work={"together": True})["_check_mode"] is check


def test_the_ledger_of_the_task_is_returned_to_a_role(fleet: Fleet) -> None:
    fleet.task(state="enabled")
    told = fleet.task(_work={"together": True, "ledger": True}, ledger=str(fleet.folder))
    assert (told["_ledger"], told["host"]["name"]) == (str(fleet.folder), "kvm1")
    assert fleet.task(_work={"ledger": True})["_ledger"] is None
    assert "_ledger" not in fleet.task()


def test_async_is_refused(fleet: Fleet) -> None:
    fleet.async_val = 60
    with pytest.raises(InvalidArgument, match="async"):
        fleet.task(state="enabled")


def test_an_error_of_the_module_keeps_its_code(fleet: Fleet) -> None:
    fleet.host.run = lambda **call: {"failed": True, "msg": "no root", "error_code": "forbidden"}  # type: ignore[method-assign]
    with pytest.raises(KvmfleetError, match="no root") as caught:
        fleet.task(state="enabled")
    assert caught.value.error_code == "forbidden"


def damage_entry(fleet: Fleet, **task: t.Any) -> None:
    fleet.task(**task)
    (fleet.folder / "hosts" / f"{ID}.json").write_text("torn")


@pytest.mark.parametrize("is_check", [False, True])
@pytest.mark.parametrize("args", [{"state": "enabled"}, {"state": "maintenance", "reason": "to update it", "_work": {"drain": DRAIN}}])
def test_only_a_person_states_the_state_of_a_host_whose_document_was_damaged(fleet: Fleet, args: dict[str, t.Any], is_check: bool) -> None:
    damage_entry(fleet, state="fenced", reason="it burns")
    fleet.check_mode = is_check
    with pytest.raises(Conflict, match=r"document of kvm1 .* was damaged and set aside. The host may be fenced or in maintenance"):
        fleet.task(**args)
    assert fleet.entries() == []
    shown = fleet.task()
    assert shown["host"] is None
    assert f"The state of the host {ID} is not known" in shown["warnings"][0]


def test_a_person_states_the_state_of_a_host_with_a_reason(fleet: Fleet) -> None:
    damage_entry(fleet, state="fenced", reason="it burns")
    stated = fleet.task(state="maintenance", reason="it is on again, and empty")
    assert (stated["changed"], stated["host"]["state"]) == (True, "maintenance")
    # Whether the host may hold a clean-shutdown token is not known any more.
    assert stated["host"]["protected"]["token_id"]
    assert not fleet.task(state="maintenance")["changed"]


def test_a_host_that_lost_its_identity_gets_none_while_it_may_be_one_whose_document_was_damaged(fleet: Fleet) -> None:
    damage_entry(fleet, state="fenced", reason="it burns")
    fleet.host = Host()
    with pytest.raises(Conflict, match=f"kvm1 reports no host ID, so it may be the host {ID}"):
        fleet.task(state="enabled")
    assert fleet.host.phases == ["read"]
