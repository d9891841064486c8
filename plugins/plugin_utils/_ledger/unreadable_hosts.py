# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Hosts whose document was damaged and set aside, or was written by a later version. Their state is not known, so none of them counts as enabled."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .documents import Document, HostEntry
from .rules import HOSTS, DocumentPath, document_key, is_uuid

STATE_UNKNOWN: t.Final = "unknown"
_SET_ASIDE = re.compile(r"hosts-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-.*")
# The maximum number of hosts that a sentence names.
_MAX_NAMED = 5
_STATE_IT = "run kvmfleet.migration.host there with state and reason"


@dataclass(frozen=True)
class UnreadableHost:
    """A host that has a document in the ledger which cannot be read.

    :arg host_key: the key of the document: its host ID, or libvirt's UUID if no host ID was known.
    :arg newer: the content of a document of a later version; None for a damaged one.
    """

    host_key: str
    newer: t.Optional[JsonObject] = None

    @property
    def stand_in(self) -> HostEntry:
        """An entry by which the host is judged. The ledger refuses to write it."""
        return HostEntry("", self.host_key, None, STATE_UNKNOWN, reason=self._why)

    @property
    def problem(self) -> str:
        """What is wrong, and what to do, for a person."""
        return f"The state of the host {self.host_key} is not known, so it gets no guests: {self._why}."

    @property
    def why_not_asked(self) -> str:
        """Why no host that answers is known to be this one, and what to do, for a person."""
        what = f"No host that answers has this ID, and the ledger has no readable address of it: hosts/{self.host_key}.json"
        if self.newer is not None:
            return f"{what} was written by a later version. Update the collection on this control node."
        return f"{what} was damaged and set aside. Restore hosts/{self.host_key}.json; if the host no longer exists, remove that document from set_aside."

    @property
    def _why(self) -> str:
        if self.newer is not None:
            return "its document in the ledger was written by a later version; update the collection on this control node"
        return f"its document was damaged and set aside; restore hosts/{self.host_key}.json, or find out the state of the host and {_STATE_IT}"

    def is_host(self, host: HostRef) -> bool:
        """Whether the document is certainly of that host."""
        return self.host_key in (host.host_id, host.host_uuid) or bool(self.newer and host.host and self.newer.get("name") == host.host)

    def may_be(self, host: HostRef) -> bool:
        """Whether the document can be of that host, for which no document was found: it is, or the host's own ID is not known."""
        return not host.host_id or self.is_host(host)


@dataclass(frozen=True)
class LedgerHosts:
    """All hosts of a ledger.

    :arg documents: those that can be read, by name.
    """

    documents: t.Sequence[Document] = ()
    unreadable: t.Sequence[UnreadableHost] = ()

    @property
    def entries(self) -> list[HostEntry]:
        """The entries that can be read, by name."""
        return [document.host for document in self.documents]

    @property
    def all_entries(self) -> list[HostEntry]:
        """These, and a stand-in for each of the others."""
        return [*self.entries, *(one.stand_in for one in self.unreadable)]


def make_hosts(documents: Iterable[Document], aside_names: Iterable[str], unreadable: Mapping[DocumentPath, t.Optional[JsonObject]]) -> LedgerHosts:
    """Return all hosts of a ledger.

    :arg aside_names: of documents that were set aside, at any time. A person, or a backup, may have replaced them since.
    :arg unreadable: the documents of any kind that could not be read now, with the content of those of a later version.
    """
    readable = sorted(documents, key=lambda document: document.host.name)
    known = {key for entry in (document.host for document in readable) for key in (entry.host_key, entry.host_id, entry.host_uuid)}
    damaged = {match[1] for match in map(_SET_ASIDE.fullmatch, aside_names) if match} - known
    now = {document_key(path): body for path, body in unreadable.items() if path[:-1] == HOSTS and is_uuid(document_key(path))}
    found = {**dict.fromkeys(damaged), **now}
    return LedgerHosts(readable, [UnreadableHost(key, found[key]) for key in sorted(found)])


def make_missing_error(unreadable: Iterable[UnreadableHost], wanted: str, next_step: str) -> NotFound:
    """Return the error for a host that has no entry: its document may be one of those that cannot be read.

    :arg wanted: the name or the ID of the host.
    :arg next_step: for a host that never had an entry.
    """
    damaged, certain = [one for one in unreadable if one.newer is None], [one for one in unreadable if one.is_host(HostRef(wanted, wanted, wanted))]
    found = certain or damaged
    if not found:
        return NotFound(f"The ledger has no host {wanted!r}.", next_step)
    problems = " ".join(one.problem for one in found[:_MAX_NAMED])
    if more := len(found[_MAX_NAMED:]):
        problems += f" Of {more} further {'host' if more == 1 else 'hosts'}, the document cannot be read either."
    return NotFound(
        f"The ledger has no host {wanted!r} whose document can be read. {problems}", f"If {wanted} has had an entry, its document comes first. {next_step}"
    )


def check_new_host(unreadable: Iterable[UnreadableHost], host: HostRef, is_stated: bool) -> bool:
    """Return whether the new entry of a host replaces a damaged document.

    Raises L(NotSupported) if the host has a document of a later version, and L(Conflict) if it has or may have a damaged one, unless a person has stated its
    state.
    """
    for one in unreadable:
        if one.is_host(host) and (one.newer is not None or not is_stated):
            raise _unreadable_error(one, host)
    if not is_stated and (possible := next((one for one in unreadable if one.may_be(host)), None)):
        raise Conflict(
            f"{host.label} reports no host ID, so it may be the host {possible.host_key}. {possible.problem} Nothing was changed.",
            f"If it is that host, write the ID into /var/lib/kvmfleet/host-id there. Otherwise {_STATE_IT}.",
        )
    return any(one.is_host(host) for one in unreadable)


def _unreadable_error(one: UnreadableHost, host: HostRef) -> KvmfleetError:
    if one.newer is not None:
        return NotSupported(
            f"The document of {host.label} (hosts/{one.host_key}.json) was written by a later version. Nothing was changed.",
            "Update the collection on this control node.",
        )
    return Conflict(
        f"The document of {host.label} (hosts/{one.host_key}.json) was damaged and set aside. The host may be fenced or in maintenance, and may hold a "
        "clean-shutdown token. Nothing was changed.",
        f"Restore that document from a backup. Otherwise find out which state the host is in, and {_STATE_IT}.",
    )
