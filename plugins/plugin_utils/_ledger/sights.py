# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What hosts see of each other's storage, and when they were protected: in documents beside their entries, so that an entry stays small.

Entries of version 0.1.0 have their sights inside. These are valid until the next C(protect) has written the documents, and then the entry without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe

from .documents import HostEntry, HostProtection
from .host_parts import HostSights, ProtectTime
from .ledger import Ledger
from .protection import is_ahead
from .rules import SIGHTS, sights_path

Sights = Mapping[str, JsonObject]


def list_sights_of(ledger: Ledger | None, entries: Iterable[HostEntry], host_id: str | None) -> Sights:
    """Return, by ID of every other host, the tokens and devices of this host that it sees.

    :arg entries: of all hosts, read before this call.
    """
    return list_dated_sights_of(ledger, entries, host_id)[0]


def list_dated_sights_of(ledger: Ledger | None, entries: Iterable[HostEntry], host_id: str | None) -> tuple[Sights, dict[str, str]]:
    """Return what L(list_sights_of) returns, and in which boot each host that says so has seen it. Both are of one reading: C(protect) may write meanwhile."""
    if ledger is None or not host_id:
        return {}, {}
    kept = ledger.list_sights_of(host_id)
    others = [entry for entry in entries if entry.host_id and entry.host_id != host_id]
    found = {str(entry.host_id): entry if entry.sees is not ABSENT else kept.get(str(entry.host_id)) for entry in others}
    boots = {other: sights.boot_id for other, sights in found.items() if isinstance(sights, HostSights) and sights.boot_id}
    return {other: sights.seen_of(host_id) if sights else {} for other, sights in found.items()}, boots


def read_own_sights(ledger: Ledger, entry: HostEntry) -> Sights:
    """Return, by ID of every other host, the tokens and devices that this host sees; empty ones are omitted."""
    found = ledger.read_sights(str(entry.host_id)) if entry.sees is ABSENT else {other: entry.seen_of(other) for other in entry.sees or {}}
    return {other: seen for other, seen in found.items() if seen}


def write_sights(ledger: Ledger, host_id: str, sees: Sights, boot_id: Maybe[str] = ABSENT) -> None:
    """Write what a host sees, as far as it has changed: a document for each first digit of the IDs of the hosts that it sees, or has seen.

    :arg boot_id: the boot in which it sees that; the documents of another one are written again.
    """
    now = _group_by_digit(host_id, sees)
    found, boots = ledger.read_dated_sights(host_id)
    before = _group_by_digit(host_id, {other: seen for other, seen in found.items() if seen})
    has_booted = bool(boots - {boot_id or None})
    for digit in sorted({*now, *before}):
        if has_booted or now.get(digit) != before.get(digit):
            ledger.put_sights(HostSights(host_id, now.get(digit, {}), boot_id or ABSENT), digit)


def _group_by_digit(host_id: str, sees: Sights) -> dict[str, dict[str, JsonObject]]:
    groups: dict[str, dict[str, JsonObject]] = {}
    for other, seen in sees.items():
        groups.setdefault(sights_path(host_id, other)[len(SIGHTS)], {})[other] = seen
    return groups


def with_protect_times(ledger: Ledger, entries: Iterable[HostEntry]) -> list[HostEntry]:
    """Return the entries with the time at which their hosts were protected last, and by whom."""
    times = ledger.list_protect_times()
    return [with_time(entry, times.get(str(entry.host_key))) for entry in entries]


def with_time(entry: HostEntry, protect: ProtectTime | None) -> HostEntry:
    """Return the entry with the later time: another version may have written the one in the entry. A time in the future is replaced by any other one."""
    written = (entry.protected and entry.protected.at) or ""
    if protect is None or _believed(protect.at) < _believed(written):
        return entry
    return replace(entry, protected=replace(entry.protected or HostProtection(), at=protect.at, by=protect.by))


def _believed(at: str) -> str:
    return "" if is_ahead(at) else at
