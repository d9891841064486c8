# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import DEFAULTS


def test_every_field_of_the_policy_is_an_option_without_a_default_of_its_own() -> None:
    for field in DEFAULTS:
        assert "default" not in move_spec()[field], "a default here would hide the inventory's value"


def test_a_move_in_a_list_has_the_options_of_a_move_alone() -> None:
    assert live_migrate_spec()["moves"]["options"] == move_spec()


def test_two_specifications_share_nothing_that_one_could_change() -> None:
    changed = live_migrate_spec()
    changed["name"]["type"] = "int"
    assert live_migrate_spec()["name"]["type"] == "str"
