# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether all that a ledger keeps can be read; nothing is changed or set aside by looking."""

from __future__ import annotations

import typing as t

from .contents import DOCUMENTS, Contents, Entry
from .encoding import Damaged, Newer, decode
from .layout import check_document, is_place

# So many are told in a sentence.
_TOLD = 5


class Problems(t.NamedTuple):
    """Sentences on what is wrong, each naming the file or the key, and what to do.

    :arg documents: what cannot be read, or not be found.
    :arg audit: lines that are changed or missing.
    """

    documents: tuple[str, ...]
    audit: tuple[str, ...]

    @property
    def all(self) -> list[str]:
        """All of them, in order."""
        return [*self.documents, *self.audit]


def problems_of(contents: Contents) -> Problems:
    """Return all that is wrong with a ledger."""
    found = (_problem(contents, entry) for folder in DOCUMENTS for entry in contents.entries(folder))
    return Problems((*(problem for problem in found if problem), *contents.index_problems()), tuple(contents.audit_problems()))


def _problem(contents: Contents, entry: Entry) -> t.Optional[str]:
    where = contents.where(entry.place)
    if not is_place(entry.place):
        return f"{where} is no document of a ledger: its name is not a UUID. Remove it."
    try:
        check_document(entry.place, decode(entry.data).body)
    except Newer as error:
        return f"{where} cannot be read: {error}. Update the collection on this control node."
    except Damaged as error:
        return f"{where} cannot be read: {error}. Restore it from a backup; else the next task that needs it sets it aside, and goes on without it."
    return None


def told(problems: t.Sequence[str]) -> str:
    """Return the first of them as one text, and how many more there are."""
    more = f" And {len(problems) - _TOLD} more." if len(problems) > _TOLD else ""
    return f"{' '.join(problems[:_TOLD])}{more}"
