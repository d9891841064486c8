# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The dead host, the domains that may be on it according to the ledger, and whether their documents are usable: they may have been edited."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, SavedDisk, SavedFile

from .._ledger.documents import Document, DomainEntry, HostEntry
from .._ledger.host_decisions import check_not_granted
from .._ledger.ledger import Ledger
from .._ledger.rules import canonical_name, map_holders
from .._ledger.unreadable_hosts import UnreadableHost, make_missing_error

_SAVED_STATES = (domain_states.RUNNING, domain_states.PAUSED, domain_states.SHUTOFF)


def _is_list_of(kind: type[SavedDisk | SavedFile], documents: Maybe[tuple[JsonObject, ...]]) -> bool:
    try:
        return isinstance(documents, tuple) and all(decode(kind, one) for one in documents)
    except ShapeError:
        return False


def _has_request(saved: DomainProtection) -> bool:
    return bool(saved.request is not None and saved.request is not ABSENT and isinstance(saved.request.get("disks", []), list))


# A value that is not of its type counts as missing, and is in C(extra).
_SAVED_FIELDS: Mapping[str, Callable[[DomainProtection], bool]] = {
    "definition": lambda saved: bool(saved.definition),
    "persistent": lambda saved: isinstance(saved.persistent, bool),
    "autostart": lambda saved: isinstance(saved.autostart, bool),
    "state": lambda saved: saved.state in _SAVED_STATES,
    "request": _has_request,
    "disks": lambda saved: _is_list_of(SavedDisk, saved.disks),
    "host": lambda saved: bool(saved.host and saved.host.host_id is not None),
    "tpm": lambda saved: "tpm" not in saved.extra,
    # A document that an older release has saved has no files.
    "files": lambda saved: "files" not in saved.extra and _is_list_of(SavedFile, saved.files or ()),
}


def has_saved_disks(entry: DomainEntry) -> bool:
    """Whether a protected domain's document has its request and its disks."""
    saved = entry.saved
    return saved is not None and all(_SAVED_FIELDS[key](saved) for key in ("request", "disks"))


def check_saved_values(entry: DomainEntry) -> None:
    """Raise L(InvalidState) if the domain was never protected, or if a value that was saved of it is invalid."""
    saved, name = entry.saved, f"The ledger's document of domain {entry.name} ({entry.uuid})"
    if saved is None:
        raise InvalidState(f"{name} has no readable saved definition.", "It was not started. Protect its host again when it is back.")
    wrong = [key for key, is_valid in _SAVED_FIELDS.items() if not is_valid(saved)]
    if wrong:
        raise InvalidState(f"{name} is damaged: the saved {', '.join(wrong)} is invalid.", "It was not started. Protect its host again.")


@dataclass(frozen=True)
class Source:
    """A dead host, as its entry in the ledger has it."""

    entry: HostEntry

    @property
    def name(self) -> str:
        """Its inventory name."""
        return self.entry.name

    @property
    def host_id(self) -> str:
        """Its own ID."""
        return str(self.entry.host_id)

    @property
    def host_ref(self) -> HostRef:
        """The host, as records name it."""
        return self.entry.host_ref

    @property
    def is_held_at_boot(self) -> bool:
        """Whether it starts no guests automatically when it returns."""
        return bool(self.entry.protected and self.entry.protected.guard and self.entry.protected.guard.held_at_boot)


def resolve_source(entries: Iterable[HostEntry], wanted: str, unreadable: Iterable[UnreadableHost] = ()) -> Source:
    """Return the one host that has this name or host ID.

    :arg unreadable: the hosts whose document cannot be read.
    Raises L(NotFound), L(Conflict) if several have it, L(InvalidState) for one without an ID.
    """
    found = [entry for entry in entries if wanted in (entry.name, entry.host_id)]
    if not found:
        raise make_missing_error(unreadable, wanted, "A host gets its entry when it is protected. Nothing was started.")
    if len(found) > 1:
        keys = ", ".join(f"{entry.name} ({entry.host_id})" for entry in found)
        raise Conflict(f"The ledger has several hosts for {wanted!r}: {keys}.", "Specify the host by its host_id. Nothing was started.")
    (entry,) = found
    if not entry.host_id:
        raise InvalidState(
            f"The host {wanted} has no host_id in the ledger: it was never protected.", "Start its domains by hand once it is off. Nothing was started."
        )
    return Source(entry)


def check_still_not_granted(ledger: Ledger, name: str, host_id: str) -> None:
    """Raise L(Unsafe) if the host has a clean-shutdown token by now: it may have left it before it was switched off."""
    found = ledger.read_host(host_id)
    if found is None:
        raise Conflict(f"The ledger has no entry for {name} any more. Nothing was started.", "Run the task again.")
    check_not_granted(found.host)


@dataclass(frozen=True)
class Candidate:
    """A domain that may be on the dead host: its document, and the unsettled record that holds it, if any."""

    document: Document
    record: t.Optional[MoveRecord]

    @property
    def entry(self) -> DomainEntry:
        """The domain's entry."""
        return self.document.domain

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.entry.uuid

    @property
    def possible_hosts(self) -> list[HostRef]:
        """All hosts that it may be on, by its document and its record."""
        found: list[HostRef] = []
        for host in [*self.entry.possible_hosts, *(self.record.ends if self.record else ())]:
            if host.is_known and not any(host.is_same(other) for other in found):
                found.append(host)
        return found


def list_candidates(ledger: Ledger, source: HostRef) -> list[Candidate]:
    """Return the domains that may be on the source, by name."""
    # Documents first: the lock on the domain brings records that are opened later into the decision.
    documents = ledger.list_domains()
    held = map_holders(ledger.list_records(unsettled_only=True))
    found = [Candidate(document, held.get(document.domain.uuid)) for document in documents]
    return [one for one in found if any(host.may_be(source) for host in one.possible_hosts)]


def find_named(found: Sequence[Candidate], wanted: str, source: HostRef) -> t.Optional[Candidate]:
    """Return the candidate that has this name or UUID, None if there is none. Raises L(Conflict) for a name that several have."""
    named = [one for one in found if wanted in (one.uuid, one.entry.name)]
    # A guest that was made again under the name of a deleted one is meant.
    named = [one for one in named if not one.entry.is_missing] or named
    if len(named) > 1:
        uuids = ", ".join(one.uuid for one in named)
        raise Conflict(f"Several domains that may be on {source.label} are named {wanted!r}: {uuids}.", "Specify the domain by its UUID. Nothing was changed.")
    return named[0] if named else None


def select_candidates(
    found: Sequence[Candidate], wanted: t.Optional[Sequence[str]], ledger: Ledger, source: Source
) -> tuple[list[Candidate], list[MoveRecord]]:
    """Return the requested candidates (names or UUIDs; None: all that are not missing), and the tombstones of those that were evacuated before.

    Raises L(NotFound) for a domain that cannot be on the host, L(Conflict) for a name that several have.
    """
    if wanted is None:
        return [one for one in found if one.record or not one.entry.is_missing], []
    if not wanted:
        raise InvalidArgument("domains is an empty list.", "Name domains, or leave it out for all that may be there. Nothing was started.")
    tombstones = [record for record in ledger.list_records(types=[s.EVACUATION], statuses=[s.DONE]) if record.source.is_same(source.host_ref)]
    chosen: dict[str, Candidate] = {}
    done: dict[str, MoveRecord] = {}
    for name in map(canonical_name, wanted):
        candidate = find_named(found, name, source.host_ref)
        if candidate:
            chosen[candidate.uuid] = candidate
            continue
        before = sorted((one for one in tombstones if name in (one.domain.uuid, one.domain.name)), key=lambda one: one.generation)
        if not before:
            raise NotFound(f"According to the ledger, no domain {name!r} may be on {source.name}.", "Check both names. Nothing was started.")
        done[before[-1].domain.uuid] = before[-1]
    return list(chosen.values()), list(done.values())


def age_seconds(at: t.Optional[str]) -> t.Optional[int]:
    """Return how long ago that was; null for never, and for an invalid time."""
    try:
        then = datetime.datetime.fromisoformat(at) if at else None
        return max(0, int((datetime.datetime.now(datetime.UTC) - then).total_seconds())) if then else None
    except (TypeError, ValueError):
        return None
