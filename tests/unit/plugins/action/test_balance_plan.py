# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module balance_plan: makes a plan or checks a saved one, refuses what it cannot plan from, and judges the moves."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import shutil
import stat
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import balance_plan
from ansible_collections.kvmfleet.migration.plugins.action.balance_plan import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import balance_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    KvmfleetError,
    NotFound,
    NotSupported,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import RunHolder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import GOALS, BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import list_runs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import read_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, make_entry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import crowded
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record, uuid_of

Result = dict[str, t.Any]
HOSTS = ["kvm1", "kvm2", "kvm3"]


class Node:
    """A control node that has just received the facts of three hosts, of which kvm1 has six busy guests and the others none."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.ledger = FileLedger(str(folder / "ledger"))
        self.facts: Result = crowded(6)
        self.variables: dict[str, Result] = {}
        self.strategy = "linear"
        self.check_mode = False
        self.no_log = False

    def task(self, work: Result | None = None, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        play = types.SimpleNamespace(strategy=self.strategy)
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=self.no_log, get_play=lambda: play)
        action._task.args = {"hosts": list(self.facts), **({"_work": work} if work else {}), **args}
        now = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        known = {name: with_receipt({**facts, "gathered_at": facts.get("clock", now)}) if facts else None for name, facts in self.facts.items()}
        hosts = {name: {"ansible_facts": {"kvmfleet_host": facts}, **self.variables.get(name, {})} for name, facts in known.items()}
        own = {**hosts.pop("kvm1", {}), "kvmfleet_ledger": self.ledger.name}
        return action.run_with_options(task_vars("kvm1", own, hosts))

    def refused(self, kind: type[KvmfleetError], words: str, **args: t.Any) -> None:
        """The task fails and writes nothing, neither to the ledger nor to a file."""
        path = self.folder / "refused.json"
        before = self.entries
        with pytest.raises(kind, match=words):
            self.task(**{"file": str(path), **args})
        assert (path.exists(), self.entries) == (False, before)

    @property
    def entries(self) -> list[Result]:
        return [document.body for document in self.ledger.list_hosts()]

    def enter(self, name: str, state: str) -> None:
        known = self.facts[name]
        self.ledger.put_host(make_entry(None, HostIdentity(name, known["host_id"], known["host_uuid"], None), state, "memory is replaced", "me"), None)

    def move(self, name: str, destination: str) -> None:
        """Let a guest be on another host, as after its move."""
        for facts in self.facts.values():
            facts["domains"] = [domain for domain in facts["domains"] if domain["name"] != name] if facts["domains"] else []
        self.facts[destination]["domains"].append(next(domain for domain in crowded(6)["kvm1"]["domains"] if domain["name"] == name))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(balance_plan, "Display", lambda: types.SimpleNamespace(display=print))
    return Node(tmp_path)


def routes(done: Result) -> list[tuple[str, str]]:
    return [(move["name"], move["destination"]) for move in done["plan"]["moves"]]


def test_a_plan_says_what_each_move_brings_and_costs_and_how_the_hosts_are_used(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    done = node.task()
    shown = capsys.readouterr().out
    balance, moves = done["plan"]["balance"], done["plan"]["moves"]
    assert (done["changed"], moves != [], done["plan"]["sources"], balance["score_after"] < balance["score_before"]) == (False, True, ["kvm1"], True)
    for move in moves:
        assert move["gain"] > 0
        assert move["gain"] * 3600 > move["cost_seconds"] > 0
        assert move["predicted_range"][0] <= move["predicted_seconds"] <= move["predicted_range"][1]
        assert "within 3600 s, and costs" in move["reason"]
        assert f"%, {move['destination']} " in move["reason"]
        assert move["name"] in shown
    assert shown.splitlines()[0].startswith("The score is the sum of the pressures on all hosts")
    assert shown.splitlines()[1].startswith(f"It is {balance['score_before']:.3f} now, and would be {balance['score_after']:.3f} after")
    assert [host["name"] for host in balance["hosts"]] == HOSTS
    assert "CPU time" in shown
    assert balance["stopped"] in shown
    (stage,) = done["stages"]
    assert [one["uuid"] for one in stage["kvm1"]["moves"]] == [move["uuid"] for move in moves]
    assert set(stage["kvm1"]["predicted"]) == {move["uuid"] for move in moves}
    assert done["ends"] == sorted({"kvm1", *(move["destination"] for move in moves)})
    node.no_log = True
    node.task()
    assert capsys.readouterr().out == ""


def test_the_same_facts_make_the_same_plan(node: Node) -> None:
    first, second = node.task()["plan"], node.task()["plan"]
    assert [{**one, "digest": "", "created_at": ""} for one in (first,)] == [{**one, "digest": "", "created_at": ""} for one in (second,)]


def test_no_more_moves_than_permitted_are_planned(node: Node) -> None:
    assert len(node.task(max_moves=1)["plan"]["moves"]) == 1
    done = node.task(max_moves=0)
    assert (done["plan"]["moves"], done["stages"], done["ends"], done["plan"]["sources"]) == ([], [], [], [])
    assert "max_moves: 0" in done["plan"]["balance"]["stopped"]


def test_options_have_the_ranges_and_defaults_of_the_decision() -> None:
    spec, usual = balance_plan_spec(), vars(BalanceOptions())
    assert spec["goal"]["choices"] == [*GOALS]
    assert {name: spec[name]["default"] for name in usual if name not in ("moves", "weights")} == {
        name: value for name, value in usual.items() if name not in ("moves", "weights")
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_moves": -1}, r"max_moves is -1\. Give a whole number from 0 to 100000\. Nothing was planned\."),
        ({"max_moves": "many"}, "max_moves"),
        ({"weights": {"cpu": 11}}, r"The weight of cpu is 11\. Give a number from 0 to 10\. Nothing was planned\."),
        ({"weights": {"cpus": 1}}, "weights has unknown keys: cpus"),
        ({"weights": {"cpu": 0, "memory": 0, "io": 0, "vcpus": 0}}, "All weights are 0"),
        ({"tolerated_pressure": 1.5}, r"tolerated_pressure is 1\.5"),
        ({"min_gain": -0.1}, r"min_gain is -0\.1"),
        ({"horizon_seconds": 1}, "horizon_seconds is 1"),
        ({"cooldown_seconds": "nan"}, "'cooldown_seconds' must be a number, not text"),
        ({"cooldown_seconds": 10**400}, "'cooldown_seconds' must be a number"),
        ({"goal": "fair"}, "'goal' must be one of pressure, even, not 'fair'"),
        ({"parallel": "0"}, "parallel"),
        ({"options": {"destination": "kvm2"}}, "destination"),
        ({"empty": -1}, "balance_empty is -1"),
        ({"empty": 3}, r"balance_empty is 3\. Give a whole number from 0 to 2"),
    ],
)
def test_options_out_of_range_are_refused(node: Node, options: Result, words: str) -> None:
    node.refused(InvalidArgument, words, **options)


def test_hosts_that_cannot_be_judged_are_named_and_nothing_is_planned(node: Node) -> None:
    node.facts["kvm2"]["load"] = {"unknown": {}}
    node.refused(InvalidArgument, r"The facts of kvm2 do not say how busy the host is.*Nothing was planned\.")


def test_clocks_that_differ_are_refused(node: Node) -> None:
    node.facts["kvm3"]["clock"] = "2026-11-01T00:00:00Z"
    node.refused(InvalidArgument, r"The clock of kvm3 and of this control node differ by more than 60 s\.")


def test_facts_that_are_too_old_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan_request.age_seconds", lambda facts: 601.0)
    node.refused(InvalidArgument, r"The facts of kvm1, kvm2, kvm3 are older than 600 s")


def test_an_empty_fleet_and_a_single_host_are_refused(node: Node) -> None:
    node.refused(InvalidArgument, r"The fleet has no hosts\.", hosts=[])
    node.refused(InvalidArgument, "Only kvm1 is in service and answered: a balance needs two hosts at least", hosts=["kvm1"])
    node.facts = {"kvm1": node.facts["kvm1"], "kvm2": None}
    node.refused(InvalidArgument, "Only kvm1 is in service")


def test_hosts_in_maintenance_are_left_out_only_if_that_is_allowed(node: Node) -> None:
    node.enter("kvm2", "maintenance")
    node.refused(Conflict, r"kvm2 is not in service \(maintenance\)\..*or balance_maintenance_allowed of the role.*Nothing was planned\.")
    assert {destination for _name, destination in routes(node.task(maintenance_allowed=True))} == {"kvm3"}


def test_a_play_whose_hosts_do_not_proceed_together_is_refused(node: Node) -> None:
    node.strategy = "free"
    node.refused(NotSupported, "strategy: free")


def test_hosts_that_were_not_queried_as_root_are_refused_unless_the_plan_is_only_shown(node: Node) -> None:
    node.facts["kvm2"]["unverified_reasons"] = {"paths": "libvirt withholds it"}
    node.refused(Forbidden, "kvm2 was queried without root")
    assert routes(node.task(only=True))


def test_a_host_that_did_not_answer_takes_no_part_although_earlier_facts_are_known(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    done = node.task(work={"asked": {"kvm2": {"unreachable": True, "msg": "No route to host"}, "kvm1": {}}})
    assert done["plan"]["balance"]["silent"] == {"kvm2": "No route to host"}
    assert {destination for _name, destination in routes(done)} == {"kvm3"}
    assert "SILENT kvm2: No route to host" in capsys.readouterr().out


def test_a_domain_that_has_just_moved_stays_and_the_plan_says_why(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name for name, _destination in routes(node.task(max_moves=1))}
    (name,) = before
    stored = node.ledger.open_record(record(name, "kvm3", "kvm1"))
    node.ledger.update_record(stored, stored.record.advance("completed", "me"))
    done = node.task()
    assert name not in dict(routes(done))
    assert f"LEFT   {name} on kvm1: It has moved within the last 24 h, and stays for" in capsys.readouterr().out
    assert name in dict(routes(node.task(cooldown_seconds=0)))


def test_a_plan_says_which_hosts_could_be_emptied(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert "emptying" not in node.task()["plan"]["balance"]
    capsys.readouterr()
    found = node.task(empty=1)["plan"]["balance"]["emptying"]
    assert (found["hosts"], found["refused"]) == ([{"host": "kvm2", "moves": []}], {})
    assert "EMPTY  kvm2 could be emptied, and the others could still lose any one of them: it has no guests." in capsys.readouterr().out


def test_a_plan_is_written_to_a_private_file_and_published(node: Node, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.json"
    node.check_mode = True
    assert (node.task(file=str(path))["changed"], path.exists()) == (True, False)
    node.check_mode = False
    done = node.task(file=str(path), only=True, publish_as="balance_plan")
    assert done["changed"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert encode(read_plan(path.read_text())) == done["plan"]
    assert done["ansible_stats"]["aggregate"] is False
    assert encode(read_plan(done["ansible_stats"]["data"]["balance_plan"])) == done["plan"]


def test_a_saved_plan_is_applied_with_its_own_options(node: Node, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    made = node.task(file=path, only=True, max_moves=1, options={"bandwidth_mib": 50})
    done = node.task(file=path, check_saved=True)
    assert (done["plan"], done["changed"]) == (made["plan"], False)
    (move,) = done["stages"][0]["kvm1"]["moves"]
    assert move == {"uuid": made["plan"]["moves"][0]["uuid"], "destination": made["plan"]["moves"][0]["destination"], "bandwidth_mib": 50}


def test_a_saved_plan_that_drifted_lists_every_difference(node: Node, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    made = node.task(file=path, only=True)
    (first, dummy), (second, destination) = routes(made)[:2]
    node.facts["kvm1"]["domains"] = [domain for domain in node.facts["kvm1"]["domains"] if domain["name"] != first]
    grown = next(domain for domain in node.facts["kvm1"]["domains"] if domain["name"] == second)
    grown["request"] = {**grown["request"], "memory_mib": 900000}
    words = f"{first} is no longer on kvm1, .*{second} has 900000 MiB of memory now.*{destination} can no longer accept {second}.*Nothing was moved"
    node.refused(Conflict, f"The option max_moves is 3 now; the plan was made with 20.*{words}", file=path, check_saved=True, max_moves=3)


def test_a_domain_that_has_arrived_is_no_difference_and_one_that_moved_elsewhere_is(node: Node, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    made = node.task(file=path, only=True)
    name, destination = routes(made)[0]
    node.move(name, destination)
    assert node.task(file=path, check_saved=True)["plan"] == made["plan"]
    other = ({*HOSTS} - {"kvm1", destination}).pop()
    node.move(name, other)
    node.refused(Conflict, f"{name} is no longer on kvm1, and active on {other}", file=path, check_saved=True)


def test_a_move_under_way_is_followed_and_one_to_another_host_is_a_difference(node: Node, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    made = node.task(file=path, only=True, max_moves=1)
    ((name, destination),) = routes(made)
    other = ({*HOSTS} - {"kvm1", destination}).pop()
    stored = node.ledger.open_record(record(name, "kvm1", destination, "accepted"))
    assert node.task(file=path, check_saved=True)["plan"] == made["plan"]
    node.ledger.update_record(stored, stored.record.advance("cancelled", "me"))
    node.ledger.open_record(record(name, "kvm1", other, "accepted"))
    node.refused(Conflict, f"{name} was to move to {destination}. A move of it to {other} is under way", file=path, check_saved=True)


def test_a_saved_plan_is_refused_once_a_host_is_in_maintenance_or_silent(node: Node, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    made = node.task(file=path, only=True, max_moves=1)
    ((name, destination),) = routes(made)
    silent = {"asked": {destination: {"unreachable": True, "msg": "No route to host"}}}
    node.refused(Conflict, f"{name} was to move from kvm1 to {destination}: {destination} does not take part now", file=path, check_saved=True, work=silent)
    node.enter(destination, "maintenance")
    node.refused(Conflict, f"{destination} is not in service", file=path, check_saved=True)


def test_what_is_no_plan_of_a_balance_is_refused(node: Node, tmp_path: pathlib.Path) -> None:
    node.refused(InvalidArgument, "balance_plan_file", check_saved=True, file=None)
    node.refused(NotFound, r"There is no plan in .*Create one with balance_mode=plan and the same balance_plan_file", check_saved=True)
    plan = node.task()["plan"]
    without = {key: value for key, value in plan.items() if key != "balance"}
    node.refused(InvalidArgument, "its digest does not match", check_saved=True, plan=without, file=None)
    golden = next(path for path in pathlib.Path(__file__).parents[3].glob("golden/0.1.0/plans/drain.json"))
    node.refused(InvalidArgument, "The saved plan is that of a drain, and not of a balance", check_saved=True, plan=json.loads(golden.read_text()), file=None)


def test_moves_are_judged_by_the_facts_after_them(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    plan = node.task(max_moves=2)["plan"]
    (gone, destination), (left, dummy) = routes({"plan": plan})
    node.move(gone, destination)
    moved = {"kvm1": [{"changed": True, "migrations": [], "failures": [{"uuid": uuid_of(left), "msg": "kvm2 cannot accept it."}], "failed": True}]}
    done = node.task(step="verify", plan=plan, work={"moved": moved, "asked": {"kvm1": {}}}, publish_as="balance_result")
    result = done["result"]
    assert [entry["name"] for entry in result["moved"]["kvm1"]] == [gone]
    assert [entry["name"] for entry in result["failed"]["kvm1"]] == [left]
    assert (done["failures"], result["problems"]) == (1, {})
    assert done["ansible_stats"]["data"]["balance_result"] == result
    assert f"FAILED {left} on kvm1: It is still running (booted) on kvm1. kvm2 cannot accept it." in capsys.readouterr().out
    assert node.task(step="verify", plan=plan, only=True)["result"]["moved"] == {"kvm1": []}


def test_a_balance_of_hosts_of_another_ledger_creates_none(node: Node) -> None:
    """An empty one would hide that the right one was moved away, and be in its way when it is moved back."""
    shutil.rmtree(node.ledger.name)
    assert node.task(max_moves=1)["run"]
    shutil.rmtree(node.ledger.name)
    node.facts["kvm2"]["ledger_id"] = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
    path = node.folder / "plan.json"
    for node.check_mode in (True, False):
        with pytest.raises(Conflict, match="kvm2 was protected under the ledger 5f5a9c7e"):
            node.task(file=str(path))
    assert (pathlib.Path(node.ledger.name).exists(), path.exists()) == (False, False)
    assert node.task(only=True)["plan"]["moves"]


def test_a_plan_that_is_carried_out_begins_a_run_and_the_verdict_closes_it(node: Node) -> None:
    assert "run" not in node.task(only=True)
    node.check_mode = True
    assert "run" not in node.task()
    node.check_mode = False
    assert list_runs(node.ledger) == []
    done = node.task(max_moves=1)
    (run,) = list_runs(node.ledger)
    (move,) = done["plan"]["moves"]
    assert (run.id, run.is_open, run.hosts, run.score_before) == (done["run"], True, tuple(HOSTS), done["plan"]["balance"]["score_before"])
    assert [(one.domain.uuid, one.source, one.destination, one.predicted_gain, one.unit) for one in run.moves] == [
        (move["uuid"], "kvm1", move["destination"], move["gain"], move["uuid"])
    ]
    stored = node.ledger.open_record(record(move["name"], "kvm1", move["destination"], "accepted"))
    stored = node.ledger.update_record(stored, stored.record.advance("completed", "me"))
    node.move(move["name"], move["destination"])
    node.task(step="verify", plan=done["plan"], run=done["run"])
    (closed,) = list_runs(node.ledger)
    assert (closed.is_open, closed.moves[0].record, closed.moves[0].status) == (False, stored.record.id, "completed")


def test_a_balance_measures_what_an_earlier_one_has_brought(node: Node) -> None:
    done = node.task(max_moves=1)
    node.task(step="verify", plan=done["plan"], run=done["run"])
    (closed,) = node.ledger.list_balance_runs()
    earlier = f"{datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2):%Y-%m-%dT%H:%M:%S.000Z}"
    node.ledger.put_balance_run(dataclasses.replace(closed.balance_run, ended_at=earlier), closed)
    node.check_mode = True
    node.task()
    assert list_runs(node.ledger)[0].is_unmeasured
    node.check_mode = False
    node.task(only=True)
    (run,) = list_runs(node.ledger)
    assert (run.is_unmeasured, run.measured.score if run.measured else None) == (False, run.score_before)


def test_the_next_balance_closes_the_run_of_one_that_was_killed(node: Node) -> None:
    first, second = node.task()["run"], node.task()["run"]
    assert [(run.id, run.is_open) for run in list_runs(node.ledger)] == [(first, False), (second, True)]


def test_a_balance_of_another_control_node_is_not_joined_unless_a_person_confirms(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    other = RunHolder("ann", "elsewhere", "9d2c3a52-1c5e-4a55-8f3a-1f0e9d6c2b31", "", 1, 1, utc_now())
    monkeypatch.setattr(balance_plan, "_identify_holder", lambda task_vars: other)
    node.task()
    monkeypatch.undo()
    monkeypatch.setattr(balance_plan, "Display", lambda: types.SimpleNamespace(display=print))
    with pytest.raises(Conflict, match="balance_take_over=true"):
        node.task()
    assert node.task(take_over=True)["run"]
