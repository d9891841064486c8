# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.cpusets import bytes_of, count_of, ids_of, mib_of, number_of


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0", [0]),
        ("0-3,^2,8", [0, 1, 3, 8]),
        ("^1,0-2", [0, 2]),
        (" 4 , 2-3 ", [2, 3, 4]),
        ("", []),
        (None, []),
        ("all", []),
        ("3-1", []),
        ("0-99999999999", []),
        ("0-16384", []),
        ("16383", [16383]),
        ("1,9" + "9" * 5000, [1]),
    ],
)
def test_a_set_of_numbers(text: str, ids: list[int]) -> None:
    assert ids_of(text) == ids


def test_sizes_with_their_units() -> None:
    assert bytes_of("2", "M") == bytes_of("2048", None) == 2 * 1024**2
    assert bytes_of("1", "GB") == 1000**3
    assert bytes_of(None, "KiB") == 0
    assert [mib_of(size) for size in (0, 1, 1024**2, 1024**2 + 1)] == [0, 1, 1, 2]


def test_numbers_of_a_definition() -> None:
    assert [number_of(text, 7) for text in ("0", " 12\n", "", None)] == [0, 12, 7, 7]
    assert count_of("16384") == 16384


@pytest.mark.parametrize("text", ["four", "-1", "1.5", "0x10", "²", "9" * 21, "9" * 5000])
def test_what_is_no_number_is_named_and_not_counted_to(text: str) -> None:
    with pytest.raises(Internal, match="where libvirt writes a number"):
        number_of(text)
    with pytest.raises(Internal):
        bytes_of(text, "KiB")


def test_nobody_has_so_many_vcpus() -> None:
    with pytest.raises(Internal):
        count_of("4294967295")
