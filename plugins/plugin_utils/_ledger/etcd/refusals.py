# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What etcd refuses, said so that a person can act on it."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, Internal

from . import failures as f
from .address import Address
from .messages import Message

# etcd has one code for several refusals; its texts are told apart where it matters.
_COMMON_NAME = b"CommonName of client"
_WANTS_TLS = b"to an HTTPS server"
_NO_USER = "user name is empty"
_OLD_REVISION = "revision of auth store is old"
_NO_SPACE = "database space exceeded"
_TOO_MANY = "too many requests"
_TOO_LARGE = ("request is too large", "larger than max")


def refused(answer: Message) -> t.Union[f.Refused, f.Unanswered]:
    """Return what an answer with an error means: a refusal, or that another member, or the same one later, has to be asked."""
    code, text = answer["code"], str(answer.get("message") or answer.get("error") or "no reason given")
    if code in (f.UNAVAILABLE, f.DEADLINE_EXCEEDED) or _TOO_MANY in text:
        return f.Unanswered(text)
    return f.Refused(code, text)


def no_etcd(status: int, body: bytes) -> f.Unanswered:
    """Return what an answer means that is none of etcd's gateway."""
    if _COMMON_NAME in body:
        return f.Unanswered("where users are asked for it takes no client certificate that has a CommonName: give one with other names only", lasting=True)
    if _WANTS_TLS in body:
        return f.Unanswered("it wants TLS", lasting=True)
    return f.Unanswered(f"what answers there is no etcd of version 3.4 or later (HTTP status {status})", lasting=True)


def is_stale_token(error: f.Refused) -> bool:
    """Whether the token is not valid any more: it was not used for long, its member began anew, or users were changed."""
    return error.code == f.UNAUTHENTICATED or _OLD_REVISION in str(error)


def no_login(error: f.Refused, address: Address, user: t.Optional[str]) -> Forbidden:
    """Return why a user was not let in."""
    return Forbidden(
        f"The etcd ledger {address} does not let in the user {user!r}: {error}.", "Correct user and password in 'kvmfleet_etcd'. Nothing was changed."
    )


def sentence(error: f.Refused, address: Address, user: t.Optional[str]) -> Exception:
    """Return the error of the collection for a refusal; L(Overtaken) and L(Refused) itself for what is the caller's to judge."""
    text = str(error)
    if error.code == f.OUT_OF_RANGE:
        return f.Overtaken(text)
    if error.code == f.NOT_FOUND:
        return error
    if error.code in (f.PERMISSION_DENIED, f.UNAUTHENTICATED) or _NO_USER in text:
        return _forbidden(address, user, text)
    if _NO_SPACE in text:
        return Internal(
            f"The database of the etcd ledger {address} is full: nothing was written.",
            "Make room ('etcdctl compact', 'etcdctl defrag'), then 'etcdctl alarm disarm'; moves in flight go on, and the same task again follows them.",
        )
    if any(words in text for words in _TOO_LARGE):
        return Internal(f"The etcd ledger {address} did not take a document: {text}. Nothing was written.", "Raise --max-request-bytes of its members.")
    return Internal(f"The etcd ledger {address} refused a request: {text} (code {error.code}).", "See the log of its members.")


def _forbidden(address: Address, user: t.Optional[str], text: str) -> Forbidden:
    if user is None:
        return Forbidden(f"The etcd ledger {address} wants to know who asks: {text}.", "Give user and password with 'kvmfleet_etcd'. Nothing was changed.")
    return Forbidden(
        f"The etcd user {user!r} may not use the ledger {address}: {text}. Nothing was changed.",
        f"Grant a role of that user readwrite on the prefix {address.prefix} ('etcdctl role grant-permission --prefix=true ROLE readwrite {address.prefix}').",
    )
