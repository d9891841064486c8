# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module recover_plan: refuses hosts that may not be recovered, and decides what is started on a host and what moves back to it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.recover_plan import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, KvmfleetError, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, end, host, noted, record, uid

Body = dict[str, t.Any]


def known(name: str, *domains: Body) -> Body:
    return {**f.host(name, domains=domains), "host_id": uid(f"id {name}"), "host_uuid": uid(f"libvirt {name}")}


def guest(name: str, active: bool = True, path: str = "") -> Body:
    disks = [f.disk("vda", source=path, store=path)] if path else []
    return f.domain(name, uuid=uid(name), active=active, state="running" if active else "shut off", disks=disks)


def answered(name: str, *domains: Body) -> Body:
    """Return what the role's loop over the fleet has of a host."""
    return {"item": name, "ansible_facts": {"kvmfleet_host": known(name, *domains)}}


class Node:
    """A control node that knows the facts of three hosts; the task runs on kvm1, which was drained."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "ledger"
        self.facts: dict[str, Body | None] = {"kvm1": known("kvm1"), "kvm2": known("kvm2"), "kvm3": known("kvm3")}
        self.check_mode = False

    def ledger(self, **changes: t.Any) -> FileLedger:
        ledger = FileLedger(str(self.folder))
        more = {"machine_id": None, "reason": None, "by": "test"}
        for entry in ({**host("kvm1", "maintenance"), **changes}, host("kvm2"), host("kvm3")):
            ledger.put_host(host_entry({**entry, **more}), None)
        return ledger

    def task(self, step: str, asked: list[Body] | None = None, state: str = "enabled", **args: t.Any) -> Body:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=False)
        action._task.args = {"step": step, "fleet": ["kvm1", "kvm2", "kvm3"], "_work": {"asked": asked or [], "state": state}, **args}
        hosts = {name: {"inventory_hostname": name, "ansible_facts": {"kvmfleet_host": facts}} for name, facts in self.facts.items()}
        return action.run_with_options(task_vars("kvm1", {**hosts.pop("kvm1"), "kvmfleet_ledger": str(self.folder)}, hosts))

    def refused(self, kind: type[KvmfleetError], words: str, step: str, **args: t.Any) -> None:
        with pytest.raises(kind, match=words):
            self.task(step, **args)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def displace(ledger: FileLedger, name: str = "web1") -> None:
    """Write what a drain leaves of a protected domain."""
    ledger.put_domain(domain_entry(document(name, "kvm1")), None)
    stored = ledger.open_record(record(name, "kvm1", "kvm2", s.ACCEPTED))
    ledger.update_record(stored, dataclasses.replace(stored.record, status=s.COMPLETED))


def origin(ledger: FileLedger, name: str = "web1") -> t.Any:
    found = ledger.read_domain(uid(name))
    assert found
    return found.body["protected"]["origin"]


def test_displaced_domains_of_a_known_host_are_noted_once(node: Node) -> None:
    ledger = node.ledger(protected={"at": "then"})
    displace(ledger)
    node.check_mode = True
    assert (node.task("check")["changed"], origin(ledger)) == (True, None)
    node.check_mode = False
    done = node.task("check")
    assert (done["changed"], [entry["name"] for entry in done["displaced"]], done["returned"]) == (True, ["web1"], [])
    assert (done["is_protected"], origin(ledger)) == (True, "kvm1")
    assert not node.task("check")["changed"]


def test_a_host_that_the_ledger_does_not_know_is_refused(node: Node) -> None:
    words = r"The ledger does not know kvm1, so the domains that belong there are not known\. If it is a new host, protect it .*Nothing was changed\."
    node.refused(NotFound, words, "check")
    assert not node.folder.exists()
    node.ledger(host_id=None)
    node.refused(NotFound, words, "check")
    node.refused(NotFound, words, "bring_home")


def test_the_hosts_on_which_evacuations_from_the_host_have_begun_are_named(node: Node) -> None:
    ledger = node.ledger()
    assert node.task("check")["_begun"] == []
    for name, source, destination in (("web", "kvm1", "kvm3"), ("app", "kvm1", "kvm2"), ("db", "kvm2", "kvm1"), ("mail", "kvm1", "elsewhere")):
        begun = dataclasses.replace(record(name, source, destination, s.ACCEPTED), type=s.EVACUATION)
        stored = ledger.open_record(begun)
        ledger.update_record(stored, stored.record.advance(s.PRE_MIGRATING, "test"))
    assert node.task("check")["_begun"] == ["kvm2", "kvm3"]


def test_hosts_that_contradict_each_other_are_named_to_be_asked_again(node: Node) -> None:
    """A domain that moved between two answers is active in both."""
    node.ledger()
    first: Body = {"asked": [answered("kvm2", guest("web1")), answered("kvm1", guest("web1"))]}
    done = node.task("check", _work={**first, "may_ask_again": True})
    assert (done["_ask_again"], done["displaced"], done["is_protected"]) == (["kvm1", "kvm2"], [], False)
    node.refused(Unsafe, r"web1 .*active on kvm1 and kvm2", "check", _work=first)
    second = {"asked": [*first["asked"], answered("kvm1", guest("web1")), answered("kvm2")]}
    assert "_ask_again" not in node.task("check", _work={**second, "may_ask_again": True})
    assert "_ask_again" not in node.task("check", _work=second)


def test_a_host_that_was_discarded_is_refused(node: Node) -> None:
    node.ledger(discarded={"at": "then", "by": "Ada", "reason": "burnt"})
    node.refused(Unsafe, r"was discarded at then by Ada \(burnt\).*virsh undefine --keep-nvram, with --keep-tpm.*adopt_identity", "check")


def test_a_host_on_which_the_user_is_not_root_is_refused_before_anything_is_noted(node: Node) -> None:
    ledger = node.ledger(protected={"at": "then"})
    displace(ledger)
    node.facts["kvm1"] = {**known("kvm1"), "unverified_reasons": {}}
    node.refused(Forbidden, r"kvm1 was queried without root, .*become: true.* Nothing was changed\.", "check")
    assert origin(ledger) is None


def test_a_host_with_a_domain_or_an_image_in_use_twice_is_refused(node: Node) -> None:
    node.ledger()
    node.facts.update(kvm2=known("kvm2", guest("twice")), kvm3=known("kvm3", guest("twice")))
    assert node.task("check")["displaced"] == []
    node.facts["kvm1"] = known("kvm1", guest("twice", active=False))
    node.refused(Unsafe, r"twice .*active on kvm2 and kvm3.* Nothing was cleaned, released or started on kvm1\.", "check")
    node.facts.update(kvm1=known("kvm1", guest("a", path="/srv/x")), kvm2=known("kvm2", guest("b", path="/srv/x")), kvm3=known("kvm3"))
    node.refused(Unsafe, r"image /srv/x is open for writing", "check")


def test_a_new_answer_of_a_host_overrides_its_facts(node: Node) -> None:
    node.ledger()
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    answer = {"item": "kvm2", "ansible_facts": {"kvmfleet_host": known("kvm2", guest("web1"))}}
    todo = [noted("web1")]
    assert [entry["name"] for entry in node.task("start", to_start=todo)["start"]] == ["web1"]
    assert [entry["reason"] for entry in node.task("start", to_start=todo, asked=[answer])["forget"]] == ["It is active on kvm2."]


def test_a_domain_is_not_started_while_a_host_is_silent_unless_it_is_accepted(node: Node) -> None:
    node.ledger()
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    silence = [{"item": "kvm3", "unreachable": True, "msg": "no route"}]
    todo = [noted("web1")]
    refused = node.task("start", to_start=todo, asked=silence)["refuse"]
    assert "kvm3, which did not answer" in refused[0]["reason"]
    assert node.task("start", to_start=todo, asked=silence, accept_silent=["kvm3"])["start"]


@pytest.mark.parametrize("kvm2", ["defined", "accepted", "alone"])
def test_a_domain_that_another_host_may_have_too_is_placed_on_this_one_before_it_is_started(node: Node, kvm2: str) -> None:
    """The other host is recovered by itself, at the same moment: neither sees the domain active on the other one."""
    ledger, there = node.ledger(), [guest("web1", active=False)] if kvm2 == "defined" else []
    node.facts.update(kvm1=known("kvm1", guest("web1", active=False)), kvm2=known("kvm2", *there))
    work: Body = {"to_start": [noted("web1", "drain")], "accept_silent": ["kvm2"]}
    work["asked"] = [{"item": "kvm2", "unreachable": True, "msg": "no route"}] if kvm2 == "accepted" else []
    node.check_mode = True
    assert (node.task("start", **work)["changed"], ledger.read_domain(uid("web1"))) == (False, None)
    node.check_mode = False
    done = node.task("start", **work)
    assert ([one["name"] for one in done["start"]], done["changed"]) == (["web1"], kvm2 != "alone")
    found = ledger.read_domain(uid("web1"))
    assert (found.domain.possible_hosts if found else None) == (None if kvm2 == "alone" else (end("kvm1"),))
    done = node.task("start", **work)
    assert ([one["name"] for one in done["start"]], done["changed"]) == (["web1"], False)


def test_of_two_recoveries_at_the_same_moment_one_starts_an_unknown_domain(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = node.ledger()
    node.facts.update({name: known(name, guest("web1", active=False)) for name in ("kvm1", "kvm2")})
    put_domain = FileLedger.put_domain

    def put_late(self: FileLedger, *args: t.Any) -> t.Any:
        monkeypatch.setattr(FileLedger, "put_domain", put_domain)
        ledger.put_domain(domain_entry(document("web1", "kvm2", protected=False)), None)
        return put_domain(self, *args)

    monkeypatch.setattr(FileLedger, "put_domain", put_late)
    done = node.task("start", to_start=[noted("web1", "drain")])
    assert (done["start"], [one["reason"] for one in done["forget"]]) == ([], ["According to the ledger, it is on kvm2."])


def test_a_domain_is_not_started_while_a_host_that_has_a_damaged_document_is_not_heard(node: Node) -> None:
    """The host is not in the inventory: it may run a domain that was moved there by hand."""
    ledger = node.ledger()
    ledger.put_host(host_entry({**host("kvm4"), "machine_id": None, "reason": None, "by": "test"}), None)
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    todo, key = [noted("web1")], uid("id kvm4")
    assert "kvm4, which did not answer" in node.task("start", to_start=todo)["refuse"][0]["reason"]
    (node.folder / "hosts" / f"{key}.json").write_bytes(b"")
    for _time in range(2):
        assert f"It may run on {key}, which did not answer" in node.task("start", to_start=todo)["refuse"][0]["reason"]
    assert node.task("start", to_start=todo, accept_silent=[key])["start"]


def test_a_domain_with_an_unsettled_record_is_not_started(node: Node) -> None:
    ledger = node.ledger()
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    ledger.open_record(record("web1", "kvm1", "kvm2", s.ACCEPTED))
    assert "is not settled" in node.task("start", to_start=[noted("web1")])["refuse"][0]["reason"]


def test_a_domain_whose_document_cannot_be_read_is_not_started(node: Node) -> None:
    """The document may say that the domain is on a host that is off, or whose silence was accepted."""
    ledger = node.ledger()
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    ledger.put_domain(domain_entry(document("web1", "kvm3")), None)
    path, todo = node.folder / "domains" / f"{uid('web1')}.json", [noted("web1")]
    silent: Body = {"asked": [{"item": "kvm3", "unreachable": True, "msg": "no route"}], "accept_silent": ["kvm3"]}
    content = path.read_bytes()
    body = {**json.loads(content)["body"], "schema": 2}
    later, damaged = encode_document(body, 2), content[:80]
    for data, why in ((later, "written by a later version.* Update the collection"), (damaged, "damaged and set aside.*domain_start there")):
        path.write_bytes(data)
        # The second reading finds it among the documents that were set aside.
        for _time in range(2):
            done = node.task("start", to_start=todo, **silent)
            assert (done["start"], [entry["name"] for entry in done["refuse"]]) == ([], ["web1"])
            assert re.search(why, done["refuse"][0]["reason"])
    path.write_bytes(content)
    assert [entry["reason"] for entry in node.task("start", to_start=todo, **silent)["forget"]] == ["According to the ledger, it is on kvm3."]


@pytest.mark.parametrize(
    ("given", "mode"),
    [("autostart", "autostart"), ("as_recorded", "as_recorded"), ("none", "none"), (True, "autostart"), ("yes", "autostart"), (False, "none"), ("off", "none")],
)
def test_the_start_mode_is_checked_without_facts_or_ledger(node: Node, given: str | bool, mode: str) -> None:
    node.facts = {"kvm1": None}
    assert node.task("options", start=given) == {"changed": False, "start_mode": mode}
    assert not node.folder.exists()


def save_state(ledger: FileLedger, name: str, state: str = "running", on: str = "kvm1", **saved: t.Any) -> None:
    """Write what protect has saved of a domain of kvm1 in an earlier boot."""
    body = document(name, "kvm1")
    protected = {**body["protected"], "state": state, "host": encode(end(on)), "at": "2026-11-21T01:00:00.000Z", "boot_id": "boot A", **saved}
    ledger.put_domain(domain_entry({**body, "protected": protected}), None)


def test_a_guest_that_ran_before_the_host_went_down_is_named_or_started(node: Node) -> None:
    ledger = node.ledger(protected={"at": "then"})
    for name, state in (("web1", "running"), ("held1", "paused"), ("off1", "shut off"), ("auto1", "running")):
        save_state(ledger, name, state)
    node.facts["kvm1"] = known("kvm1", *(guest(name, active=False) for name in ("web1", "held1", "off1", "auto1")))
    work: Body = {"to_start": [noted("auto1")], "_work": {"asked": [], "boot_id": "boot B"}}

    done = node.task("start", **work)
    assert [entry["name"] for entry in done["start"]] == ["auto1"]
    assert [entry["name"] for entry in done["stayed_off"]] == ["held1", "web1"]
    assert done["stayed_off"][1] == {
        "uuid": uid("web1"),
        "name": "web1",
        "reason": "It was running before the host went down (saved at 2026-11-21T01:00:00.000Z), and is off. To start it, recover kvm1 again with "
        "recover_host_start=as_recorded, or run kvmfleet.migration.domain_start there.",
    }
    assert "It was paused before" in done["stayed_off"][0]["reason"]
    nothing = node.task("start", start=False, **work)
    assert ([nothing[key] for key in ("start", "forget", "refuse")], len(nothing["stayed_off"])) == ([[], [], []], 3)
    done = node.task("start", start="as_recorded", **work)
    assert {entry["name"]: entry.get("paused") for entry in done["start"]} == {"auto1": None, "held1": True, "web1": None}
    assert done["stayed_off"] == []


def test_a_noted_guest_that_the_host_has_lost_is_named_with_what_to_do(node: Node) -> None:
    """Its note goes, so nothing else would say that the ledger has its definition."""
    ledger = node.ledger(protected={"at": "then"})
    save_state(ledger, "auto1", definition="<domain/>")
    done = node.task("start", to_start=[noted("auto1")], _work={"asked": [], "boot_id": "boot B"})
    assert (done["start"], [entry["reason"] for entry in done["forget"]]) == ([], ["It is no longer defined here."])
    assert "define it there from its document in the ledger" in done["stayed_off"][0]["reason"]


def test_a_guest_that_is_active_is_noted_no_longer_although_nothing_is_started(node: Node) -> None:
    node.ledger()
    node.facts["kvm1"] = known("kvm1", guest("web1"), guest("off1", active=False))
    done = node.task("start", start="none", to_start=[noted("web1", "drain"), noted("off1", "drain")])
    assert [(entry["name"], entry["reason"]) for entry in done["forget"]] == [("web1", "It is active already.")]
    assert (done["start"], done["refuse"], done["stayed_off"]) == ([], [], [])


def test_a_guest_that_was_switched_off_in_this_boot_is_not_started_again(node: Node) -> None:
    node.ledger()
    node.facts["kvm1"] = known("kvm1", {**guest("web1", active=False), "reason": "shutdown"})
    drained = {**noted("web1", "drain"), "boot_id": "boot A"}
    for boot_id, verdict in (("boot A", "start"), ("boot B", "forget")):
        done = node.task("start", to_start=[drained], _work={"boot_id": boot_id})
        assert {name: [entry["name"] for entry in done[name]] for name in ("start", "forget", "refuse") if done[name]} == {verdict: ["web1"]}


def test_a_recorded_guest_that_may_run_elsewhere_is_never_started(node: Node) -> None:
    ledger = node.ledger(protected={"at": "then"})
    for name in ("there1", "busy1", "web1"):
        save_state(ledger, name)
    node.facts["kvm1"] = known("kvm1", *(guest(name, active=False) for name in ("there1", "busy1", "web1")))
    node.facts["kvm2"] = known("kvm2", guest("there1"))
    ledger.open_record(record("busy1", "kvm1", "kvm2", s.ACCEPTED))
    silence = [{"item": "kvm3", "unreachable": True, "msg": "no route"}]
    work: Body = {"asked": silence, "boot_id": "boot B"}

    done = node.task("start", start="as_recorded", _work=work)
    assert (done["start"], done["forget"], done["stayed_off"]) == ([], [], [])
    assert {entry["name"]: "did not answer" in entry["reason"] for entry in done["refuse"]} == {"busy1": False, "web1": True}
    done = node.task("start", _work=work)
    assert (done["start"], done["refuse"], [entry["name"] for entry in done["stayed_off"]]) == ([], [], ["busy1", "web1"])
    assert "It cannot be started now: It may run on kvm3" in done["stayed_off"][1]["reason"]
    done = node.task("start", start="as_recorded", accept_silent=["kvm3"], _work=work)
    assert [entry["name"] for entry in done["start"]] == ["web1"]


def test_a_guest_that_came_after_it_was_saved_ran_according_to_its_record(node: Node) -> None:
    ledger = node.ledger(protected={"at": "then"})
    save_state(ledger, "web1", on="kvm2")
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    work: Body = {"_work": {"asked": [], "boot_id": "boot B"}}
    assert node.task("start", **work)["stayed_off"] == []
    stored = ledger.open_record(record("web1", "kvm2", "kvm1", s.ACCEPTED))
    ledger.update_record(stored, dataclasses.replace(stored.record, status=s.COMPLETED))
    assert [entry["name"] for entry in node.task("start", **work)["stayed_off"]] == ["web1"]
    found = ledger.find_host(name="kvm1")
    assert found
    ledger.put_host(host_entry({**found.body, "protected": None}), found.version)
    done = node.task("start", start="as_recorded", **work)
    assert (done["start"], "kvm1 is not protected" in done["stayed_off"][0]["reason"]) == ([], True)


@pytest.mark.parametrize(("is_protected", "persistent", "is_named"), [(False, True, False), (False, False, True), (False, None, True), (True, True, True)])
def test_a_persistent_guest_that_an_unprotected_host_has_not_any_more_was_deleted(
    node: Node, is_protected: bool, persistent: bool | None, is_named: bool
) -> None:
    """No protect notes that, so every later recovery of the host would name it."""
    ledger = node.ledger(protected={"at": "then"} if is_protected else None)
    node.facts["kvm1"] = known("kvm1")
    stored = ledger.open_record(record("web1", "kvm2", "kvm1", s.ACCEPTED))
    ledger.update_record(stored, dataclasses.replace(stored.record, status=s.COMPLETED, before=Before(state="running", persistent=persistent)))
    done = node.task("start", _work={"asked": [], "boot_id": "boot B"})
    assert [entry["name"] for entry in done["stayed_off"]] == (["web1"] if is_named else [])


@pytest.mark.parametrize(("wanted_state", "is_named"), [("running", True), ("shut off", False)])
def test_a_guest_that_was_evacuated_to_the_host_ran_unless_it_was_to_stay_off(node: Node, wanted_state: str, is_named: bool) -> None:
    ledger = node.ledger(protected={"at": "then"})
    save_state(ledger, "web1", on="kvm2")
    node.facts["kvm1"] = known("kvm1", guest("web1", active=False))
    made = dataclasses.replace(record("web1", "kvm2", "kvm1", s.ACCEPTED, kind=s.EVACUATION), wanted_state=wanted_state)
    stored = ledger.open_record(made)
    for status in (s.PRE_MIGRATING, s.DONE):
        stored = ledger.update_record(stored, stored.record.advance(status, "test"))
    done = node.task("start", _work={"asked": [], "boot_id": "boot B"})
    assert (len(done["stayed_off"]), done["refuse"]) == (int(is_named), [])


AWAY = {"uuid": uid("web1"), "name": "web1", "possible_hosts": ["kvm2"]}


def test_displaced_domains_move_back_from_where_they_run_with_the_options(node: Node) -> None:
    node.ledger()
    node.facts["kvm2"] = known("kvm2", guest("web1"))
    done = node.task("bring_home", displaced=[AWAY], options='{"unsafe": true}')
    assert done["_options"] == {"unsafe": True}
    assert done["moves"] == [{"uuid": uid("web1"), "name": "web1", "source": "kvm2"}]
    assert done["shares"] == {"kvm2": [{"uuid": uid("web1"), "destination": "kvm1", "unsafe": True}]}
    node.refused(InvalidArgument, "destination", "bring_home", displaced=[AWAY], options={"destination": "kvm3"})


def test_nothing_moves_to_a_host_in_maintenance(node: Node) -> None:
    node.ledger()
    done = node.task("bring_home", displaced=[AWAY], state="maintenance")
    assert (done["moves"], done["shares"]) == ([], {})
    assert done["skipped"] == [{**AWAY, "reason": "kvm1 is in maintenance, so nothing moves there."}]


def test_check_mode_checks_no_moves_to_a_host_still_in_maintenance(node: Node) -> None:
    ledger = node.ledger()
    node.facts["kvm2"] = known("kvm2", guest("web1"))
    node.check_mode = True
    done = node.task("bring_home", displaced=[AWAY])
    assert ([move["name"] for move in done["moves"]], done["shares"]) == (["web1"], {})
    found = ledger.find_host(name="kvm1")
    assert found
    ledger.put_host(host_entry({**found.body, "state": "enabled"}), found.version)
    assert list(node.task("bring_home", displaced=[AWAY])["shares"]) == ["kvm2"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"to_start": [{}]}, r"expected form: to_start\[0\]\.uuid must be there"),
        ({"displaced": [{"uuid": 5}]}, r"expected form: displaced\[0\]\.uuid must be text"),
        ({"_work": {"asked": [5]}}, "expected form"),
        ({"step": "guess"}, "one of options, check, start, bring_home"),
        ({"start": "as-recorded"}, "'as-recorded' does not say which domains to start. Set recover_host_start to autostart, as_recorded or none. Nothing"),
        ({"step": "options", "start": ""}, "does not say which domains to start"),
        ({"step": "options", "parallel": 0}, "parallel is 0"),
        ({"step": "options", "parallel": "many"}, "parallel is 'many'"),
        ({"start": None}, "None does not say which domains to start"),
        ({"start": {"mode": "autostart"}}, "does not say which domains to start"),
        ({"start": 2}, "2 does not say which domains to start"),
        ({"step": "check", "start": "all"}, "does not say which domains to start"),
        ({"_work": {"boot_id": 5}}, "expected form"),
    ],
)
def test_invalid_arguments_are_refused(node: Node, args: Body, words: str) -> None:
    node.ledger()
    node.refused(InvalidArgument, words, **{"step": "start", **args})


def test_facts_of_an_unexpected_form_are_refused(node: Node) -> None:
    node.ledger()
    node.facts["kvm1"] = {"domains": 5, "host_uuid": uid("libvirt kvm1")}
    for step in ("check", "start", "bring_home"):
        node.refused(InvalidArgument, "expected form", step, to_start=[noted("web1")], displaced=[AWAY])
