# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad and good options, before any host was asked."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, NotSupported
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import check_unique, read_requests
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import one_request, settings_of, task_args

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
MOVE = {"name": "web1", "destination": "kvm2"}


def test_a_plain_move_has_name_destination_and_uri() -> None:
    request = one_request(**MOVE)
    assert (request.label, request.destination, request.uris) == ("web1", "kvm2", {"kvm2": "qemu+tcp://kvm2/system"})
    assert request.given == {}


@pytest.mark.parametrize("spelling", [UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}"])
def test_a_uuid_in_any_spelling_is_canonical(spelling: str) -> None:
    assert one_request(uuid=spelling, destination="kvm2").uuid == UUID


@pytest.mark.parametrize("name", ["", "a/b", "../web1", "/etc/passwd", "web\n1", "web1\r", "\x00", "tab\tbed", "\x7f"])
def test_an_impossible_domain_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        one_request(name=name, destination="kvm2")
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["web 1", "o'brien", 'say "hi"', "$(reboot)", "`id`", ";id", "-rf", "..", "ü", "a" * 300])
def test_unusual_domain_names_are_accepted(name: str) -> None:
    assert one_request(name=name, destination="kvm2").name == name


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"timeout_seconds": -1}, "timeout_seconds"),
        ({"timeout_seconds": 10**12}, "timeout_seconds"),
        ({"stall_seconds": -5}, "stall_seconds"),
        ({"downtime_ms": 0}, "downtime_ms"),
        ({"downtime_ms": 2_000_001}, "downtime_ms"),
        ({"downtime_steps": 0}, "downtime_steps"),
        ({"downtime_delay_seconds_per_gib": -75}, "downtime_delay_seconds_per_gib"),
        ({"bandwidth_mib": -1}, "bandwidth_mib"),
        ({"bandwidth_mib": 10**20}, "bandwidth_mib"),
        ({"parallel_connections": 0}, "parallel_connections"),
        ({"uuid": UUID}, "name and uuid"),
        ({"name": None}, "name and uuid"),
        ({"name": None, "uuid": "web1"}, "not a UUID"),
        ({"name": None, "uuid": f"{UUID}\n../x"}, "not a UUID"),
        ({"moves": [{"name": "db1"}]}, "moves"),
        ({"destination": "kvm1"}, "kvm1"),
        ({"destination": "kvm9/system?command=id"}, "kvm9"),
        ({"destination": "kvm 9"}, "kvm 9"),
        ({"destination": "kvm9\n"}, "kvm9"),
        ({"destination": ""}, "destination is empty"),
        ({"destination": "-oProxyCommand=id"}, "ProxyCommand"),
        ({"destination_uri": "kvm2"}, "destination_uri"),
        ({"destination_uri": "qemu+tcp://kvm2/system'"}, "destination_uri"),
        ({"destination": None, "destination_uri": "qemu:///system"}, "names no host"),
        ({"destination_uri": "xen+tcp://kvm2/system"}, "destination_uri is xen+tcp://kvm2/system, which is not a URI of QEMU"),
        ({"destination_uri": "test:///default"}, "not a URI of QEMU"),
        ({"migrate_uri": "10.0.0.2"}, "migrate_uri"),
        ({"migrate_uri": "tcp://10.0.0.2 --x"}, "migrate_uri"),
        ({"migrate_uri": "qemu://kvm2/system"}, "migrate_uri"),
    ],
)
def test_bad_options_of_a_move_are_refused_by_name(given: t.Dict[str, t.Any], word: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_requests(task_args(**{**MOVE, **given}), settings_of(), "kvm1")
    assert word in str(caught.value)


def test_an_unsupported_combination_of_options_is_refused() -> None:
    with pytest.raises(NotSupported):
        one_request(**MOVE, compression="zstd")


def test_moves_inherit_the_options_of_the_task_and_override_them() -> None:
    args = task_args(destination="kvm2", downtime_ms=100, moves=[{"name": "web1"}, {"name": "db1", "destination": "kvm3", "downtime_ms": 50}])
    first, second = read_requests(args, settings_of(), "kvm1")
    assert (first.destination, first.policy.downtime_ms) == ("kvm2", 100)
    assert (second.destination, second.policy.downtime_ms) == ("kvm3", 50)


@pytest.mark.parametrize("move", [{}, {"name": "a", "uuid": UUID}, {"name": "a/b"}, {"name": "a", "downtime_ms": -1}, {"name": "a", "destination": "kvm1"}])
def test_one_bad_move_refuses_the_task(move: t.Dict[str, t.Any]) -> None:
    with pytest.raises(KvmfleetError):
        read_requests(task_args(destination="kvm2", moves=[{"name": "web1"}, move]), settings_of(), "kvm1")


@pytest.mark.parametrize(
    "given",
    [
        {"name": "web1"},
        {"moves": [{"name": "web1", "destination": "kvm2"}, {"name": "db1", "destination": "kvm3"}]},
    ],
)
def test_the_address_of_one_host_is_not_used_for_several_destinations(given: t.Dict[str, t.Any]) -> None:
    """The memory of a guest would be sent to a host that does not expect it, or expects that of another guest."""
    with pytest.raises(InvalidArgument, match="may be kvm2 or kvm3"):
        read_requests(task_args(migrate_uri="tcp://10.0.0.2", **given), settings_of(), "kvm1")
    assert read_requests(task_args(migrate_uri="unix:///run/memory", **given), settings_of(), "kvm1")


def test_moves_to_several_hosts_have_addresses_of_their_own() -> None:
    moves = [
        {"name": "web1", "destination": "kvm2", "migrate_uri": "tcp://10.0.0.2"},
        {"name": "web2", "destination": "kvm2", "migrate_uri": "tcp://10.0.0.2"},
        {"name": "db1", "destination": "kvm3", "migrate_uri": "tcp://10.0.0.3"},
    ]
    requests = read_requests(task_args(moves=moves), settings_of(), "kvm1")
    assert [request.migrate_uri for request in requests] == ["tcp://10.0.0.2", "tcp://10.0.0.2", "tcp://10.0.0.3"]


@pytest.mark.parametrize(
    "other",
    [
        {"destination": "kvm2", "transport": "tls"},
        {"destination_uri": "qemu+ssh://kvm2/system"},
        {"destination": "spare", "destination_uri": "qemu://KVM2/system"},
    ],
)
def test_the_address_of_a_host_is_used_for_all_uris_of_that_host(other: t.Dict[str, t.Any]) -> None:
    moves = [{"name": "web1", "destination": "kvm2"}, {"name": "db1", **other}]
    assert len(read_requests(task_args(moves=moves, migrate_uri="tcp://10.0.0.2"), settings_of(), "kvm1")) == 2


def test_an_empty_list_of_moves_gives_no_requests() -> None:
    assert read_requests(task_args(moves=[]), settings_of(), "kvm1") == []


def test_without_a_destination_the_other_hosts_of_the_fleet_are_candidates() -> None:
    request = one_request(name="web1")
    assert (request.destination, list(request.uris)) == (None, ["kvm2", "kvm3"])
    with pytest.raises(InvalidArgument, match="kvmfleet_hosts"):
        read_requests(task_args(name="web1"), settings_of("kvm1"), "kvm1")


def test_a_destination_uri_names_the_destination_where_nothing_else_does() -> None:
    request = one_request(name="web1", destination_uri="qemu+tls://10.0.0.7/system")
    assert request.uris == {"10.0.0.7": "qemu+tls://10.0.0.7/system"}
    assert list(one_request(**MOVE, destination_uri="qemu+tls://10.0.0.7/system").uris) == ["kvm2"]


def test_options_of_the_task_are_kept_for_an_adoption() -> None:
    assert one_request(**MOVE, downtime_ms=300, auto_converge=False).given == {"downtime_ms": 300, "auto_converge": False}


def test_each_value_of_the_policy_names_its_source() -> None:
    settings = settings_of(kvmfleet_migration_policy={"stall_seconds": 9, "downtime_ms": 100})
    (request,) = read_requests(task_args(**MOVE, downtime_ms=300), settings, "kvm1")
    assert [request.policy.source_of(field) for field in ("downtime_ms", "stall_seconds", "downtime_steps")] == ["task", "host", "default"]


def test_a_domain_listed_twice_in_moves_is_refused() -> None:
    check_unique(["a", "b"])
    with pytest.raises(InvalidArgument, match="more than once"):
        check_unique(["a", "b", "a"])
