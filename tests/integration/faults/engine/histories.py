# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparing what happened, line by line, with what a text says."""

from __future__ import annotations

import typing as t

REST = "*"


def words(text: str) -> list[str]:
    """Return the lines that a text names, e.g. C(accepted, conflict)."""
    return [word.strip() for word in text.split(",")] if text else []


def matches(lines: t.Sequence[str], wanted: t.Sequence[str]) -> bool:
    """Whether the lines are the wanted ones, in their order and with none beside them.

    C(word?) may be missing; C(*) stands for any number of lines.
    """
    if not wanted:
        return not lines
    first, rest = wanted[0], wanted[1:]
    if first == REST:
        return any(matches(lines[count:], rest) for count in range(len(lines) + 1))
    if lines and lines[0] == first.removesuffix("?") and matches(lines[1:], rest):
        return True
    return first.endswith("?") and matches(lines, rest)
