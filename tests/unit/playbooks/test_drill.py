# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks of the playbook drill between the check of the fleet and the cut of the power, and after the return of the host."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drills import make_drill
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.playbooks import stage as stages
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION, HOSTS, Stage, build_collection
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import Agent
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import RUN_ID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.test_drills import begun, in_step

STEP = str(COLLECTION / "playbooks/tasks/drill_step.yml")


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build_collection(tmp_path_factory.mktemp("collections"))


def write_playbook(stage: Stage, *tasks: dict[str, t.Any]) -> str:
    path = stage.folder / "drill.yml"
    path.write_text(json.dumps([{"hosts": "kvm3", "gather_facts": False, "tasks": list(tasks)}]))
    return str(path)


def run_task(state: str, **args: t.Any) -> dict[str, t.Any]:
    return {"kvmfleet.migration.maintenance_run": {"state": state, **args}}


def begin_step(step: str) -> dict[str, t.Any]:
    return {"ansible.builtin.include_tasks": STEP, "vars": {"__drill_step": step}}


def test_a_drill_that_was_paused_before_its_cut_ends_and_the_same_command_checks_the_fleet_again(collections: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stage = Stage(collections, tmp_path)
    begin = [{**run_task("started", hosts=["kvm3"], drill={}), "register": "__drill_begun"}, run_task("next", hosts=["kvm3"])]
    stage.resume_once_paused()
    done = stage.play(write_playbook(stage, *begin, begin_step("check"), run_task("paused"), begin_step("cut")), target="kvm3")
    assert done.code != 0
    assert "The power of kvm3 is not cut: the drill was paused after the fleet was checked." in done.text
    # Another process continues it, and nobody has paused that one.
    again = stage.play(write_playbook(stage, *begin, begin_step("cut"), {"ansible.builtin.debug": {"var": "__drill_begun.unchecked"}}), target="kvm3")
    assert again.code == 0, again.text
    assert '"kvm3"' in again.text
    (document,) = FileLedger(str(stage.ledger)).list_maintenance_runs()
    assert (document.maintenance_run.term, document.maintenance_run.hosts[0].steps[-1].step) == (2, "cut")


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The collection with a recovery that only shows whose maintenance it would end, and with hosts and a check of the fleet that report what a test says."""
    folder = build_collection(tmp_path_factory.mktemp("recovered"), "host_facts", "fleet_check")
    roles = folder / "ansible_collections/kvmfleet/migration/roles"
    roles.unlink()
    (roles / "recover_host/tasks").mkdir(parents=True)
    said = "It ends a maintenance with the reason {{ __recover_host_own_reason | default('of anybody', true) }}."
    nothing = {"name": "Recover nothing", "ansible.builtin.debug": {"msg": said}}
    loses = {"name": "Ask the host", "kvmfleet.migration.migration_info": {"name": "web"}, "when": "stage_loses | default(false)"}
    (roles / "recover_host/tasks/main.yml").write_text(json.dumps([nothing, loses]))
    return folder


GUESTS = ("app", "web")


def write_drill_in_its_recovery(stage: Stage) -> None:
    """Write a drill of kvm3 whose guests were started on kvm1, and whose process is gone."""
    ledger = FileLedger(str(stage.ledger))
    refs = {name: HostRef(name, f"11111111-0000-4000-8000-00000000000{name[-1]}", None) for name in HOSTS}
    for name, ref in refs.items():
        ledger.put_host(host_entry({"name": name, "host_id": ref.host_id}), None)
    drill = dataclasses.replace(make_drill(90, 300, m.REACTION_RUN, (), {f.uuid_of(name): name for name in GUESTS}), cut_at=utc_now())
    ledger.put_maintenance_run(dataclasses.replace(in_step(m.RECOVER, begun(drill)), holder=None), None)
    for name in GUESTS:
        stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(f.uuid_of(name), name), refs["kvm3"], refs["kvm1"], {}, "ann"))
        for status in (s.PRE_MIGRATING, s.DONE):
            stored = ledger.update_record(stored, stored.record.advance(status, "ann"))


@pytest.mark.parametrize(
    ("running", "reasons"),
    [
        ({"kvm3": ["app", "web"]}, []),
        ({"kvm1": ["web"], "kvm3": ["web"]}, ["app: it was not brought back", "web: it runs on kvm1 and kvm3 at the same time"]),
    ],
)
def test_a_drill_passes_only_after_each_guest_was_seen_once(
    recovered: pathlib.Path, tmp_path: pathlib.Path, running: dict[str, list[str]], reasons: list[str]
) -> None:
    stage = Stage(recovered, tmp_path)
    write_drill_in_its_recovery(stage)
    facts = {host: f.host(host, domains=[f.domain(name) for name in running.get(host, ())]) for host in HOSTS}
    stage.answers["host_facts"] = {host: {"changed": False, "ansible_facts": {"kvmfleet_host": known}} for host, known in facts.items()}
    fencing = {"agent": str(Agent(tmp_path).path), "options": {"plug": "kvm3"}}
    done = stage.play("drill", target="kvm3", drill_run=RUN_ID, kvmfleet_fencing=fencing, ansible_python_interpreter="/usr/bin/python3")
    (document,) = FileLedger(str(stage.ledger)).list_maintenance_runs()
    drill = document.body["drill"]
    assert (drill["passed"], drill["reasons"], done.code == 0) == (not reasons, reasons, not reasons), done.text
    assert document.maintenance_run.state == m.FINISHED
    # The host was in service before its cut: whoever has put it into maintenance since then wants it to stay there.
    assert f"It ends a maintenance with the reason of the drill {RUN_ID}." in done.text


def test_an_empty_variable_brings_the_guests_home(recovered: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stage = Stage(recovered, tmp_path)
    write_drill_in_its_recovery(stage)
    facts = {host: f.host(host, domains=[f.domain(name) for name in GUESTS if host == "kvm3"]) for host in HOSTS}
    stage.answers["host_facts"] = {host: {"changed": False, "ansible_facts": {"kvmfleet_host": known}} for host, known in facts.items()}
    fencing = {"agent": str(Agent(tmp_path).path), "options": {"plug": "kvm3"}}
    given = {"drill_run": RUN_ID, "drill_bring_home": "", "kvmfleet_fencing": fencing, "ansible_python_interpreter": "/usr/bin/python3"}
    done = stage.play("drill", target="kvm3", **given)
    (document,) = FileLedger(str(stage.ledger)).list_maintenance_runs()
    assert (done.code, document.body["drill"]["passed"], document.maintenance_run.state) == (0, True, m.FINISHED), done.text


def test_a_host_to_which_the_connection_is_lost_ends_the_drill_with_a_verdict(recovered: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stage = Stage(recovered, tmp_path)
    write_drill_in_its_recovery(stage)
    stage.silence("kvm3")
    fencing = {"agent": str(Agent(tmp_path).path), "options": {"plug": "kvm3"}}
    done = stage.play("drill", target="kvm3", drill_run=RUN_ID, stage_loses=True, kvmfleet_fencing=fencing, ansible_python_interpreter="/usr/bin/python3")
    (document,) = FileLedger(str(stage.ledger)).list_maintenance_runs()
    run = document.maintenance_run
    assert (done.code != 0, run.state, run.holder, document.body["drill"]["passed"]) == (True, m.STOPPED, None, False), done.text
    assert "it became unreachable" in str(run.hosts[0].error)


@pytest.mark.long
def test_a_drill_of_the_only_host_gets_its_verdict(recovered: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "HOSTS", ("kvm3",))
    stage = Stage(recovered, tmp_path)
    write_drill_in_its_recovery(stage)
    facts = f.host("kvm3", domains=[f.domain(name) for name in GUESTS])
    stage.answers["host_facts"] = {"kvm3": {"changed": False, "ansible_facts": {"kvmfleet_host": facts}}}
    fencing = {"agent": str(Agent(tmp_path).path), "options": {"plug": "kvm3"}}
    done = stage.play("drill", target="kvm3", drill_run=RUN_ID, kvmfleet_fencing=fencing, ansible_python_interpreter="/usr/bin/python3")
    (document,) = FileLedger(str(stage.ledger)).list_maintenance_runs()
    assert (done.code, document.body["drill"]["passed"], document.maintenance_run.state) == (0, True, m.FINISHED), done.text


def test_a_value_that_is_neither_true_nor_false_is_refused_before_the_cut(tmp_path: pathlib.Path) -> None:
    stubs = ("host_facts", "fleet_check", "maintenance_run")
    stage = Stage(build_collection(tmp_path / "collections", *stubs), tmp_path)
    stage.answers.update({name: {} for name in stubs})
    stage.answers["maintenance_run"] = {"kvm1": {"unchecked": ["kvm3"], "run": None, "lines": []}}
    done = stage.play("drill", target="kvm3", drill_bring_home="sometimes")
    assert (done.code != 0, "'bring_home' must be true or false" in done.text) == (True, True), done.text
    assert [args["state"] for _host, args in done.calls_of("maintenance_run")] == ["checked"]


def test_a_host_whose_power_is_not_cut_is_not_recovered(recovered: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stage = Stage(recovered, tmp_path)
    ledger = FileLedger(str(stage.ledger))
    protected = {"at": utc_now(), "guard": {"installed": True, "systemd": True, "held_at_boot": True, "held": False, "note": ""}}
    for number, name in enumerate(HOSTS):
        ledger.put_host(host_entry({"name": name, "host_id": f"11111111-0000-4000-8000-00000000000{number}", "protected": protected}), None)
    # A guest comes to the host after the check.
    facts = [with_receipt(f.host("kvm3", domains=[f.domain(name) for name in names])) for names in (GUESTS, (*GUESTS, "db"))]
    stage.answers["host_facts"] = {"kvm3": [{"changed": False, "ansible_facts": {"kvmfleet_host": known}} for known in facts]}
    checked = {"changed": False, "at": utc_now(), "lost": ["kvm3"], "losses": [], "findings": [], "cpus": [], "baselines": {}}
    stage.answers["fleet_check"] = dict.fromkeys(HOSTS, checked)
    agent = Agent(tmp_path)
    fencing = {"agent": str(agent.path), "options": {"plug": "kvm3"}}
    done = stage.play("drill", target="kvm3", kvmfleet_fencing=fencing, ansible_python_interpreter="/usr/bin/python3")
    (document,) = ledger.list_maintenance_runs()
    assert document.body["drill"]["reasons"][:2] == [
        "The power of kvm3 was not cut. Other guests run on kvm3 than were checked: db came or left since then.",
        "The power was not cut.",
    ], done.text
    assert set(agent.asked()) == {"status"}
    # Its recovery would end a maintenance that a person has begun since the check.
    assert "Switch the host on" in done.text
    assert "It ends a maintenance" not in done.text
    assert document.maintenance_run.state == m.FINISHED
