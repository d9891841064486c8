# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_address, check_uri, is_local, remote_uri

SMUGGLED = [
    "",
    "kvm2/system?command=touch",
    "kvm2?no_verify=1",
    "kvm2#x",
    "root@kvm2",
    "-oProxyCommand=id",
    "kvm2 kvm3",
    "kvm2\n",
    "\nkvm2",
    "kvm2;id",
    "$(id)",
    "`id`",
    "../kvm2",
    "kvm2'",
    'kvm2"',
    "kvm2%0a",
    "kvm2:22/..",
    "[::1]/session",
    "::1 ",
    "[::1",
    "[:]",
    "1:2:3",
]


@pytest.mark.parametrize("address", SMUGGLED)
@pytest.mark.parametrize("transport", ["ssh", "tcp", "tls"])
def test_an_address_that_would_change_the_uri_is_refused(address: str, transport: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        remote_uri(address, transport)
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("address", ["kvm2", "kvm-2.example.org", "10.0.0.2", "fe80::1%eth0", "[2001:db8::2]", "2001:db8::2", "my_host"])
def test_names_and_addresses_of_all_kinds_are_accepted(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
    ("address", "transport", "uri"),
    [
        ("kvm2", "tcp", "qemu+tcp://kvm2/system"),
        ("kvm2", "tls", "qemu+tls://kvm2/system"),
        ("kvm2", "ssh", "qemu+ssh://kvm2/system?no_tty=1"),
        ("2001:db8::2", "tcp", "qemu+tcp://[2001:db8::2]/system"),
        ("[2001:db8::2]", "tcp", "qemu+tcp://[2001:db8::2]/system"),
    ],
)
def test_a_remote_uri_is_built_from_address_and_transport(address: str, transport: str, uri: str) -> None:
    assert remote_uri(address, transport) == uri


@pytest.mark.parametrize(
    ("uri", "local"),
    [
        ("qemu:///system", True),
        ("qemu+unix:///system?socket=/run/x", True),
        ("qemu:///session", True),
        ("qemu+ssh://kvm2/system", False),
        ("qemu+tcp://localhost/system", False),
        ("qemu+ssh:///system", False),
        ("qemu+ext:///system?command=id", False),
    ],
)
def test_a_uri_is_local_only_without_host_and_transport(uri: str, local: bool) -> None:
    assert is_local(uri) is local


@pytest.mark.parametrize(
    "uri", ["kvm2", "", None, 5, "qemu:/system", "qemu:///sys tem", "qemu:///system\n", "qemu+ssh://kvm2/system?x='y'", "qemu+tcp://[:]/", "://", "QEMU://x"]
)
def test_an_invalid_uri_is_refused_with_the_name_of_its_option(uri: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="destination_uri is"):
        check_uri(uri, "destination_uri")


@pytest.mark.parametrize("uri", ["qemu:///system", "qemu+ssh://root@kvm2:2222/system?keyfile=/etc/keys/id", "tcp://10.0.0.2:49152", "unix:///run/x"])
def test_a_valid_uri_is_accepted(uri: str) -> None:
    assert check_uri(uri, "uri") == uri
