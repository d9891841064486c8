# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drain of a simulated host with its ledger in etcd, and how often it changes etcd: each change is one commit on the disks of its members."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.bench.wide_fleet import move_arguments
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import key_read
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MoveRun
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.etcd import Cluster
from ansible_collections.kvmfleet.migration.tests.simulator import facts
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.control import settings_of
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.source import SimulatedSource
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size, World

HOSTS = 4
WINDOW = 4
LIMITS = {"moves_in": 2, "moves_out": 4, "moves_total": 20}


def count_changes(folder: pathlib.Path, guests: int, with_limits: bool) -> float:
    """Drain a host of so many guests; return the changes of etcd for each move."""
    cluster = Cluster(folder)
    cluster.up(1)
    try:
        return _drain(cluster.location("/bench"), cluster.options, guests, LIMITS if with_limits else {}) / guests
    finally:
        cluster.down()


def _drain(location: str, options: t.Any, guests: int, limits: dict[str, int]) -> int:
    # Every guest is followed by those of the other hosts.
    world = World(Size(1, HOSTS, guests * HOSTS, guests * HOSTS, HOSTS, 1, guests, limits))
    ledger, settings, source = open_ledger(location, options), settings_of(world), t.cast("t.Any", SimulatedSource(world, 0))
    address = parse_address(location)
    client = Client(address, read_options(options, address))
    leaving = world.guests_on(0)
    moves = [{"uuid": facts.uuid_of(world.size.guest(guest)), "destination": world.size.host(1 + guest % (HOSTS - 1))} for guest in leaving]
    before = _revision(client)
    run = MoveRun(RunContext(ledger, settings, source, "qemu:///system", "bench"), WINDOW, lambda record, waits_for: None)
    ended = [job.record.status for job in run.run_moves(read_requests(move_arguments(moves, WINDOW), settings, source.name)) if job.record]
    if ended != ["completed"] * guests:
        raise RuntimeError(f"Not all moves were completed: {ended}")
    return _revision(client) - before


def _revision(client: Client) -> int:
    """Return the number of changes that the cluster has made."""
    return client.read_range(key_read("/none")).revision
