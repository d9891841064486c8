# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.cpusets import bytes_of, ids_of, mib_of


@pytest.mark.parametrize(
    ("text", "ids"),
    [("0", [0]), ("0-3,^2,8", [0, 1, 3, 8]), ("^1,0-2", [0, 2]), (" 4 , 2-3 ", [2, 3, 4]), ("", []), (None, []), ("all", []), ("3-1", [])],
)
def test_a_set_of_numbers(text: str, ids: list[int]) -> None:
    assert ids_of(text) == ids


def test_sizes_with_their_units() -> None:
    assert bytes_of("2", "M") == bytes_of("2048", None) == 2 * 1024**2
    assert bytes_of("1", "GB") == 1000**3
    assert bytes_of(None, "KiB") == 0
    assert [mib_of(size) for size in (0, 1, 1024**2, 1024**2 + 1)] == [0, 1, 1, 2]
