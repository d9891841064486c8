# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a fence agent printed, without secrets and control characters, and not longer than a person reads."""

from __future__ import annotations

import base64
import functools
import html
import json
import re
import shlex
import typing as t
import unicodedata
import urllib.parse

KEPT_BYTES = 4096
MASK = "***"
# Encodings of shorter texts would be found everywhere.
_SHORTEST_ENCODED = 4
# Never in a text whose control characters were removed.
_HIDDEN = "\0"
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


def plain_text(output: bytes) -> str:
    """Return the text of an output: newlines and printable characters."""
    text = _ESCAPE_SEQUENCE.sub("", output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\t", " "))
    return "".join(character for character in text if character == "\n" or not unicodedata.category(character).startswith("C"))


def redact(text: str, secrets: t.Iterable[str], torn: bool = False, killed: bool = False) -> str:
    """Return the last L(KEPT_BYTES) of a plain text, with each secret, as it is or in an obvious encoding, replaced by L(MASK).

    :arg torn: the text is the end of a longer one, so that it may begin inside a secret.
    :arg killed: who wrote it was stopped, so that it may end inside one.
    """
    forms = _all_forms(frozenset(secrets))
    if forms:
        text = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE).sub(lambda found: _HIDDEN * len(found.group()), text)
    if killed:
        text = _without_begun(text, forms)
    if torn:
        text = text[len(forms[0]) if forms else 0 :]
    return _last_bytes(re.sub(f"{_HIDDEN}+", MASK, text).strip())


def _without_begun(text: str, forms: list[str]) -> str:
    """Return the text without the beginning of a secret at its end."""
    lowered = [form.lower() for form in forms]
    for length in range(min(len(text), len(forms[0]) if forms else 0), 0, -1):
        end = text[-length:].lower()
        if any(form.startswith(end) for form in lowered):
            return text[:-length] + _HIDDEN
    return text


def _last_bytes(text: str) -> str:
    return text.encode("utf-8", "replace")[-KEPT_BYTES:].decode("utf-8", "ignore")


@functools.lru_cache(maxsize=16)
def _all_forms(secrets: frozenset[str]) -> list[str]:
    """Return all that may stand for a secret, the longest first."""
    forms = {form for secret in secrets if secret for form in (plain_text(secret.encode()), *_encodings(secret)) if form}
    return sorted(forms, key=lambda form: (-len(form), form))


def _encodings(secret: str) -> list[str]:
    quoted = [urllib.parse.quote(secret, safe=safe) for safe in ("", "/", "/:@!$&'()*+,;=~")] + [urllib.parse.quote_plus(secret)]
    escaped = [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1], ascii(secret)[1:-1], repr(secret.encode())[2:-1]]
    shell = [shlex.quote(secret), secret.replace("'", "'\"'\"'"), secret.replace("'", "'\\''"), re.sub(r"([^A-Za-z0-9_.-])", r"\\\1", secret)]
    marked_up = [html.escape(secret), html.escape(secret, quote=False), secret.replace("&", "&amp;").replace("'", "&apos;").replace('"', "&quot;")]
    forms = [*quoted, *escaped, *shell, *marked_up, secret.encode().hex(), secret.encode().hex(" "), secret.encode().hex(":"), *_base64_forms(secret.encode())]
    return [form for form in forms if len(form) >= _SHORTEST_ENCODED]


def _base64_forms(secret: bytes) -> list[str]:
    """Return the characters that the secret alone decides, wherever it begins in an encoded text (as in C(user:password))."""
    forms = []
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).rstrip(b"=").decode()
        first = (before * 8 + 5) // 6
        last = (before + len(secret)) * 8 // 6
        forms += [encoded[first:last], encoded[first:last].replace("+", "-").replace("/", "_")]
    return forms
