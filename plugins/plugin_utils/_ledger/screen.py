# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Cheap tests that tell of most records in a folder that a query cannot want them, before they are parsed."""

from __future__ import annotations

import datetime
import json
import re
import typing as t
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

_UPDATED_AT = re.compile(rb'"updated_at":"([^"]*)"')
_THIS_SCHEMA = f'"schema":{SCHEMA},'.encode("ascii")
# A file is as old as its record, but for what the clocks of two hosts may differ by.
_CLOCKS_SECONDS = 86400.0

Texts = t.Optional[Iterable[str]]


def needles(key: str, values: Texts) -> tuple[bytes, ...]:
    """Return the texts of which a record's text has one where its C(key) has one of the values; of any of its keys where C(key) is empty."""
    before = f"{json.dumps(key)}:" if key else ""
    return tuple(f"{before}{json.dumps(value)}".encode("ascii") for value in sorted(values or ()))


@dataclass(frozen=True)
class Screen:
    """What is let through need not be wanted; what is held back is not.

    :arg needed: the canonical text of the record has one of each of these tuples in it.
    :arg since: RFC 3339, in the form of records; C(until) likewise.
    """

    needed: tuple[tuple[bytes, ...], ...] = ()
    since: t.Optional[str] = None
    until: t.Optional[str] = None

    @property
    def written_since(self) -> t.Optional[float]:
        """The Unix time such that no file last written before it can hold a wanted record; None where that says nothing."""
        return None if self.since is None else datetime.datetime.fromisoformat(self.since).timestamp() - _CLOCKS_SECONDS

    def passes(self, text: bytes) -> bool:
        """Whether the record of that canonical text may be wanted; one of another schema may be, and is for its reader to name."""
        if _THIS_SCHEMA not in text:
            return True
        return all(any(needle in text for needle in one_of) for one_of in self.needed) and self._in_time(text)

    def _in_time(self, text: bytes) -> bool:
        if self.since is None and self.until is None:
            return True
        stamps = (stamp.decode("utf-8", "replace") for stamp in _UPDATED_AT.findall(text))
        return any((self.since is None or stamp >= self.since) and (self.until is None or stamp < self.until) for stamp in stamps)
