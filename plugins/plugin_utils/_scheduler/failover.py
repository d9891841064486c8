# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The reserve for failover: whether the fleet can still lose C(failover_hosts) hosts at the same time after domains have moved.

A host that is out of service is one of these hosts: the reserve is in use for it. A guest that no other host could start, even if that host were empty, is
lost with its host wherever it is, and is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .._ledger.documents import pause_collector
from .filters.base import names_text, one_or_many
from .fleet_guests import FleetGuests
from .loss_rules import make_loss_rules
from .losses import CAN, UNKNOWN, VERDICTS, Loss, LossSearch
from .reach import REACH_FILTERS, empty_fleet
from .repair import passes_filters
from .request import Request

# The name of the setting, in sentences and among the failures of a host.
FAILOVER_HOSTS = "failover_hosts"
# So many sets of hosts are named before the rest is counted.
_MOST_NAMED = 3


@dataclass(frozen=True)
class ReserveVerdict:
    """What moves do to the reserve for failover.

    :arg hosts: how many hosts the fleet has to be able to lose.
    :arg broken: the sets of hosts whose loss is worse after the moves than before.
    :arg missing: the sets that could not be lost before either, or not for certain.
    :arg left_out: the names of guests for which no reserve helps.
    :arg out: the hosts that are out of service afterwards, if they are more than C(hosts): the reserve is used up, and nothing was judged.
    """

    hosts: int
    broken: tuple[Loss, ...] = ()
    missing: tuple[Loss, ...] = ()
    left_out: tuple[str, ...] = ()
    out: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether no loss is worse than before."""
        return not self.broken


def judge_reserve(before: FleetGuests, after: FleetGuests, hosts: int) -> ReserveVerdict:
    """Return what becomes of the reserve between two states of a fleet. See L(ReserveJudge)."""
    return ReserveJudge(before, hosts).judge(after)


class ReserveJudge:
    """Judges what becomes of the reserve if a fleet changes. What is known of the fleet before is found once for all changes.

    :arg hosts: how many hosts the fleet has to be able to lose. If more are out of service, the reserve is used up, and nothing is judged.
    """

    def __init__(self, before: FleetGuests, hosts: int) -> None:
        self._before = before
        self._hosts = hosts

    @pause_collector()
    def judge(self, after: FleetGuests) -> ReserveVerdict:
        """Return what becomes of the reserve in this state of the fleet."""
        hosts, out = self._hosts, list_out_of_service(after)
        if not hosts or len(out) > hosts:
            return ReserveVerdict(hosts, out=out if hosts else ())
        bound = self._bound | _find_bound(after, [request for request in after.requests if request.uuid not in self._known])
        later = _search_losses(after.leave_out(bound))
        earlier: LossSearch | None = None
        broken, missing = list[Loss](), list[Loss]()
        for found in later.judge_all(hosts, out):
            loss = later.judge(found.hosts) if found.verdict == UNKNOWN and not found.reason else found
            if loss.verdict != CAN:
                earlier = earlier or _search_losses(self._before.leave_out(bound))
                is_worse = VERDICTS.index(loss.verdict) > VERDICTS.index(earlier.judge(loss.hosts).verdict)
                (broken if is_worse else missing).append(loss)
        return ReserveVerdict(hosts, tuple(broken), tuple(missing), tuple(sorted(bound.values())))

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(request.uuid for request in self._before.requests)

    @functools.cached_property
    def _bound(self) -> dict[str, str]:
        return _find_bound(self._before, self._before.requests)


def list_out_of_service(view: FleetGuests) -> tuple[str, ...]:
    """Return the hosts that are in maintenance or fenced."""
    return tuple(sorted(host for host in view.guests if view.fleet.states[host].state != ENABLED))


def _find_bound(view: FleetGuests, requests: Iterable[Request]) -> dict[str, str]:
    """Return the guests, by UUID, that no other host could start for certain even if it were empty."""
    names = {rule.name for rule in REACH_FILTERS}
    filters = [rule for rule in make_loss_rules(view.seen).proved if rule.name in names]
    empty = empty_fleet(view.fleet)
    hosts = sorted(empty.states)
    found = {}
    for request in requests:
        if not any(host != request.source and passes_filters(request, empty, host, filters) for host in hosts):
            found[request.uuid] = request.name
    return found


def _search_losses(view: FleetGuests) -> LossSearch:
    return LossSearch(view.fleet, view.guests, make_loss_rules(view.seen), view.uncertain)


def describe_broken(sets: Iterable[Sequence[str]], hosts: int) -> str:
    """Return a sentence about the hosts that the fleet could lose before, and could not lose for certain after the moves."""
    return f"The fleet could no longer lose {_sets_text(sets)} for certain ({FAILOVER_HOSTS}: {hosts})."


def describe_missing(sets: Iterable[Sequence[str]], hosts: int) -> str:
    """Return a sentence about the hosts that the fleet could not lose before either."""
    return f"The fleet cannot lose {_sets_text(sets)} for certain, with or without this ({FAILOVER_HOSTS}: {hosts})."


def describe_used_up(out: Sequence[str], hosts: int) -> str:
    """Return a sentence about a reserve of which more hosts than it has are out of service."""
    return f"The reserve is used up, and nothing is judged: {names_text(out)} are out of service after this ({FAILOVER_HOSTS}: {hosts})."


def describe_left_out(names: Sequence[str]) -> str:
    """Return a sentence about the guests for which no reserve helps."""
    return f"The reserve does not count {names_text(names)}: no other host could start {one_or_many(len(names), 'it', 'them')} for certain."


def _sets_text(sets: Iterable[Sequence[str]]) -> str:
    named = [" and ".join(hosts) for hosts in sets]
    more = [f"{len(named) - _MOST_NAMED} more sets of hosts"] if len(named) > _MOST_NAMED else []
    return ", nor ".join([*named[:_MOST_NAMED], *more])
