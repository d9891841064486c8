# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The network interfaces of this host, as the kernel lists them: their kinds, MTUs and VLANs, and the bridges that they are ports of."""

from __future__ import annotations

import socket
import struct
import typing as t

from .._dataclass import dataclass
from .._model.facts import InterfaceFacts

_GET_LINK, _NEW_LINK, _DONE, _ERROR = 18, 16, 3, 2
_REQUEST_DUMP = 0x301
# The flag of a list that has changed while it was sent (NLM_F_DUMP_INTR).
_INTERRUPTED = 0x10
_TRIES = 5
# Attributes of an interface (linux/if_link.h), and of the data of a VLAN.
_NAME, _MTU, _LOWER, _CONTROLLER, _LINK_INFO, _LOWER_NAMESPACE, _PROPERTIES = 3, 4, 5, 10, 18, 37, 52
_OTHER_NAME = 53
_KIND, _DATA = 1, 2
_VLAN_ID = 1
_MESSAGE_HEADER = struct.Struct("=IHHII")
# Family, type, index, flags, and the flags that change.
_LINK_HEADER = struct.Struct("=BxHiII")
_TIMEOUT_SECONDS = 2.0
# The kinds of interfaces to which a guest's interface of the type bridge can be connected.
BRIDGES = ("bridge", "openvswitch")
_VLAN = "vlan"
# A guest has one for each of its own interfaces.
_OF_GUESTS = ("tun",)


@dataclass(frozen=True)
class Link:
    """An interface as the kernel describes it.

    :arg kind: empty for a plain interface.
    :arg vlan: the ID of the VLAN, for an interface of that kind.
    :arg lower: the index of the interface below it; 0 for none, and for one of another network namespace. C(controller) is that of its bridge or bond.
    :arg others: its alternative names, by which a definition may name it as well.
    """

    index: int
    name: str
    kind: str
    mtu: int
    vlan: t.Optional[int]
    lower: int
    controller: int
    others: t.Tuple[str, ...] = ()

    @property
    def names(self) -> t.Tuple[str, ...]:
        """All of its names."""
        return (self.name, *self.others)


def read_links() -> t.Optional[t.List[Link]]:
    """Return every interface; null if the kernel does not report them."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
            channel.settimeout(_TIMEOUT_SECONDS)
            for dummy in range(_TRIES):
                channel.send(_MESSAGE_HEADER.pack(_MESSAGE_HEADER.size + _LINK_HEADER.size, _GET_LINK, _REQUEST_DUMP, 1, 0) + bytes(_LINK_HEADER.size))
                links, is_whole = _receive_links(channel)
                if is_whole:
                    return links
    except OSError:
        return None
    return None


def describe_interfaces(links: t.Iterable[Link]) -> t.Tuple[InterfaceFacts, ...]:
    """Return the interfaces by name, without those that belong to guests."""
    listed = sorted(links, key=lambda link: link.name)
    names = {link.index: link.name for link in listed}
    return tuple(
        InterfaceFacts(link.name, link.kind, link.mtu, link.vlan, names.get(link.lower), names.get(link.controller))
        for link in listed
        if link.kind not in _OF_GUESTS
    )


def _receive_links(channel: socket.socket) -> t.Tuple[t.Optional[t.List[Link]], bool]:
    """Return the interfaces, null if the kernel refuses, and whether the list is whole: interfaces that come or go meanwhile can hide others."""
    links: t.List[Link] = []
    is_whole = True
    while True:
        for kind, flags, body in _split_messages(channel.recv(1 << 18)):
            is_whole = is_whole and not flags & _INTERRUPTED
            if kind == _DONE:
                return links, is_whole
            if kind == _ERROR:
                return None, True
            if kind == _NEW_LINK:
                links.extend(parse_link(body))


def _split_messages(data: bytes) -> t.Iterator[t.Tuple[int, int, bytes]]:
    while len(data) >= _MESSAGE_HEADER.size:
        length, kind, flags = _MESSAGE_HEADER.unpack_from(data)[:3]
        if length < _MESSAGE_HEADER.size:
            return
        yield kind, flags, data[_MESSAGE_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def parse_link(body: bytes) -> t.List[Link]:
    """Return the interface that a message describes; nothing for one without a name."""
    if len(body) < _LINK_HEADER.size:
        return []
    attributes = dict(_split_attributes(body[_LINK_HEADER.size :]))
    info = dict(_split_attributes(attributes.get(_LINK_INFO, b"")))
    name, kind = _decode_name(attributes.get(_NAME, b"")), _decode_name(info.get(_KIND, b""))
    is_vlan = kind == _VLAN
    data = dict(_split_attributes(info.get(_DATA, b""))) if is_vlan else {}
    link = Link(
        index=_LINK_HEADER.unpack_from(body)[2],
        name=name,
        kind=kind,
        mtu=_decode_number(attributes.get(_MTU)) or 0,
        vlan=_decode_number(data.get(_VLAN_ID)),
        lower=0 if _LOWER_NAMESPACE in attributes or not is_vlan else _decode_number(attributes.get(_LOWER)) or 0,
        controller=_decode_number(attributes.get(_CONTROLLER)) or 0,
        others=tuple(_decode_name(value) for kind, value in _split_attributes(attributes.get(_PROPERTIES, b"")) if kind == _OTHER_NAME),
    )
    return [link] if name else []


def _split_attributes(data: bytes) -> t.Iterator[t.Tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def _decode_name(value: bytes) -> str:
    return value.split(b"\0", 1)[0].decode("utf-8", "replace")


def _decode_number(value: t.Optional[bytes]) -> t.Optional[int]:
    formats = {2: "=H", 4: "=I"}
    return int(struct.unpack(formats[len(value)], value)[0]) if value is not None and len(value) in formats else None
