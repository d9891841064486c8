# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hypothesis as the engine: cases made by a target's own strategy, shrunk when one is a finding."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings

from .target import Case, Target
from .watch import Finding, observe

# What Hypothesis remembers of its cases grows; a new run forgets it.
_BATCH = 2000


def run(target: Target, cases: int, first_seed: int) -> tuple[int, Case, Finding | None]:
    """Run so many cases; stop at the first finding, and return how many ran, with the smallest case that was found for it."""
    done = 0
    while done < cases:
        ran, case, finding = _batch(target, min(_BATCH, cases - done), first_seed * 1000003 + done)
        done += ran
        if finding or not ran:
            return done, case, finding
    return done, None, None


def _batch(target: Target, cases: int, number: int) -> tuple[int, Case, Finding | None]:
    ran = 0
    failed: Case = None

    @seed(number)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(target.cases)
    def one(case: Case) -> None:
        nonlocal ran, failed
        ran += 1
        try:
            observe(target, case)
        except Finding:
            failed = case
            raise

    try:
        one()
    except Finding as finding:
        return ran, failed, finding
    return ran, None, None
