# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a report is about, and reading that from the ledger."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from .._ledger.reading import Wanted, check_wanted, read
from .._ledger.store import Body, Ledger

_TERMS = ("migrations", "evacuations")


@dataclass(frozen=True)
class Scope:
    """Which records a report is about: those of C(ids), else those that meet every other condition; all of them where none is given."""

    since: t.Optional[str] = None
    until: t.Optional[str] = None
    host: t.Optional[str] = None
    domain: t.Optional[str] = None
    ids: t.Optional[Sequence[str]] = None

    def check(self) -> None:
        """Raise L(InvalidArgument) for what is no time, and for ids together with a condition."""
        others = [name for name in ("since", "until", "host", "domain") if getattr(self, name) is not None]
        if self.ids is not None and others:
            raise InvalidArgument(f"ids is given together with {' and '.join(others)}.", "Give either. No report was written.")
        check_wanted(_TERMS, self.wanted)

    @property
    def wanted(self) -> Wanted:
        """The conditions, as readers of the ledger take them."""
        return Wanted(since=self.since, until=self.until, host=self.host, domain=self.domain)


@dataclass(frozen=True)
class Found:
    """What the ledger says: records in the order in which they were opened; hosts and domains without definitions."""

    records: Sequence[Body] = ()
    unsettled: Sequence[Body] = ()
    hosts: Sequence[Body] = ()
    domains: Sequence[Body] = ()
    drains: Mapping[str, Body] = field(default_factory=dict)


def gather(ledger: t.Optional[Ledger], scope: Scope, drains: t.Optional[Mapping[str, t.Any]] = None) -> Found:
    """Return what the report is about; nothing where there is no ledger yet. Raises L(NotFound) for an id that the ledger does not have."""
    told = {str(host): _drain(str(host), result) for host, result in (drains or {}).items()}
    if ledger is None:
        return Found(drains=told)
    hosts = read(ledger, "hosts", Wanted(host=scope.host))
    if scope.host is not None:
        told = {host: told[host] for host in (scope.host, *(entry["name"] for entry in hosts)) if host in told}
    records = [ledger.get(record_id).record for record_id in dict.fromkeys(scope.ids)] if scope.ids is not None else _selected(ledger, scope.wanted)
    return Found(
        records=sorted(records, key=lambda record: (record["created_at"], record["id"])),
        unsettled=list(ledger.records(unsettled_only=True)),
        hosts=hosts,
        domains=read(ledger, "domains", Wanted()),
        drains=told,
    )


def _drain(host: str, result: t.Any) -> Body:
    """Return what a drain says of a host. Raises L(InvalidArgument) for what no drain says."""
    where = f"drain_host_result.{host}"
    if not isinstance(result, Mapping):
        raise InvalidArgument(f"'{where}' must be a dictionary.", "Give drain_host_result as the role returned it. No report was written.")
    if not isinstance(result.get("blockers") or [], (list, tuple)):
        raise InvalidArgument(f"'{where}.blockers' must be a list.", "Give drain_host_result as the role returned it. No report was written.")
    return dict(result)


def _selected(ledger: Ledger, wanted: Wanted) -> list[Body]:
    return [record for term in _TERMS for record in read(ledger, term, wanted)]
