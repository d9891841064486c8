# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The small client of etcd on a host: it writes one key through one way to one member, and reads nothing."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import typing as t

from .._model.codec import Json, JsonObject
from .._model.etcd_refusals import is_stale_token, says_no_users, wants_user
from .._time_limits import PendingAnswer
from .config import LeaseConfig

_MAX_BYTES = 2**20
LOGIN_SECONDS = 30.0
"""A login is expensive for a member, and after an outage all hosts log in at once: one that was given up and tried again would cost the others the same."""
Address = t.Tuple[str, int]


class NotAcknowledged(Exception):
    """A renewal was not acknowledged through this way; the message says why. It may have been done all the same."""


class _Refused(NotAcknowledged):
    """etcd refused a request.

    :arg code: of gRPC.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def wants_login(self) -> bool:
        """Whether the token is no longer valid, or the cluster has got users since it said that it has none."""
        return is_stale_token(self.code, str(self)) or wants_user(str(self))


def split_endpoint(endpoint: str) -> Address:
    """Return host and port of C(host:port) or C([host]:port)."""
    host, _colon, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def make_tls_context(config: LeaseConfig) -> t.Optional[ssl.SSLContext]:
    """Return the TLS context; null for none. Raises C(OSError) or C(ValueError) if a file cannot be used."""
    if not config.tls:
        return None
    context = ssl.create_default_context(cafile=config.ca_file)
    if config.cert_file:
        # An empty password, so that OpenSSL does not prompt for that of an encrypted key.
        context.load_cert_chain(config.cert_file, config.key_file, password="")
    return context


class Tokens:
    """The token of the user, which all members accept."""

    def __init__(self) -> None:
        self.token: t.Optional[str] = None
        self.is_needed = True
        """Unset when the cluster says that it has no users."""


class Way:
    """A way to a member of etcd.

    :arg endpoint: the member.
    :arg relay: the service of a peer that passes the bytes on; null for the direct way.
    :arg name: C(direct), or the peer's name.
    :arg timeout_seconds: for connecting, and for each wait for a part of an answer.
    """

    def __init__(
        self,
        config: LeaseConfig,
        context: t.Optional[ssl.SSLContext],
        tokens: Tokens,
        endpoint: str,
        relay: t.Optional[Address],
        name: str,
        timeout_seconds: float,
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._relay = relay
        self._timeout_seconds = timeout_seconds
        self._config = config
        self._context = context
        self._tokens = tokens
        self._stream: t.Optional[http.client.HTTPConnection] = None
        self._login: t.Optional[PendingAnswer[str]] = None

    def __str__(self) -> str:
        return self._endpoint if self._relay is None else f"{self._endpoint} through {self.name}"

    def put(self, value: bytes) -> int:
        """Write the key of the lease; return the revision of etcd at which that was done. Raises L(NotAcknowledged)."""
        return self._send("kv/put", self._describe_put(value))

    def try_put(self) -> int:
        """Return the revision of etcd if it would write the key of the lease, which it does not. Raises L(NotAcknowledged)."""
        # Without a condition, a transaction has not failed. The rights to all of its operations are checked.
        return self._send("kv/txn", {"failure": [{"request_put": self._describe_put(b"")}]})

    def _describe_put(self, value: bytes) -> JsonObject:
        return {"key": _encode_bytes(self._config.key.encode("utf-8")), "value": _encode_bytes(value)}

    def _send(self, call: str, payload: JsonObject) -> int:
        try:
            return self._read_revision(self._post(call, payload, self._get_token()))
        except _Refused as error:
            if not self._config.user or not error.wants_login:
                raise
        self._tokens.token, self._tokens.is_needed = None, True
        return self._read_revision(self._post(call, payload, self._get_token()))

    def _read_revision(self, answer: JsonObject) -> int:
        header = answer.get("header")
        cluster = str(header.get("cluster_id")) if isinstance(header, dict) else None
        if cluster != self._config.cluster_id:
            raise NotAcknowledged(f"it is of the cluster {cluster}, and the lease belongs to {self._config.cluster_id}; if that is right, run host_lease again")
        revision = str(t.cast(JsonObject, header).get("revision"))
        if not revision.isdecimal():
            raise NotAcknowledged("its answer names no revision")
        return int(revision)

    def _get_token(self) -> t.Optional[str]:
        """Return the token. A login that takes longer than a renewal may is not given up, and what it brings is used by the next renewal through any way."""
        if self._tokens.token is not None or not self._config.user or not self._tokens.is_needed:
            return self._tokens.token
        login = self._login = self._login or PendingAnswer(self._log_in)
        problem = login.wait(self._timeout_seconds)
        if problem is None and self._tokens.token is None:
            raise NotAcknowledged(f"the login takes longer than {self._timeout_seconds:g} s")
        self._login = None
        if problem:
            raise NotAcknowledged(problem)
        return self._tokens.token

    def _log_in(self) -> str:
        """Get a token, or learn that the cluster needs none. Return why that failed; empty if it did not."""
        payload = {"name": self._config.user, "password": self._config.password}
        try:
            status, body = self._ask(self._open_stream(LOGIN_SECONDS), *_as_request("auth/authenticate", payload), None, is_kept=False)
            self._tokens.token = str(_read_answer(status, body).get("token", ""))
        except _Refused as error:
            if not says_no_users(str(error)):
                return f"it rejects the user {self._config.user!r}: {error}"
            self._tokens.is_needed = False
        except NotAcknowledged as error:
            return str(error)
        except (OSError, http.client.HTTPException) as error:
            return _describe_failure(error, LOGIN_SECONDS)
        return ""

    def _post(self, call: str, payload: JsonObject, token: t.Optional[str]) -> JsonObject:
        return _read_answer(*self._exchange(*_as_request(call, payload), token))

    def _exchange(self, path: str, data: bytes, token: t.Optional[str]) -> t.Tuple[int, bytes]:
        """Return status and body. A stream that was kept may have been closed by the other side meanwhile; then a new one is tried."""
        stream, self._stream = self._stream, None
        try:
            if stream is not None:
                with contextlib.suppress(ConnectionError, http.client.HTTPException, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    return self._ask(stream, path, data, token)
            return self._ask(self._open_stream(self._timeout_seconds), path, data, token)
        except (OSError, http.client.HTTPException) as error:
            raise NotAcknowledged(_describe_failure(error, self._timeout_seconds)) from error

    def _ask(self, stream: http.client.HTTPConnection, path: str, data: bytes, token: t.Optional[str], is_kept: bool = True) -> t.Tuple[int, bytes]:
        try:
            stream.request("POST", path, data, {"Content-Type": "application/json", **({"Authorization": token} if token else {})})
            answer = stream.getresponse()
            body = answer.read(_MAX_BYTES)
        except BaseException:
            stream.close()
            raise
        if is_kept:
            self._stream = stream
        else:
            stream.close()
        return answer.status, body

    def _open_stream(self, timeout_seconds: float) -> http.client.HTTPConnection:
        host, port = split_endpoint(self._endpoint)
        stream = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        sock = socket.create_connection(self._relay or (host, port), timeout_seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._relay:
                sock.sendall(f"relay {self._endpoint}\n".encode("ascii"))
            stream.sock = self._context.wrap_socket(sock, server_hostname=host) if self._context else sock
        except BaseException:
            sock.close()
            raise
        return stream


def _as_request(call: str, payload: JsonObject) -> t.Tuple[str, bytes]:
    return f"/v3/{call}", json.dumps(payload).encode("ascii")


def _read_answer(status: int, body: bytes) -> JsonObject:
    answer = _parse_object(body)
    if status == 200 and answer is not None:
        return answer
    code = answer.get("code") if answer else None
    if answer is None or not isinstance(code, int):
        raise NotAcknowledged(f"the service there is not etcd 3.4 or later (HTTP status {status})")
    raise _Refused(code, str(answer.get("message") or answer.get("error") or "no reason given"))


def _describe_failure(error: Exception, timeout_seconds: float) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return f"no answer within {timeout_seconds:g} s"
    return getattr(error, "strerror", None) or str(error) or "the connection was closed"


def _encode_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _parse_object(body: bytes) -> t.Optional[t.Dict[str, Json]]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
