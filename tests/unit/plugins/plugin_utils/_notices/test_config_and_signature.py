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

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.config import config_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.signature import headers_of, key_of

URL = "https://hooks.example:8443/T0KEN"


def test_only_a_url_is_needed() -> None:
    config = config_of({"url": URL})
    assert (config.receiver, config.key, config.timeout_seconds, config.retries, config.wait_seconds) == ("https://hooks.example:8443", None, 5, 4, 5)
    assert config_of({"url": URL, "retries": "2", "timeout_seconds": "0.5"}).retries == 2


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
def test_what_cannot_be_is_named_and_no_secret_shown(value: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="kvmfleet_notices") as caught:
        config_of(value)
    assert "hunter2" not in str(caught.value)
    assert "T0KEN" not in str(caught.value)


def test_neither_secret_nor_path_is_in_a_representation() -> None:
    text = repr(config_of({"url": URL, "secret": "hunter2"}))
    assert "hunter2" not in text
    assert "T0KEN" not in text


def test_the_example_of_standard_webhooks_is_signed_as_its_libraries_do() -> None:
    # From the tests of the reference libraries (https://github.com/standard-webhooks/standard-webhooks).
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = headers_of("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', key)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")


def test_a_plain_secret_is_the_key_itself_and_without_one_nothing_is_signed() -> None:
    expected = base64.b64encode(hmac.new(b"open sesame", b"id.5.{}", hashlib.sha256).digest()).decode()
    assert headers_of("id", 5, b"{}", key_of("open sesame"))["webhook-signature"] == f"v1,{expected}"
    assert "webhook-signature" not in headers_of("id", 5, b"{}", None)


def test_the_lines_of_the_documentation_tell_what_is_genuine() -> None:
    page = next(parent for parent in Path(__file__).resolve().parents if parent.name == "tests").parent / "docs" / "notices.md"
    code = page.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    assert code
    body, now = b'{"specversion": "1.0"}', int(time.time())
    for moment, sent, genuine, fresh in ((now, body, True, True), (now, body + b" ", False, True), (now - 3600, body, True, False)):
        names: dict[str, t.Any] = {"headers": headers_of("id", moment, body, key_of("open sesame")), "body": sent, "secret": "open sesame"}
        exec(code, names)
        assert (names["genuine"], names["fresh"]) == (genuine, fresh)
