# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import pathlib
import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import peers
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import (
    SSH_ANSWERS,
    SSH_REFUSED,
    SSH_SILENT,
    SSH_UNKNOWN,
    is_port_silent,
    probe_ssh,
    probe_ssh_endpoints,
    read_ssh_endpoint,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SshEndpoint


def test_an_open_port_answers_and_a_closed_one_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert probe_ssh("127.0.0.1", port) == SSH_ANSWERS
    assert probe_ssh("127.0.0.1", port) == SSH_REFUSED


def test_a_silent_address_takes_no_longer_than_the_limit() -> None:
    """The question who has rejected the attempt does not wait for an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        begun = time.monotonic()
        assert probe_ssh("127.0.0.1", server.getsockname()[1], seconds=0.5) == SSH_SILENT
        assert time.monotonic() - begun < 0.9


def test_a_name_that_does_not_resolve_is_unknown_and_not_silent() -> None:
    assert probe_ssh("no-such-host.invalid", 22) == SSH_UNKNOWN
    assert probe_ssh("x" * 300, 22) == SSH_UNKNOWN


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errno.ENETUNREACH, SSH_UNKNOWN),
        (errno.EAFNOSUPPORT, SSH_UNKNOWN),
        (errno.EADDRNOTAVAIL, SSH_UNKNOWN),
        (errno.EINVAL, SSH_UNKNOWN),
        (errno.EHOSTUNREACH, SSH_SILENT),
        (errno.ETIMEDOUT, SSH_SILENT),
    ],
)
def test_an_address_that_could_not_be_tried_is_unknown_and_not_silent(monkeypatch: pytest.MonkeyPatch, error: int, says: str) -> None:
    """As an IPv6 address is on a host without IPv6, or a link-local address without its interface."""

    def fail(_socket: socket.socket, _address: object) -> None:
        raise OSError(error, "no")

    monkeypatch.setattr(socket.socket, "connect", fail)
    assert probe_ssh("192.0.2.1", 22) == says


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        ((errno.ETIMEDOUT, errno.ENETUNREACH), SSH_SILENT),
        ((errno.ENETUNREACH, errno.ETIMEDOUT), SSH_SILENT),
        ((errno.ECONNREFUSED, errno.ENETUNREACH), SSH_REFUSED),
        ((errno.ECONNREFUSED, errno.ETIMEDOUT), SSH_REFUSED),
        ((errno.ENETUNREACH, errno.EAFNOSUPPORT), SSH_UNKNOWN),
        ((errno.ETIMEDOUT, 0), SSH_ANSWERS),
    ],
)
def test_each_address_of_a_name_counts_and_not_only_the_last_one(monkeypatch: pytest.MonkeyPatch, errors: t.Tuple[int, ...], says: str) -> None:
    """A resolver puts addresses last to which its host has no way."""
    addresses = {f"192.0.2.{number}": error for number, error in enumerate(errors, 1)}
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 22)) for address in addresses]

    def connect(_socket: socket.socket, address: t.Tuple[str, int]) -> None:
        if addresses[address[0]]:
            raise OSError(addresses[address[0]], "no")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_name, **_how: found)
    monkeypatch.setattr(socket.socket, "connect", connect)
    assert probe_ssh("kvm1.example", 22) == says


@pytest.mark.parametrize(
    ("address", "reporter", "code", "says"),
    [
        ("192.0.2.1", "192.0.2.1", 13, SSH_REFUSED),
        ("192.0.2.1", "192.0.2.1", 10, SSH_REFUSED),
        ("192.0.2.1", "198.51.100.1", 13, SSH_SILENT),
        ("192.0.2.1", "192.0.2.1", 1, SSH_SILENT),
        ("fd00::2", "fd00::2", 1, SSH_REFUSED),
        ("fd00::2", "fd00::1", 1, SSH_SILENT),
        ("fd00::2", "fd00::2", 3, SSH_SILENT),
    ],
)
def test_a_host_whose_firewall_rejects_is_on_and_one_that_a_router_misses_is_silent(
    monkeypatch: pytest.MonkeyPatch, address: str, reporter: str, code: int, says: str
) -> None:
    """The messages that Linux 6.18 has for the rules of firewalld, and for an address without a machine: also from a router that translates that address."""
    is_old = ":" not in address
    family, where = (socket.AF_INET, (address, 22)) if is_old else (socket.AF_INET6, (address, 22, 0, 0))
    head = bytes.fromhex("710000000203" if is_old else "0d0000000301") + bytes([code]) + bytes(9)
    offender = bytes.fromhex("02000000" if is_old else "0a00000000000000") + socket.inet_pton(family, reporter)
    message = (socket.IPPROTO_IP, 11, head + offender + bytes(8)) if is_old else (socket.IPPROTO_IPV6, 25, head + offender + bytes(4))

    def reject(_socket: socket.socket, _address: object) -> t.NoReturn:
        raise OSError(errno.EHOSTUNREACH if is_old else errno.EACCES, "no")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_name, **_how: [(family, socket.SOCK_STREAM, 6, "", where)])
    monkeypatch.setattr(socket.socket, "connect", reject)
    monkeypatch.setattr(socket.socket, "recvmsg", lambda *_sizes: (b"", [message], 0, where))
    assert probe_ssh(address, 22) == says


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_a_port_for_which_this_machine_has_no_file_is_not_silent(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(_socket: socket.socket, _address: object) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(Internal, match=f"192.0.2.1 port 22 cannot be tried from this machine: {os.strerror(number)}"):
        probe_ssh("192.0.2.1", 22)


def test_all_endpoints_are_probed_at_once_and_returned_in_order() -> None:
    """Each attempt waits until the other one has started."""
    both = threading.Barrier(2, timeout=10)

    def wait_for_the_other(address: str, port: int) -> str:
        both.wait()
        return SSH_SILENT if port == 22 else SSH_REFUSED

    doors = [SshEndpoint("192.0.2.1", 22), SshEndpoint("192.0.2.2", 2222)]
    assert probe_ssh_endpoints(doors, wait_for_the_other) == (SshEndpoint("192.0.2.1", 22, SSH_SILENT), SshEndpoint("192.0.2.2", 2222, SSH_REFUSED))
    assert probe_ssh_endpoints([], wait_for_the_other) == ()


def ssh(folder: pathlib.Path, *options: str) -> str:
    """Return an SSH client with this configuration."""
    program = folder / "ssh"
    lines = "\n".join(options)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/arguments\ncat <<END\n{lines}\nEND\n')
    program.chmod(0o755)
    return str(program)


def test_the_ssh_configuration_says_where_a_connection_leads(tmp_path: pathlib.Path) -> None:
    assert read_ssh_endpoint("kvm1", None, ssh(tmp_path, "hostname 192.0.2.1", "port 2222", "proxycommand none")) == ("192.0.2.1", 2222)
    assert (tmp_path / "arguments").read_text().split() == ["-G", "--", "kvm1"]
    read_ssh_endpoint("kvm1", 22, ssh(tmp_path, "hostname kvm1", "port 22"))
    assert (tmp_path / "arguments").read_text().split() == ["-G", "-p", "22", "--", "kvm1"]


@pytest.mark.parametrize("options", [("hostname kvm1", "port 22", "proxyjump jump"), ("hostname kvm1", "port 22", "proxycommand nc %h %p"), ("port 22",), ()])
def test_the_port_of_a_host_behind_a_jump_host_is_not_known(tmp_path: pathlib.Path, options: tuple[str, ...]) -> None:
    assert read_ssh_endpoint("kvm1", None, ssh(tmp_path, *options)) is None


def test_without_an_ssh_client_the_port_is_not_known(tmp_path: pathlib.Path) -> None:
    assert read_ssh_endpoint("kvm1", None, str(tmp_path / "none")) is None


def test_a_port_is_silent_only_if_it_is_known_and_nothing_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_port_silent(f"qemu+tcp://127.0.0.1:{port}/system")
    assert not is_port_silent(f"qemu+tls://127.0.0.1:{port}/system")
    assert not is_port_silent("qemu:///system")
    assert not is_port_silent("qemu+tcp://no-such-host.invalid/system")


def test_a_port_at_which_packets_are_lost_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, int]] = []
    monkeypatch.setattr(peers, "probe_ssh", lambda *endpoint: tried.append(endpoint) or SSH_SILENT)
    for uri in ("qemu+tcp://kvm1/system", "qemu+tls://kvm1/system", "qemu://kvm1/system", "qemu+tcp://kvm1:99/system"):
        assert is_port_silent(uri)
    assert tried == [("kvm1", 16509), ("kvm1", 16514), ("kvm1", 16514), ("kvm1", 99)]
