# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One look at an etcd ledger at one revision: what was read is remembered by key, with the revision that a write has to find unchanged."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from .client import Client
from .messages import KeyValue, Message, end_of, is_at, is_unchanged, many, one, reading

PAGE_KEYS = 500


class Snapshot:
    """Keys are named without the ledger's prefix, which they are given and rid of here.

    :arg at_one_revision: else each page is as it is when it is read; for what never changes.
    """

    def __init__(self, client: Client, at_one_revision: bool = True) -> None:
        self._client = client
        self._is_fixed = at_one_revision
        self._prefix = client.address.prefix
        self._revision = 0
        self._known: dict[str, t.Optional[KeyValue]] = {}
        self._used: set[str] = set()
        self._ranges: list[Message] = []

    def fetch(self, *keys: str) -> None:
        """Read keys at once that will be asked for one by one. Raises L(Overtaken) where the revision was compacted."""
        missing = [key for key in keys if key not in self._known]
        if not missing:
            return
        done = self._client.transaction([], [reading(one(self._prefix + key, self._revision)) for key in missing], [])
        if self._is_fixed:
            self._revision = self._revision or done.revision
        self._known.update(zip(missing, (found[0] if found else None for found in done.found), strict=True))

    def get(self, key: str) -> t.Optional[KeyValue]:
        """Return the key as it was at the revision, or None. From here on it counts as read."""
        self.fetch(key)
        self._used.add(key)
        return self._known[key]

    def forget(self, key: str) -> None:
        """Count the key as one that is not there any more."""
        self._known[key] = None

    def each(self, start: str, end: t.Optional[str] = None, keys_only: bool = False, counts: bool = True) -> Iterator[tuple[str, KeyValue]]:
        """Yield the keys from C(start) to before C(end), page by page; without an end all that begin with C(start).

        :arg counts: whether the range counts as read from here on.
        """
        last = self._prefix + end if end is not None else end_of(self._prefix + start)
        for found in self._paged(self._prefix + start, last, keys_only):
            yield found.key[len(self._prefix) :], found
        if counts:
            self._ranges.append(is_unchanged(self._prefix + start, last, self._revision))

    def _paged(self, first: str, last: str, keys_only: bool) -> Iterator[KeyValue]:
        more = True
        while more:
            page = self._client.range(many(first, last, self._revision, PAGE_KEYS, keys_only))
            if self._is_fixed:
                self._revision = self._revision or page.revision
            yield from page.found
            more = page.more and bool(page.found)
            # The next key there can be.
            first = f"{page.found[-1].key}\0" if more else last

    def unchanged(self) -> Sequence[Message]:
        """Return the comparisons that hold as long as nothing that was read has changed."""
        revisions = {key: found.mod_revision if found else 0 for key in sorted(self._used) for found in (self._known[key],)}
        return [*(is_at(self._prefix + key, revision) for key, revision in revisions.items()), *self._ranges]
