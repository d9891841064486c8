# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Audit chains of a ledger's former places: they ended when it was copied, and are kept line by line under a seal that the new chains go on from."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from .audit import verify_lines
from .encoding import Unreadable, canonical, decode, digest, encode

# Stands between the number of the place and the chain's name there; no living chain has it in its name.
_MARK = "-"


class Chain(t.NamedTuple):
    """A chain that has ended.

    :arg name: the number of the place that it was written in, and what it was called there, e.g. C(1-file).
    :arg first: what its first line follows.
    :arg last: the hash of its last line; C(first) where it has none.
    :arg lost: after which lines the end was lost, as far as that is known.
    """

    name: str
    first: str
    lines: int
    last: str
    lost: tuple[int, ...] = ()

    def encoded(self) -> bytes:
        """Return where it begins and ends, as that is kept."""
        return encode({"schema": SCHEMA, "first": self.first, "lines": self.lines, "last": self.last, "lost": list(self.lost)}, 1)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written to it."""
        return not self.lines and self.first == self.last and not self.lost


def name_of(home: int, chain: str) -> str:
    """Return what a chain is called once its ledger has left that place."""
    return f"{home}{_MARK}{chain}"


def is_archived(chain: str) -> bool:
    """Whether that is the name of a chain that has ended."""
    return _MARK in chain


def chain_in(name: str, data: bytes) -> t.Optional[Chain]:
    """Return what L(Chain.encoded) wrote; None for anything else."""
    try:
        body = decode(data).body
    except Unreadable:
        return None
    first, lines, last, lost = (body.get(key) for key in ("first", "lines", "last", "lost"))
    if not isinstance(first, str) or not isinstance(last, str) or not isinstance(lines, int) or not isinstance(lost, list):
        return None
    return Chain(name, first, lines, last, tuple(number for number in lost if isinstance(number, int)))


def readable(chains: t.Mapping[str, t.Optional[Chain]]) -> Iterator[Chain]:
    """Yield the chains. Raises L(InvalidState) where it is damaged what says where one begins and ends."""
    for name, chain in chains.items():
        if chain is None:
            raise InvalidState(f"The audit chain {name} cannot be copied: what says where it begins and ends is damaged.", "Restore that from a backup.")
        yield chain


def seal_of(chains: Iterable[Chain]) -> str:
    """Return what the chains come to: one that is changed, removed or added makes it another."""
    return digest(*(canonical(list(chain)) for chain in sorted(chains)))


def verified(chains: t.Mapping[str, t.Optional[Chain]], lines: t.Callable[[str], Iterator[bytes]], seal: t.Optional[str]) -> list[str]:
    """Return what is wrong with the archived chains.

    :arg chains: by name; None where it is damaged what says where one begins and ends.
    :arg seal: what they came to when the ledger was copied; None where it never was.
    """
    problems = []
    for name, chain in chains.items():
        if chain is None:
            problems.append(f"Audit chain {name}: What says where it begins and ends is damaged.")
        else:
            problems += [f"Audit chain {name}: {problem}" for problem in _verified(chain, lines(name))]
    if seal_of(chain for chain in chains.values() if chain) != (seal or seal_of([])):
        problems.append("Audit chains of former places: They are not those that the ledger was copied with: one was changed, removed or added.")
    return problems


def _verified(chain: Chain, lines: Iterator[bytes]) -> list[str]:
    return [*verify_lines(lines, chain.first, chain.last), *lost_ends(chain.lost)]


def lost_ends(lost: Iterable[int]) -> list[str]:
    """Return sentences on ends that a chain has lost on its way."""
    return [f"After line {number} its end was lost: further lines may be missing there." for number in lost]
