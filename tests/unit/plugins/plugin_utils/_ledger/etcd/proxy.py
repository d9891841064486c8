# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Between a ledger and etcd: requests are passed on, and answers get lost when a test says so."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import typing as t

Message = dict[str, t.Any]


class Proxy:
    """Listens on the loopback interface in C(with), and passes everything on to one member."""

    def __init__(self, endpoint: str) -> None:
        self.asked: list[tuple[str, Message]] = []
        self.before: t.Callable[[str, Message], None] = lambda call, request: None
        """Called with each request before it is passed on."""
        self.loses: t.Callable[[str, Message], bool] = lambda call, request: False
        """Whether the answer to a request, which was carried out, is not given."""
        self.refuses: t.Callable[[str, Message], Message | None] = lambda call, request: None
        """Returns the refusal of a request, which is not passed on."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler(endpoint))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self, endpoint: str) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                call, request = self.path.removeprefix("/v3/"), json.loads(data)
                proxy.asked.append((call, request))
                proxy.before(call, request)
                refusal = proxy.refuses(call, request)
                if refusal is not None:
                    self._answer(400, json.dumps(refusal).encode())
                    return
                member = http.client.HTTPConnection(endpoint, timeout=30)
                member.request("POST", self.path, data, {"Content-Type": "application/json"})
                answer = member.getresponse()
                body = answer.read()
                member.close()
                if proxy.loses(call, request):
                    self.close_connection = True
                    return
                self._answer(answer.status, body)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its base class calls it so
                return None

        return Handler
