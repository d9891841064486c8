# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import DEFAULTS, resolve, value


def test_without_a_word_from_anybody_the_defaults_hold() -> None:
    policy = resolve([("task", {}), ("host", {})])
    assert {field: entry["value"] for field, entry in policy.items()} == DEFAULTS
    assert {entry["source"] for entry in policy.values()} == {"default"}


def test_the_first_layer_with_a_value_wins_field_by_field() -> None:
    policy = resolve([("task", {"downtime_ms": 300, "stall_seconds": None}), ("host", {"downtime_ms": 100, "stall_seconds": 5, "unknown": 1})])
    assert policy["downtime_ms"] == {"value": 300, "source": "task"}
    assert policy["stall_seconds"] == {"value": 5, "source": "host"}
    assert policy["downtime_steps"]["source"] == "default"
    assert "unknown" not in policy


@pytest.mark.parametrize(("field", "given"), [("timeout_seconds", 0), ("stall_seconds", 0), ("auto_converge", False), ("downtime_delay_seconds_per_gib", 0)])
def test_zero_and_false_are_values(field: str, given: t.Any) -> None:
    assert resolve([("task", {field: given}), ("host", {field: DEFAULTS[field] or 9})])[field] == {"value": given, "source": "task"}


@pytest.mark.parametrize(
    ("field", "lowest", "highest"),
    [
        ("timeout_seconds", 0, 604800),
        ("stall_seconds", 0, 604800),
        ("downtime_ms", 1, 2_000_000),
        ("downtime_steps", 1, 1000),
        ("downtime_delay_seconds_per_gib", 0, 604800),
    ],
)
def test_each_number_has_its_bounds(field: str, lowest: int, highest: int) -> None:
    for given in (lowest, highest):
        assert value(resolve([("task", {field: given})]), field) == given
    for given in (lowest - 1, highest + 1, -1, 10**30):
        with pytest.raises(InvalidArgument, match=rf"{field} is -?\d+ \(task\)"):
            resolve([("task", {field: given})])


@pytest.mark.parametrize("given", [True, "60", 1.5, [1], {"a": 1}])
def test_a_number_is_a_whole_number(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"stall_seconds is .* \(host\)"):
        resolve([("task", {}), ("host", {"stall_seconds": given})])


@pytest.mark.parametrize("given", ["yes", 1, "true", []])
def test_a_switch_is_true_or_false(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="neither true nor false"):
        resolve([("host", {"auto_converge": given})])


def test_an_unknown_choice_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match=r"on_timeout is 'explode' \(host\).*abort"):
        resolve([("host", {"on_timeout": "explode"})])


def test_a_field_that_an_older_record_lacks_has_the_default() -> None:
    assert value({}, "downtime_ms") == 500
    assert value({"downtime_ms": {"value": 9, "source": "task"}}, "downtime_ms") == 9
