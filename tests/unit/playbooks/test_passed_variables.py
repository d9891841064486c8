# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks and roles pass to roles and files of tasks: an extra variable of the same name would silently override it."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION

FILES = [path for pattern in ("playbooks/*.yml", "playbooks/tasks/*.yml", "roles/*/tasks/**/*.yml") for path in sorted(COLLECTION.glob(pattern))]
INCLUDES = {f"ansible.builtin.{verb}_{noun}" for verb in ("include", "import") for noun in ("role", "tasks")}
# Options that an extra variable may override, with the reason why that harms nobody.
HARMLESS = {
    "evacuate_host_source": "the specification of the role requires it; the role uses __evacuate_host_source",
    "evacuate_host_detection": "it is only recorded",
    "evacuate_host_restart_limit": "a person who runs the reaction by hand may choose another limit",
    "recover_host_enable": "the role uses __recover_host_enable, which is false wherever a host has to stay in maintenance",
}


def list_vars(node: t.Any) -> Iterator[dict[str, t.Any]]:
    """Yield the variables that a play, a block or a task passes on, each time that it does."""
    if isinstance(node, list):
        for one in node:
            yield from list_vars(one)
    elif isinstance(node, dict):
        if INCLUDES & set(node) or "role" in node:
            yield node.get("vars", {})
        for key in ("roles", "tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from list_vars(node.get(key))


def read_passed(path: pathlib.Path) -> list[dict[str, t.Any]]:
    return list(list_vars(yaml.safe_load(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(COLLECTION)))
def test_what_is_passed_on_has_an_internal_name(path: pathlib.Path) -> None:
    passed = read_passed(path)
    assert [name for one in passed for name in one if not name.startswith("__") and name not in HARMLESS] == []
    for one in passed:
        assert one.get("__evacuate_host_source") == one.get("evacuate_host_source")


def test_the_harmless_ones_are_passed() -> None:
    assert {name for path in FILES for one in read_passed(path) for name in one} >= set(HARMLESS)
