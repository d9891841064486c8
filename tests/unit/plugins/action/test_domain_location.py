# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task domain_location: what somebody gives to a playbook for one domain, and the host that follows from the ledger or from the answers of the hosts."""

from __future__ import annotations

import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import domain_location
from ansible_collections.kvmfleet.migration.plugins.action.domain_location import ActionModule, given_options_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import PURPOSES, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

Result = dict[str, t.Any]
FLEET = ["kvm1", "kvm2", "kvm3"]
WEB = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
OTHER = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
KVM2 = HostRef("kvm2", None, None)
NOWHERE = "2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10"


class Desk:
    """A control node with a ledger."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.where = str(folder / "ledger")
        self.ledger = FileLedger(self.where)

    def task(self, step: str, purpose: str, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        given = {"step": step, "purpose": purpose, "fleet": FLEET, "domain": "web1", **args}
        action._task = types.SimpleNamespace(args=given, async_val=0, check_mode=False, diff=False, delegate_to=None)
        return t.cast(Result, action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": self.where})))

    def check(self, purpose: str = "abort", **args: t.Any) -> Result:
        return self.task("check", purpose, **args)

    def find(self, purpose: str, answers: Result, **args: t.Any) -> Result:
        checked = {"host": None, "domain": {"name": "web1"}, "changed": False}
        return self.task("find", purpose, _work={"checked": checked, "answers": answers}, **args)

    def record(self, *steps: str, source: HostRef = KVM2, kind: str = s.LIVE_MIGRATION, domain: str = WEB) -> MoveRecord:
        stored = self.ledger.open_record(new_record(kind, DomainRef(domain, "web1"), source, HostRef("kvm3", None, None), {}, "ann@control pid 1"))
        for step in steps:
            stored = self.ledger.update_record(stored, stored.record.advance(step, "ann@control pid 1", "as a test says"))
        return stored.record


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    return Desk(tmp_path)


def has(state: str = "running", active: bool = True, uuid: str = WEB, moving: bool = False) -> Result:
    """Return the answer of a host that has the domain."""
    migrations = [{"domain": {"uuid": uuid, "name": "web1"}}] if moving else []
    return {"changed": False, "failed": False, "domain": {"uuid": uuid, "name": "web1", "state": state, "active": active}, "migrations": migrations}


def has_not() -> Result:
    return {"changed": False, "failed": False, "error_code": "not_found", "msg": "There is no domain 'web1'."}


def is_silent() -> Result:
    return {"changed": False, "unreachable": True, "msg": "No route to host"}


def is_broken() -> Result:
    """Return what is left of a module that crashed, with failed_when."""
    return {"changed": False, "failed": False, "rc": 1, "module_stderr": "killed", "msg": "MODULE FAILURE"}


def test_the_source_of_an_unsettled_migration_is_the_host_and_nobody_is_asked(desk: Desk) -> None:
    desk.record(s.RUNNING)
    for purpose in ("abort", "force_complete", "migrate"):
        found = desk.check(purpose)
        assert (found["host"], found["ask"], found["domain"]) == ("kvm2", [], {"uuid": WEB}), purpose


def test_for_a_check_and_a_policy_the_hosts_are_asked_where_the_domain_is(desk: Desk) -> None:
    desk.record(s.RUNNING)
    for purpose in ("check", "policy"):
        found = desk.check(purpose)
        assert (found["host"], found["ask"], found["domain"]) == (None, FLEET, {"name": "web1"}), purpose


@pytest.mark.parametrize("steps", [(), (s.RUNNING, s.COMPLETED)])
def test_without_an_unsettled_migration_all_hosts_are_asked(desk: Desk, steps: tuple[str, ...]) -> None:
    if steps:
        desk.record(*steps)
    found = desk.check("abort")
    assert (found["host"], found["ask"]) == (None, FLEET)


def test_an_unsettled_evacuation_is_no_migration(desk: Desk) -> None:
    desk.record(s.PRE_MIGRATING, kind=s.EVACUATION)
    assert desk.check("abort")["ask"] == FLEET


@pytest.mark.parametrize("steps", [(s.RUNNING,), (s.RUNNING, s.COMPLETED)])
def test_two_domains_of_one_name_in_the_ledger_are_left_to_the_hosts(desk: Desk, steps: tuple[str, ...]) -> None:
    desk.record(*steps)
    desk.record(s.RUNNING, domain=OTHER)
    assert desk.check("abort")["ask"] == FLEET
    assert desk.check("abort", domain=OTHER.upper())["domain"] == {"uuid": OTHER}


def test_the_id_of_a_record_is_enough_for_an_abort(desk: Desk) -> None:
    record = desk.record(s.RUNNING)
    found = desk.check("abort", domain=None, id=record.id)
    assert (found["host"], found["domain"]) == ("kvm2", {"uuid": WEB})


def test_only_an_abort_and_a_force_have_an_id(desk: Desk) -> None:
    desk.record(s.RUNNING)
    for purpose in ("check", "migrate", "policy"):
        assert desk.check(purpose, id="a variable of the inventory")["domain"] in ({"uuid": WEB}, {"name": "web1"}), purpose


def test_a_source_that_was_renamed_is_known_by_its_host_id(desk: Desk) -> None:
    host_id = str(uuid.uuid4())
    record = desk.record(s.RUNNING, source=HostRef("old-name", host_id, None))
    assert desk.check("abort", id=record.id)["ask"] == FLEET
    desk.ledger.put_host(host_entry({"name": "kvm3", "host_id": host_id, "host_key": host_id}), None)
    assert desk.check("abort", id=record.id)["host"] == "kvm3"


def test_a_given_source_is_used(desk: Desk) -> None:
    found = desk.check("policy", source="kvm3")
    assert (found["host"], found["ask"]) == ("kvm3", [])
    assert desk.task("find", "policy", _work={"checked": found, "answers": {}})["host"] == "kvm3"


def test_a_ledger_that_cannot_be_used_prevents_only_what_names_a_record(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*location: t.Any, **named: t.Any) -> t.NoReturn:
        raise Unreachable("etcd at lost:2379 did not answer.")

    monkeypatch.setattr(domain_location, "open_ledger", lose)
    assert desk.check("abort")["ask"] == FLEET
    with pytest.raises(Unreachable, match="lost:2379"):
        desk.check("abort", id=NOWHERE)


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ({"domain": None}, InvalidArgument, "-e domain=web1, or the ID of the record"),
        ({"domain": ""}, InvalidArgument, "No domain was given"),
        ({"purpose": "migrate", "domain": None, "id": NOWHERE}, InvalidArgument, "-e domain=web1. Nothing"),
        ({"domain": "a/b"}, InvalidArgument, "cannot be the name"),
        ({"source": "kvm9"}, InvalidArgument, "kvm9 is not a host of this play"),
        ({"id": "no-id"}, InvalidArgument, "record id"),
        ({"id": NOWHERE}, NotFound, f"no record {NOWHERE}"),
        ({"options": {"missing": 1}}, InvalidArgument, "'abort_options.missing'"),
        ({"options": [1]}, InvalidArgument, "'abort_options' must be a dictionary"),
        ({"survey": {"wait_seconds": "soon"}}, InvalidArgument, "'abort_options.wait_seconds' must be a whole number"),
        ({"purpose": "migrate", "options": {"destination": "kvm2"}}, InvalidArgument, "'migrate_options.destination'"),
        ({"purpose": "policy", "options": {"on_timeout": "pause"}}, InvalidArgument, "abort, force_complete"),
    ],
)
def test_bad_input_is_refused(desk: Desk, args: Result, error: type[KvmfleetError], words: str) -> None:
    with pytest.raises(error) as caught:
        desk.task("check", **{"purpose": "abort", **args})
    assert words in str(caught.value)


def test_the_id_of_a_closed_record_is_refused_unless_nothing_to_abort_is_fine(desk: Desk) -> None:
    record = desk.record(s.RUNNING, s.COMPLETED)
    with pytest.raises(InvalidState, match=r"has ended: completed\. as a test says"):
        desk.check("abort", id=record.id)
    assert desk.check("abort", id=record.id, options={"missing_ok": True})["host"] == "kvm2"
    newer = desk.record(s.RUNNING)
    with pytest.raises(Conflict, match=f"record {newer.id}"):
        desk.check("abort", id=record.id)


def test_the_id_of_an_evacuation_or_of_another_domain_is_refused(desk: Desk) -> None:
    evacuation = desk.record(s.PRE_MIGRATING, kind=s.EVACUATION)
    with pytest.raises(InvalidArgument, match="is of the type evacuation"):
        desk.check("abort", id=evacuation.id)
    other = desk.record(s.RUNNING, domain=OTHER)
    with pytest.raises(InvalidArgument, match="is about domain web1, not about db1"):
        desk.check("abort", id=other.id, domain="db1")


def test_the_id_of_another_ledger_is_refused(desk: Desk, tmp_path: pathlib.Path) -> None:
    other = Desk(tmp_path / "other")
    with pytest.raises(NotFound, match="name the ledger that has it"):
        desk.check("abort", id=other.record(s.RUNNING).id)


def test_options_get_their_types_and_answers_of_a_survey_override_them(desk: Desk) -> None:
    given = {"timeout_seconds": "600", "post_copy": "no", "bandwidth_mib": 8, "tls": None}
    found = desk.check("migrate", options=given, survey={"bandwidth_mib": "0", "timeout_seconds": "", "on_timeout": "force_complete"})
    assert found["options"] == {"timeout_seconds": 600, "post_copy": False, "bandwidth_mib": 0, "on_timeout": "force_complete"}


def test_an_alias_is_the_option_and_an_answer_of_a_survey_overrides_it_too(desk: Desk) -> None:
    given = {"timeout": "600", "bandwidth": 8, "copy_storage": "all"}
    found = desk.check("migrate", options=given, survey={"bandwidth_mib": "0", "timeout_seconds": ""})
    assert found["options"] == {"timeout_seconds": 600, "bandwidth_mib": 0, "copy_storage": "all"}
    assert desk.check("abort", options={"wait_timeout": 9})["options"] == {"wait_seconds": 9}


def test_two_names_of_one_option_are_refused(desk: Desk) -> None:
    with pytest.raises(InvalidArgument, match="'timeout' and 'timeout_seconds' are names of one option"):
        desk.check("migrate", options={"timeout": 60, "timeout_seconds": 600})


def test_a_false_value_is_given_and_an_empty_one_is_not(desk: Desk) -> None:
    found = desk.check("policy", options={"post_copy": False, "timeout_seconds": 0, "labels": []}, survey={"auto_converge": "", "drain": None})
    assert found["options"] == {"post_copy": False, "timeout_seconds": 0, "labels": []}


def test_every_option_of_a_move_can_be_given_to_migrate(desk: Desk) -> None:
    assert given_options_spec("migrate").keys() == move_spec().keys() - {"name", "uuid", "destination"}
    assert all(not {"_work", "ledger", "uri", "name", "uuid"} & given_options_spec(purpose).keys() for purpose in PURPOSES)


@pytest.mark.parametrize(
    ("purpose", "answers", "host"),
    [
        ("abort", {"kvm1": has_not(), "kvm2": has(moving=True), "kvm3": has("paused")}, "kvm2"),
        ("migrate", {"kvm1": has_not(), "kvm2": has(), "kvm3": has("shut off", active=False)}, "kvm2"),
        ("policy", {"kvm1": has_not(), "kvm2": has("shut off", active=False), "kvm3": has_not()}, "kvm2"),
        # Somebody who is silent does not matter if the domain is seen elsewhere.
        ("check", {"kvm1": is_silent(), "kvm2": has(), "kvm3": is_broken()}, "kvm2"),
        # The module says itself that nothing is in progress.
        ("abort", {"kvm1": has_not(), "kvm2": has(), "kvm3": {"skipped": True}}, "kvm2"),
    ],
)
def test_the_host_follows_from_the_answers(desk: Desk, purpose: str, answers: Result, host: str) -> None:
    found = desk.find(purpose, answers)
    assert (found["host"], found["domain"], found["arrived"]) == (host, {"uuid": WEB}, False)


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ({"kvm1": has_not(), "kvm2": has_not()}, NotFound, "No host of this play has a domain web1."),
        ({}, NotFound, "No host of this play has a domain web1."),
        ({"kvm1": has_not(), "kvm2": is_silent()}, Unreachable, "these hosts do not answer: kvm2: No route to host."),
        ({"kvm1": is_broken(), "kvm2": is_silent()}, Unreachable, "kvm1: MODULE FAILURE; kvm2: No route to host."),
        ({"kvm1": has("shut off", active=False), "kvm2": is_silent()}, Unreachable, "shut off on kvm1, and these hosts do not answer: kvm2"),
        ({"kvm1": has("shut off", active=False), "kvm2": has("shut off", active=False)}, Conflict, "defined on kvm1 and kvm2. Set the host"),
        ({"kvm1": has(), "kvm2": has()}, Conflict, "is active on kvm1 and kvm2"),
        ({"kvm1": has(moving=True), "kvm2": has(moving=True)}, Conflict, "is being moved away from kvm1 and kvm2"),
        ({"kvm1": has(), "kvm2": has(uuid=OTHER)}, Conflict, f"{WEB} on kvm1; {OTHER} on kvm2. Give the UUID"),
    ],
)
def test_answers_that_leave_the_host_open_are_an_error_for_every_purpose(desk: Desk, answers: Result, error: type[KvmfleetError], words: str) -> None:
    for purpose in PURPOSES:
        with pytest.raises(error) as caught:
            desk.find(purpose, answers)
        assert words in str(caught.value)
        assert "Nothing was changed." in str(caught.value)


def test_a_domain_at_its_destination_has_arrived(desk: Desk) -> None:
    assert desk.find("migrate", {"kvm1": has_not(), "kvm2": has()}, destination="kvm2")["arrived"] is True
    assert desk.find("migrate", {"kvm1": has_not(), "kvm2": has()}, destination="kvm1")["arrived"] is False
    assert desk.find("migrate", {"kvm2": has(moving=True)}, destination="kvm2")["arrived"] is False
    assert desk.find("migrate", {"kvm2": has("shut off", active=False)}, destination="kvm2")["arrived"] is False


def test_answers_of_another_form_are_refused(desk: Desk) -> None:
    with pytest.raises(InvalidArgument, match="do not have the expected form"):
        desk.task("find", "abort", _work={"answers": {"kvm1": {"domain": "web1", "migrations": []}}})


def test_nothing_is_written(desk: Desk, tmp_path: pathlib.Path) -> None:
    record = desk.record(s.RUNNING)
    before = {path: path.read_bytes() for path in (tmp_path / "ledger").rglob("*") if path.is_file()}
    desk.check("abort", id=record.id)
    desk.find("abort", {"kvm1": has()})
    assert {path: path.read_bytes() for path in (tmp_path / "ledger").rglob("*") if path.is_file()} == before
    assert desk.check("abort", ledger=str(tmp_path / "none"))["ask"] == FLEET
    assert not (tmp_path / "none").exists()
