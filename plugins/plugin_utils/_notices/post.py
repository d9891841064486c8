# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One notice in one HTTP request, and what its answer means. A request ends in time, whatever the receiver does; no redirect is followed."""

from __future__ import annotations

import datetime
import email.utils
import functools
import http.client
import json
import socket
import ssl
import threading
import time
import typing as t
import urllib.error
import urllib.request

from .._ledger.store import Body
from .._values import trusting
from .config import VARIABLE, Config
from .signature import headers_of

_TRY_AGAIN = (408, 425, 429)


class Answer(t.NamedTuple):
    """:arg sent: the receiver has it.

    :arg again: it may take it later; without both it does not want it.
    :arg said: what it answered, for a sentence.
    :arg pause_seconds: how long it wants to be left alone.
    """

    sent: bool
    again: bool
    said: str
    pause_seconds: float = 0.0


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, connect: t.Callable[..., http.client.HTTPConnection]) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, connect: t.Callable[..., http.client.HTTPConnection]) -> None:
        super().__init__()
        self._connect = connect

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: t.Any, **_kwargs: t.Any) -> None:
        """Follow none: a notice and its signature are for the receiver that was named."""
        return


class Poster:
    """Raises L(InvalidArgument) where C(ca_file) cannot be used. Proxies are those of the environment."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tls = trusting(config.ca_file, VARIABLE) if config.url.startswith("https:") else None

    def post(self, event: Body) -> Answer:
        """Send the event once."""
        body = json.dumps(event, ensure_ascii=True).encode("ascii")
        headers = {"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "kvmfleet.migration"}
        headers |= headers_of(event["id"], int(time.time()), body, self._config.key)
        request = urllib.request.Request(self._config.url, body, headers, method="POST")  # noqa: S310 - its scheme was checked
        opened: list[http.client.HTTPConnection] = []
        is_late = threading.Event()
        guard = threading.Timer(self._config.timeout_seconds, _cut, [opened, is_late])
        guard.daemon = True
        guard.start()
        try:
            with self._opener(opened).open(request, timeout=self._config.timeout_seconds) as answer:
                # What was cut may look whole.
                return Answer(False, True, self._trouble(TimeoutError())) if is_late.is_set() else Answer(True, False, f"it answered {answer.status}")
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(False, True, self._trouble(error))
        finally:
            guard.cancel()

    def _opener(self, opened: list[http.client.HTTPConnection]) -> urllib.request.OpenerDirector:
        plain = _Plain(functools.partial(_connection, opened, http.client.HTTPConnection))
        if self._tls is None:
            return urllib.request.build_opener(plain, _NoRedirect())
        tls = functools.partial(_connection, opened, http.client.HTTPSConnection, context=self._tls)
        return urllib.request.build_opener(plain, _Tls(tls), _NoRedirect())

    def _trouble(self, error: Exception) -> str:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, TimeoutError):
            return f"no answer within {self._config.timeout_seconds:g} s"
        if isinstance(cause, (ConnectionResetError, BrokenPipeError, http.client.HTTPException, ssl.SSLEOFError)):
            return "the connection was ended before there was an answer"
        return getattr(cause, "strerror", None) or type(cause).__name__


def _connection(opened: list[http.client.HTTPConnection], kind: type[http.client.HTTPConnection], host: str, **options: t.Any) -> http.client.HTTPConnection:
    opened.append(kind(host, **options))
    return opened[-1]


def _cut(opened: list[http.client.HTTPConnection], is_late: threading.Event) -> None:
    """End connections that a receiver keeps busy byte by byte."""
    is_late.set()
    for connection in opened:
        # It may end by itself at this moment.
        stream = connection.sock
        if isinstance(stream, socket.socket):
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _refusal(error: urllib.error.HTTPError) -> Answer:
    if error.code in _TRY_AGAIN or error.code >= 500:
        return Answer(False, True, f"it answered {error.code}", _seconds(error.headers.get("Retry-After")))
    redirected = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
    return Answer(False, False, f"it answered {error.code}{redirected}")


def _seconds(text: str | None) -> float:
    """Return the seconds of a C(Retry-After), which may be a date; 0 for none, and for one that is none."""
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
