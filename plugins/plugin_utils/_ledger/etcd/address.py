# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where an etcd ledger is: the members that may be asked, and the prefix of its keys."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

SCHEME = "etcd://"
DEFAULT_PORT = 2379

_ENDPOINT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})))(?::(?P<port>[0-9]{1,5}))?")
_PREFIX = re.compile(r"/[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_LONGEST_PREFIX = 200
_HOW = "Write it as etcd://host:2379,host:2379/prefix."


class Endpoint(t.NamedTuple):
    """A member of the cluster, as clients reach it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether what is sent there stays on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True)
class Address:
    """:arg prefix: begins and ends with a slash; all keys of the ledger, and nothing else, begin with it."""

    endpoints: tuple[Endpoint, ...]
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(map(str, self.endpoints))}{self.prefix.rstrip('/')}"


def parse(location: str) -> Address:
    """Return the address in C(etcd://host:port[,host:port]/prefix). Raises L(InvalidArgument)."""
    authority, slash, prefix = location[len(SCHEME) :].partition("/")
    if "@" in location:
        raise InvalidArgument("The address of the etcd ledger has an '@' in it.", "Give user and password with 'kvmfleet_etcd', never in the address.")
    prefix = (slash + prefix).rstrip("/")
    if not prefix:
        raise InvalidArgument(f"The ledger {location} names no prefix for its keys.", _HOW)
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_PREFIX:
        raise InvalidArgument(f"The ledger {location} cannot be used: {prefix[:80]!r} is no prefix of letters, digits, '.', '_', '-' and '/'.", _HOW)
    endpoints = tuple(dict.fromkeys(_endpoint(text.strip(), location) for text in authority.split(",")))
    return Address(endpoints, f"{prefix}/")


def _endpoint(text: str, location: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 2**16 or (match["six"] and not _is_six(match["six"])):
        raise InvalidArgument(f"The ledger {location} cannot be used: {text[:80]!r} is no host and port.", _HOW)
    return Endpoint(match["six"] or match["host"], port)


def _is_six(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
