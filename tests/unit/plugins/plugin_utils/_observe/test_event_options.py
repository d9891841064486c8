# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of the event source."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_options import parse_options

HOSTS = {"kvm1": "qemu+ssh://root@10.0.0.11/system?no_tty=1", "kvm2": "qemu+tcp://kvm2/system"}


def test_hosts_is_the_only_required_option() -> None:
    options = parse_options({"hosts": HOSTS})
    assert options.hosts == HOSTS
    assert {"stopped", "host_gone", "post_copy_failed", "migration_iteration"} <= options.events


def test_options_from_templates_are_accepted_as_text() -> None:
    options = parse_options({"hosts": HOSTS, "gone_after_seconds": "45", "queue_size": "20", "events": ["host_gone"]})
    assert (options.gone_after_seconds, options.queue_size, options.events) == (45, 20, {"host_gone"})


def test_only_a_ledger_in_etcd_has_leases_and_an_election() -> None:
    folder = parse_options({"hosts": HOSTS, "ledger": "/srv/ledger", "etcd": {}, "election": "host_gone"})
    assert (folder.etcd, folder.election) == (None, None)
    etcd = parse_options({"hosts": HOSTS, "ledger": "etcd://127.0.0.1:2379/fleet", "etcd": "", "election": "host_gone"})
    assert etcd.etcd
    assert (etcd.etcd.address.prefix, etcd.election) == ("/fleet/", "host_gone")


def test_addresses_have_the_port_of_their_kind_by_default() -> None:
    options = parse_options({"hosts": HOSTS, "ssh_ports": {"kvm1": "10.0.0.11"}, "second_addresses": {"kvm1": "10.0.1.11", "kvm2": "[fd00::1]:22"}})
    assert options.ssh_ports == {"kvm1": ("10.0.0.11", 22)}
    assert options.second_addresses == {"kvm1": ("10.0.1.11", 16516), "kvm2": ("fd00::1", 22)}
    assert parse_options({"hosts": HOSTS, "ssh_ports": {"kvm1": "fd00::11"}}).ssh_ports == {"kvm1": ("fd00::11", 22)}


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "hosts"),
        ({"hosts": {}}, "hosts"),
        ({"hosts": ["kvm1"]}, "hosts"),
        ({"hosts": {"kvm1": "qemu+ext://kvm1/system?command=/bin/sh"}}, "kvm1"),
        ({"hosts": {"kvm1": None}}, "kvm1"),
        ({"hosts": HOSTS, "gone_after_seconds": 0}, "gone_after_seconds"),
        ({"hosts": HOSTS, "gone_after_seconds": "soon"}, "gone_after_seconds"),
        ({"hosts": HOSTS, "gone_after_seconds": float("nan")}, "gone_after_seconds"),
        ({"hosts": HOSTS, "queue_size": 1}, "queue_size"),
        ({"hosts": HOSTS, "events": ["rebooted"]}, "events"),
        ({"hosts": HOSTS, "events": "host_gone"}, "events"),
        ({"hosts": HOSTS, "event": []}, "event"),
        ({"hosts": HOSTS, "ledger": ["etcd://127.0.0.1/fleet"]}, "ledger"),
        ({"hosts": HOSTS, "ledger": "etcd://127.0.0.1:2379"}, "prefix"),
        ({"hosts": HOSTS, "ledger": "etcd://127.0.0.1/fleet", "etcd": {"colour": 1}}, "colour"),
        ({"hosts": HOSTS, "ledger": "etcd://127.0.0.1/fleet", "election": "../a"}, "election"),
        ({"hosts": HOSTS, "ssh_ports": ["kvm1"]}, "ssh_ports"),
        ({"hosts": HOSTS, "ssh_ports": {"kvm9": "10.0.0.11"}}, "kvm9"),
        ({"hosts": HOSTS, "ssh_ports": {"kvm1": "10.0.0.11:0"}}, "ssh_ports of kvm1"),
        ({"hosts": HOSTS, "second_addresses": {"kvm1": 22}}, "second_addresses of kvm1"),
    ],
)
def test_invalid_options_are_refused_by_name(args: dict[str, t.Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        parse_options(args)
