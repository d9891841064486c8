# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option C(parallel)."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import AUTO_PARALLEL
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.parallel import AUTO, MAX_PARALLEL, parallel_value, read_parallel


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("auto", AUTO_PARALLEL),
        (" auto\n", AUTO_PARALLEL),
        (1, 1),
        ("4", 4),
        (" 4 ", 4),
        ("04", 4),
        ("64", MAX_PARALLEL),
        (str(MAX_PARALLEL), MAX_PARALLEL),
    ],
)
def test_a_number_may_be_text_as_from_a_survey_and_auto_is_the_only_word(given: t.Any, number: int) -> None:
    assert read_parallel(given) == number


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (0, "0"),
        ("0", "0"),
        (-4, "-4"),
        ("-4", "-4"),
        (65, "65"),
        ("1" * 18, "1" * 18),
        ("1" * 4000, "'1111"),
        ("four", "'four'"),
        ("AUTO", "'AUTO'"),
        ("auto 4", "'auto 4'"),
        ("", "''"),
        ("4.5", "'4.5'"),
        (4.0, "4.0"),
        ("\u0664", "'\u0664'"),
        (True, "True"),
        (None, "None"),
        ([4], "[4]"),
        ({"auto": 4}, "{'auto': 4}"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(given: t.Any, shown: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_parallel(given)
    assert str(caught.value).startswith(f"parallel is {shown}")
    assert str(caught.value).endswith(". Give auto, or a whole number from 1 to 64. Nothing was moved.")
    assert len(str(caught.value)) < 130


@pytest.mark.parametrize("number", [AUTO_PARALLEL, 1, MAX_PARALLEL])
def test_a_plan_keeps_what_is_read_again_as_the_same_number(number: int) -> None:
    assert read_parallel(parallel_value(number)) == number
    assert parallel_value(AUTO_PARALLEL) == AUTO
