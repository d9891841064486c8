# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is fuzzed: a parser, the cases it is given, and what may come out of it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError

from .mutation import damaged

# Bytes, or what JSON can carry (NaN and lone surrogates included).
Case = t.Any


@dataclass(frozen=True)
class Target:
    """One parser, or several that are given the same thing.

    :arg name: of the target, as it is given on the command line.
    :arg check: takes a case; an assertion in it that fails is a finding, as is every exception that is not in C(may_raise).
    :arg cases: how cases are made.
    :arg seeds: valid inputs, for a target that takes bytes: these are fuzzed by coverage too. Each is a case of its own.
    """

    name: str
    check: Callable[[Case], None]
    cases: st.SearchStrategy[Case]
    may_raise: tuple[type[Exception], ...] = (KvmfleetError,)
    seeds: tuple[bytes, ...] = ()

    @classmethod
    def of_bytes(cls, name: str, check: Callable[[bytes], None], *seeds: bytes, may_raise: tuple[type[Exception], ...] = (KvmfleetError,)) -> Target:
        """Return a target that takes bytes: cases are the seeds, damaged."""
        return cls(name, check, damaged(seeds), may_raise, seeds)
