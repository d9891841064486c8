# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which host is to be evacuated, and which domains may be on it by the ledger."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import may_be_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

from .._hosts.decisions import check_not_granted
from .._ledger.places import same_host
from .._ledger.rules import holds_domain
from .._ledger.store import Body, Ledger
from .shape import has_places


@dataclass(frozen=True)
class Source:
    """A dead host, as its one entry in the ledger has it."""

    entry: Body

    @property
    def name(self) -> str:
        """Its inventory name."""
        return str(self.entry["name"])

    @property
    def host_id(self) -> str:
        """Its own ID."""
        return str(self.entry["host_id"])

    @property
    def place(self) -> Body:
        """The host as an end of records."""
        return place(self.name, self.host_id, self.entry.get("host_uuid"))

    @property
    def is_held_at_boot(self) -> bool:
        """Whether it starts nothing by itself when it returns."""
        return bool(((self.entry.get("protected") or {}).get("guard") or {}).get("held_at_boot"))


def resolve(entries: Iterable[Body], wanted: str) -> Source:
    """Return the one host that has this name or host ID.

    Raises L(NotFound), L(Conflict) where several have it, L(InvalidState) for one without an ID, L(Unsafe) for one that may release itself.
    """
    found = [entry for entry in entries if wanted in (entry.get("name"), entry.get("host_id"))]
    if not found:
        raise NotFound(f"The ledger has no host {wanted!r}.", "A host gets its entry when it is protected. Nothing was started.")
    if len(found) > 1:
        keys = ", ".join(f"{entry['name']} ({entry.get('host_id')})" for entry in found)
        raise Conflict(f"The ledger has several hosts for {wanted!r}: {keys}.", "Name the one that is meant by its host_id. Nothing was started.")
    (entry,) = found
    if not entry.get("host_id"):
        raise InvalidState(f"The host {wanted} has no host_id in the ledger: it was never protected.", "Nothing was started.")
    check_not_granted(entry)
    return Source(entry)


def check_still_not_granted(ledger: Ledger, source: Source) -> None:
    """Raise L(Unsafe) where the host was granted a clean-shutdown token since L(resolve): it may have left one before it was switched off."""
    found = ledger.host(source.host_id)
    if found is None:
        raise Conflict(f"The ledger has no entry of {source.name} any more. Nothing was started.", "Run the task again.")
    check_not_granted(found.body)


@dataclass(frozen=True)
class Candidate:
    """A domain that may be on the dead host: its document, and the unsettled record that holds it, if any."""

    document: Body
    record: t.Optional[Body]

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return str(self.document["uuid"])

    @property
    def places(self) -> list[Body]:
        """All hosts that it may be on, by its document and its record."""
        ends = [self.record["source"], self.record["destination"]] if self.record else []
        found: list[Body] = []
        saved = self.document["possible_hosts"] if has_places(self.document) else []
        for end in [*saved, *ends]:
            if not any(same_host(end, other) for other in found):
                found.append(end)
        return found


def candidates(ledger: Ledger, source: Source) -> list[Candidate]:
    """Return the domains that may be on the source, by name."""
    # Documents first: a record that is opened after that finds its way into the decision by the lock on the domain.
    documents = ledger.domains()
    held = {str(record["domain"]["uuid"]).lower(): record for record in ledger.records(unsettled_only=True) if holds_domain(record)}
    found = [Candidate(document.body, held.get(document.body["uuid"])) for document in documents]
    # Of a document that does not say where its domain may be, it may be there.
    return [one for one in found if not has_places(one.document) or any(may_be_host(end, source.place) for end in one.places)]


def select(found: Sequence[Candidate], wanted: t.Optional[Sequence[str]], ledger: Ledger, source: Source) -> tuple[list[Candidate], list[Body]]:
    """Return the candidates that are wanted (names or UUIDs; None: all), and the tombstones of those that were evacuated before.

    Raises L(NotFound) for what may not be there at all, L(Conflict) for a name that several have.
    """
    if wanted is None:
        return list(found), []
    if not wanted:
        raise InvalidArgument("domains is an empty list.", "Name domains, or leave it out for all that may be there. Nothing was started.")
    tombstones = [record for record in ledger.records(types=[s.EVACUATION], statuses=[s.DONE]) if same_host(record["source"], source.place)]
    chosen: dict[str, Candidate] = {}
    done: dict[str, Body] = {}
    for name in wanted:
        named = [one for one in found if name in (one.uuid, one.document["name"])]
        if len(named) > 1:
            uuids = ", ".join(one.uuid for one in named)
            raise Conflict(f"Several domains that may be on {source.name} are named {name!r}: {uuids}.", "Name the one that is meant by its UUID.")
        if named:
            chosen[named[0].uuid] = named[0]
            continue
        before = sorted((one for one in tombstones if name in _names(one)), key=lambda one: str(one["updated_at"]))
        if not before:
            raise NotFound(f"By the ledger no domain {name!r} may be on {source.name}.", "Nothing was started.")
        done[before[-1]["domain"]["uuid"]] = before[-1]
    return list(chosen.values()), list(done.values())


def _names(record: Mapping[str, t.Any]) -> tuple[str, t.Optional[str]]:
    return str(record["domain"]["uuid"]), record["domain"].get("name")
