# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The receiver of notices: its configuration (kvmfleet_notices), signatures according to Standard Webhooks, and one HTTP request.

Neither the secret nor the path of the URL, which may be secret too, is ever shown.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import email.utils
import functools
import hashlib
import hmac
import http.client
import json
import os
import socket
import ssl
import threading
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .._settings.options import make_tls_context, read_text

_ENCODED_PREFIX = "whsec_"


def decode_key(secret: str) -> bytes:
    """Return the key: the part after C(whsec_) is Base64, any other secret is the text itself. Raises L(InvalidArgument), never showing it."""
    if not secret.startswith(_ENCODED_PREFIX):
        return secret.encode("utf-8")
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("The secret of kvmfleet_notices begins with whsec_, but the rest is not Base64.") from None


def signed_headers(event_id: str, unix_time: int, body: bytes, key: bytes | None) -> dict[str, str]:
    """Return C(webhook-id) and C(webhook-timestamp), and with a key C(webhook-signature)."""
    headers = {"webhook-id": event_id, "webhook-timestamp": str(unix_time)}
    if key is None:
        return headers
    signed = hmac.new(key, f"{event_id}.{unix_time}.".encode("ascii") + body, hashlib.sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(signed).decode('ascii')}"}


NOTICES_VARIABLE = "kvmfleet_notices"
_NUMBER_KEYS = {"timeout_seconds": (5.0, 0.1, 60.0), "retries": (4, 0, 10), "wait_seconds": (5.0, 0.0, 60.0)}
_TEXT_KEYS = ("url", "secret", "ca_file", "spool")
_KNOWN_KEYS = (*_TEXT_KEYS, *_NUMBER_KEYS)


@dataclass(frozen=True)
class WebhookConfig:
    """:arg timeout_seconds: for one request, from the connection to the end of the answer's headers.

    :arg retries: the number of retries of a notice within one task.
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
        """The name of the receiver in a sentence: scheme, host and port."""
        parts = urllib.parse.urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def parse_config(value: Json) -> WebhookConfig:
    """Return the configuration. Raises L(InvalidArgument), naming the key that is wrong."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{NOTICES_VARIABLE} is not a dictionary.", f"It knows {', '.join(_KNOWN_KEYS)}.")
    unknown = sorted(str(key) for key in value if key not in _KNOWN_KEYS)
    if unknown:
        raise InvalidArgument(f"{NOTICES_VARIABLE} has unknown keys: {unknown[0]!r}.", f"It knows {', '.join(_KNOWN_KEYS)}.")
    texts = {key: read_text(value.get(key), key, NOTICES_VARIABLE) for key in _TEXT_KEYS}
    numbers = {key: _read_number(value.get(key), key) for key in _NUMBER_KEYS}
    secret = texts["secret"]
    return WebhookConfig(
        url=_check_url(texts["url"]),
        key=decode_key(secret) if secret else None,
        timeout_seconds=numbers["timeout_seconds"],
        retries=int(numbers["retries"]),
        wait_seconds=numbers["wait_seconds"],
        ca_file=os.path.expanduser(texts["ca_file"]) if texts["ca_file"] else None,
        spool=os.path.expanduser(texts["spool"]) if texts["spool"] else None,
    )


def _read_number(value: Json, key: str) -> float:
    default, least, most = _NUMBER_KEYS[key]
    if value is None:
        return default
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not least <= number <= most:
        raise InvalidArgument(f"'{key}' of {NOTICES_VARIABLE} is not a number from {least:g} to {most:g}.")
    return number


def _check_url(url: str | None) -> str:
    wrong = InvalidArgument(
        f"The url of {NOTICES_VARIABLE} is missing or invalid.", "Give one like https://hooks.example/kvmfleet, without user and password in it."
    )
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


_RETRY_CODES = (408, 425, 429)


class WebhookAnswer(t.NamedTuple):
    """:arg sent: whether the receiver has accepted the event.

    :arg again: whether the receiver may accept it later; if neither is true, the receiver has refused it.
    :arg said: the receiver's answer, for a sentence.
    :arg pause_seconds: the pause that it requests.
    """

    sent: bool
    again: bool
    said: str
    pause_seconds: float = 0.0


class _PlainHandler(urllib.request.HTTPHandler):
    def __init__(self, connect: t.Callable[..., http.client.HTTPConnection]) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def __init__(self, connect: t.Callable[..., http.client.HTTPConnection]) -> None:
        super().__init__()
        self._connect = connect

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


class _NoRedirectHandler(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, fp: t.IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str) -> None:
        """Follow no redirect: a notice and its signature are only for the configured receiver."""
        return


class Poster:
    """Raises L(InvalidArgument) if C(ca_file) cannot be used. Proxies are those of the environment."""

    def __init__(self, config: WebhookConfig) -> None:
        self._config = config
        self._tls = make_tls_context(config.ca_file, NOTICES_VARIABLE) if config.url.startswith("https:") else None

    def post_event(self, event: JsonObject) -> WebhookAnswer:
        """Send the event once."""
        body = json.dumps(event, ensure_ascii=True).encode("ascii")
        headers = {"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "kvmfleet.migration"}
        headers |= signed_headers(str(event["id"]), int(time.time()), body, self._config.key)
        request = urllib.request.Request(self._config.url, body, headers, method="POST")  # noqa: S310 - its scheme was checked
        opened: list[http.client.HTTPConnection] = []
        is_late = threading.Event()
        guard = threading.Timer(self._config.timeout_seconds, _cut_connections, [opened, is_late])
        guard.daemon = True
        try:
            guard.start()
            with self._build_opener(opened).open(request, timeout=self._config.timeout_seconds) as answer:
                # A truncated answer may look complete.
                return (
                    WebhookAnswer(False, True, self._describe_error(TimeoutError()))
                    if is_late.is_set()
                    else WebhookAnswer(True, False, f"it answered {answer.status}")
                )
        except urllib.error.HTTPError as error:
            with error:
                return _refused_answer(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return WebhookAnswer(False, True, self._describe_error(error))
        except RuntimeError as error:  # no more threads
            return WebhookAnswer(False, True, str(error))
        finally:
            guard.cancel()

    def _build_opener(self, opened: list[http.client.HTTPConnection]) -> urllib.request.OpenerDirector:
        plain = _PlainHandler(functools.partial(_open_connection, opened, http.client.HTTPConnection))
        if self._tls is None:
            return urllib.request.build_opener(plain, _NoRedirectHandler())
        tls = functools.partial(_open_connection, opened, functools.partial(http.client.HTTPSConnection, context=self._tls))
        return urllib.request.build_opener(plain, _TlsHandler(tls), _NoRedirectHandler())

    def _describe_error(self, error: Exception) -> str:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, TimeoutError):
            return f"no answer within {self._config.timeout_seconds:g} s"
        if isinstance(cause, (ConnectionResetError, BrokenPipeError, http.client.HTTPException, ssl.SSLEOFError)):
            return "the connection was closed before an answer arrived"
        return getattr(cause, "strerror", None) or type(cause).__name__


def _open_connection(
    opened: list[http.client.HTTPConnection], make: t.Callable[..., http.client.HTTPConnection], host: str, timeout: float
) -> http.client.HTTPConnection:
    opened.append(make(host, timeout=timeout))
    return opened[-1]


def _cut_connections(opened: list[http.client.HTTPConnection], is_late: threading.Event) -> None:
    """End connections that a receiver keeps busy byte by byte."""
    is_late.set()
    for connection in opened:
        # The process may end at this moment.
        stream = connection.sock
        if isinstance(stream, socket.socket):
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _refused_answer(error: urllib.error.HTTPError) -> WebhookAnswer:
    if error.code in _RETRY_CODES or error.code >= 500:
        return WebhookAnswer(False, True, f"it answered {error.code}", _retry_after_seconds(error.headers.get("Retry-After")))
    redirected = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
    return WebhookAnswer(False, False, f"it answered {error.code}{redirected}")


def _retry_after_seconds(text: str | None) -> float:
    """Return the seconds of a C(Retry-After), which may be a date; 0 if it is missing or invalid."""
    if text is None:
        return 0.0
    if text.strip().isascii() and text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    now = datetime.datetime.now(datetime.UTC)
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - now).total_seconds())
