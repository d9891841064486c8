# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every entry point of a role has its argument specification, and the defaults there are those of the role."""

from __future__ import annotations

import functools
import pathlib
import re
import sys
import typing as t

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import status

TREE = pathlib.Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (TREE / "roles").iterdir())
# Where somebody can name a file of a role's tasks.
CALLERS = ("README.md", "docs/**/*.md", "roles/**/*.yml", "roles/**/*.md", "playbooks/**/*.yml", "extensions/**/*.yml", "tests/**/*.yml")
TASKS_FROM = re.compile(r"\btasks_from: *[\"']?([\w-]+)")

Body = dict[str, t.Any]


def load(role: str, part: str) -> Body:
    return t.cast(Body, yaml.safe_load((TREE / "roles" / role / part).read_text(encoding="utf-8")) or {})


def specs(role: str) -> dict[str, Body]:
    return t.cast("dict[str, Body]", load(role, "meta/argument_specs.yml")["argument_specs"])


def options(role: str) -> dict[str, Body]:
    return {name: option for spec in specs(role).values() for name, option in spec.get("options", {}).items()}


def ways_in(text: str) -> set[str]:
    return set(TASKS_FROM.findall(text))


@functools.cache
def called() -> set[str]:
    return {name for pattern in CALLERS for path in TREE.glob(pattern) for name in ways_in(path.read_text(encoding="utf-8"))}


def is_computed(value: t.Any) -> bool:
    return isinstance(value, str) and "{{" in value


def test_all_roles_are_found() -> None:
    assert {"drain_host", "evacuate_host", "protect_host", "recover_host", "report"} <= set(ROLES)


@pytest.mark.parametrize("line", ["tasks_from: plan", "tasks_from: 'plan'", '- {role: x, tasks_from: "plan.yml"}'])
def test_an_entry_point_is_found_in_a_task(line: str) -> None:
    assert ways_in(line) == {"plan"}


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_has_an_argument_specification(role: str) -> None:
    files = {path.stem for path in (TREE / "roles" / role / "tasks").glob("*.yml")}
    assert set(specs(role)) == ({"main"} | called()) & files


def test_every_called_entry_point_exists() -> None:
    assert called() - {entry for role in ROLES for entry in specs(role)} == set()


@pytest.mark.parametrize("role", ROLES)
def test_every_specification_is_described_with_author_and_version(role: str) -> None:
    silent = [
        (entry, part) for entry, spec in specs(role).items() for part in ("short_description", "description", "author", "version_added") if not spec.get(part)
    ]
    assert silent == []
    assert [name for name, option in options(role).items() if not option.get("description") or not option.get("type")] == []


@pytest.mark.parametrize("role", ROLES)
def test_role_defaults_equal_those_of_the_specification(role: str) -> None:
    """What a role computes has no default in its specification: Ansible would show the formula."""
    told = {name: option.get("default") for name, option in options(role).items() if not option.get("required")}
    kept = {name: None if is_computed(value) else value for name, value in load(role, "defaults/main.yml").items()}
    assert kept == told
    assert {name: type(value) for name, value in kept.items()} == {name: type(value) for name, value in told.items()}


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_of_a_role_is_an_option_or_described(role: str) -> None:
    """Results, and facts that somebody else's tasks set, are no options, but the specification names them."""
    texts = [path.read_text(encoding="utf-8") for part in ("tasks", "vars", "defaults") for path in (TREE / "roles" / role / part).glob("*.yml")]
    used = {name for text in texts for name in re.findall(rf"(?<![\w.'/-]){role}_\w+", text)}
    described = set(re.findall(r"C\((\w+)\)", yaml.safe_dump(specs(role), width=sys.maxsize)))
    assert used - set(options(role)) - described == set()


def test_the_readme_of_protect_host_removes_every_file_of_the_boot_guard() -> None:
    text = (TREE / "roles/protect_host/README.md").read_text(encoding="utf-8")
    removed = [path for line in text.splitlines() if line.strip().startswith("rm -f") for path in line.split()[2:]]
    assert sorted(removed) == sorted(f"/{path}" for path in status.all_paths())
    assert [path for path in removed if "/lib/kvmfleet/" in path] == removed[-2:]
