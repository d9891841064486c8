# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every option of every module, role and plugin with every wrong value: all pairs, where C(make fuzz) draws some of them.

One option in three takes all values in each run, and the others in C(make long).
"""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.fuzz.registry import targets
from ansible_collections.kvmfleet.migration.tests.fuzz.target import Target
from ansible_collections.kvmfleet.migration.tests.fuzz.targets.options import CHECKS, Case, specs_of
from ansible_collections.kvmfleet.migration.tests.fuzz.watch import Finding, observe
from ansible_collections.kvmfleet.migration.tests.fuzz.wrong_values import VALUES, places

MODULES, ROLES, FILTERS = 20, 5, 4
PARTS = 3


def _finding(target: Target, case: Case) -> Finding | None:
    try:
        observe(target, case)
    except Finding as finding:
        return finding
    return None


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in CHECKS for name in specs_of(kind)])
def test_every_wrong_value_of_an_option_is_refused_with_a_message(kind: str, name: str, part: int) -> None:
    target = targets()[f"options_of_{kind}"]
    cases = [(name, list(path), value) for path in list(places(specs_of(kind)[name]))[part::PARTS] for value in VALUES]
    findings = [f"{case}: {finding}"[:400] for case in cases if (finding := _finding(target, case))]
    assert findings == []


def test_all_modules_roles_and_filters_are_covered() -> None:
    assert len(specs_of("actions")) + len(specs_of("modules")) >= MODULES
    assert len({name.split()[0] for name in specs_of("roles")}) >= ROLES
    assert len(specs_of("filters")) >= FILTERS
