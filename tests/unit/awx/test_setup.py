# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AWX as code: the playbook is checked against the real collection awx.awx, and what it gives each module against that module's own documentation."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.action.domain_location import given_options_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import PURPOSES

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT.parents[2]
BIN = pathlib.Path(sys.executable).parent
PLAYBOOK = "kvmfleet.migration.awx_setup"
PLAYBOOK_VARIABLE = re.compile(r"\b([a-z_]+) \| default\(")
PLAYBOOKS = {
    "abort.yml", "balance.yml", "check.yml", "drain.yml", "evacuate.yml", "fleet_check.yml", "force_complete.yml",
    "maintenance.yml", "migrate.yml", "policy.yml", "protect.yml", "recover.yml", "status.yml",
}  # fmt: skip

GIVEN = {
    "awx_setup_image": "registry.example/kvmfleet:0.1.0",
    "awx_setup_project_url": "https://git.example/kvmfleet.git",
    "awx_setup_machine_credential": "kvm hosts",
    "awx_setup_hosts": {"kvm1": {"ansible_host": "10.0.0.11"}, "kvm2": {"ansible_host": "10.0.0.12"}},
    "awx_setup_variables": {"kvmfleet_ledger": "etcd://etcd1.example:2379/kvmfleet"},
    "awx_setup_etcd": {"user": "kvmfleet", "password": "hunter2"},
    "awx_setup_operators": ["kvm operators"],
    "awx_setup_approvers": ["kvm approvers"],
}

# A module that takes what the real one's documentation says, and writes down what it was given.
MODULE = """\
import json, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec=json.loads({spec!r}), supports_check_mode=True)
with open({journal!r}, "a") as journal:
    journal.write(json.dumps([{name!r}, module.params]) + "\\n")
module.exit_json(changed=True)
"""

Params = dict[str, t.Any]


def ansible(*command: str, paths: str = str(BUILD)) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": paths, "ANSIBLE_LOCALHOST_WARNING": "false"}
    return subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True, env=environment, timeout=300, check=False)


def list_used_modules() -> list[str]:
    """Return the modules of awx.awx that the playbook uses."""
    tasks = yaml.safe_load((ROOT / "playbooks/awx_setup.yml").read_text())[0]["tasks"]
    flat = [inner for task in tasks for inner in [task, *task.get("block", [])]]
    return sorted({key for task in flat for key in task if key.startswith("awx.awx.")})


def specification(options: t.Mapping[str, t.Any]) -> Params:
    """Return the argument specification that documented options stand for."""
    kept = ("type", "elements", "choices", "required", "default", "no_log")
    return {
        name: {
            **{key: option[key] for key in kept if key in option},
            **({"options": specification(option["suboptions"])} if option.get("suboptions") else {}),
        }
        for name, option in options.items()
    }


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Params]]:
    """What each task of a run of the playbook gave its module."""
    folder = tmp_path_factory.mktemp("awx")
    told = ansible("ansible-doc", "--json", "-t", "module", *list_used_modules())
    assert told.returncode == 0, f"The collection awx.awx is not there; 'make setup' unpacks it. {told.stderr}"
    modules = folder / "ansible_collections/awx/awx/plugins/modules"
    modules.mkdir(parents=True)
    for name, documented in json.loads(told.stdout).items():
        spec = json.dumps(specification(documented["doc"]["options"]))
        (modules / f"{name.rpartition('.')[2]}.py").write_text(MODULE.format(spec=spec, journal=str(folder / "journal"), name=name))
    done = ansible("ansible-playbook", PLAYBOOK, "-e", json.dumps(GIVEN), paths=f"{folder}:{BUILD}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hunter2" not in done.stdout
    return [tuple(json.loads(line)) for line in (folder / "journal").read_text().splitlines()]


def params_of_module(journal: list[tuple[str, Params]], module: str) -> list[Params]:
    return [params for name, params in journal if name == f"awx.awx.{module}"]


def options_of_roles() -> set[str]:
    specs = [yaml.safe_load(path.read_text()) for path in ROOT.glob("roles/*/meta/argument_specs.yml")]
    return {option for spec in specs for option in spec["argument_specs"]["main"]["options"]}


def variables_of_playbook(path: pathlib.Path) -> set[str]:
    """Return the variables that a playbook reads, with those of the tasks that it imports."""
    own = path.read_text()
    texts = [own, *(tasks.read_text() for tasks in (ROOT / "playbooks/tasks").glob("*.yml") if f"tasks/{tasks.name}" in own)]
    return {name for text in texts for name in PLAYBOOK_VARIABLE.findall(text)}


def test_the_setup_playbook_passes_the_syntax_check_with_awx_awx() -> None:
    done = ansible("ansible-playbook", "--syntax-check", PLAYBOOK)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_setup_changes_nothing_if_a_variable_is_missing(tmp_path: pathlib.Path) -> None:
    done = ansible("ansible-playbook", PLAYBOOK, "-e", "awx_setup_image=registry.example/kvmfleet:0.1.0")
    assert done.returncode != 0
    assert "awx_setup_machine_credential" in done.stdout
    assert "changed=0" in done.stdout


def test_every_module_accepts_its_arguments(journal: list[tuple[str, Params]]) -> None:
    assert sorted({name for name, dummy in journal}) == list_used_modules()


def test_job_templates_name_existing_playbooks_and_variables(journal: list[tuple[str, Params]]) -> None:
    templates = params_of_module(journal, "job_template")
    assert {one["playbook"].partition("/")[2] for one in templates} == PLAYBOOKS
    for one in templates:
        assert (ROOT / one["playbook"]).is_file()
        asked = [question["variable"] for question in one["survey_spec"]["spec"]]
        assert asked
        known = options_of_roles() | variables_of_playbook(ROOT / one["playbook"])
        assert {*asked, *(one["extra_vars"] or {})} <= known, one["name"]
        assert len(asked) == len({*asked})
        assert one["credentials"] == ["kvm hosts", "kvmfleet ledger"]


def test_surveys_of_templates_have_a_valid_form(journal: list[tuple[str, Params]]) -> None:
    for one in [*params_of_module(journal, "job_template"), *params_of_module(journal, "workflow_job_template")]:
        for question in one["survey_spec"]["spec"]:
            assert question["type"] in {"text", "integer", "multiplechoice"}
            assert question["question_name"]
            assert isinstance(question["required"], bool)
            # AWX sets the variable of a question without an answer to its default, if it has one.
            if question["type"] == "text" or question["required"] or "default" in question:
                assert question["type"] != "multiplechoice" or question["default"] in question["choices"]
                assert question["type"] != "integer" or question["min"] <= question["default"] <= question["max"]
            assert question["type"] != "multiplechoice" or question["choices"]


def test_answers_of_surveys_are_values_that_the_modules_accept(journal: list[tuple[str, Params]]) -> None:
    """A playbook passes the answer to an option of its module, C(<playbook>_<option>)."""
    checked = 0
    for one in params_of_module(journal, "job_template"):
        purpose = one["playbook"].partition("/")[2].removesuffix(".yml")
        if purpose not in PURPOSES:
            continue
        spec = given_options_spec(purpose)
        for question in one["survey_spec"]["spec"]:
            if not question["variable"].startswith(f"{purpose}_"):
                continue
            option = question["variable"].removeprefix(f"{purpose}_")
            kind = spec[option].get("type", "str")
            assert {"integer": ["int"], "multiplechoice": ["bool", "str"], "text": ["str", "list"]}[question["type"]].count(kind) == 1, question
            assert set(question.get("choices", ())) <= (set(spec[option].get("choices", ())) or {"true", "false"}), question
            checked += 1
    assert checked > 20


def test_every_survey_offers_the_limits_that_an_operator_can_set(journal: list[tuple[str, Params]]) -> None:
    asked = {one["name"]: {question["variable"] for question in one["survey_spec"]["spec"]} for one in params_of_module(journal, "job_template")}
    assert {"domain", "destination", "migrate_timeout_seconds", "migrate_on_timeout", "migrate_force"} <= asked["KVM migrate"]
    assert {"domain", "id"} <= asked["KVM abort"] & asked["KVM force complete"]
    assert all("source" in asked[name] for name in ("KVM migrate", "KVM check", "KVM abort", "KVM force complete", "KVM policy"))
    granted = params_of_module(journal, "role")[0]
    assert {"KVM abort", "KVM force complete", "KVM check", "KVM policy", "KVM status"} <= set(granted["job_templates"])


def test_the_workflow_applies_a_plan_only_after_its_approval(journal: list[tuple[str, Params]]) -> None:
    workflow = params_of_module(journal, "workflow_job_template")[0]
    nodes = {node["identifier"]: node for node in workflow["workflow_nodes"]}
    order, name = [], "plan"
    while name:
        order.append(nodes[name]["unified_job_template"])
        following = (nodes[name].get("related") or {}).get("success_nodes") or []
        name = following[0]["identifier"] if following else ""
    assert [one["type"] for one in order] == ["job_template", "workflow_approval", "job_template"]
    assert len(order) == len(nodes)
    templates = {one["name"]: one for one in params_of_module(journal, "job_template")}
    assert [templates[order[number]["name"]]["extra_vars"] for number in (0, 2)] == [{"drain_host_plan_only": True}, {"drain_host_plan_apply": True}]
    granted = {one["role"]: one for one in params_of_module(journal, "role")}
    assert order[2]["name"] not in granted["execute"]["job_templates"]
    assert granted["approval"]["teams"] == ["kvm approvers"]


def test_the_credential_type_has_the_etcd_fields_of_the_ledger(journal: list[tuple[str, Params]]) -> None:
    kind = params_of_module(journal, "credential_type")[0]
    fields = {field["id"] for field in kind["inputs"]["fields"]}
    assert {*params_of_module(journal, "credential")[0]["inputs"]} <= fields
    assert {label.partition(".")[2] for label in kind["injectors"]["file"]} <= fields
    given = kind["injectors"]["extra_vars"]["kvmfleet_etcd"]
    assert {*given} == {"user", "password", "ca_file", "cert_file", "key_file"}
    assert given["user"] == "{{ user }}"
    assert given["ca_file"] == "{% if ca %}{{ tower.filename.ca }}{% endif %}"
