# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where notices go, from the inventory variable C(kvmfleet_notices). Neither the secret nor the path of the URL, which may be one, is ever shown."""

from __future__ import annotations

import os
import typing as t
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from .._values import text_of
from .signature import key_of

VARIABLE = "kvmfleet_notices"
_NUMBERS = {"timeout_seconds": (5.0, 0.1, 60.0), "retries": (4, 0, 10), "wait_seconds": (5.0, 0.0, 60.0)}
_TEXTS = ("url", "secret", "ca_file", "spool")
_KNOWN = (*_TEXTS, *_NUMBERS)


@dataclass(frozen=True)
class Config:
    """:arg timeout_seconds: for one request, from the connection to the end of the answer's headers.

    :arg retries: how often a notice is tried again within one task.
    :arg wait_seconds: how long the end of a task waits for the notices of that task.
    :arg spool: the folder that keeps notices until they were sent.
    """

    url: str = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    timeout_seconds: float = 5.0
    retries: int = 4
    wait_seconds: float = 5.0
    ca_file: str | None = None
    spool: str | None = None

    @property
    def receiver(self) -> str:
        """What the receiver is called in a sentence: scheme, host and port."""
        parts = urllib.parse.urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def config_of(value: t.Any) -> Config:
    """Return the configuration. Raises L(InvalidArgument), naming the key that is wrong."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{VARIABLE} is no dictionary.", f"It knows {', '.join(_KNOWN)}.")
    unknown = sorted(str(key) for key in value if key not in _KNOWN)
    if unknown:
        raise InvalidArgument(f"{VARIABLE} has the unknown {unknown[0]!r}.", f"It knows {', '.join(_KNOWN)}.")
    texts = {key: text_of(value.get(key), key, VARIABLE) for key in _TEXTS}
    numbers = {key: _number(value.get(key), key) for key in _NUMBERS}
    secret = texts["secret"]
    return Config(
        url=_url(texts["url"]),
        key=key_of(secret) if secret else None,
        timeout_seconds=numbers["timeout_seconds"],
        retries=int(numbers["retries"]),
        wait_seconds=numbers["wait_seconds"],
        ca_file=os.path.expanduser(texts["ca_file"]) if texts["ca_file"] else None,
        spool=os.path.expanduser(texts["spool"]) if texts["spool"] else None,
    )


def _number(value: t.Any, key: str) -> float:
    default, least, most = _NUMBERS[key]
    if value is None:
        return default
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not least <= number <= most:
        raise InvalidArgument(f"'{key}' of {VARIABLE} is not a number from {least:g} to {most:g}.")
    return number


def _url(url: str | None) -> str:
    wrong = InvalidArgument(f"The url of {VARIABLE} is missing or none.", "Give one like https://hooks.example/kvmfleet, without user and password in it.")
    if url is None or not url.isascii() or any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise wrong
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        raise wrong from None
    if not is_whole:
        raise wrong
    return url
