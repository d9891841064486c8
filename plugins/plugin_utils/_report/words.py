# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Figures in words a person reads, the same in every format that is text."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

from .._ledger.store import Body

NOTHING = "–"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def text(value: t.Any) -> str:
    """Return a name or a reason on one line; a dash where there is none."""
    return NOTHING if value is None or value == "" else printable(str(value))


def in_bytes(value: t.Optional[int]) -> str:
    """Return bytes in the largest unit of which there is one, e.g. C(1.5 GiB)."""
    if value is None:
        return NOTHING
    unit = next((unit for unit in range(len(_UNITS) - 1) if value < 1024 ** (unit + 1)), len(_UNITS) - 1)
    return f"{value} B" if unit == 0 else f"{_tenths(value, 1024**unit)} {_UNITS[unit]}"


def in_time(milliseconds: t.Optional[int]) -> str:
    """Return a duration, e.g. C(96 ms), C(5.9 s), C(12 min 5 s) or C(3 h 20 min)."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{_tenths(milliseconds, 1000)} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _tenths(value: int, unit: int) -> str:
    """Return how many units that are, to a tenth, halves up: so the page's own code counts, too."""
    tenths = (value * 20 + unit) // (2 * unit)
    return f"{tenths // 10}.{tenths % 10}"


def at(moment: t.Optional[str]) -> str:
    """Return a time of a record without its fractions, e.g. C(2026-11-21 03:00:00)."""
    return NOTHING if moment is None else printable(moment[:19].replace("T", " "))


def way(move: Body) -> str:
    """Return from where to where."""
    return f"{text(move['source'])} → {text(move['destination'])}"


def reboot(host: Body) -> str:
    """Return whether a host may be rebooted, in a word."""
    return {True: "yes", False: "no"}.get(host["safe_to_reboot"], "not known")


def scope(document: Body) -> str:
    """Return what the report is about."""
    wanted = document["scope"]
    if wanted["ids"]:
        return f"{len(wanted['ids'])} records that were named"
    parts = [f"{word} {text(wanted[key])}" for key, word in (("domain", "domain"), ("host", "host"), ("since", "since"), ("until", "until")) if wanted[key]]
    return ", ".join(parts) or "the whole ledger"
