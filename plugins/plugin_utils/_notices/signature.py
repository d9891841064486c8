# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The signature of a notice, by the rules of Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

_ENCODED = "whsec_"


def key_of(secret: str) -> bytes:
    """Return the key: what follows C(whsec_) is Base64, any other secret is the text itself. Raises L(InvalidArgument), never showing it."""
    if not secret.startswith(_ENCODED):
        return secret.encode("utf-8")
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("The secret of kvmfleet_notices begins with whsec_, and what follows is not Base64.") from None


def headers_of(event_id: str, unix_time: int, body: bytes, key: bytes | None) -> dict[str, str]:
    """Return C(webhook-id) and C(webhook-timestamp), and with a key C(webhook-signature)."""
    headers = {"webhook-id": event_id, "webhook-timestamp": str(unix_time)}
    if key is None:
        return headers
    signed = hmac.new(key, f"{event_id}.{unix_time}.".encode("ascii") + body, hashlib.sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(signed).decode('ascii')}"}
