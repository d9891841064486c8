# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One renewal over all ways to etcd, within a time limit that is clearly shorter than the lease."""

from __future__ import annotations

import functools
import time
import typing as t

from .._time_limits import PendingAnswer
from .config import LeaseConfig, LeasePeer
from .etcd import NotAcknowledged, Tokens, Way, make_tls_context

DIRECT = "direct"
# Of the lease, for all ways together; and the bounds for one of them.
_SHARE = 0.5
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 3.0
# So many peers are tried at each renewal; at the next one it is others.
_RELAYS = 3
# A way through a peer that works is used so often before the direct ways are tried again.
_RELAYED_RENEWALS = 20


class Acknowledgement(t.NamedTuple):
    """A renewal that etcd acknowledged.

    :arg path: C(direct), or the name of the peer through which it went.
    """

    revision: int
    path: str


class Renewer:
    """Writes the lease through the way that worked last, else through the others, those through peers last.

    :arg clock: monotonic, in seconds.
    """

    def __init__(self, config: LeaseConfig, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limit_seconds = config.lease_seconds * _SHARE
        relays = [peer for peer in config.peers if peer.relay and peer.addresses]
        attempts = len(config.endpoints) + min(len(relays), _RELAYS)
        self._seconds = min(max(self._limit_seconds / attempts, _LEAST_SECONDS), _MOST_SECONDS)
        context, tokens = make_tls_context(config), Tokens()

        def make_way(endpoint: str, peer: t.Optional[LeasePeer]) -> Way:
            relay = (peer.addresses[-1], peer.port) if peer else None
            return Way(config, context, tokens, endpoint, relay, peer.name if peer else DIRECT, self._seconds)

        self._direct = [make_way(endpoint, None) for endpoint in config.endpoints]
        self._relayed = [make_way(endpoint, peer) for endpoint in config.endpoints for peer in relays]
        self._relayed_renewals = 0

    def renew(self, describe: t.Callable[[str], bytes]) -> Acknowledgement:
        """Write the lease. Raises L(NotAcknowledged) with what each way answered.

        :arg describe: returns what to write through the way of that name.
        """
        return self._use_ways(lambda way: functools.partial(way.put, describe(way.name)))

    def try_ways(self) -> Acknowledgement:
        """Find a way through which the lease can be written, and write nothing. Raises L(NotAcknowledged) with what each way answered."""
        return self._use_ways(lambda way: way.try_put)

    def _use_ways(self, make_call: t.Callable[[Way], t.Callable[[], int]]) -> Acknowledgement:
        problems: t.List[str] = []
        begin = self._clock()
        for way in self._order_ways():
            if problems and self._clock() - begin > self._limit_seconds:
                break
            outcome = self._attempt(make_call(way))
            if isinstance(outcome, int):
                self._prefer(way)
                return Acknowledgement(outcome, way.name)
            problems.append(f"{way}: {outcome}")
        self._rotate_relays()
        raise NotAcknowledged("; ".join(problems))

    def _attempt(self, call: t.Callable[[], int]) -> t.Union[int, str]:
        """Return the revision, or why there is none. The limit includes the resolution of names and slow answers; then the thread is abandoned."""

        def send() -> t.Union[int, str]:
            try:
                return call()
            except NotAcknowledged as error:
                return str(error)

        outcome = PendingAnswer(send).wait(self._seconds)
        return f"no answer within {self._seconds:g} s" if outcome is None else outcome

    def _order_ways(self) -> t.List[Way]:
        relayed = self._relayed[:_RELAYS]
        return [*relayed[:1], *self._direct, *relayed[1:]] if self._relayed_renewals else [*self._direct, *relayed]

    def _prefer(self, way: Way) -> None:
        """Try the way that worked first the next time."""
        ways = self._direct if way.name == DIRECT else self._relayed
        ways.remove(way)
        ways.insert(0, way)
        is_direct_next = way.name == DIRECT or self._relayed_renewals >= _RELAYED_RENEWALS
        self._relayed_renewals = 0 if is_direct_next else self._relayed_renewals + 1

    def _rotate_relays(self) -> None:
        self._relayed = [*self._relayed[_RELAYS:], *self._relayed[:_RELAYS]]


# A login may take longer than one renewal.
_TRIES = 3


def explain_no_renewal(config: LeaseConfig) -> str:
    """Return why the host could not renew its lease with this configuration; empty if it could. Nothing is written."""
    try:
        renewer = Renewer(config)
    except (OSError, ValueError) as error:
        return f"its TLS files cannot be used: {error}"
    why = ""
    for _try in range(_TRIES):
        why = _explain_failure(renewer)
        if not why:
            break
    return why


def _explain_failure(renewer: Renewer) -> str:
    try:
        renewer.try_ways()
    except NotAcknowledged as error:
        return str(error)
    return ""
