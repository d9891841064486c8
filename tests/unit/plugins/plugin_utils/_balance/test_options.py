# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions


def test_the_weights_that_are_not_given_are_1() -> None:
    assert BalanceOptions(weights={"io": 0.5, "vcpus": 0}).weight_vector == (1.0, 1.0, 0.5, 0.0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"goal": "fast"}, "goal is 'fast'"),
        ({"max_moves": -1}, "max_moves is -1"),
        ({"max_moves": True}, "max_moves is True"),
        ({"weights": {"cpu": -0.1}}, "The weight of cpu is -0.1"),
        ({"weights": {"memory": 11}}, "The weight of memory is 11"),
        ({"weights": {"cpu": float("nan")}}, "The weight of cpu is nan"),
        ({"weights": {"gpu": 1}}, "weights has unknown keys: gpu"),
        ({"weights": [1]}, r"weights is \[1\]"),
        ({"weights": {"cpu": 0, "memory": 0, "io": 0, "vcpus": 0}}, "All weights are 0"),
        ({"tolerated_pressure": 1.5}, "tolerated_pressure is 1.5"),
        ({"min_gain": "much"}, "min_gain is 'much'"),
        ({"horizon_seconds": 0}, "horizon_seconds is 0"),
        ({"cooldown_seconds": -1}, "cooldown_seconds is -1"),
        ({"max_age_seconds": 0}, "max_age_seconds is 0"),
        ({"maintenance_allowed": "yes"}, "maintenance_allowed is 'yes'"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(given: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence) as caught:
        BalanceOptions(**given)
    assert "Nothing was planned." in str(caught.value)
