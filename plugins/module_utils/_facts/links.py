# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The network interfaces of this host, from the kernel by netlink: a folder like /sys may be that of another network namespace."""

from __future__ import annotations

import socket
import struct
import typing as t

_GET_LINK, _NEW_LINK, _DONE, _ERROR = 18, 16, 3, 2
_REQUEST_DUMP = 0x301
_NAME, _LINK_INFO, _KIND = 3, 18, 1
_HEADER = struct.Struct("=IHHII")
_LINK_HEADER_BYTES = 16
_TIMEOUT_SECONDS = 2.0
# Those that a guest's interface of the type bridge can be plugged into.
BRIDGES = ("bridge", "openvswitch")


def read_links() -> t.Optional[t.Dict[str, str]]:
    """Return the kind of every interface by its name, empty for a plain one; null where the kernel does not tell."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
            channel.settimeout(_TIMEOUT_SECONDS)
            channel.send(_HEADER.pack(_HEADER.size + _LINK_HEADER_BYTES, _GET_LINK, _REQUEST_DUMP, 1, 0) + bytes(_LINK_HEADER_BYTES))
            return _read(channel)
    except OSError:
        return None


def _read(channel: socket.socket) -> t.Optional[t.Dict[str, str]]:
    links: t.Dict[str, str] = {}
    while True:
        for kind, body in _messages(channel.recv(1 << 18)):
            if kind == _DONE:
                return links
            if kind == _ERROR:
                return None
            if kind == _NEW_LINK:
                links.update(_link(body))


def _messages(data: bytes) -> t.Iterator[t.Tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind = _HEADER.unpack_from(data)[:2]
        if length < _HEADER.size:
            return
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _link(body: bytes) -> t.Dict[str, str]:
    attributes = dict(_attributes(body[_LINK_HEADER_BYTES:]))
    kind = dict(_attributes(attributes.get(_LINK_INFO, b""))).get(_KIND, b"")
    name = _text(attributes.get(_NAME, b""))
    return {name: _text(kind)} if name else {}


def _attributes(data: bytes) -> t.Iterator[t.Tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def _text(value: bytes) -> str:
    return value.split(b"\0", 1)[0].decode("utf-8", "replace")
