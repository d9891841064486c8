# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A place that a ledger is copied to: it holds no ledger before the copy is whole."""

from __future__ import annotations

import abc
import contextlib
import typing as t
from collections.abc import Callable, Iterable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict

from .archive import Chain
from .contents import Contents, Entry
from .identity import Identity
from .layout import Place

_T = t.TypeVar("_T")
# A transaction of etcd holds 128 changes and 1.5 MiB; each document takes up to three changes.
_MOST = 40
_MOST_BYTES = 2**19


class Seen(t.NamedTuple):
    """What is there; all None for nothing.

    :arg identity: that of a ledger.
    :arg copying: the marker of an unfinished copy.
    :arg foreign: the name of something else.
    """

    identity: t.Optional[Identity] = None
    copying: t.Optional[bytes] = None
    foreign: t.Optional[str] = None


class Target(abc.ABC):
    """What writes after L(mark) raises L(Conflict) once another run has marked the place.

    :arg name: what people call it by: its folder, or its address.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._marker = b""

    @abc.abstractmethod
    def look(self) -> Seen:
        """Return what is there, changing nothing."""

    @abc.abstractmethod
    def mark(self, marker: bytes, seen: Seen) -> None:
        """Make it a copy of this run's. Raises L(Conflict) unless there is still what was seen."""

    @abc.abstractmethod
    def contents(self) -> contextlib.AbstractContextManager[Contents]:
        """Return what the copy holds so far."""

    @abc.abstractmethod
    def put(self, entries: Iterable[Entry]) -> None:
        """Write documents."""

    @abc.abstractmethod
    def put_chain(self, chain: Chain, lines: Iterable[bytes]) -> None:
        """Write an audit chain of a former place, over what is there of it."""

    @abc.abstractmethod
    def remove(self, place: Place) -> None:
        """Remove a document."""

    @abc.abstractmethod
    def remove_chain(self, name: str) -> None:
        """Remove an audit chain."""

    @abc.abstractmethod
    def finish(self, identity: Identity) -> None:
        """Make the copy a ledger, at once."""


def batches(items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield the items in lists that one transaction takes.

    :arg size: of an item, in bytes.
    """
    batch: list[_T] = []
    total = 0
    for item in items:
        if batch and (len(batch) >= _MOST or total + size(item) > _MOST_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def changed_meanwhile(name: str) -> Conflict:
    """Return the refusal of a place that is not what it was a moment ago."""
    return Conflict(f"Something was written to {name} meanwhile. Nothing was changed.", "See what is there, then run the task again.")


def taken_over(name: str) -> Conflict:
    """Return the refusal of a run whose copy is another's now."""
    return Conflict(f"The copy at {name} was taken over by another run, or removed.", "Leave it to that one, or run the task again.")
