# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server that keeps what it was sent, and answers as a test says: late, never, with errors, or half."""

from __future__ import annotations

import collections
import http.server
import json
import ssl
import threading
import time
import typing as t
from dataclasses import dataclass, field

Event = dict[str, t.Any]
Answer = t.Callable[["Handler"], None]


@dataclass
class Request:
    """:arg at: on the monotonic clock."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def event(self) -> Event:
        return t.cast(Event, json.loads(self.body))


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads a request, keeps it, and answers."""

    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.receiver.take(Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        answer(self)

    def log_message(self, *_args: t.Any) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, *_args: t.Any) -> None:
        """A client that goes away is no error here."""


class Receiver:
    """:arg context: None for no TLS. C(with) starts and ends it; what is in C(answers) is given first, then 204."""

    def __init__(self, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.answers: collections.deque[Answer] = collections.deque()
        self.over = threading.Event()
        self._changed = threading.Condition()
        self._server = Server(("127.0.0.1", port), Handler)
        self._server.receiver = self
        self.port = self._server.server_address[1]
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}/hooks/confidential-path"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_args: t.Any) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: Request) -> Answer:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            return self.answers.popleft() if self.answers else status(204)

    def await_requests(self, count: int, seconds: float = 60) -> None:
        """Return when so many requests came."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, seconds), self.kinds()

    def events(self) -> list[Event]:
        """Return the events as a receiver keeps them that drops duplicates by their id."""
        return list({request.event["id"]: request.event for request in self.requests}.values())

    def kinds(self) -> list[str]:
        """Return what is after the prefix of each event's type."""
        return [event["type"].removeprefix("io.github.kvmfleet.migration.") for event in self.events()]


def status(code: int, **headers: str) -> Answer:
    """Answer with a status; a header's C(_) stands for a hyphen."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def silence(handler: Handler) -> None:
    """Never answer."""
    handler.server.receiver.over.wait()


def hang_up(handler: Handler) -> None:
    """End the connection in the middle of the answer."""
    handler.wfile.write(b"HTTP/1.1 20")
    handler.wfile.flush()
    handler.connection.close()


def drip(handler: Handler) -> None:
    """Answer for ever, byte by byte."""
    handler.wfile.write(b"HTTP/1.1 204 ")
    while not handler.server.receiver.over.wait(0.02):
        handler.wfile.write(b"x")
