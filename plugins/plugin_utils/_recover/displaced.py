# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The domains that a drain or an evacuation took off their host: to which host each belongs, and which of them are back."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.documents import DomainEntry, HostEntry
from .._ledger.host_entries import displacing_since, list_entries
from .._ledger.ledger import Ledger
from .._ledger.retries import retry_write


@dataclass(frozen=True)
class Home:
    """C(host) is the entry of the host to which a domain belongs; C(record) is the oldest move from that host, null if the document has the origin."""

    host: HostEntry
    record: t.Optional[MoveRecord]


@dataclass(frozen=True)
class DisplacedDomain:
    """A domain that was displaced from its host.

    :arg since: when its oldest move from the host was accepted.
    :arg possible_hosts: the names of the hosts that it may be on, according to the ledger.
    :arg remembered: whether the ledger has its definition.
    """

    uuid: str
    name: t.Optional[str]
    since: Maybe[str] = ABSENT
    possible_hosts: Maybe[tuple[t.Optional[str], ...]] = ABSENT
    remembered: Maybe[bool] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class DisplacedDomains:
    """The displaced domains of one host, those that are back, and whether the ledger was or would be changed."""

    changed: bool
    displaced: tuple[DisplacedDomain, ...]
    returned: tuple[DisplacedDomain, ...]


def keep_origins(ledger: Ledger, host: HostEntry, write: bool) -> DisplacedDomains:
    """Write the origin of each domain that was displaced from the host, and remove that of those that are back.

    An origin is kept with what C(protect) has saved of a domain; one that was never protected is only reported.
    Raises L(Conflict) if other processes keep changing a document.
    """
    domains = {document.domain.uuid: document.domain for document in ledger.list_domains()}
    records = _read_records(ledger)
    known = find_homes(list_entries(ledger), domains.values(), records)
    mine = {uuid: home for uuid, home in known.items() if home.host.host_ref.is_same(host.host_ref)}
    back = {uuid for uuid in mine if uuid in domains and domains[uuid].is_only_on(host.host_ref)}
    newest = {record.domain.uuid.lower(): record.created_at for record in sorted(records, key=lambda one: one.created_at)}
    notes = {uuid: _describe_return(newest.get(uuid)) if uuid in back else {"origin": host.name} for uuid in mine}
    changes = [retry_write(functools.partial(_write_notes, ledger, uuid, noted, write)) for uuid, noted in notes.items()]
    found = sorted((_describe_displaced(uuid, home, domains.get(uuid)) for uuid, home in mine.items()), key=lambda one: (str(one.name), one.uuid))
    return DisplacedDomains(any(changes), tuple(one for one in found if one.uuid not in back), tuple(one for one in found if one.uuid in back))


def _read_records(ledger: Ledger) -> list[MoveRecord]:
    found = {record.id: record for record in ledger.list_records(types=[s.EVACUATION], statuses=[s.DONE])}
    begin = displacing_since(list_entries(ledger))
    if begin:
        found |= {record.id: record for record in ledger.list_records(statuses=[s.COMPLETED, s.DONE], since=begin)}
    return list(found.values())


def find_homes(hosts: Sequence[HostEntry], domains: Iterable[DomainEntry], records: Iterable[MoveRecord]) -> dict[str, Home]:
    """Return the home of each displaced domain by UUID, also of those that are back.

    :arg hosts: all entries of the ledger.
    :arg domains: all domains of the ledger. An origin that is saved with a domain is older than any given record.
    :arg records: moves and evacuations that put their domain elsewhere. Those from before the domain was back at its home have displaced it from no other host.
    """
    domains = list(domains)
    returned = {domain.uuid: at for domain in domains if (at := (domain.protected or {}).get("returned"))}
    found: dict[str, Home] = {}
    for record in sorted(records, key=lambda one: one.created_at):
        if record.created_at <= str(returned.get(record.domain.uuid.lower(), "")):
            continue
        source = next((host for host in hosts if host.host_ref.is_same(record.source)), None)
        if source is not None and _has_displaced(record, source):
            found.setdefault(record.domain.uuid.lower(), Home(source, record))
    for domain in domains:
        origin = (domain.protected or {}).get("origin")
        source = next((host for host in hosts if host.name == origin), None) if origin else None
        if source is not None:
            found[domain.uuid] = Home(source, None)
    return found


def _has_displaced(record: MoveRecord, source: HostEntry) -> bool:
    """Whether the record moved its domain away from a host that was in maintenance or dead; a move from an enabled host does not count."""
    if record.type == s.EVACUATION and record.status == s.DONE:
        return True
    return bool(source.state != s.ENABLED and source.since and record.created_at >= source.since and record.status in (s.COMPLETED, s.DONE))


def _describe_return(newest: t.Optional[str]) -> JsonObject:
    return {"origin": None, **({"returned": newest} if newest else {})}


def _write_notes(ledger: Ledger, uuid: str, noted: JsonObject, write: bool) -> bool:
    """Write these values into what is saved of the domain. Return whether it had others."""
    found = ledger.read_domain(uuid)
    protected = (found.domain.protected or None) if found else None
    if found is None or protected is None or all(protected.get(key) == value for key, value in noted.items()):
        return False
    if write:
        ledger.put_domain(replace(found.domain, protected={**protected, **noted}), found.version)
    return True


def _describe_displaced(uuid: str, home: Home, domain: t.Optional[DomainEntry]) -> DisplacedDomain:
    record = home.record
    return DisplacedDomain(
        uuid=uuid,
        name=domain.name if domain else record.domain.name if record else None,
        since=record.created_at if record else None,
        possible_hosts=tuple(host.host for host in domain.possible_hosts) if domain else (),
        remembered=bool(domain and domain.protected),
    )
