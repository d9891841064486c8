# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How a document lies on disk: one JSON object with its version and a checksum, by which a torn or hand-edited file is known."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from .store import Body, Document


class Unreadable(Exception):
    """The text is no document of this version of the collection."""


class Damaged(Unreadable):
    """The text was torn or edited by hand."""


class Newer(Unreadable):
    """The text was written by a later version. C(body) is what it says, for what little can be told from it."""

    def __init__(self, message: str, body: Body) -> None:
        super().__init__(message)
        self.body = body


def canonical(value: t.Any) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks. Raises L(Internal) for what JSON cannot say."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Internal(f"A document cannot be written as JSON: {error}.") from error


def digest(*parts: str) -> str:
    """Return the SHA-256, in hexadecimal, of the parts, each on its line."""
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()


def encode(body: Body, version: int) -> bytes:
    """Return the bytes of a document."""
    text = canonical(body)
    return f'{{"version":{version},"sha256":"{digest(str(version), text)}","body":{text}}}\n'.encode()


class Envelope(t.NamedTuple):
    """A file's text as L(encode) wrote it, its checksum found right.

    :arg text: the canonical text of the document.
    """

    version: int
    text: bytes


# Version and checksum as encode writes them; the document follows up to the end.
_HEAD = re.compile(rb'\{"version":([1-9][0-9]{0,17}),"sha256":"([0-9a-f]{64})","body":')
_END = b"}\n"


def opened(data: bytes) -> t.Optional[Envelope]:
    """Return version and text of a document, without reading it; None for a text that L(encode) did not write so: only L(decode) can tell what it is."""
    head = _HEAD.match(data)
    if head is None or not data.endswith(_END):
        return None
    text = data[head.end() : -len(_END)]
    checksum = hashlib.sha256(head[1] + b"\n" + text).hexdigest()
    return Envelope(int(head[1]), text) if checksum.encode("ascii") == head[2] else None


def decode(data: bytes) -> Document:
    """Return the document. Raises L(Damaged) or L(Newer)."""
    envelope = opened(data)
    return _decode(data) if envelope is None else decode_opened(envelope)


def decode_opened(envelope: Envelope) -> Document:
    """Return the document. Raises L(Damaged) or L(Newer)."""
    body = _loads(envelope.text.decode("utf-8", "replace"))
    if not isinstance(body, dict):
        raise Damaged("it holds no document")
    _check_schema(body)
    return Document(body, envelope.version)


def _loads(data: t.Union[str, bytes]) -> t.Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged("it is not JSON") from error


def _decode(data: bytes) -> Document:
    """Return the document of a file that was written in another layout, as a person's tools may do."""
    envelope = _loads(data)
    body = envelope.get("body") if isinstance(envelope, dict) else None
    if not isinstance(body, dict):
        raise Damaged("it holds no document")
    _check_schema(body)
    version = envelope.get("version")
    if not isinstance(version, int) or version < 1:
        raise Damaged("its version is not a positive number")
    try:
        checksum = digest(str(version), canonical(body))
    except Internal as error:
        raise Damaged("it holds what JSON cannot say") from error
    if envelope.get("sha256") != checksum:
        raise Damaged("its checksum does not match, it was torn or edited by hand")
    return Document(body, version)


def _check_schema(body: Body) -> None:
    schema = body.get("schema")
    if not isinstance(schema, int):
        raise Damaged("its schema is not a number")
    if schema > SCHEMA:
        raise Newer(f"its schema is {schema}, this version reads {SCHEMA}", body)
