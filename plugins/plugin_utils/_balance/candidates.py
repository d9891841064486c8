# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which domains a balance may move, why it leaves the others, and what the move of one costs."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.prediction import Capacity, MoveLoad, Prediction, predict_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts

from .._drain.prediction import find_capacity, make_load
from .._drain.sorting import LeavingDomain, SortedDomains, sort_domain
from .inputs import BalanceInputs
from .load import GuestUse
from .options import BalanceOptions
from .pressure import MEMORY

# How many times the seconds of a move count: once if the domain is known to converge, more if it was not measured, and most if that needs post-copy or
# auto-converge.
SURE_FACTOR, UNMEASURED_FACTOR, FORCED_FACTOR = 1.0, 1.5, 4.0
# How many seconds of a move a second of its pause is worth.
PAUSE_FACTOR: t.Final = 10.0

LEFT: t.Final = "Its policy leaves it on its host (drain: leave)."
SHUT_DOWN: t.Final = "Its policy does not move it (drain: shutdown)."

COLD: t.Final = "It can only be moved while it is off."


@dataclass(frozen=True)
class MoveCost:
    """What a move costs.

    :arg predicted_seconds: how long it lasts.
    :arg sends_mib: how much it sends in its first pass.
    :arg downtime_ms: the pause of the guest; None if its dirty rate was not measured.
    :arg risk: how many times its seconds count.
    """

    predicted_seconds: float
    sends_mib: int
    downtime_ms: t.Optional[int]
    risk: float

    @property
    def seconds(self) -> float:
        """The cost in seconds, which the gain has to exceed."""
        return self.predicted_seconds * self.risk + PAUSE_FACTOR * (self.downtime_ms or 0) / 1000


class Candidates:
    """The domains of the hosts that take part. A domain is judged when the search first considers it, because most are never considered.

    C(reasons) are why domains stay, by UUID.
    """

    def __init__(self, inputs: BalanceInputs, options: BalanceOptions) -> None:
        self._inputs = inputs
        self._options = options
        self._domains: dict[str, Mapping[str, DomainFacts]] = {}
        self._found: dict[str, t.Optional[LeavingDomain]] = {}
        self._capacities: dict[str, Capacity] = {}
        self._costs: dict[str, MoveCost] = {}
        self.reasons: dict[str, str] = {}

    def find(self, uuid: str, host: str) -> t.Optional[LeavingDomain]:
        """Return a domain that may be moved; None if it stays."""
        if uuid not in self._found:
            self._found[uuid] = self._judge(uuid, host)
        return self._found[uuid]

    def leave(self, uuid: str, reason: str) -> None:
        """Leave a domain on its host."""
        self._found[uuid] = None
        self.reasons.setdefault(uuid, reason)

    def cost(self, leaver: LeavingDomain) -> MoveCost:
        """Return what the move of a domain costs."""
        uuid = leaver.request.uuid
        if uuid not in self._costs:
            capacity = self._capacity(leaver.request.source)
            load = make_load(leaver, capacity.link_mib, self._options.moves.bandwidth_mib)
            self._costs[uuid] = _price(load, predict_moves([load], capacity)[0])
        return self._costs[uuid]

    def least_cost(self, guest: GuestUse, host: str) -> float:
        """Return the seconds that the move of a guest costs at least: fast, and exact once L(cost) has computed it."""
        known = self._costs.get(guest.uuid)
        return known.seconds if known else guest.amounts[MEMORY] / self._capacity(host).link_mib

    def _capacity(self, host: str) -> Capacity:
        if host not in self._capacities:
            self._capacities[host] = find_capacity(host, frozenset(), self._inputs.drain, self._options.moves)
        return self._capacities[host]

    def _judge(self, uuid: str, host: str) -> t.Optional[LeavingDomain]:
        moved = self._inputs.last_moves.get(uuid)
        rest = self._options.cooldown_seconds - (self._inputs.now - moved).total_seconds() if moved else 0.0
        if rest > 0:
            self.reasons[uuid] = f"It has moved within the last {self._options.cooldown_seconds / 3600:g} h, and stays for {rest / 3600:.1f} h more."
            return None
        into = SortedDomains()
        sort_domain(self._domains_of(host)[uuid], host, self._inputs.drain, self._options.moves, {}, into)
        leaver = into.all_leavers.get(uuid)
        if leaver is not None and leaver.method:
            self.reasons[uuid] = COLD
            return None
        if leaver is None or leaver.destination:
            self.reasons[uuid] = _why_left(into) if leaver is None else f"A move of it to {leaver.destination} is under way."
            return None
        return self._check_convergence(leaver)

    def _check_convergence(self, leaver: LeavingDomain) -> t.Optional[LeavingDomain]:
        if self.cost(leaver).risk < FORCED_FACTOR or leaver.policy.features:
            return leaver
        self.reasons[leaver.request.uuid] = "It writes memory too fast for its move to finish, and its policy allows neither post-copy nor auto-converge."
        return None

    def _domains_of(self, host: str) -> Mapping[str, DomainFacts]:
        if host not in self._domains:
            self._domains[host] = {domain.uuid: domain for domain in self._inputs.drain.list_domains(host)}
        return self._domains[host]


def _why_left(sorted_domains: SortedDomains) -> str:
    if sorted_domains.skipped:
        return LEFT
    return SHUT_DOWN if sorted_domains.shutdowns else sorted_domains.stuck[0].reason


def _price(load: MoveLoad, found: Prediction) -> MoveCost:
    risk = UNMEASURED_FACTOR if found.converges is None else SURE_FACTOR if found.converges else FORCED_FACTOR
    return MoveCost(found.seconds, round(load.used_mib + load.copied_mib), found.downtime_ms, risk)
