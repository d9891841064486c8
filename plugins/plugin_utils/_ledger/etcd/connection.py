# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One HTTP connection to one member, kept open between requests."""

from __future__ import annotations

import http.client
import ssl
import typing as t

from .address import Endpoint
from .failures import Unanswered

_HEADERS = {"Content-Type": "application/json"}
_MOST_BYTES = 512 * 2**20
_ENDED = "the connection was ended"
_ENDED_WITHOUT_TLS = "it ended the connection at once; see whether it wants TLS"
_ENDED_IN_HANDSHAKE = "it ended the connection before TLS was agreed on; see whether it speaks TLS"
_ENDED_AFTER_HANDSHAKE = "it ended the connection at once; see whether it accepts the client certificate"
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class Connection:
    """:arg context: None for no TLS.

    :arg timeout_seconds: for connecting, and for each wait for a part of an answer.
    """

    def __init__(self, endpoint: Endpoint, context: t.Optional[ssl.SSLContext], timeout_seconds: float) -> None:
        self.endpoint = endpoint
        self._context = context
        self._timeout_seconds = timeout_seconds
        self._stream: t.Optional[http.client.HTTPConnection] = None

    def post(self, path: str, data: bytes, token: t.Optional[str]) -> tuple[int, bytes]:
        """Return the status and body of the answer. Raises L(Unanswered)."""
        headers = {**_HEADERS, "Authorization": token} if token else _HEADERS
        ended = _ENDED
        # Whatever ends a request early, a signal too, leaves no stream that a next one could find in the middle of an answer.
        stream, self._stream = self._stream, None
        try:
            if stream is None:
                ended = _ENDED_IN_HANDSHAKE
                stream = self._opened()
                ended = _ENDED_AFTER_HANDSHAKE if self._context else _ENDED_WITHOUT_TLS
            stream.request("POST", path, data, headers)
            answer = stream.getresponse()
            body = answer.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            if stream is not None:
                stream.close()
            raise _unanswered(error, self._timeout_seconds, ended) from error
        if len(body) > _MOST_BYTES:
            stream.close()
            raise Unanswered("its answer is larger than any ledger's", lasting=True)
        self._stream = stream
        return answer.status, body

    def forget(self) -> None:
        """Let go of a stream that belongs to the process that this one was forked from."""
        self._stream = None

    def _opened(self) -> http.client.HTTPConnection:
        host, port, timeout = self.endpoint.host, self.endpoint.port, self._timeout_seconds
        if self._context is None:
            stream = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            stream = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        stream.connect()
        return stream


def _unanswered(error: Exception, timeout_seconds: float, ended: str) -> Unanswered:
    """:arg ended: what it means that the connection was ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unanswered(f"its certificate is not accepted: {error.verify_message}", lasting=True)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return Unanswered(ended)
    if isinstance(error, ssl.SSLError):
        return _unanswered_tls(error)
    if isinstance(error, TimeoutError):
        return Unanswered(f"no answer within {timeout_seconds:g} s")
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return Unanswered(ended)
    if isinstance(error, http.client.BadStatusLine):
        return Unanswered("what answers there does not speak HTTP", lasting=True)
    if isinstance(error, http.client.HTTPException):
        return Unanswered(_ENDED)
    return Unanswered(getattr(error, "strerror", None) or str(error))


def _unanswered_tls(error: ssl.SSLError) -> Unanswered:
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        return Unanswered("it does not speak TLS", lasting=True)
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return Unanswered(f"it wants another client certificate than it was shown ({reason})", lasting=True)
    return Unanswered(f"TLS failed ({reason})")
