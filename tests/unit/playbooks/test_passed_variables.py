# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks and roles pass to roles and files of tasks: an extra variable of the same name would silently override it."""

from __future__ import annotations

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


def list_passed(node: t.Any) -> Iterator[str]:
    """Yield the names of the variables that a play, a block or a task passes on."""
    if isinstance(node, list):
        for one in node:
            yield from list_passed(one)
    elif isinstance(node, dict):
        if INCLUDES & set(node) or "role" in node:
            yield from node.get("vars", {})
        for key in ("roles", "tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from list_passed(node.get(key))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(COLLECTION)))
def test_what_is_passed_on_has_an_internal_name(path: t.Any) -> None:
    passed = list_passed(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert [name for name in passed if not name.startswith("__") and name not in HARMLESS] == []


def test_the_harmless_ones_are_passed() -> None:
    assert {name for path in FILES for name in list_passed(yaml.safe_load(path.read_text(encoding="utf-8")))} >= set(HARMLESS)
