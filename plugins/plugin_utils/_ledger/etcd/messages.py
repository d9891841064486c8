# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Requests to etcd and its answers in the JSON of its gateway, and their errors.

The gateway encodes bytes as base64 and 64-bit numbers as texts, and omits zeros.
"""

from __future__ import annotations

import base64
import contextlib
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject

# Numbers of gRPC's status codes (github.com/grpc/grpc/blob/master/doc/statuscodes.md), as etcd's gateway gives them.
CANCELLED = 1
UNKNOWN = 2
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PERMISSION_DENIED = 7
OUT_OF_RANGE = 11
INTERNAL = 13
UNAVAILABLE = 14


class Unanswered(Exception):
    """A member gave no valid answer; another one may, and the request may have been carried out.

    :arg lasting: whether it is useless to ask this member again.
    """

    def __init__(self, why: str, lasting: bool = False) -> None:
        super().__init__(why)
        self.lasting = lasting


class Garbled(Unanswered):
    """The answer is not one of etcd."""

    def __init__(self, why: str) -> None:
        super().__init__(why, lasting=True)


class Refused(Exception):
    """A refusal by etcd itself.

    :arg code: of gRPC.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Overtaken(Exception):
    """What was read is out of date: nothing was written. Read again and repeat the decision."""


Message = JsonObject
Data = t.Union[str, bytes]


class KeyValue(t.NamedTuple):
    """:arg mod_revision: of the last write to the key; C(create_revision) of its creation."""

    key: str
    value: bytes
    mod_revision: int
    create_revision: int


class Page(t.NamedTuple):
    """Keys of a range, and whether more keys follow.

    :arg revision: at which they were read.
    """

    found: tuple[KeyValue, ...]
    more: bool
    revision: int


class DatabaseSize(t.NamedTuple):
    """How much a member of etcd keeps, in bytes.

    :arg size: of its file, which is what counts for the quota; C(in_use) is what would be left after C(etcdctl defrag).
    :arg quota: null if the member does not report it, as before etcd 3.6.
    :arg is_full: whether the cluster refuses changes because the quota of a member was reached.
    """

    size: int
    in_use: int
    quota: t.Optional[int]
    is_full: bool


class TransactionResult(t.NamedTuple):
    """What a transaction did.

    :arg succeeded: whether all its comparisons held.
    :arg found: what each read of the branch that was taken found.
    :arg revision: after it.
    """

    succeeded: bool
    found: tuple[tuple[KeyValue, ...], ...]
    revision: int


def encode_bytes(data: Data) -> str:
    """Return bytes, or those of a text, in the gateway's encoding."""
    return base64.b64encode(data.encode("utf-8") if isinstance(data, str) else data).decode("ascii")


def range_end(prefix: str) -> str:
    """Return the first key after all that begin with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def key_read(key: str, revision: int = 0) -> Message:
    """Read a key; at a revision, if one is given."""
    return {"key": encode_bytes(key), "revision": str(revision)}


def range_read(start: str, end: str, revision: int = 0, limit: int = 0, keys_only: bool = False, written_since: int = 0) -> Message:
    """Read the keys from C(start) to before C(end).

    :arg written_since: only keys that were written at this revision or later.
    """
    bounds = {"key": encode_bytes(start), "range_end": encode_bytes(end), "revision": str(revision), "min_mod_revision": str(written_since)}
    return {**bounds, "limit": str(limit), "keys_only": keys_only}


def put_key(key: str, value: Data, lease: int = 0) -> Message:
    """Write a key, within a transaction; with a lease, it ends with it."""
    return {"request_put": {"key": encode_bytes(key), "value": encode_bytes(value), "lease": str(lease)}}


def delete_key(key: str) -> Message:
    """Remove a key, within a transaction."""
    return {"request_delete_range": {"key": encode_bytes(key)}}


def delete_prefix(prefix: str) -> Message:
    """Remove all keys that begin with the prefix, within a transaction."""
    return delete_range(prefix, range_end(prefix))


def delete_range(start: str, end: str) -> Message:
    """Remove the keys from C(start) to before C(end), within a transaction."""
    return {"request_delete_range": {"key": encode_bytes(start), "range_end": encode_bytes(end)}}


def nested_read(request: Message) -> Message:
    """Read something, within a transaction."""
    return {"request_range": request}


def is_at_revision(key: str, mod_revision: int) -> Message:
    """Compare: the key was last written at that revision; 0 if it does not exist."""
    return {"key": encode_bytes(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(mod_revision)}


def is_created_at(key: str, create_revision: int) -> Message:
    """Compare: the key was created at that revision; 0 if it does not exist."""
    return {"key": encode_bytes(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(create_revision)}


def has_value(key: str, value: Data) -> Message:
    """Compare: the key exists with that value."""
    return {"key": encode_bytes(key), "target": "VALUE", "result": "EQUAL", "value": encode_bytes(value)}


def is_unchanged(start: str, end: str, revision: int) -> Message:
    """Compare: no key of the range was written after that revision."""
    return {"key": encode_bytes(start), "range_end": encode_bytes(end), "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def is_empty(start: str, end: str) -> Message:
    """Compare: the range has no key."""
    return {"key": encode_bytes(start), "range_end": encode_bytes(end), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def parse_page(answer: Message, request: Message) -> Page:
    """Return the answer of a range. Raises L(Garbled)."""
    with _check_form():
        return Page(_parse_found(answer, request), bool(answer.get("more")), _parse_number(request.get("revision", 0)) or _parse_revision(answer))


def parse_result(answer: Message, compares: Sequence[Message], done: Sequence[Message], otherwise: Sequence[Message]) -> TransactionResult:
    """Return the answer of a transaction with these two branches. Raises L(Garbled)."""
    with _check_form():
        succeeded = bool(answer.get("succeeded"))
        if not succeeded and not compares:
            raise ValueError("nothing was compared, and that failed")
        acts = zip(done if succeeded else otherwise, _list_objects(answer, "responses"), strict=True)
        found = [_parse_found(_get_object(response, "response_range"), _get_object(act, "request_range")) for act, response in acts if "request_range" in act]
        return TransactionResult(succeeded, tuple(found), _parse_revision(answer))


def parse_lease(answer: Message) -> int:
    """Return the number of a lease that was granted. Raises L(Garbled)."""
    with _check_form():
        return _parse_number(answer["ID"])


def parse_renewal(answer: Message) -> int:
    """Return for how many seconds a lease was renewed; 0 if it has ended. Raises L(Garbled)."""
    with _check_form():
        return _parse_number(_get_object(answer, "result").get("TTL", 0))


def parse_voters(answer: Message) -> int:
    """Return how many members of the cluster vote. Raises L(Garbled)."""
    with _check_form():
        return sum(not member.get("isLearner") for member in _list_objects(answer, "members"))


def parse_size(answer: Message) -> DatabaseSize:
    """Return the size of a member's database. Raises L(Garbled)."""
    with _check_form():
        size, in_use, quota = (_parse_number(answer.get(key, 0)) for key in ("dbSize", "dbSizeInUse", "dbSizeQuota"))
        return DatabaseSize(size, in_use, quota or None, any("NOSPACE" in str(error) for error in t.cast("list[t.Any]", answer.get("errors") or ())))


@contextlib.contextmanager
def _check_form() -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Garbled("its answer is not one of etcd") from error


def _parse_revision(answer: Message) -> int:
    return _parse_number(_get_object(answer, "header")["revision"])


def _parse_found(answer: Message, request: Message) -> tuple[KeyValue, ...]:
    """Return the keys that were found. Raises C(ValueError) for a key that was not requested."""
    start = _decode_bytes(request["key"])
    end = _decode_bytes(request["range_end"]) if "range_end" in request else start + b"\0"
    return tuple(_parse_key_value(entry, start, end) for entry in _list_objects(answer, "kvs"))


def _parse_key_value(entry: Message, start: bytes, end: bytes) -> KeyValue:
    key, value = _decode_bytes(entry.get("key", "")), _decode_bytes(entry.get("value", ""))
    if not start <= key < end:
        raise ValueError("a key that was not requested")
    return KeyValue(key.decode("utf-8"), value, _parse_number(entry.get("mod_revision", 0)), _parse_number(entry.get("create_revision", 0)))


# The casts below are not checked: Python's own errors for other values are those of L(_check_form).


def _get_object(message: Message, key: str) -> Message:
    return t.cast("Message", message[key])


def _list_objects(message: Message, key: str) -> Sequence[Message]:
    return t.cast("Sequence[Message]", message.get(key, ()))


def _parse_number(value: Json) -> int:
    return int(t.cast("str", value))


def _decode_bytes(value: Json) -> bytes:
    return base64.b64decode(t.cast("str", value), validate=True)
