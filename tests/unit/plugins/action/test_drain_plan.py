# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module drain_plan: makes a plan or checks a saved one, and gives hosts their state back where no plan comes of it."""

from __future__ import annotations

import json
import pathlib
import stat
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import drain_plan
from ansible_collections.kvmfleet.migration.plugins.action.drain_plan import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, KvmfleetError, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import read_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, make_entry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import decide_override
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record, uuid_of

Result = dict[str, t.Any]

CORDON = {
    "before": {"state": "enabled", "reason": None},
    "after": {"state": "maintenance", "reason": "It is being drained"},
    "by": "me",
    "drained_by": None,
}


class Node:
    """A control node that knows the facts of three hosts, of which kvm1 was put into maintenance for its drain."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.ledger.put_host(make_entry(None, HostIdentity("kvm1", uuid_of("ID"), None, None), "maintenance", "It is being drained", "me"), None)
        self.facts = {"kvm1": facts("kvm1", domain("web1", 512)), "kvm2": facts("kvm2"), "kvm3": facts("kvm3", gib=1)}
        self.variables: dict[str, Result] = {"kvm1": {}, "kvm2": {}, "kvm3": {}}
        self.survey: Result = {"cordon": CORDON, "settings": {"scheduler": {}, "policy": {}, "profiles": {}}}
        self.check_mode = False
        self.no_log = False

    def task(self, asked: list[Result] | None = None, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=self.no_log)
        work = {"hosts": {"kvm1": {"_drain": self.survey}}, "asked": asked or []}
        action._task.args = {"sources": ["kvm1"], "candidates": ["kvm2", "kvm3"], "_work": work, **args}
        hosts = {name: {"inventory_hostname": name, "ansible_facts": {"kvmfleet_host": known}, **self.variables[name]} for name, known in self.facts.items()}
        own = {**hosts.pop("kvm1"), "kvmfleet_ledger": self.ledger.name}
        return action.run_with_options(task_vars("kvm1", own, hosts))

    def refused(self, kind: type[KvmfleetError], words: str, **args: t.Any) -> None:
        with pytest.raises(kind, match=words):
            self.task(**args)

    @property
    def entry(self) -> tuple[str, str | None]:
        body = next(iter(self.ledger.list_hosts())).body
        return body["state"], body["reason"]


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(drain_plan, "Display", lambda: types.SimpleNamespace(display=print, warning=print))
    return Node(tmp_path)


def test_a_plan_is_shown_and_the_hosts_stay_in_maintenance(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    done = node.task()
    assert not done["changed"]
    assert [(move["name"], move["destination"]) for move in done["plan"]["moves"]] == [("web1", "kvm2")]
    share = done["shares"]["kvm1"]
    assert {**share, "predicted": 0} == {
        "moves": [{"uuid": uuid_of("web1"), "destination": "kvm2"}],
        "shutdowns": [],
        "cold_moves": [],
        "ends": ["kvm1", "kvm2"],
        "predicted": 0,
    }
    predicted = share["predicted"][uuid_of("web1")]
    assert 0 < predicted["low_seconds"] < predicted["seconds"] < predicted["high_seconds"]
    assert predicted["bytes"] == 512 * 1024**2
    assert "ansible_stats" not in done
    assert "web1" in capsys.readouterr().out
    assert node.entry[0] == "maintenance"
    node.no_log = True
    node.task()
    assert capsys.readouterr().out == ""


def test_a_host_whose_document_was_damaged_gets_no_domain(node: Node) -> None:
    node.facts["kvm2"] = facts("kvm2", gib=8) | {"host_id": uuid_of("ID2")}
    node.ledger.put_host(make_entry(None, HostIdentity("kvm2", uuid_of("ID2"), None, None), "fenced", "it burns", "me"), None)
    pathlib.Path(node.ledger.path, "hosts", f"{uuid_of('ID2')}.json").write_text("torn")
    done = node.task()
    assert done["plan"]["moves"] == []
    assert "kvm2, kvm3: Its state in the ledger is 'unknown' (its document was damaged and set aside" in str(done["plan"])
    assert f"The state of the host {uuid_of('ID2')} is not known" in str(done["warnings"])


def test_a_plan_is_written_to_a_private_file_and_published(node: Node, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.json"
    done = node.task(file=str(path), only=True, publish_as="drain_host_plan")
    assert done["changed"]
    assert encode(read_plan(path.read_text())) == done["plan"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done["ansible_stats"]["aggregate"] is False
    assert encode(read_plan(done["ansible_stats"]["data"]["drain_host_plan"])) == done["plan"]


def test_check_mode_writes_no_file_and_keeps_the_maintenance(node: Node, tmp_path: pathlib.Path) -> None:
    node.check_mode = True
    done = node.task(file=str(tmp_path / "plan.json"))
    assert done["changed"]
    assert not (tmp_path / "plan.json").exists()
    assert done["shares"]["kvm1"]["ends"] == ["kvm1"]
    node.refused(InvalidArgument, "no facts for kvm9", sources=["kvm9"])
    assert node.entry[0] == "maintenance"


def test_a_file_that_cannot_be_written_ends_the_maintenance(node: Node, tmp_path: pathlib.Path) -> None:
    node.refused(Forbidden, r"The plan could not be written to .*no-folder/plan\.json\. No such file", file=str(tmp_path / "no-folder/plan.json"))
    assert node.entry == ("enabled", None)


def test_a_host_that_was_evacuated_while_its_drain_waited_stays_fenced(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    found = node.ledger.list_hosts()[0]
    evacuated = make_entry(found.host, HostIdentity("kvm1", None, None, None), "fenced", "It was off, and is evacuated", "bob")
    node.ledger.put_host(evacuated, found.version)
    silent = {"item": "kvm1", "unreachable": True, "msg": "No route to host"}
    node.refused(Unreachable, "kvm1 could not be queried for its domains: No route to host", asked=[silent])
    assert node.entry == ("fenced", "It was off, and is evacuated")
    assert "kvm1 stays fenced in the ledger (It was off, and is evacuated): bob has changed its entry" in capsys.readouterr().out


def test_a_source_that_was_not_queried_as_root_ends_the_maintenance(node: Node) -> None:
    node.facts["kvm1"]["unverified_reasons"] = {"paths": "libvirt withholds it"}
    node.refused(Forbidden, r"kvm1 was queried without root, and only root can act on it\. Set become: true.* Nothing was changed\.")
    assert node.entry == ("enabled", None)
    assert [move["name"] for move in node.task(only=True)["plan"]["moves"]] == ["web1"]


def test_a_plan_that_uses_up_the_reserve_for_failover_ends_the_maintenance(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    # kvm2 alone has room for web2 of kvm3. kvm4 could start web1, but its older QEMU cannot receive it.
    node.facts = {
        "kvm1": f.host("kvm1", 1000, domains=[f.domain("web1", 900)]),
        "kvm2": f.host("kvm2", 1500),
        "kvm3": f.host("kvm3", 1500, domains=[f.domain("web2", 1200)]),
        "kvm4": f.host("kvm4", 1000, versions={"libvirt": 9000000, "hypervisor": f.HYPERVISOR - 1000}),
    }
    node.variables = {name: {"kvmfleet_scheduler": {"failover_hosts": 2}} for name in node.facts}
    node.survey["settings"]["scheduler"] = {"failover_hosts": 2}
    node.refused(Conflict, "could no longer lose kvm1 and kvm3 for certain", candidates=["kvm2", "kvm3", "kvm4"])
    assert node.entry[0] == "enabled"
    assert "RESERVE The fleet could no longer lose kvm1 and kvm3" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "words"), [(3, "failover_hosts is 3, and the fleet has 3 hosts"), (-1, "failover_hosts of kvm2 is -1")])
def test_an_invalid_reserve_for_failover_ends_the_maintenance(node: Node, count: int, words: str) -> None:
    node.variables["kvm2"] = {"kvmfleet_scheduler": {"failover_hosts": count}}
    node.refused(InvalidArgument, words)
    assert node.entry[0] == "enabled"


def test_a_plan_that_violates_n_plus_one_ends_the_maintenance(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.facts["kvm2"] = facts("kvm2", domain("big", 3000))
    node.refused(Conflict, "After this drain the loss of kvm2 could not be compensated: .* MiB would be missing for big", n_plus_one=True)
    assert node.entry == ("enabled", None)
    assert "N+1 does NOT hold" in capsys.readouterr().out


def test_a_failed_plan_restores_the_previous_state_of_the_host(node: Node) -> None:
    node.survey["cordon"] = {**CORDON, "before": {"state": "maintenance", "reason": "new disk"}}
    node.refused(InvalidArgument, "no facts for kvm9", sources=["kvm1", "kvm9"])
    assert node.entry == ("maintenance", "new disk")


def test_a_source_that_does_not_answer_ends_the_maintenance(node: Node) -> None:
    asked = [{"item": "kvm1", "unreachable": True, "msg": "no route"}]
    node.refused(Unreachable, r"kvm1 could not be queried for its domains: no route\.", asked=asked)
    assert node.entry == ("enabled", None)


def test_a_candidate_that_does_not_answer_is_rejected_with_a_reason(node: Node) -> None:
    asked = [{"item": "kvm2", "failed": True, "msg": "no libvirt"}, {"item": "kvm3", "ansible_facts": {"kvmfleet_host": facts("kvm3", gib=4)}}]
    move = node.task(asked=asked)["plan"]["moves"][0]
    assert move["destination"] == "kvm3"
    assert move["rejected"] == [{"host": "kvm2", "reason": "It did not answer: no libvirt."}]


def test_settings_of_each_host_come_from_its_own_variables(node: Node) -> None:
    node.variables["kvm2"] = {"kvmfleet_scheduler": {"labels": ["ssd"]}}
    node.survey["settings"] = {"scheduler": {"labels": ["nvme"]}, "policy": {"drain": "shutdown"}, "profiles": {}}
    plan = node.task()["plan"]
    assert {host: settings["labels"] for host, settings in plan["settings"].items()} == {"kvm1": ["nvme"], "kvm2": ["ssd"]}
    assert [entry["name"] for entry in plan["shutdowns"]] == ["web1"]


def test_a_plan_judges_each_host_by_the_names_that_its_guests_would_have_there(node: Node) -> None:
    """kvm2 has a name for the bridge in no map, although the host of the guest has; kvm3 has the same maps as that host."""
    same = {"bridges": {"prod": "br0"}, "networks": {}, "images": {}, "devices": {}, "cpus": {}, "numa_nodes": {}, "graphics": {}}
    node.survey["settings"] = {"scheduler": {}, "policy": {}, "profiles": {}, "resource_maps": same}
    node.variables["kvm3"] = {"kvmfleet_bridge_map": {"prod": "br0"}}
    bridged = domain("web1", 512, request={"memory_mib": 512, "vcpus": 1, "networks": [{"type": "bridge", "source": "br0"}]})
    node.facts |= {"kvm1": facts("kvm1", bridged), "kvm3": facts("kvm3", gib=4)}
    move = node.task()["plan"]["moves"][0]
    assert move["destination"] == "kvm3"
    assert "kvm2 has no bridge 'prod' in kvmfleet_bridge_map" in move["rejected"][0]["reason"]


def test_a_plan_is_refused_for_an_invalid_map_and_the_host_gets_its_state_back(node: Node) -> None:
    node.variables["kvm2"] = {"kvmfleet_bridge_map": "br0"}
    node.refused(InvalidArgument, "kvmfleet_bridge_map of kvm2 is 'br0'")
    assert node.entry == ("enabled", None)


def test_an_unsettled_move_of_an_earlier_run_is_in_the_share(node: Node) -> None:
    node.ledger.open_record(record("gone", "kvm1", "kvm2"))
    assert [move["uuid"] for move in node.task()["shares"]["kvm1"]["moves"]] == [uuid_of("web1"), uuid_of("gone")]


def saved(node: Node, path: pathlib.Path) -> Result:
    return t.cast(Result, node.task(file=str(path), only=True)["plan"])


def test_a_saved_plan_is_read_from_its_file_or_its_option(node: Node, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.json"
    plan = saved(node, path)
    before = path.read_bytes()
    for given in ({"file": str(path)}, {"plan": plan}, {"plan": json.dumps(plan), "file": ""}):
        done = node.task(check_saved=True, **given)
        assert (done["plan"], done["changed"]) == (plan, False)
    assert path.read_bytes() == before


def test_drift_of_a_saved_plan_is_refused_by_name(node: Node, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.json"
    saved(node, path)
    node.survey = {"cordon": None, "settings": node.survey["settings"]}
    node.facts["kvm1"]["domains"].append(domain("new"))
    node.refused(Conflict, "new is active on kvm1, but was not when the plan was made", check_saved=True, file=str(path))
    node.refused(Conflict, "The option moves.timeout_seconds is 9 now", check_saved=True, file=str(path), options={"timeout_seconds": 9})
    assert node.entry[0] == "maintenance"


@pytest.mark.parametrize(
    ("args", "kind", "words"),
    [
        ({"only": True, "check_saved": True, "plan": "x"}, InvalidArgument, "either made .* or applied .*Nothing was changed"),
        ({"check_saved": True}, InvalidArgument, "and not both. Nothing was changed"),
        ({"check_saved": True, "plan": "x", "file": "/plan.json"}, InvalidArgument, "and not both"),
        ({"check_saved": True, "file": "/no/plan.json"}, NotFound, "There is no plan in /no/plan.json on the control node"),
        ({"check_saved": True, "plan": "x"}, InvalidArgument, "The saved plan is not JSON"),
        ({"parallel": 0}, InvalidArgument, "parallel is 0"),
        ({"options": {"uuid": "x"}}, InvalidArgument, "live_migrate does not accept"),
    ],
)
def test_invalid_options_are_refused_with_a_message(node: Node, args: Result, kind: type[KvmfleetError], words: str) -> None:
    node.refused(kind, words, **args)


@pytest.mark.parametrize("wrong", [{"domains": 5}, {"host_uuid": "x"}])
def test_facts_of_an_unexpected_form_are_refused(node: Node, wrong: Result) -> None:
    node.facts["kvm1"] = wrong
    node.refused(InvalidArgument, "expected form")
    assert node.entry[0] == "enabled"


def test_a_plan_without_a_ledger_does_not_create_one(node: Node, tmp_path: pathlib.Path) -> None:
    assert node.task(ledger=str(tmp_path / "none"), _work={})["plan"]["moves"]
    assert not (tmp_path / "none").exists()


def test_override_policy_that_was_taken_away_stops_the_plan_and_restores_the_hosts(node: Node) -> None:
    options = {"post_copy": True, "override_policy": True}
    node.task(options=options)
    node.variables["kvm1"] = {"kvmfleet_override_policy_allowed": "no"}
    node.refused(Forbidden, "kvmfleet_override_policy_allowed of kvm1 is false", options=options)
    assert node.entry[0] == "enabled"
    node.task(options={"post_copy": True})
    node.variables["kvm1"] = {}
    decide_override(node.ledger, False, "Owners decide", "ann")
    node.refused(Forbidden, "ann has taken it away at .* \\(Owners decide\\)", options=options)


def test_moves_with_both_features_are_a_conflict_before_anything_is_planned(node: Node) -> None:
    node.refused(Conflict, "both on in the task", options={"post_copy": True, "auto_converge": True})
    assert node.entry[0] == "enabled"
