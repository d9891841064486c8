# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a watcher sees at its end: both ends, and no connection is left."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import read_json, seen_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.run import forget_seen_hosts, write_seen_hosts
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, order_of, record_of

THERE = "qemu+tcp://kvm2/system"


def read_seen(fleet: FakeFleet, folder: pathlib.Path) -> t.Dict[str, t.Any]:
    write_seen_hosts([order_of(record_of())], RUN, fleet.open, str(folder))
    return t.cast("t.Dict[str, t.Any]", read_json(seen_path(RUN, str(folder)))["seen"])


def test_the_seen_hosts_file_has_the_domains_of_source_and_destination(tmp_path: pathlib.Path) -> None:
    fleet = FakeFleet()
    fleet.guest(on="kvm2", autostart=True)
    found = read_seen(fleet, tmp_path)
    domain = {"uuid": UUID, "name": "web1", "active": True, "state": "running", "reason": "booted", "autostart": True}
    assert {uri: facts["domains"] for uri, facts in found.items()} == {LOCAL_URI: [], THERE: [domain]}
    assert found[THERE]["host_uuid"] == fleet.destination.host_uuid
    assert [host.uri for host in fleet.connections if not host.is_closed] == []


def test_a_silent_host_is_not_in_the_seen_hosts_file(tmp_path: pathlib.Path) -> None:
    fleet = FakeFleet()
    fleet.destination.go_dark()
    assert list(read_seen(fleet, tmp_path)) == [LOCAL_URI]


def test_the_seen_hosts_file_can_be_removed(tmp_path: pathlib.Path) -> None:
    read_seen(FakeFleet(), tmp_path)
    forget_seen_hosts(RUN, str(tmp_path))
    assert read_json(seen_path(RUN, str(tmp_path))) is None
    forget_seen_hosts(RUN, str(tmp_path))
