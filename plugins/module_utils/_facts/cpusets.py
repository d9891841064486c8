# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Sets of CPUs and of NUMA nodes, and sizes, as a definition writes them."""

from __future__ import annotations

import typing as t

from .._errors import Internal

MIB = 1024**2
UNITS = {"b": 1, "bytes": 1, "KB": 1000, "k": 1024, "KiB": 1024, "MB": 1000**2, "M": MIB, "MiB": MIB, "GB": 1000**3, "G": 1024**3, "GiB": 1024**3,
         "TB": 1000**4, "T": 1024**4, "TiB": 1024**4}  # fmt: skip

# So many CPUs libvirt can name (VIR_DOMAIN_CPUMASK_LEN), and so many vCPUs; sizes have 64 bits.
_MOST_CPUS = 16384
_SIZE_DIGITS = 20


def ids_of(text: t.Optional[str]) -> t.List[int]:
    """Return the numbers of a set like C(0-3,^2,8), sorted; of what is none, an empty list."""
    chosen: t.Set[int] = set()
    excluded: t.Set[int] = set()
    for part in (text or "").replace(" ", "").split(","):
        first, _dash, last = part.lstrip("^").partition("-")
        if _is_id(first) and _is_id(last or first):
            (excluded if part.startswith("^") else chosen).update(range(int(first), int(last or first) + 1))
    return sorted(chosen - excluded)


def _is_id(text: str) -> bool:
    """Whether that can be the number of a CPU or a NUMA node: of a set that names others, all numbers up to them would be counted."""
    return text.isdecimal() and len(text) <= _SIZE_DIGITS and int(text) < _MOST_CPUS


def number_of(text: t.Optional[str], default: int = 0) -> int:
    """Return a number as a definition writes it. Raises L(Internal) for what is none, or has more digits than any that libvirt writes there."""
    given = (text or "").strip()
    if not given:
        return default
    if not given.isdecimal() or len(given) > _SIZE_DIGITS:
        raise Internal(f"{given[:40]!r} stands where libvirt writes a number.")
    return int(given)


def count_of(text: t.Optional[str], default: int = 0) -> int:
    """Return how many vCPUs a definition says. Raises L(Internal) likewise."""
    number = number_of(text, default)
    if number > _MOST_CPUS:
        raise Internal(f"A definition says {number} vCPUs: no hypervisor has more than {_MOST_CPUS}.")
    return number


def bytes_of(number: t.Optional[str], unit: t.Optional[str]) -> int:
    """Return a size with its unit in bytes; KiB where the definition says no unit. Raises L(Internal) for what is no number."""
    return number_of(number) * UNITS.get(unit or "KiB", 1024)


def mib_of(size: int) -> int:
    """Return bytes as MiB, rounded up."""
    return -(-size // MIB)
