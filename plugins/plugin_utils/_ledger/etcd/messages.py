# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""etcd's requests and answers in the JSON of its gateway: bytes in base64, 64-bit numbers as texts, what is zero left out."""

from __future__ import annotations

import base64
import typing as t

Message = dict[str, t.Any]
Data = t.Union[str, bytes]


class KeyValue(t.NamedTuple):
    """:arg mod_revision: of the last write to the key; C(create_revision) of the first since it was there."""

    key: str
    value: bytes
    mod_revision: int
    create_revision: int


class Page(t.NamedTuple):
    """Keys of a range, and whether there are further ones after them.

    :arg revision: at which they were read.
    """

    found: tuple[KeyValue, ...]
    more: bool
    revision: int


def coded(data: Data) -> str:
    """Return bytes, or a text's, as the gateway takes them."""
    return base64.b64encode(data.encode("utf-8") if isinstance(data, str) else data).decode("ascii")


def end_of(prefix: str) -> str:
    """Return the first key after all that begin with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def one(key: str, revision: int = 0) -> Message:
    """Read a key; at a revision, where one is given."""
    return {"key": coded(key), "revision": str(revision)}


def many(start: str, end: str, revision: int = 0, limit: int = 0, keys_only: bool = False) -> Message:
    """Read the keys from C(start) to before C(end)."""
    return {"key": coded(start), "range_end": coded(end), "revision": str(revision), "limit": str(limit), "keys_only": keys_only}


def put(key: str, value: Data, lease: int = 0) -> Message:
    """Write a key, within a transaction; with a lease, it ends with it."""
    return {"request_put": {"key": coded(key), "value": coded(value), "lease": str(lease)}}


def delete(key: str) -> Message:
    """Remove a key, within a transaction."""
    return {"request_delete_range": {"key": coded(key)}}


def reading(request: Message) -> Message:
    """Read something, within a transaction."""
    return {"request_range": request}


def is_at(key: str, mod_revision: int) -> Message:
    """Compare: the key was last written then; 0 for: it is not there."""
    return {"key": coded(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(mod_revision)}


def is_from(key: str, create_revision: int) -> Message:
    """Compare: the key has been there since then; 0 for: it is not there."""
    return {"key": coded(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(create_revision)}


def has_value(key: str, value: Data) -> Message:
    """Compare: the key is there with that value."""
    return {"key": coded(key), "target": "VALUE", "result": "EQUAL", "value": coded(value)}


def is_unchanged(start: str, end: str, revision: int) -> Message:
    """Compare: no key of the range was written after that revision."""
    return {"key": coded(start), "range_end": coded(end), "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def is_empty(start: str, end: str) -> Message:
    """Compare: there is no key in the range."""
    return {"key": coded(start), "range_end": coded(end), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def revision_of(answer: Message) -> int:
    """Return the store's revision when it answered."""
    return int(answer["header"]["revision"])


def page_of(answer: Message, revision: int) -> Page:
    """Return what a range answered."""
    return Page(tuple(_key_value(entry) for entry in answer.get("kvs", ())), bool(answer.get("more")), revision)


def found_in(answer: Message) -> list[tuple[KeyValue, ...]]:
    """Return what the reads of a transaction found, read by read; its writes left out."""
    answers = (response.get("response_range") for response in answer.get("responses", ()))
    return [page_of(found, 0).found for found in answers if found is not None]


def _key_value(entry: Message) -> KeyValue:
    key, value = (base64.b64decode(entry.get(name, "")) for name in ("key", "value"))
    return KeyValue(key.decode("utf-8", "replace"), value, int(entry.get("mod_revision", 0)), int(entry.get("create_revision", 0)))
