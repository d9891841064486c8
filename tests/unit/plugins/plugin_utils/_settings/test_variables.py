# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleUndefinedVariable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings, read_port


def settings(groups: t.Optional[t.Dict[str, t.List[str]]] = None, **hosts: t.Dict[str, t.Any]) -> Settings:
    return Settings({"hostvars": hosts, "groups": groups or {}})


def test_a_variable_is_read_from_the_host_concerned() -> None:
    found = settings(kvm1={"a": 1}, kvm2={"a": 0}, kvm3={"a": None})
    assert [found.of(host, "a", 9) for host in ("kvm1", "kvm2", "kvm3", "elsewhere")] == [1, 0, 9, 9]
    assert (found.is_known("kvm1"), found.is_known("elsewhere")) == (True, False)


def test_the_fleet_is_its_group_or_else_all_hosts() -> None:
    assert settings({"kvmfleet_hosts": ["b"], "all": ["a", "b"]}).fleet() == ["b"]
    assert settings({"all": ["a", "b"]}).fleet() == ["a", "b"]
    assert settings().fleet() == []


def test_the_ledger_comes_from_the_task_then_the_host_then_the_default() -> None:
    found = settings(kvm1={"kvmfleet_ledger": "/srv/ledger"}, kvm2={})
    assert [found.ledger("kvm1", "/task").location, found.ledger("kvm1", None).location, found.ledger("kvm2", None).location] == ["/task", "/srv/ledger", None]


@pytest.mark.parametrize(
    ("source", "destination", "transport", "uri"),
    [
        ({}, {}, None, "qemu+ssh://kvm2/system?no_tty=1"),
        ({}, {"ansible_host": "10.0.0.2"}, None, "qemu+ssh://10.0.0.2/system?no_tty=1"),
        ({"kvmfleet_transport": "tcp"}, {"ansible_host": "2001:db8::2"}, None, "qemu+tcp://[2001:db8::2]/system"),
        ({"kvmfleet_transport": "tcp"}, {"kvmfleet_transport": "ssh"}, "tls", "qemu+tls://kvm2/system"),
        ({}, {"kvmfleet_libvirt_uri": "qemu+unix:///x"}, "tls", "qemu+unix:///x"),
    ],
)
def test_the_uri_of_a_host_follows_transport_and_address(source: t.Dict[str, str], destination: t.Dict[str, str], transport: t.Optional[str], uri: str) -> None:
    assert settings(kvm1=source, kvm2=destination).libvirt_uri("kvm2", "kvm1", transport) == uri


def test_a_host_outside_the_inventory_is_an_address() -> None:
    assert settings(kvm1={"kvmfleet_transport": "tcp"}).libvirt_uri("10.0.0.9", "kvm1") == "qemu+tcp://10.0.0.9/system"


@pytest.mark.parametrize(
    ("source", "destination", "word"),
    [
        ({"kvmfleet_transport": "telnet"}, {}, "kvmfleet_transport of kvm1"),
        ({"kvmfleet_transport": 5}, {}, "kvmfleet_transport of kvm1"),
        ({}, {"kvmfleet_libvirt_uri": "kvm2"}, "kvmfleet_libvirt_uri of kvm2"),
        ({}, {"ansible_host": "kvm2/system?command=id"}, "neither a host name"),
        ({}, {"ansible_host": 17.5}, None),
    ],
)
def test_variables_that_give_no_valid_uri_are_refused(source: t.Dict[str, t.Any], destination: t.Dict[str, t.Any], word: t.Optional[str]) -> None:
    found = settings(kvm1=source, kvm2=destination)
    if word is None:
        assert found.libvirt_uri("kvm2", "kvm1") == "qemu+ssh://17.5/system?no_tty=1"
        return
    with pytest.raises(InvalidArgument, match=word):
        found.libvirt_uri("kvm2", "kvm1")


@pytest.mark.parametrize(
    ("address", "uri"),
    [(None, None), ("", None), ("10.1.0.2", "tcp://10.1.0.2"), ("2001:db8::2", "tcp://[2001:db8::2]"), ("[2001:db8::2]", "tcp://[2001:db8::2]")],
)
def test_the_migrate_uri_follows_the_migration_address(address: t.Optional[str], uri: t.Optional[str]) -> None:
    assert settings(kvm2={"kvmfleet_migration_address": address}).migrate_uri("kvm2") == uri


def test_a_policy_must_be_a_dictionary() -> None:
    assert settings(kvm1={}).policy("kvm1") == {}
    assert settings(kvm1={"kvmfleet_migration_policy": {"downtime_ms": 5}}).policy("kvm1") == {"downtime_ms": 5}
    for wrong in ("downtime_ms=5", ["a"], 5):
        with pytest.raises(InvalidArgument, match="kvmfleet_migration_policy of kvm1"):
            settings(kvm1={"kvmfleet_migration_policy": wrong}).policy("kvm1")


class Template(dict[str, t.Any]):
    """A variable whose value cannot be templated."""

    def items(self) -> t.Any:
        raise AnsibleUndefinedVariable("'ratio' is undefined")


def test_a_template_that_fails_is_named_with_its_host() -> None:
    found = settings(kvm2={"kvmfleet_scheduler": Template(cpu_allocation_ratio="{{ ratio }}")})
    with pytest.raises(InvalidArgument, match=r"^kvmfleet_scheduler of kvm2 cannot be read: 'ratio' is undefined\."):
        found.scheduler("kvm2")


@pytest.mark.parametrize(("value", "port"), [(22, 22), ("2222", 2222), (" 22 ", 22)])
def test_a_port_is_read_from_a_number_or_text(value: t.Any, port: int) -> None:
    assert read_port(value, "ansible_port of kvm1") == port


@pytest.mark.parametrize("value", ["ssh", "", 0, -1, 65536, 2.5, True, [22], "²", "9" * 5000])
def test_an_invalid_port_is_refused(value: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^ansible_port of kvm1 is"):
        read_port(value, "ansible_port of kvm1")


def test_a_host_with_an_invalid_uri_does_not_break_the_search_by_uri() -> None:
    assert settings({"all": ["kvm1"]}, kvm1={"kvmfleet_libvirt_uri": "qemu+ssh://[::1/system"}).host_at("qemu+ssh://kvm1/system") == "kvm1"
