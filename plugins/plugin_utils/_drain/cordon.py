# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The cordon: the status of a host in the ledger for the time of its drain, and giving back the one that it had."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED, FENCED, MAINTENANCE

from .._ledger.documents import HostEntry
from .._ledger.host_entries import HostIdentity, find_entry_by_name, make_entry, update_entry
from .._ledger.ledger import Ledger

CORDON_REASON = "It is being drained"


@dataclass(frozen=True)
class HostStatus:
    """State and reason of a host's entry in the ledger; a host without an entry is enabled."""

    state: str
    reason: t.Optional[str]

    @classmethod
    def from_entry(cls, entry: HostEntry | None) -> HostStatus:
        """Return the status in an entry."""
        return cls(entry.state, entry.reason or None) if entry else cls(ENABLED, None)

    def with_cordon(self, reason: str | None) -> HostStatus:
        """Return the status for the time of a drain: a fenced host stays fenced, and an existing reason stays if none is given."""
        closed = self.state in (MAINTENANCE, FENCED)
        return HostStatus(FENCED if self.state == FENCED else MAINTENANCE, reason or (None if closed else CORDON_REASON))


@dataclass(frozen=True)
class Cordon:
    """The cordon of a host for a drain.

    :arg before: the status that the host had.
    :arg after: the status that it has had since.
    :arg by: who had written the status last when it was cordoned; C(drained_by) is who has cordoned it.
    """

    before: HostStatus
    after: HostStatus
    by: t.Optional[str]
    drained_by: t.Optional[str]

    @classmethod
    def from_entries(cls, before: HostEntry | None, after: HostEntry) -> Cordon:
        """Return the cordon by which the entry became another one."""
        return cls(HostStatus.from_entry(before), HostStatus.from_entry(after), after.by or None, after.drained_by or None)

    def undo(self, entry: HostEntry, by: str) -> HostEntry:
        """Return the entry with the status of before; the same entry if somebody has changed it since the cordon, or if a person has discarded the host."""
        writers = (entry.by or None, entry.drained_by or None)
        is_own = HostStatus.from_entry(entry) == self.after and writers == (self.by, self.drained_by) and not entry.discarded
        if not is_own or self.before == self.after:
            return entry
        return make_entry(entry, HostIdentity(entry.name, None, None, None), self.before.state, self.before.reason or "", by)


def restore_hosts(ledger: Ledger, cordons: Mapping[str, Cordon], by: str) -> list[str]:
    """Restore the status that hosts had before they were cordoned. Return a sentence for each host that does not get it back.

    What others have written since then stays: a host that died during the drain, and was evacuated, is fenced.
    """
    return [note for name, cordon in cordons.items() if (note := _restore_host(ledger, name, cordon, by))]


def _restore_host(ledger: Ledger, name: str, cordon: Cordon, by: str) -> str:
    try:
        entry = update_entry(ledger, lambda: find_entry_by_name(ledger, name), lambda found: cordon.undo(t.cast(HostEntry, found), by))
    except KvmfleetError as error:
        return f"{name} may still be {cordon.after.state} in the ledger, and was {cordon.before.state} before this drain: {error.message}"
    status = HostStatus.from_entry(entry)
    if status == cordon.before:
        return ""
    reason = f" ({status.reason})" if status.reason else ""
    return f"{name} stays {status.state} in the ledger{reason}: {_name_changer(entry, cordon)} has changed its entry since this drain cordoned it."


def _name_changer(entry: HostEntry, cordon: Cordon) -> str:
    """Return who has changed the entry since the cordon."""
    is_drained_again = (entry.by or None) == cordon.by and not entry.discarded
    return (entry.drained_by if is_drained_again else entry.by) or "somebody"
