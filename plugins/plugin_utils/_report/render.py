# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""From a report to the files it is asked for in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from .._ledger.store import Body
from .as_csv import hosts_as_csv, moves_as_csv
from .as_html import as_html
from .as_junit import as_junit
from .as_markdown import as_markdown

_ENDINGS: Mapping[str, Mapping[str, str]] = {
    "html": {"html": ".html"},
    "json": {"json": ".json"},
    "csv": {"csv": ".csv", "hosts_csv": "-hosts.csv"},
    "markdown": {"markdown": ".md"},
    "junit": {"junit": ".xml"},
}
_RENDER: Mapping[str, Callable[[Body], str]] = {
    "html": as_html,
    "json": lambda document: json.dumps(document) + "\n",
    "csv": moves_as_csv,
    "hosts_csv": hosts_as_csv,
    "markdown": as_markdown,
    "junit": as_junit,
}


def names_of(name: str, formats: Sequence[str]) -> dict[str, str]:
    """Return what the files are called, by what is in them: C(csv) are two, C(csv) and C(hosts_csv)."""
    return {kind: f"{name}{ending}" for wanted in dict.fromkeys(formats) for kind, ending in _ENDINGS[wanted].items()}


def contents_of(document: Body, names: Mapping[str, str]) -> dict[str, bytes]:
    """Return what is in each file, by its name."""
    return {name: _RENDER[kind](document).encode("utf-8") for kind, name in names.items()}
