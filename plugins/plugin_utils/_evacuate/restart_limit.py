# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The limit of restarts: a domain that was on several hosts when they died may be what kills them, and waits for a person.

The limit is no evidence. It only withholds starts, so that the clock of the control node is sufficient for its period.
"""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._ledger.documents import DomainEntry, DomainRestart
from .._maintenance.drills import PlannedDeath
from .source import age_seconds

MOST_HOSTS = 5
MOST_HOURS = 720


class RestartLimitReached(Unsafe):
    """A domain was on too many hosts when they died."""


@dataclass(frozen=True)
class RestartLimit:
    """A domain waits for a person if it was on this many hosts when they died.

    :arg hosts: the number of hosts, including the one that died now.
    :arg hours: the period in which they died.
    """

    hosts: SignedInt
    hours: SignedInt

    @classmethod
    def from_option(cls, given: t.Optional[JsonObject]) -> t.Optional[RestartLimit]:
        """Return the limit of a task; None if it has none. Raises L(InvalidArgument) for numbers out of bounds."""
        if not given:
            return None
        limit = decode(cls, given)
        for name, least, most in (("hosts", 2, MOST_HOSTS), ("hours", 1, MOST_HOURS)):
            if not least <= getattr(limit, name) <= most:
                raise InvalidArgument(f"{name} of restart_limit is {getattr(limit, name)}.", f"Give a number from {least} to {most}. Nothing was started.")
        return limit


def find_earlier_deaths(entry: DomainEntry, source: HostRef, limit: RestartLimit, planned: Sequence[PlannedDeath] = ()) -> list[DomainRestart]:
    """Return the last restart of the domain from each other host that died within the period, the oldest first.

    :arg planned: deaths by drills, which do not count.
    """
    period = datetime.timedelta(hours=limit.hours).total_seconds()
    found: list[DomainRestart] = []
    for restart in entry.restarts or ():
        age = age_seconds(restart.at)
        if age is None or age > period or restart.source.is_same(source):
            continue
        if any(one.includes(restart.source.host, restart.at) for one in planned):
            continue
        found = [*(one for one in found if not one.source.is_same(restart.source)), restart]
    return found


def check_restart_limit(entry: DomainEntry, source: HostRef, limit: t.Optional[RestartLimit], planned: Sequence[PlannedDeath] = ()) -> None:
    """Raise L(RestartLimitReached) if the domain was on too many hosts when they died.

    :arg planned: deaths by drills, which do not count.
    """
    earlier = find_earlier_deaths(entry, source, limit, planned) if limit else []
    if limit and len(earlier) + 1 >= limit.hosts:
        raise RestartLimitReached(
            f"Domain {entry.name} waits for a person: it was on {_describe_deaths(earlier)}, and on {source.host} now. It was not started.",
            describe_way_out(entry.name, source.host),
        )


def describe_way_out(domain: t.Optional[str], host: t.Optional[str]) -> str:
    """Return what a person does about a domain that waits since the death of that host."""
    return f'Find out whether it kills its hosts. To start it: kvmfleet.migration.evacuate -e source={host} -e \'{{"evacuate_host_domains": ["{domain}"]}}\''


def _describe_deaths(earlier: Sequence[DomainRestart]) -> str:
    return " and ".join(f"{one.source.label} when that host was evacuated at {one.at}" for one in earlier)
