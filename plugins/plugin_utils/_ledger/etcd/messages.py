# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""etcd's requests and answers in the JSON of its gateway: bytes in base64, 64-bit numbers as texts, what is zero left out."""

from __future__ import annotations

import base64
import contextlib
import typing as t
from collections.abc import Iterator, Sequence

from .failures import Garbled

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


class Done(t.NamedTuple):
    """What a transaction did.

    :arg succeeded: whether all its comparisons held.
    :arg found: what each read of the branch that was taken found.
    :arg revision: after it.
    """

    succeeded: bool
    found: tuple[tuple[KeyValue, ...], ...]
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


def delete_all(prefix: str) -> Message:
    """Remove all keys that begin with the prefix, within a transaction."""
    return {"request_delete_range": {"key": coded(prefix), "range_end": coded(end_of(prefix))}}


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


def page_of(answer: Message, request: Message) -> Page:
    """Return what a range answered. Raises L(Garbled)."""
    with _checked():
        return Page(_found(answer, request), bool(answer.get("more")), int(request.get("revision", 0)) or _revision(answer))


def done_of(answer: Message, compares: Sequence[Message], done: Sequence[Message], otherwise: Sequence[Message]) -> Done:
    """Return what a transaction of these two branches answered. Raises L(Garbled)."""
    with _checked():
        succeeded = bool(answer.get("succeeded"))
        if not succeeded and not compares:
            raise ValueError("nothing was compared, and that failed")
        acts = list(zip(done if succeeded else otherwise, answer.get("responses", ()), strict=True))
        found = (_found(response["response_range"], act["request_range"]) for act, response in acts if "request_range" in act)
        return Done(succeeded, tuple(found), _revision(answer))


def lease_of(answer: Message) -> int:
    """Return the number of a lease that was granted. Raises L(Garbled)."""
    with _checked():
        return int(answer["ID"])


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Garbled("its answer is none of etcd's") from error


def _revision(answer: Message) -> int:
    return int(answer["header"]["revision"])


def _found(answer: Message, request: Message) -> tuple[KeyValue, ...]:
    """Return the keys that were found. Raises C(ValueError) for one that was not asked for."""
    start = base64.b64decode(request["key"])
    end = base64.b64decode(request["range_end"]) if "range_end" in request else start + b"\0"
    return tuple(_key_value(entry, start, end) for entry in answer.get("kvs", ()))


def _key_value(entry: Message, start: bytes, end: bytes) -> KeyValue:
    key, value = (base64.b64decode(entry.get(name, ""), validate=True) for name in ("key", "value"))
    if not start <= key < end:
        raise ValueError("a key that nobody asked for")
    return KeyValue(key.decode("utf-8"), value, int(entry.get("mod_revision", 0)), int(entry.get("create_revision", 0)))
