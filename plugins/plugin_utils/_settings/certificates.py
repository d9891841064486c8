# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Certificates that expire soon: the connections that need them fail from then on, all at the same moment."""

from __future__ import annotations

import re
import typing as t
from datetime import UTC, datetime, timedelta

# Ansible itself requires it.
from cryptography import x509

# So early, or in this last part of its validity if that is shorter: programs that renew short-lived certificates wait for up to nine tenths of it.
_EARLY = timedelta(days=14)
_LAST_PART = 10
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_UNREADABLE = (ValueError, x509.InvalidVersion)


class Validity(t.NamedTuple):
    """When a certificate is valid, in UTC."""

    begin: datetime
    end: datetime


def read_validities(pem: bytes) -> list[Validity]:
    """Return those of the certificates in a text, in their order. What cannot be read is left out: whoever uses it reports that."""
    return [validity for validity in map(_read_validity, _PEM.findall(pem)) if validity]


def _read_validity(pem: bytes) -> Validity | None:
    try:
        return _get_validity(x509.load_pem_x509_certificate(pem))
    except _UNREADABLE:
        return None


def read_der_validity(der: bytes) -> Validity | None:
    """Return that of the certificate of a peer; null if it cannot be read."""
    try:
        return _get_validity(x509.load_der_x509_certificate(der))
    except _UNREADABLE:
        return None


def _get_validity(certificate: x509.Certificate) -> Validity:
    # Before cryptography 42, the times have no zone.
    if hasattr(certificate, "not_valid_after_utc"):
        return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return Validity(certificate.not_valid_before.replace(tzinfo=UTC), certificate.not_valid_after.replace(tzinfo=UTC))


def describe_expiry(validity: Validity) -> str | None:
    """Return C(expires at ...) or C(expired at ...) for a certificate that is to be renewed now; null for any other."""
    left = validity.end - _now()
    if left > min(_EARLY, (validity.end - validity.begin) / _LAST_PART):
        return None
    return f"{'expires' if left > timedelta() else 'expired'} at {validity.end:%Y-%m-%d %H:%M} UTC"


def _now() -> datetime:
    return datetime.now(UTC)
