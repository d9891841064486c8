# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The connection to a ledger in etcd: its address and options, and one HTTP connection to one member, kept open between requests."""

from __future__ import annotations

import http.client
import os
import re
import ssl
import typing as t
from collections.abc import Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import is_ipv6, parse_ip

from ..._settings.certificates import Validity, read_der_validity
from ..._settings.options import make_tls_context, read_text, unusable_file_error
from .messages import Unanswered

SCHEME = "etcd://"
DEFAULT_PORT = 2379

_ENDPOINT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})))(?::(?P<port>[0-9]{1,5}))?")
_PREFIX = re.compile(r"/[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_LONGEST_PREFIX = 200
_SYNTAX = "Write it as etcd://host:2379,host:2379/prefix."


class Endpoint(t.NamedTuple):
    """A member of the cluster, as clients reach it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the member is on this machine."""
        ip = parse_ip(self.host)
        return self.host == "localhost" if ip is None else ip.is_loopback


@dataclass(frozen=True)
class EtcdAddress:
    """:arg prefix: begins and ends with a slash; all keys of the ledger, and nothing else, begin with it."""

    endpoints: tuple[Endpoint, ...]
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(map(str, self.endpoints))}{self.prefix.rstrip('/')}"


def parse_address(location: str) -> EtcdAddress:
    """Return the address in C(etcd://host:port[,host:port]/prefix). Raises L(InvalidArgument)."""
    authority, slash, prefix = location[len(SCHEME) :].partition("/")
    if "@" in location:
        raise InvalidArgument("The address of the etcd ledger has an '@' in it.", "Give user and password with 'kvmfleet_etcd', never in the address.")
    prefix = (slash + prefix).rstrip("/")
    if not prefix:
        raise InvalidArgument(f"The ledger {location} names no prefix for its keys.", _SYNTAX)
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_PREFIX:
        raise InvalidArgument(f"The ledger {location} cannot be used: {prefix[:80]!r} is not a prefix of letters, digits, '.', '_', '-' and '/'.", _SYNTAX)
    endpoints = tuple(dict.fromkeys(_parse_endpoint(text.strip(), location) for text in authority.split(",")))
    return EtcdAddress(endpoints, f"{prefix}/")


def _parse_endpoint(text: str, location: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 2**16 or (match["six"] and not is_ipv6(match["six"])):
        raise InvalidArgument(f"The ledger {location} cannot be used: {text[:80]!r} is not a host and port.", _SYNTAX)
    return Endpoint(match["six"] or match["host"], port)


ETCD_VARIABLE = "kvmfleet_etcd"
_FILES = ("ca_file", "cert_file", "key_file")
_KNOWN = ("tls", *_FILES, "user", "password")


@dataclass(frozen=True)
class EtcdOptions:
    """Files are paths on the control node. Secrets appear in no representation."""

    tls: bool = False
    ca_file: t.Optional[str] = None
    cert_file: t.Optional[str] = None
    key_file: t.Optional[str] = None
    user: t.Optional[str] = None
    password: t.Optional[str] = field(default=None, repr=False)

    def make_ssl_context(self) -> t.Optional[ssl.SSLContext]:
        """Return the TLS context, or None. Raises L(InvalidArgument) naming a file that cannot be used."""
        if not self.tls:
            return None
        context = make_tls_context(self.ca_file, ETCD_VARIABLE)
        if self.cert_file:
            try:
                # An empty password, so that OpenSSL does not prompt for that of an encrypted key.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ValueError) as error:
                raise unusable_file_error(f"certificate {self.cert_file} with key {self.key_file or self.cert_file}", ETCD_VARIABLE, error) from error
        return context


def read_options(value: Json, address: EtcdAddress) -> EtcdOptions:
    """Return the options in a value of C(kvmfleet_etcd), which may be None. Raises L(InvalidArgument), never showing a password."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{ETCD_VARIABLE} is not a dictionary.", f"It knows {', '.join(_KNOWN)}.")
    unknown = sorted(str(key) for key in value if key not in _KNOWN)
    if unknown:
        raise InvalidArgument(f"{ETCD_VARIABLE} has unknown keys: {unknown[0]!r}.", f"It knows {', '.join(_KNOWN)}.")
    texts = {key: read_text(value.get(key), key, ETCD_VARIABLE) for key in (*_FILES, "user", "password")}
    files = {key: os.path.expanduser(text) if text else None for key, text in texts.items() if key in _FILES}
    options = EtcdOptions(_read_tls(value.get("tls"), files), **files, user=texts["user"], password=texts["password"])
    _check_options(options, address)
    return options


def _read_tls(value: Json, files: Mapping[str, t.Optional[str]]) -> bool:
    if value is None:
        return any(files.values())
    if not isinstance(value, bool):
        raise InvalidArgument(f"'tls' of {ETCD_VARIABLE} is neither true nor false.")
    return value


def _check_options(options: EtcdOptions, address: EtcdAddress) -> None:
    if options.key_file and not options.cert_file:
        raise InvalidArgument(f"{ETCD_VARIABLE} has a key_file, but no cert_file.", "Give both, or neither.")
    if bool(options.user) != bool(options.password):
        raise InvalidArgument(f"{ETCD_VARIABLE} has only one of user and password.", "Give both, or neither.")
    if not options.tls and any((options.ca_file, options.cert_file)):
        raise InvalidArgument(f"{ETCD_VARIABLE} has certificates, but 'tls' is false.", "Leave 'tls' out, or the certificates.")
    far = [str(endpoint) for endpoint in address.endpoints if not endpoint.is_local]
    if options.password and not options.tls and far:
        raise InvalidArgument(f"The password of {ETCD_VARIABLE} would go to {far[0]} in clear text.", f"Set 'tls: true' or 'ca_file' in {ETCD_VARIABLE}.")


_HEADERS = {"Content-Type": "application/json"}
_MAX_BYTES = 512 * 2**20
_ENDED = "the connection was closed"
_ENDED_WITHOUT_TLS = "it closed the connection at once; check whether it requires TLS"
_ENDED_IN_HANDSHAKE = "it closed the connection before TLS was negotiated; check whether it supports TLS"
_ENDED_AFTER_HANDSHAKE = "it closed the connection at once; check whether it accepts the client certificate"
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

    def post_request(self, path: str, data: bytes, token: t.Optional[str]) -> tuple[int, bytes]:
        """Return the status and body of the answer. Raises L(Unanswered)."""
        headers = {**_HEADERS, "Authorization": token} if token else _HEADERS
        ended = _ENDED
        # A request that ends early, for example by a signal, closes the stream, so that no later request reads the rest of an answer.
        stream, self._stream = self._stream, None
        try:
            if stream is None:
                ended = _ENDED_IN_HANDSHAKE
                stream = self._open_stream()
                ended = _ENDED_AFTER_HANDSHAKE if self._context else _ENDED_WITHOUT_TLS
            stream.request("POST", path, data, headers)
            answer = stream.getresponse()
            body = answer.read(_MAX_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            if stream is not None:
                stream.close()
            raise _unanswered_error(error, self._timeout_seconds, ended) from error
        if len(body) > _MAX_BYTES:
            stream.close()
            raise Unanswered("its answer is larger than any ledger", lasting=True)
        self._stream = stream
        return answer.status, body

    def read_certificate(self) -> t.Optional[Validity]:
        """Return the validity of the member's certificate, after an answer; null without TLS."""
        sock = self._stream.sock if self._stream else None
        der = sock.getpeercert(binary_form=True) if isinstance(sock, ssl.SSLSocket) else None
        return read_der_validity(der) if der else None

    def forget_stream(self) -> None:
        """Drop a stream that belongs to the process from which this one was forked."""
        self._stream = None

    def _open_stream(self) -> http.client.HTTPConnection:
        host, port, timeout = self.endpoint.host, self.endpoint.port, self._timeout_seconds
        if self._context is None:
            stream = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            stream = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        stream.connect()
        return stream


def _unanswered_error(error: Exception, timeout_seconds: float, ended: str) -> Unanswered:
    """:arg ended: the meaning of a closed connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unanswered(f"its certificate is not accepted: {error.verify_message}", lasting=True)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return Unanswered(ended)
    if isinstance(error, ssl.SSLError):
        return _unanswered_tls_error(error)
    if isinstance(error, TimeoutError):
        return Unanswered(f"no answer within {timeout_seconds:g} s")
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return Unanswered(ended)
    if isinstance(error, http.client.BadStatusLine):
        return Unanswered("the service there does not speak HTTP", lasting=True)
    if isinstance(error, http.client.HTTPException):
        return Unanswered(_ENDED)
    return Unanswered(getattr(error, "strerror", None) or str(error))


def _unanswered_tls_error(error: ssl.SSLError) -> Unanswered:
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        return Unanswered("it does not speak TLS", lasting=True)
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return Unanswered(f"it requires another client certificate ({reason})", lasting=True)
    return Unanswered(f"TLS failed ({reason})")
