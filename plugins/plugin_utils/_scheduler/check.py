# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""May this domain go to this host? One answer with all the reasons."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from . import filters as f
from . import weighers as w
from .host_state import HostState
from .request import Request


@dataclass(frozen=True)
class Verdict:
    """What the filters say of one host, as C(scheduler_check) returns it.

    :arg failures: C({filter, reason}) of every filter that refused.
    """

    host: str
    passed: bool
    failures: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    weight: float = 0.0

    @property
    def reason(self) -> str:
        """Why the host was refused, in one text; empty where it passed."""
        return " ".join(failure["reason"] for failure in self.failures)

    def as_dict(self) -> dict[str, t.Any]:
        """Return the verdict as a module returns it."""
        return asdict(self)


def check(request: Request, host: HostState, filters: Sequence[f.Filter] = f.DEFAULT, weighers: Sequence[w.Weigher] = w.DEFAULT) -> Verdict:
    """Ask every filter, so that all reasons are named and not only the first one."""
    problems = [(rule.name, rule.problem(request, host)) for rule in filters]
    failures = [{"filter": name, "reason": reason} for name, reason in problems if reason]
    weight = 0.0 if failures else sum(weigher.weight(request, host) for weigher in weighers)
    return Verdict(host.name, not failures, failures, [], weight)


def best(verdicts: Sequence[Verdict]) -> t.Optional[Verdict]:
    """Return the wanted one of those that passed; equal ones by name, so that two runs choose alike."""
    passed = [verdict for verdict in verdicts if verdict.passed]
    return min(passed, key=lambda verdict: (-verdict.weight, verdict.host), default=None)
