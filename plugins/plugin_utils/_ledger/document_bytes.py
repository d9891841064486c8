# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A document of a ledger as bytes: one JSON object with its version and a checksum, which reveals a torn or edited document."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import codec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA

from .documents import Document


class Unreadable(Exception):
    """The text is not a document of this version of the collection."""


class Damaged(Unreadable):
    """The text was torn or edited by hand."""


class Newer(Unreadable):
    """The text was written by a later version. C(body) is its content, which this version can use only in part."""

    def __init__(self, message: str, body: dict[str, Json]) -> None:
        super().__init__(message)
        self.body = body


class TooLarge(Internal):
    """The store takes no document of this size. Other documents are not affected."""


def canonical_json(value: Json) -> str:
    """Return the canonical JSON text of a value: sorted keys, no blanks. Raises L(Internal) for values that JSON cannot represent."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Internal(f"A document cannot be written as JSON: {error}.") from error


def compute_digest(*parts: str) -> str:
    """Return the SHA-256, in hexadecimal, of the parts, each on its line."""
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()


def encode_document(content: t.Union[codec.Dataclass, JsonObject], version: int) -> bytes:
    """Return the bytes of a document."""
    text = canonical_json(codec.encode(content))
    return f'{{"version":{version},"sha256":"{compute_digest(str(version), text)}","body":{text}}}\n'.encode()


class Envelope(t.NamedTuple):
    """A file's text as L(encode_document) wrote it, with a correct checksum.

    :arg text: the canonical text of the document.
    """

    version: int
    text: bytes


# Version and checksum as encode writes them; the document follows up to the end.
_ENVELOPE_START = re.compile(rb'\{"version":([1-9][0-9]{0,17}),"sha256":"([0-9a-f]{64})","body":')
_ENVELOPE_END = b"}\n"


def open_envelope(data: bytes) -> t.Optional[Envelope]:
    """Return version and text of a document without decoding it; None for a text that L(encode_document) has not written.

    Only L(decode_document) can judge such a text.
    """
    head = _ENVELOPE_START.match(data)
    if head is None or not data.endswith(_ENVELOPE_END):
        return None
    text = data[head.end() : -len(_ENVELOPE_END)]
    checksum = hashlib.sha256(head[1] + b"\n" + text).hexdigest()
    return Envelope(int(head[1]), text) if checksum.encode("ascii") == head[2] else None


def decode_document(data: bytes) -> Document:
    """Return the document. Raises L(Damaged) or L(Newer)."""
    envelope = open_envelope(data)
    return _decode_other_layout(data) if envelope is None else decode_envelope(envelope)


def decode_envelope(envelope: Envelope) -> Document:
    """Return the document. Raises L(Damaged) or L(Newer)."""
    body = _parse_json(envelope.text.decode("utf-8", "replace"))
    if not isinstance(body, dict):
        raise Damaged("it holds no document")
    _check_schema(body)
    return Document(body, envelope.version)


def _parse_json(data: t.Union[str, bytes]) -> Json:
    try:
        return t.cast("Json", json.loads(data))
    except (ValueError, RecursionError) as error:
        raise Damaged("it is not JSON") from error


def _decode_other_layout(data: bytes) -> Document:
    """Return the document of a file in another layout, as other tools may write it."""
    envelope = _parse_json(data)
    if not isinstance(envelope, dict) or not isinstance(body := envelope.get("body"), dict):
        raise Damaged("it holds no document")
    _check_schema(body)
    version = envelope.get("version")
    if not isinstance(version, int) or version < 1:
        raise Damaged("its version is not a positive number")
    try:
        checksum = compute_digest(str(version), canonical_json(body))
    except Internal as error:
        raise Damaged("it contains a value that JSON cannot represent") from error
    if envelope.get("sha256") != checksum:
        raise Damaged("its checksum does not match, it was torn or edited by hand")
    return Document(body, version)


def _check_schema(body: dict[str, Json]) -> None:
    schema = body.get("schema")
    if not isinstance(schema, int):
        raise Damaged("its schema is not a number")
    if schema > SCHEMA:
        raise Newer(f"its schema is {schema}, this version reads {SCHEMA}", body)
