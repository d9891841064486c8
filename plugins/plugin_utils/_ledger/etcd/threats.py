# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What will keep an etcd ledger from being changed if nobody does anything: members that do not answer, and certificates that expire."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..._settings.certificates import describe_expiry, read_validities
from .client import Client, MemberState
from .connection import Endpoint, EtcdOptions

_CONSEQUENCE = "Without most of its members, nothing can be moved or evacuated."


def find_member_threats(client: Client) -> Iterator[str]:
    """Yield a sentence for each member of the address that does not serve, or whose certificate expires soon."""
    for endpoint, state in client.survey_members().items():
        yield from _describe_member(f"The member {endpoint} of the etcd ledger {client.address}", endpoint, state)


def _describe_member(member: str, endpoint: Endpoint, state: MemberState) -> Iterator[str]:
    if state.problem:
        yield f"{member} does not serve: {state.problem}. {_CONSEQUENCE}"
    expiry = describe_expiry(state.certificate) if state.certificate else None
    if expiry:
        yield f"The certificate of the member {endpoint} of etcd {expiry}: no client accepts it any more after that. {_CONSEQUENCE} Renew it."


def find_file_threats(options: EtcdOptions) -> Iterator[str]:
    """Yield a sentence for each certificate of these options that expires soon."""
    for name, path in (("ca_file", options.ca_file), ("cert_file", options.cert_file)):
        validities = []
        with contextlib.suppress(OSError):
            if path:
                with open(path, "rb") as stream:
                    validities = read_validities(stream.read())
        # A client presents the first one. While authorities are replaced, the file has the old and the new one.
        decisive = validities[:1] if name == "cert_file" else sorted(validities, key=lambda one: one.end)[-1:]
        for expiry in filter(None, map(describe_expiry, decisive)):
            yield f"The {name} {path} of kvmfleet_etcd {expiry}: the ledger cannot be reached after that, and nothing can be moved or evacuated. Renew it."
