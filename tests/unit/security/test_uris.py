# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A URI never makes libvirt run a program, open another URI or show a password, whoever it came from."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import ask_fleet
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import open_connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_uri
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

# With libvirt 9.0 each of the first six runs the program, as root where a daemon opens it.
RUNNING_PROGRAMS = [
    "qemu+ext:///system?command=/tmp/x",
    "qemu+ssh://kvm2/system?command=/tmp/x",
    "qemu+ssh://kvm2/system?no_tty=1&command=/tmp/x",
    "qemu+ssh://kvm2/system?no_tty=1;command=/tmp/x",
    "qemu+ssh://kvm2/system?com%6dand=/tmp/x",
    "qemu+ssh://kvm2/system?COMMAND=/tmp/x",
    "qemu+ssh://kvm2/system?netcat=/tmp/x",
    "qemu:///system?name=qemu%2bext%3a///system",
    "qemu+ssh://-oProxyCommand=id/system",
    "qemu+ssh://%2doProxyCommand=id/system",
    "qemu+ssh://-oProxyCommand=id@kvm2/system",
    "qemu+ssh://root@-oProxyCommand=id/system",
    "qemu+ssh://root@kvm3@kvm2/system",
    "qemu+ssh://kvm2;id/system",
    "qemu+ssh://$(id)/system",
    "qemu+ssh://kvm2/system#x",
    "qemu+ssh://kvm2:22:23/system",
    "qemu+ssh://kvm2:port/system",
    "qemu+ssh://[::1/system",
    "qemu+telnet://kvm2/system",
    "+ssh://kvm2/system",
    "",
]
USUAL = [
    "qemu:///system",
    "qemu:///session",
    "qemu+unix:///system?socket=/run/other/libvirt-sock",
    "qemu+ssh://root@kvm-2.example.org:2222/system?keyfile=/etc/keys/id&no_tty=1&known_hosts=/etc/keys/known",
    "qemu+libssh2://admin@10.0.0.2/system?sshauth=privkey&known_hosts_verify=normal",
    "qemu+tls://kvm2/system?pkipath=/etc/pki/own&no_verify=0",
    "qemu+tcp://[2001:db8::2]:16509/system",
    "qemu+tcp://[fe80::1%25eth0]/system",
    "test:///default",
    "tcp://10.0.0.2:49152",
    "rdma://kvm2",
]


class Refusal(Exception):
    """Libvirt was asked."""


class Connection:
    """One whose domains move, and say so."""

    def setKeepAlive(self, interval: int, count: int) -> None:
        """As libvirt has it."""

    def lookupByUUIDString(self, uuid: str) -> t.NoReturn:
        raise Refusal("a domain was looked up")


class Binding:
    """The part of libvirt that opens connections; it notes which."""

    libvirtError = Refusal
    VIR_MIGRATE_LIVE = 1

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, uri: str) -> Connection:
        self.opened.append(uri)
        return Connection()


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> Binding:
    binding = Binding()
    monkeypatch.setattr(connection, "_libvirt", binding)
    monkeypatch.setattr(connection, "start_event_loop", lambda: None)
    return binding


@pytest.mark.parametrize("uri", RUNNING_PROGRAMS)
def test_a_uri_that_runs_a_program_is_refused_before_it_is_opened(uri: str, binding: Binding) -> None:
    with pytest.raises(InvalidArgument, match="destination_uri is"):
        check_uri(uri, "destination_uri")
    with pytest.raises(InvalidArgument):
        open_connection(uri)
    assert binding.opened == []


@pytest.mark.parametrize("uri", USUAL)
def test_usual_uris_are_accepted(uri: str, binding: Binding) -> None:
    open_connection(uri)
    assert binding.opened == [check_uri(uri, "uri")]


@pytest.mark.parametrize("uri", RUNNING_PROGRAMS)
def test_no_domain_is_migrated_to_a_uri_that_runs_a_program(uri: str, binding: Binding) -> None:
    with pytest.raises(InvalidArgument, match="URI of the destination"):
        open_host("qemu:///system").migrate_domain("5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", uri, ["LIVE"], {})
    with pytest.raises(InvalidArgument, match="migrate_uri"):
        open_host("qemu:///system").migrate_domain("5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", "qemu:///system", ["LIVE"], {"migrate_uri": uri})


def test_a_host_without_an_address_counts_as_silent(binding: Binding) -> None:
    """To libvirt an empty URI is its own host: a dead host would seem to answer."""
    answer = ask_fleet({"kvm2": ""}, open_host)["kvm2"]
    assert (answer.answered, answer.error_code) == (False, "invalid_argument")
    assert binding.opened == []


@pytest.mark.parametrize("uri", ["qemu+ssh://root:hunter2@kvm2/system", "qemu+ssh://root:hun:ter2@kvm2/system?command=x"])
def test_a_password_in_a_uri_is_refused_and_masked(uri: str) -> None:
    with pytest.raises(InvalidArgument, match=r"root:\*\*\*@kvm2") as raised:
        check_uri(uri, "uri")
    assert "ter2" not in str(raised.value)


@pytest.mark.parametrize("address", ["10.0.0.2/x", "kvm2?x=1", "exec:id", "-kvm2", "10.0.0.2 exec:id"])
def test_an_invalid_migration_address_is_refused(address: str) -> None:
    settings = Settings({"hostvars": {"kvm2": {"kvmfleet_migration_address": address}}})
    with pytest.raises(InvalidArgument, match="neither a host name nor an IP address"):
        settings.migrate_uri("kvm2")
