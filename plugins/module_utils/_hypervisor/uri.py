# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Libvirt URIs: which are local, and how one is built for a host without letting a name smuggle anything in."""

from __future__ import annotations

import re
import typing as t
import urllib.parse

from .._errors import InvalidArgument

TRANSPORTS = ("ssh", "tls", "tcp")
MEMORY_SCHEMES = ("tcp", "rdma", "unix")

_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?\]?")


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
    """Return the URI if it looks like one, else raise L(InvalidArgument) naming the option."""
    if not isinstance(uri, str) or not re.fullmatch(r"[a-z][a-z0-9+]*://[^\s'\"\\<>`]*", uri):
        raise InvalidArgument(f"{option} is {uri!r}, which is no libvirt URI.", "Give one like qemu:///system or qemu+ssh://kvm2/system.")
    return uri


def check_migrate_uri(uri: t.Any) -> str:
    """Return the URI if memory can be streamed to it, else raise L(InvalidArgument)."""
    if urllib.parse.urlsplit(check_uri(uri, "migrate_uri")).scheme not in MEMORY_SCHEMES:
        raise InvalidArgument(f"migrate_uri is {uri!r}, which is nothing that memory is streamed to.", "Give one like tcp://10.0.0.2.")
    return str(uri)
