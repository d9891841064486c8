# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Domains that run on no host according to the ledger: their host was evacuated, and they were not started elsewhere."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, NotSupported

from .._ledger.documents import DomainEntry, HostEntry
from .._ledger.ledger import Ledger

_OFF_STATES = ("shut off", "off")
# The number of domains that a line names before the rest is counted.
_MOST_NAMES = 12


@dataclass(frozen=True)
class UnstartedDomain:
    """A domain that was not started elsewhere.

    :arg host: the fenced host that it is on.
    :arg why: its evacuation was refused, or failed; empty if the ledger does not have that.
    """

    domain: DomainEntry
    host: HostEntry
    why: str

    @property
    def name(self) -> str:
        """The name of the domain, or its UUID if it has none."""
        return self.domain.name or self.domain.uuid


def was_off(domain: DomainEntry) -> bool:
    """Whether the domain was off when it was protected last."""
    return bool(domain.saved and domain.saved.state in _OFF_STATES)


def list_unstarted(ledger: Ledger, hosts: Iterable[HostEntry], domains: Iterable[DomainEntry], excluded: Collection[str]) -> list[UnstartedDomain]:
    """Return the domains that are only on fenced hosts and were not off there, by host and name.

    :arg excluded: UUIDs of domains with an unsettled record, whose evacuation may still be in progress.
    """
    fenced = [entry for entry in hosts if entry.state == s.FENCED]
    found = []
    for domain in domains:
        on = [next((entry for entry in fenced if entry.host_ref.is_same(host)), None) for host in domain.possible_hosts]
        if on and on[0] and all(on) and domain.uuid not in excluded and not was_off(domain) and not domain.is_missing:
            found.append(UnstartedDomain(domain, on[0], _read_reason(ledger, domain)))
    return sorted(found, key=lambda one: (one.host.name, one.name, one.domain.uuid))


def _read_reason(ledger: Ledger, domain: DomainEntry) -> str:
    if domain.last_record:
        with contextlib.suppress(NotFound, NotSupported):
            record = ledger.read_record(domain.last_record).record
            if record.type == s.EVACUATION and record.status in (s.CONFLICT, s.FAILED):
                return record.last_detail
    return ""


def unstarted_lines(found: Sequence[UnstartedDomain]) -> Iterator[str]:
    """Yield a line for each host: the domains, why the first of them was not started, and what a person does.

    :arg found: in the order of L(list_unstarted).
    """
    for host, group in itertools.groupby(found, key=lambda one: one.host.name):
        domains = list(group)
        more = f" and {len(domains) - _MOST_NAMES} more" if len(domains) > _MOST_NAMES else ""
        names, run = f"{', '.join(one.name for one in domains[:_MOST_NAMES])}{more}", "runs" if len(domains) == 1 else "run"
        first = next((one for one in domains if one.why), None)
        why = f" {first.name} was not started elsewhere: {first.why.rstrip('.')}." if first else ""
        is_gone = bool(domains[0].host.discarded)
        yield f"{host} {'will not return' if is_gone else 'is fenced'}, and {names} {run} on no host according to the ledger.{why} {way_out(host, is_gone)}"


def way_out(host: str, is_gone: bool) -> str:
    """Return what a person does with the domains of a host that is off; C(is_gone), whether it will not return."""
    returns = f"The rest waits for the return of the host: kvmfleet.migration.recover -e target={host}"
    back = f"To give up the rest: kvmfleet.migration.host with name={host}, domains_lost and a reason" if is_gone else returns
    return f"To start what can run elsewhere: kvmfleet.migration.evacuate -e source={host}. {back}"
