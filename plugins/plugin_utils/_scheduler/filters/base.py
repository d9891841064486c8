# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The interface of a filter and of its findings, and the format of numbers and names in its reasons."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import format_ids

from ..fleet import Fleet, HostState
from ..request import Request


@dataclass(frozen=True)
class Finding:
    """A filter's answer for one host.

    :arg reason: why the host cannot accept the domain; None if it can.
    :arg warnings: what is unknown, or what only the hypervisor itself can decide.
    :arg overridable: whether C(force) skips this reason; None means as C(overridable) of the filter.
    """

    reason: t.Optional[str] = None
    warnings: tuple[str, ...] = ()
    overridable: t.Optional[bool] = None


PASS: t.Final = Finding()


class Filter(t.Protocol):
    """One rule, without state.

    :arg overridable: whether C(force) skips it; a rule that protects from certain failure is never skipped.
    :arg judges_silent: whether it can judge a host that did not answer; the other rules do not apply to such a host.
    """

    name: str
    overridable: bool
    judges_silent: bool

    def applies_to(self, request: Request) -> bool:
        """Return whether the rule applies to the request; if not, every host passes and C(judge_host) is not called."""

    def judges(self, host: HostState) -> bool:
        """Return whether the rule judges the host: its settings can switch the rule off, and most rules cannot judge a host that did not answer."""

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return whether the host passes. Called for every host of a fleet: a host that passes must cost almost nothing."""

    def host_passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Return whether the host passes, without reasons."""


class Rule:
    """The common part of most filters."""

    name = ""
    overridable = True
    judges_silent = False

    def applies_to(self, request: Request) -> bool:
        """Return true: every domain is judged."""
        return True

    def judges(self, host: HostState) -> bool:
        """Return whether the settings of the host leave the rule on, and the host answered if the rule needs that."""
        return self.name not in host.settings.filters_off and (self.judges_silent or host.unanswered is None)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return whether the host passes."""
        raise NotImplementedError

    def host_passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Return whether the finding is a pass. Rules that refuse many hosts have a faster test."""
        return self.judge_host(request, host, fleet).reason is None


# Rules about jobs of libvirt, and about what prevents QEMU from sending its memory. They do not apply to a guest that is off while it moves.
_MOVE_RULES = ("max_moves", "traits", "migratable")


def is_relevant(rule: Filter, request: Request) -> bool:
    """Return whether the filter has anything to judge."""
    return rule.applies_to(request) and not (request.starts and rule.name in _MOVE_RULES)


def relevant_filters(filters: Iterable[Filter], request: Request) -> list[Filter]:
    """Return the filters that have anything to judge, in their order."""
    return [rule for rule in filters if is_relevant(rule, request)]


def filters_for_host(filters: Sequence[Filter], host: HostState) -> Sequence[Filter]:
    """Return the filters that judge this host: all of them, unless it did not answer or has switched some off."""
    return filters if host.unanswered is None and not host.settings.filters_off else [rule for rule in filters if rule.judges(host)]


_MAX_NAMES = 8


def ids_text(ids: Iterable[int]) -> str:
    """Return numbers as a set of CPUs or cells, e.g. C(0-3, 6)."""
    return format_ids(ids).replace(",", ", ")


def names_text(names: Collection[str]) -> str:
    """Return names in order; of a long list only the first ones."""
    shown = sorted(names)[:_MAX_NAMES]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def version_text(number: int) -> str:
    """Return a version number of libvirt's kind as people write it, e.g. C(7.2.0)."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def size_text(mib: float) -> str:
    """Return a size of pages or files: whole GiB or MiB if possible, else MiB."""
    return f"{int(mib) // 1024} GiB" if mib >= 1024 and mib % 1024 == 0 else f"{mib:g} MiB"


def one_or_many(count: int, one: str, many: str) -> str:
    """Return the singular or plural for a number."""
    return one if count == 1 else many
