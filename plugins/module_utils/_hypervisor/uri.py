# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Libvirt URIs: which are allowed, which are local, and how one is built for a host without letting a name smuggle anything in.

A URI reaches libvirt's daemon, which runs as root, and libvirt runs programs that a URI names (https://libvirt.org/uri.html): such a URI is refused.
"""

from __future__ import annotations

import re
import typing as t
import urllib.parse

from .._errors import InvalidArgument

TRANSPORTS = ("ssh", "tls", "tcp")
MEMORY_SCHEMES = ("tcp", "rdma", "unix")

_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?\]?")
_URI = re.compile(
    r"(?P<driver>[a-z][a-z0-9]*)(\+(?P<transport>[a-z0-9]*))?://"
    r"((?P<user>[^/?#@]*)@)?(?P<host>\[[^\]/?#@]*\]|[^/?#@:\[\]]*)(:[0-9]{1,5})?"
    r"(?P<path>/[^\s'\"\\<>`?#]*)?(\?(?P<query>[^\s'\"\\<>`#]*))?"
)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_TRANSPORTS_OF_URIS = (None, "unix", "libssh", "libssh2", *TRANSPORTS)
# Not "command" and "netcat", which name programs, nor "name", which has the daemon open another URI.
_PARAMETERS = frozenset(
    ["keyfile", "known_hosts", "known_hosts_verify", "mode", "no_sanity", "no_tty", "no_verify", "pkipath", "proxy", "socket", "sshauth", "tls_priority"],
)


def check_address(address: str) -> str:
    """Return the host name or IP address if it can stand in a URI, else raise L(InvalidArgument)."""
    if not _ADDRESS.fullmatch(address or ""):
        raise InvalidArgument(
            f"{address!r} is no host name and no IP address.",
            "Name a host of the inventory, or give an address that libvirt can connect to.",
        )
    return address


def remote_uri(address: str, transport: str) -> str:
    """Return the system URI of the QEMU driver at an address, e.g. C(qemu+tcp://kvm2/system)."""
    check_address(address)
    host = f"[{address}]" if ":" in address and not address.startswith("[") else address
    # Without no_tty a missing key would wait for a password that nobody can type.
    options = "?no_tty=1" if transport == "ssh" else ""
    return f"qemu+{transport}://{host}/system{options}"


def is_local(uri: str) -> bool:
    """Whether the URI is that of the machine it is opened on: no host, and no transport but a unix socket."""
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    return not parts.netloc and transport in ("", "unix")


def check_uri(uri: t.Any, option: str) -> str:
    """Return the URI if it is one that makes libvirt run nothing but its own transports, else raise L(InvalidArgument) naming the option."""
    parts = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if parts is None:
        raise InvalidArgument(f"{option} is {_shown(uri)}, which is no libvirt URI.", "Give one like qemu:///system or qemu+ssh://kvm2/system.")
    problem = _problem_of(parts)
    if problem:
        raise InvalidArgument(f"{option} is {_shown(uri)}: {problem}.", "Give one like qemu:///system or qemu+ssh://kvm2/system.")
    return str(uri)


def _problem_of(parts: t.Match[str]) -> str:
    if parts["transport"] not in _TRANSPORTS_OF_URIS:
        return f"the transport {parts['transport']!r} is none of {', '.join(filter(None, _TRANSPORTS_OF_URIS))}"
    if parts["host"] and not _ADDRESS.fullmatch(parts["host"]):
        return f"{parts['host']!r} is no host name and no IP address"
    if parts["user"] is not None and not _USER.fullmatch(parts["user"]):
        return "what stands before the @ is no user name (a password cannot stand there)"
    # Libvirt parts parameters at both characters, decodes their names, and minds no case.
    names = [parameter.partition("=")[0] for parameter in re.split("[&;]", parts["query"] or "") if parameter]
    strange = [name for name in names if name not in _PARAMETERS]
    return f"the parameter {strange[0]!r} is not allowed, only {', '.join(sorted(_PARAMETERS))} are" if strange else ""


def _shown(uri: t.Any) -> str:
    """Return the URI for a message, without a password that somebody wrote into it."""
    return re.sub(r"://([^/?#@:]*):[^/?#]*@", r"://\1:***@", repr(uri))


def check_migrate_uri(uri: t.Any) -> str:
    """Return the URI if memory can be streamed to it, else raise L(InvalidArgument)."""
    if urllib.parse.urlsplit(check_uri(uri, "migrate_uri")).scheme not in MEMORY_SCHEMES:
        raise InvalidArgument(f"migrate_uri is {uri!r}, which is nothing that memory is streamed to.", "Give one like tcp://10.0.0.2.")
    return str(uri)
