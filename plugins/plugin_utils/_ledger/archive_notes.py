# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notes in the settings of a ledger on where its archives are.

An archive that is not what its note says is not continued. Lists and reports that may lack archived records say so.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState

from .contents import list_archives
from .documents import LedgerSettings
from .identity import LedgerIdentity
from .ledger import Ledger
from .override import decided_settings


def check_noted(ledger: Ledger, to: str, archive: t.Optional[LedgerIdentity]) -> None:
    """Raise L(InvalidState) if the archive is not there, or is older, although the ledger has a note on it, or if the notes were damaged.

    :arg to: the folder of the archive.
    :arg archive: its identity; None for a folder that is missing or empty.
    """
    settings, _version = _read_settings(ledger)
    note = next((one for one in settings.archives or () if _is_on(one, archive, to)), None)
    if archive is None and note is not None:
        raise InvalidState(
            f"{to} is missing or empty, but records were archived there at {note.get('at')}: its disk may not be mounted. Nothing was archived.",
            "Mount that disk, or restore the archive from a backup. If it is lost, or on another control node, name another folder with 'to'.",
        )
    noted = note.get("version") if note else None
    if archive and note and isinstance(noted, int) and archive.version < noted:
        raise InvalidState(
            f"{to} is an old copy of the archive, and lacks what was archived since. Its last run was at {note.get('at')}. Nothing was archived.",
            "Restore the archive from its newest backup, or name a new folder with 'to'.",
        )


def note_archive(ledger: Ledger, to: str, archive: LedgerIdentity, by: str) -> None:
    """Keep in the settings of the ledger where the archive is.

    :arg by: who archives, as records name it.
    """
    settings, version = _read_settings(ledger)
    others = [one for one in settings.archives or () if not _is_on(one, archive, to)]
    until = archive.content.archive.until if archive.content.archive else None
    note: JsonObject = {"id": archive.archive_id, "to": to, "until": until, "at": utc_now(), "by": by, "version": archive.version}
    ledger.put_settings(replace(settings, archives=(*others, note)), version)


def describe_archived(ledger: Ledger, since: t.Optional[str]) -> t.Optional[str]:
    """Return a sentence if records from that time on may be in archives; None otherwise.

    :arg since: in the form of records; None for all records.
    """
    notes = ledger.examine_contents(list_archives)
    newest = max((str(note.get("until")) for note in notes), default=None)
    if newest is None or (since is not None and since >= newest):
        return None
    paths = ", ".join(sorted({str(note.get("to")) for note in notes}))
    return f"Records from before {newest} may be in an archive, which is not read here: {paths}. Set 'ledger' to an archive to read it."


def _read_settings(ledger: Ledger) -> tuple[LedgerSettings, t.Optional[int]]:
    """Return the settings and their version; None if there are none yet. Raises L(InvalidState) if they were damaged."""
    found = ledger.read_settings()
    if found is None and ledger.has_damaged_settings():
        raise InvalidState(
            f"The settings of the ledger {ledger.name}, which say where its archives are, were damaged and set aside. Nothing was archived.",
            f"Restore settings/{ledger.ledger_id}.json from a backup. Otherwise decide again with kvmfleet.migration.ledger_settings: from then on, an archive "
            "is listed with its next run.",
        )
    return decided_settings(ledger, found), found.version if found else None


def _is_on(note: JsonObject, archive: t.Optional[LedgerIdentity], to: str) -> bool:
    """Whether the note is on that archive: two control nodes can have archives at the same path. Earlier notes and archives have no ID."""
    if archive and archive.archive_id and note.get("id"):
        return note["id"] == archive.archive_id
    return note.get("to") == to
