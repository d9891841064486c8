# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._proc_files import parse_start_ticks

STAT = "4711 {name} S 1 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 {ticks} 1 2 3"


@pytest.mark.parametrize("name", ["(python3)", "(a b)", "((x) y)", "(4711 (z) S 1 2 3)"])
def test_start_ticks_are_parsed_whatever_the_process_name(name: str) -> None:
    assert parse_start_ticks(STAT.format(name=name, ticks=987654)) == 987654


@pytest.mark.parametrize(
    "line", ["", "4711 (x) S 1 2", STAT.format(name="(x)", ticks="x"), STAT.format(name="(x)", ticks="²"), STAT.format(name="(x)", ticks="9" * 5000)]
)
def test_an_invalid_stat_line_has_no_start_ticks(line: str) -> None:
    assert parse_start_ticks(line) is None
