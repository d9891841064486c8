# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host on which the Python of Ansible cannot be started, over real SSH: the error has the shell's message and the variable to set."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control

MISSING = "/nonexistent/python3"
WITH_TWO_HALVES = [
    ("host", {}),
    pytest.param("protect", {}, marks=pytest.mark.long),
    pytest.param("scheduler_check", {"name": "bystander"}, marks=pytest.mark.long),
    ("live_migrate", {"name": "bystander", "destination": "kvm9"}),
]


@pytest.mark.parametrize("pipelining", ["true", pytest.param("false", marks=pytest.mark.long)])
@pytest.mark.parametrize(("module", "arguments"), WITH_TWO_HALVES)
def test_a_missing_python_is_named(control: Control, module: str, arguments: dict[str, t.Any], pipelining: str) -> None:
    done = control.task(1, module, arguments, "-e", f"ansible_python_interpreter={MISSING} ansible_ssh_pipelining={pipelining}")
    assert done.refused() == "internal"
    assert f"{module} could not be started on {control.name(1)}: " in done.msg
    assert f"{MISSING}: not found" in done.msg or f"{MISSING}: No such file or directory" in done.msg
    assert f"Set ansible_python_interpreter of {control.name(1)}" in done.msg
    assert "Shared connection" not in done.msg
    assert control.records() == []


def test_a_module_without_an_action_plugin_fails_with_the_message_of_ansible(control: Control) -> None:
    command = control.ad_hoc_command(1, "migration_info", {"name": "bystander"}, ledger=False)
    process = control.popen([*command, "-e", f"ansible_python_interpreter={MISSING}"])
    text, dummy = process.communicate(timeout=120)
    print(text)
    assert process.returncode != 0
    assert MISSING in text
    assert "interpreter" in text
