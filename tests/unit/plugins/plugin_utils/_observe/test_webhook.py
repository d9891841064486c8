# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One request to a receiver that behaves, and to each kind that does not."""

from __future__ import annotations

import datetime
import email.utils
import ssl
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.webhook import Poster, WebhookAnswer, parse_config
from ansible_collections.kvmfleet.migration.tests.integration.support import receiver as r

EVENT = {"id": "e1", "type": "io.github.kvmfleet.migration.move.started", "data": {"domain": {"name": "wëb\u20281"}}}


def post(url: str, **more: t.Any) -> WebhookAnswer:
    return Poster(parse_config({"url": url, "timeout_seconds": 1, **more})).post_event(EVENT)


def test_an_event_is_posted_in_structured_mode(receiver: r.Receiver) -> None:
    assert post(receiver.url, secret="s3cret").sent
    (request,) = receiver.requests
    assert request.event == EVENT
    assert request.path == "/hooks/confidential-path"
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["webhook-signature"].startswith("v1,")


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_every_2xx_answer_is_a_success(receiver: r.Receiver, code: int) -> None:
    receiver.answers.append(r.status(code))
    assert post(receiver.url).sent


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_a_temporary_status_is_to_be_retried(receiver: r.Receiver, code: int) -> None:
    receiver.answers.append(r.status(code))
    assert post(receiver.url) == WebhookAnswer(False, True, f"it answered {code}")


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 413])
def test_a_permanent_status_is_not_to_be_retried(receiver: r.Receiver, code: int) -> None:
    receiver.answers.append(r.status(code))
    assert post(receiver.url) == WebhookAnswer(False, False, f"it answered {code}")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: r.Receiver, code: int) -> None:
    with r.Receiver() as elsewhere:
        receiver.answers.append(r.status(code, Location=elsewhere.url))
        answer = post(receiver.url)
        assert (answer.sent, answer.again) == (False, False)
        assert "redirect" in answer.said
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("7", 7, 7), ("0", 0, 0), ("soon", 0, 0), ("-3", 0, 0), ("Sun, 06 Nov 1994 08:49:37 GMT", 0, 0)],
)
def test_retry_after_in_seconds_is_read(receiver: r.Receiver, text: str, least: float, most: float) -> None:
    receiver.answers.append(r.status(429, Retry_After=text))
    assert least <= post(receiver.url).pause_seconds <= most


def test_retry_after_as_a_date_is_read(receiver: r.Receiver) -> None:
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
    receiver.answers.append(r.status(503, Retry_After=email.utils.format_datetime(later)))
    assert 3600 < post(receiver.url).pause_seconds <= 7200


@pytest.mark.parametrize("answer", [r.silence, r.hang_up, r.drip])
def test_a_receiver_that_does_not_answer_times_out(receiver: r.Receiver, answer: r.Answer) -> None:
    receiver.answers.append(answer)
    said = post(receiver.url, timeout_seconds=0.3)
    assert (said.sent, said.again) == (False, True)
    assert said.said


def test_a_refused_connection_is_to_be_retried(receiver: r.Receiver) -> None:
    with r.Receiver() as gone:
        url = gone.url
    assert post(url) == WebhookAnswer(False, True, "Connection refused")


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Make a certificate for 127.0.0.1 that is its own authority."""
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=receiver", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=300)
    return certificate


def test_a_receiver_with_an_unknown_certificate_is_refused(authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.parent / "key.pem")
    with r.Receiver(context) as receiver:
        assert post(receiver.url, ca_file=str(authority)).sent
        unknown = post(receiver.url)
        assert (unknown.sent, unknown.again) == (False, True)
        assert "certificate is not accepted" in unknown.said
        assert len(receiver.requests) == 1


def test_an_invalid_ca_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path in ("ca.pem", "missing.pem"):
        with pytest.raises(InvalidArgument, match=path):
            post("https://127.0.0.1:1/", ca_file=str(tmp_path / path))
