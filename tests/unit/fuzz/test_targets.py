# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A short run of every fuzz target, always the same cases. The long one is C(make fuzz)."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.fuzz import by_structure, registry
from ansible_collections.kvmfleet.migration.tests.fuzz.watch import limited_memory, observe

SEED = 7
CASES = 100
# A case of these makes and uses a whole ledger.
CASES_OF_A_LEDGER = 25
LEDGERS = ("ledger_sealed", "ledger_damaged", "ledger_journal")
TARGETS = registry.targets()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_damaged_input_does_no_harm(name: str) -> None:
    cases = CASES_OF_A_LEDGER if name in LEDGERS else CASES
    with limited_memory():
        ran, case, finding = by_structure.run(TARGETS[name], cases, SEED)
    assert finding is None, f"{finding}, after {ran} cases, with {case!r:.2000}"
    assert ran >= cases // 2


@pytest.mark.parametrize("name", sorted(name for name, target in TARGETS.items() if target.seeds))
def test_valid_input_is_accepted(name: str) -> None:
    for data in TARGETS[name].seeds:
        observe(TARGETS[name], data)
