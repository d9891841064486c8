# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where a ledger's documents lie, whatever keeps it: the same names are files of a folder and keys of an etcd prefix."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import check_record

from .encoding import Damaged
from .keys import is_uuid
from .screen import Screen
from .shape import wrong_key
from .store import Body

Place = tuple[str, ...]

OPEN = ("migrations", "open")
CLOSED = ("migrations", "closed")
DOMAINS = ("domains",)
HOSTS = ("hosts",)
SET_ASIDE = ("set_aside",)

_PLACE = re.compile(r"(migrations/open|migrations/closed/[0-9]{4}/[0-9]{2}|domains|hosts)/[0-9a-f-]{36}\.json")
_ID_KEYS = {"migrations": "id", "domains": "uuid", "hosts": "host_key"}


def place_of(folder: Sequence[str], key: str) -> Place:
    """Return where the document of that (checked) key lies below the ledger."""
    return (*folder, f"{key}.json")


def is_place(parts: Sequence[str]) -> bool:
    """Whether documents lie there."""
    path = "/".join(parts)
    return _PLACE.fullmatch(path) is not None and path.split("/") == list(parts)


def closed_place(record: Body) -> Place:
    """Return where a closed record lies: in the month in which it was closed."""
    return place_of((*CLOSED, record["updated_at"][:4], record["updated_at"][5:7]), record["id"].lower())


def key_of(place: Place) -> str:
    """Return the key of the document there."""
    return place[-1].removesuffix(".json")


def name_aside(place: Place, moment: int) -> str:
    """Return the name under which a document from there is set aside."""
    return f"{place[0]}-{key_of(place)}-{moment}.json"


def may_pass(place: Place, text: bytes, screen: Screen) -> bool:
    """Whether the screen lets the document's canonical text through, or it may be another document than its name says."""
    return screen.passes(text) or key_of(place).encode() not in text.lower()


def check_document(place: Place, body: Body) -> None:
    """Raise L(Damaged) unless that document can lie there."""
    key = key_of(place)
    if not is_uuid(key):
        raise Damaged("its name is not a UUID")
    if str(body.get(_ID_KEYS[place[0]])).lower() != key:
        raise Damaged("it is another document than its name says")
    if place[0] != "migrations":
        wrong = wrong_key(place[0], body)
        if wrong:
            raise Damaged(f"its {wrong} is missing or cannot be what it stands for")
        return
    try:
        check_record(body)
    except Internal as error:
        raise Damaged(error.message) from error
