# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every example is a playbook that Ansible takes, and gives modules only what they take."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from .conftest import Documents, run_ansible

OURS = "kvmfleet.migration."
Body = dict[str, t.Any]


def plays_of(examples: str) -> list[Body]:
    """Return examples as plays, whether they are tasks or plays."""
    listed: list[Body] = yaml.safe_load(examples)
    return listed if "hosts" in listed[0] else [{"hosts": "all", "gather_facts": False, "tasks": listed}]


@pytest.fixture(scope="session")
def examples(documents: dict[str, Documents]) -> dict[str, list[Body]]:
    """Return the plays of each module, lookup and filter."""
    return {name: plays_of(one["examples"]) for kind in ("module", "lookup", "filter") for name, one in documents[kind].items()}


def spec_of(options: dict[str, Body], given: Body) -> Body:
    """Return the argument specification that documentation describes. What is a template has no type before it is evaluated."""
    spec: Body = {}
    for name, option in options.items():
        if "{{" in str(given.get(name)):
            spec[name] = {"type": "raw", "required": option.get("required", False)}
            continue
        spec[name] = {key: option[key] for key in ("type", "elements", "choices", "required") if key in option}
        if option.get("suboptions"):
            spec[name]["options"] = spec_of(option["suboptions"], {})
    return spec


def test_examples_pass_the_syntax_check_of_ansible(examples: dict[str, list[Body]], tmp_path: pathlib.Path) -> None:
    for name, plays in examples.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
    playbooks = sorted(path.name for path in tmp_path.glob("*.yml"))
    done = run_ansible("ansible-playbook", "--syntax-check", "-i", "kvm1,", *playbooks, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(playbooks) == len(examples)


def test_examples_pass_the_argument_validation_of_their_modules(examples: dict[str, list[Body]], documents: dict[str, Documents]) -> None:
    tasks = [(name, task) for name, plays in examples.items() for play in plays for task in play["tasks"]]
    given = [(name, key, arguments or {}) for name, task in tasks for key, arguments in task.items() if key.startswith(OURS)]
    assert {key for name, key, arguments in given} >= set(documents["module"])
    for name, module, arguments in given:
        options = documents["module"][module]["doc"]["options"]
        result = ArgumentSpecValidator(spec_of(options, arguments)).validate(arguments)
        assert result.error_messages == [], f"{name}: {arguments}"


def test_every_plugin_has_an_example_that_uses_it(examples: dict[str, list[Body]]) -> None:
    assert [name for name, plays in examples.items() if name not in yaml.safe_dump(plays)] == []
