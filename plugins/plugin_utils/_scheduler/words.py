# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How numbers and names stand in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable

_MAX_NAMES = 8


def ids_text(ids: Iterable[int]) -> str:
    """Return numbers as libvirt writes a set of CPUs or cells, e.g. C(0-3, 6)."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def names_text(names: Collection[str]) -> str:
    """Return names in order; of very many only the first ones."""
    shown = sorted(names)[:_MAX_NAMES]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def version_text(number: int) -> str:
    """Return a version number of libvirt's kind as people write it, e.g. C(7.2.0)."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def size_text(mib: float) -> str:
    """Return a size of pages or files: whole GiB or MiB where it is one, else MiB."""
    return f"{int(mib) // 1024} GiB" if mib >= 1024 and mib % 1024 == 0 else f"{mib:g} MiB"


def one_or_many(count: int, one: str, many: str) -> str:
    """Return the word that goes with the number."""
    return one if count == 1 else many
