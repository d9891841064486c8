# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A certificate is reported while there is time to renew it, and one that is renewed every day is not reported every day."""

from __future__ import annotations

import ssl
import types
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from kvmlab.certificates import Authority

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import certificates as m

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("valid", "age", "described"),
    [
        (365 * DAY, 350 * DAY, None),
        (365 * DAY, 351 * DAY, "expires at 2027-01-01 00:00 UTC"),
        (365 * DAY, 365 * DAY, "expired at 2027-01-01 00:00 UTC"),
        (DAY, timedelta(hours=21), None),
        (DAY, timedelta(hours=22), "expires at 2026-01-02 00:00 UTC"),
    ],
)
def test_a_certificate_that_is_to_be_renewed_is_described(monkeypatch: pytest.MonkeyPatch, valid: timedelta, age: timedelta, described: str | None) -> None:
    monkeypatch.setattr(m, "_now", lambda: BEGIN + age)
    assert m.describe_expiry(m.Validity(BEGIN, BEGIN + valid)) == described


def test_the_certificates_of_a_file_are_read_in_their_order(tmp_path: Path) -> None:
    authority = Authority.made(tmp_path / "tls")
    authority.issue("client", days=1)
    client, ca = (Path(authority.certificate(name)).read_bytes() for name in ("client", "ca"))
    damaged = client.replace(b"MII", b"xxx", 1)
    first, second = m.read_validities(b"a comment\n" + client + damaged + ca)
    assert (first.end - first.begin, second.end - second.begin) == (DAY, 2 * DAY)
    assert m.read_validities(b"no certificate") == []
    assert m.read_der_validity(b"no certificate") is None


def test_a_certificate_of_a_version_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    """OpenSSL accepts it. Scripts that took the number of the version for its encoding have made such ones."""
    der = ssl.PEM_cert_to_DER_cert(Path(Authority.made(tmp_path / "tls").certificate("ca")).read_text())
    fourth = der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020103"), 1)
    assert fourth != der
    assert m.read_der_validity(der)
    assert m.read_der_validity(fourth) is None
    assert m.read_validities(ssl.DER_cert_to_PEM_cert(fourth).encode()) == []


def test_times_without_a_zone_are_those_of_utc() -> None:
    """Before cryptography 42."""
    old = types.SimpleNamespace(not_valid_before=BEGIN.replace(tzinfo=None), not_valid_after=(BEGIN + DAY).replace(tzinfo=None))
    assert m._get_validity(old) == m.Validity(BEGIN, BEGIN + DAY)  # type: ignore[arg-type]
