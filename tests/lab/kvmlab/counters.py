# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judging the counters of a guest's dirty set (see C(bootcode)): was any page lost?"""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the counters say.

    :arg intact: no page is lost or old.
    :arg pages: how many were read.
    :arg increments: all that the guest has done so far; it grows while the guest works.
    :arg problem: the first page that is wrong, in words; empty where intact.
    """

    intact: bool
    pages: int
    increments: int
    problem: str = ""


def judge(counters: t.Sequence[int]) -> Verdict:
    """Judge the counters of all pages, read at one moment, in the order of their addresses."""
    first = counters[0] if counters else 1
    increments = sum(counters) - len(counters)
    if first == 0:
        return Verdict(False, len(counters), increments, "page 0 was never filled")
    fallen = False
    for page, value in enumerate(counters):
        expected = first - 1 if fallen else first
        if value == expected:
            continue
        if value == first - 1 and value and not fallen:
            fallen = True
            continue
        return Verdict(False, len(counters), increments, f"page {page} of the set counts {value} instead of {expected}")
    return Verdict(True, len(counters), increments)
