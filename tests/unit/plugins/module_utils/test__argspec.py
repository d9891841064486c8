# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import DEFAULTS

OF_THE_INVENTORY = {"timeout_seconds_per_gib"}


def test_every_policy_field_is_an_option_without_a_default() -> None:
    for field in DEFAULTS.keys() - OF_THE_INVENTORY:
        assert "default" not in move_spec()[field], "a default here would hide the inventory's value"


def test_moves_have_the_options_of_a_single_move() -> None:
    assert live_migrate_spec()["moves"]["options"] == move_spec()


def test_specifications_share_no_mutable_parts() -> None:
    changed = live_migrate_spec()
    changed["name"]["type"] = "int"
    assert live_migrate_spec()["name"]["type"] == "str"
