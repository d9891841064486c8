# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import socket
import struct
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import links as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.links import Link, describe_interfaces, parse_link, read_links
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import InterfaceFacts

SYS = pathlib.Path("/sys/class/net")


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(*attributes: bytes, index: int = 4) -> bytes:
    return struct.pack("=BxHiII", 0, 1, index, 0, 0) + b"".join(attributes)


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def info(kind: bytes, data: bytes = b"") -> bytes:
    return attribute(18, attribute(1, kind + b"\0") + attribute(2, data))


def test_interfaces_of_this_host_are_listed() -> None:
    links = read_links()
    assert links is not None
    assert {(link.index, link.name) for link in links} == set(socket.if_nameindex())
    assert {link.name: link.kind for link in links}["lo"] == ""


def test_bridges_and_mtus_are_those_of_the_kernel() -> None:
    links = {link.name: link for link in read_links() or ()}
    for name in set(links) & set(os.listdir(SYS)):
        if (SYS / name / "ifindex").read_text().strip() == str(links[name].index):
            assert (links[name].kind == "bridge") == (SYS / name / "bridge").exists()
            assert links[name].mtu == int((SYS / name / "mtu").read_text())


def test_interfaces_are_unknown_if_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> socket.socket:
        raise PermissionError(*arguments)

    monkeypatch.setattr(module.socket, "socket", refuse)
    assert read_links() is None


def reply(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


class Kernel:
    """Answers each request with the next of these lists of links."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    def __call__(self, *_arguments: object) -> t.Any:
        return self

    __enter__ = __call__

    def __exit__(self, *_arguments: object) -> None:
        pass

    def settimeout(self, _seconds: float) -> None:
        pass

    def send(self, _request: bytes) -> None:
        pass

    def recv(self, _size: int) -> bytes:
        return self.answers.pop(0)


def test_a_list_of_interfaces_that_changed_meanwhile_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lack an interface, and its host would be refused as the destination of guests."""
    whole = reply(16, message(attribute(3, b"br0\0"))) + reply(3)
    torn = reply(16, message(attribute(3, b"br1\0")), flags=0x10) + reply(3)
    monkeypatch.setattr(module.socket, "socket", Kernel(torn, whole))
    assert [link.name for link in read_links() or ()] == ["br0"]
    monkeypatch.setattr(module.socket, "socket", Kernel(*[torn] * 9))
    assert read_links() is None


def test_a_vlan_on_a_bridge_has_its_id_its_lower_interface_and_its_bridge() -> None:
    vlan = info(b"vlan", attribute(1, struct.pack("=H", 20)))
    found = parse_link(message(attribute(3, b"eth0.20\0"), attribute(4, number(1496)), attribute(5, number(2)), attribute(10, number(3)), vlan))
    assert found == [Link(4, "eth0.20", "vlan", 1496, 20, 2, 3)]


def test_an_interface_has_its_alternative_names() -> None:
    """A guest whose bridge or device is one of them starts."""
    properties = attribute(52 | 0x8000, attribute(53, b"enp3s0\0") + attribute(53, b"lan\0"))
    (link,) = parse_link(message(attribute(3, b"eno1\0"), properties))
    assert link.names == ("eno1", "enp3s0", "lan")


@pytest.mark.parametrize(
    "attributes",
    [
        # The other end of a pair, and a VLAN on an interface of another namespace.
        (attribute(5, number(2)), info(b"veth")),
        (attribute(5, number(2)), attribute(37, number(0)), info(b"vlan")),
    ],
)
def test_an_interface_of_another_namespace_is_not_below(attributes: tuple[bytes, ...]) -> None:
    (link,) = parse_link(message(attribute(3, b"veth0\0"), *attributes))
    assert link.lower == 0


@pytest.mark.parametrize("body", [b"", b"\0" * 15, message(), message(b"\x01\0\0\0")])
def test_a_damaged_message_describes_nothing(body: bytes) -> None:
    assert parse_link(body) == []


def test_interfaces_of_guests_are_left_out_and_ports_name_their_bridge() -> None:
    links = [
        Link(5, "vnet0", "tun", 9000, None, 0, 3),
        Link(4, "eth0.20", "vlan", 9000, 20, 2, 3),
        Link(3, "br20", "bridge", 9000, None, 0, 0),
        Link(2, "eth0", "", 9000, None, 0, 0),
    ]
    assert describe_interfaces(links) == (
        InterfaceFacts("br20", "bridge", 9000, None, None, None),
        InterfaceFacts("eth0", "", 9000, None, None, None),
        InterfaceFacts("eth0.20", "vlan", 9000, 20, "eth0", "br20"),
    )
