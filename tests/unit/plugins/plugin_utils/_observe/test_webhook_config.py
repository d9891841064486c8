# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the inventory may say about notices, and a signature that others can check."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.webhook import decode_key, parse_config, signed_headers

URL = "https://hooks.example:8443/T0KEN"


def test_url_is_the_only_required_key() -> None:
    config = parse_config({"url": URL})
    assert (config.receiver, config.key, config.timeout_seconds, config.retries, config.wait_seconds) == ("https://hooks.example:8443", None, 5, 4, 5)
    assert parse_config({"url": URL, "retries": "2", "timeout_seconds": "0.5"}).retries == 2


@pytest.mark.parametrize(
    "value",
    [
        "https://hooks.example",
        {},
        {"url": ""},
        {"url": "ftp://hooks.example"},
        {"url": "https://"},
        {"url": "https://me:hunter2@hooks.example/"},
        {"url": "https://hooks.example/\nX-Other: 1"},
        {"url": "https://hooks.example:port/"},
        {"url": "https://[::1/"},
        {"url": 7},
        {"url": URL, "retries": -1},
        {"url": URL, "retries": True},
        {"url": URL, "timeout_seconds": 0},
        {"url": URL, "wait_seconds": "nan"},
        {"url": URL, "wait_seconds": 3600},
        {"url": URL, "secret": ["hunter2"]},
        {"url": URL, "secret": "whsec_hunter2!"},
        {"url": URL, "token": "hunter2"},
    ],
)
def test_an_invalid_configuration_is_refused_without_secrets_in_the_message(value: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="kvmfleet_notices") as caught:
        parse_config(value)
    assert "hunter2" not in str(caught.value)
    assert "T0KEN" not in str(caught.value)


def test_the_repr_of_the_configuration_has_neither_secret_nor_path() -> None:
    text = repr(parse_config({"url": URL, "secret": "hunter2"}))
    assert "hunter2" not in text
    assert "T0KEN" not in text


def test_the_signature_equals_the_example_of_standard_webhooks() -> None:
    # From the tests of the reference libraries (https://github.com/standard-webhooks/standard-webhooks).
    key = decode_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', key)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")


def test_a_plain_secret_is_used_as_key_and_without_one_nothing_is_signed() -> None:
    expected = base64.b64encode(hmac.new(b"open sesame", b"id.5.{}", hashlib.sha256).digest()).decode()
    assert signed_headers("id", 5, b"{}", decode_key("open sesame"))["webhook-signature"] == f"v1,{expected}"
    assert "webhook-signature" not in signed_headers("id", 5, b"{}", None)


def test_the_documented_code_verifies_signatures() -> None:
    page = next(parent for parent in Path(__file__).resolve().parents if parent.name == "tests").parent / "docs" / "notices.md"
    code = page.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    assert code
    body, now = b'{"specversion": "1.0"}', int(time.time())
    for moment, sent, genuine, fresh in ((now, body, True, True), (now, body + b" ", False, True), (now - 3600, body, True, False)):
        names: dict[str, t.Any] = {"headers": signed_headers("id", moment, body, decode_key("open sesame")), "body": sent, "secret": "open sesame"}
        exec(code, names)
        assert (names["genuine"], names["fresh"]) == (genuine, fresh)
