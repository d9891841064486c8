# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which variables are taken for a mistyped option of a role."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.mistyped import find_mistyped, list_options

ROLES = pathlib.Path(__file__).resolve().parents[5] / "roles"
# What the roles return, and what tasks of users set for them.
OTHERS = {
    "drain_host": ["drain_host_result"],
    "evacuate_host": ["evacuate_host_result", "evacuate_host_evidence"],
    "protect_host": ["protect_host_result"],
    "recover_host": ["recover_host_result"],
    "rolling_maintenance": ["rolling_maintenance_result", "rolling_maintenance_nothing_to_do"],
}


def options_of(role: str) -> set[str]:
    return list_options(yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text()))


@pytest.mark.parametrize(
    ("role", "name", "meant"),
    [
        ("recover_host", "recover_host_timeout_second", "recover_host_timeout_seconds"),
        ("recover_host", "recover_host_bringhome", "recover_host_bring_home"),
        ("evacuate_host", "evacuate_host_domain", "evacuate_host_domains"),
        ("drain_host", "drain_host_plan_apply_", "drain_host_plan_apply"),
    ],
)
def test_a_mistyped_option_is_named_with_the_one_that_is_meant(role: str, name: str, meant: str) -> None:
    sentence = f"{name} is not an option of the role {role} and has no effect. Is {meant} meant?"
    assert find_mistyped([name, meant, "kvmfleet_ledger"], role, options_of(role)) == [sentence]


@pytest.mark.parametrize("role", OTHERS)
def test_options_results_and_own_variables_are_not_mistyped(role: str) -> None:
    options = options_of(role)
    own = [f"{role}_owner", f"{role}s", f"__{role}_result", role]
    assert find_mistyped([*options, *OTHERS[role], *own], role, options) == []
