# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose hardware watchdogs are bound to their leases: a host that is cut off, or hangs, is reset; one that has a reason to live is not.

The parts of this story build on each other. C(KVMFLEET_OUTAGE_SECONDS) is how long etcd is away, by default a few times what a host needs to be reset.
"""

from __future__ import annotations

import datetime
import os
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.namespaces import entered_network
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.leased import LEASE, LeasedSite, Resets, begin_cluster, write_figures
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually

# How late C(eventually) may see what it waits for.
POLL_SECONDS = 5
EVERYBODY = {"m1", "m2", "m3"}


@pytest.fixture(scope="module")
def site(fleet: Machines, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[LeasedSite]:
    fleet("reset")
    fleet("guest", "web", "--host", "m1", "--mib", "24", "--autostart")
    folder = tmp_path_factory.mktemp("leased")
    (folder / "site").mkdir()
    with entered_network(fleet.fleet.namespace):
        cluster = begin_cluster(folder / "etcd")
        try:
            site = LeasedSite(fleet, folder / "site", cluster)
            site.lease_hosts()
            yield site
            site.verify_audit()
        finally:
            cluster.down()


@pytest.fixture(scope="module")
def resets(site: LeasedSite) -> t.Iterator[Resets]:
    resets = Resets(site.machines)
    yield resets
    resets.end()


@pytest.fixture(scope="module")
def boots(site: LeasedSite) -> dict[str, str]:
    """The boot IDs at the beginning."""
    return {lease.name: lease.boot_id for lease in site.leases().values()}


def reset_seconds(site: LeasedSite, number: int) -> int:
    watchdog = site.watchdog(number)
    assert watchdog
    return watchdog.reset_seconds


def test_a_bound_watchdog_is_in_the_lease_and_in_what_protect_recorded(site: LeasedSite, boots: dict[str, str]) -> None:
    watchdog = site.watchdog(1)
    assert watchdog
    assert (watchdog.device, watchdog.identity, watchdog.timeout_seconds) == ("/dev/watchdog0", "i6300ESB timer", LEASE["watchdog"]["seconds"])
    for document in site.ledger.list_hosts():
        seen = document.host.protected and document.host.protected.watchdog
        assert seen, document.body
        assert (seen.boot_id, seen.held_at_boot, seen.armed, seen.nowayout, seen.bound) == (boots[document.host.name], True, True, True, True)
    states = site.machines.run(1, "systemctl", "is-enabled", "watchdog.service", "wd_keepalive.service").out.split()
    assert states == ["masked", "masked"]


def test_the_service_of_the_lease_is_back_before_anybody_notices(site: LeasedSite, resets: Resets) -> None:
    machines = site.machines
    before = site.leases()["m2"]
    machines.on(2, "systemctl kill --signal=KILL kvmfleet-lease")
    eventually(lambda: site.leases()["m2"].count > before.count + 2, "the lease is renewed")
    after = site.leases()["m2"]
    assert (after.boot_id, after.held_since) == (before.boot_id, before.held_since)
    assert resets.seen == []


def test_a_daemon_that_is_killed_comes_back_and_a_unit_that_could_ping_unbinds(site: LeasedSite, resets: Resets) -> None:
    machines, before = site.machines, site.daemon(2)
    machines.on(2, "kill -9 $(cat /run/watchdog.pid)")
    eventually(lambda: site.daemon(2) != before, "the daemon runs again")
    eventually(lambda: site.bound() == EVERYBODY, "the watchdog is bound again")
    assert "Operation refused" in machines.run(2, "systemctl", "stop", "kvmfleet-watchdog").err
    # The package's other daemon would ping the device after ours has ended.
    machines.on(2, "rm /etc/systemd/system/wd_keepalive.service")
    eventually(lambda: site.bound() == EVERYBODY - {"m2"}, "the lease says that the watchdog is not bound")
    site.do_everywhere("host_lease")
    eventually(lambda: site.bound() == EVERYBODY, "the watchdog is bound again")
    # As an upgrade of the package does it.
    machines.on(2, "DEBIAN_FRONTEND=noninteractive dpkg-reconfigure watchdog; systemctl daemon-reload")
    time.sleep(LEASE["watchdog"]["seconds"] * 2)
    assert site.bound() == EVERYBODY
    assert resets.seen == []


def test_an_outage_of_etcd_resets_nobody(site: LeasedSite, resets: Resets, boots: dict[str, str]) -> None:
    seconds = float(os.environ.get("KVMFLEET_OUTAGE_SECONDS") or 2 * (LEASE["lease_seconds"] + reset_seconds(site, 1)))
    held = {name: lease.held_since for name, lease in site.leases().items()}
    site.cluster.act("stop", "all")
    time.sleep(seconds)
    assert resets.seen == []
    site.cluster.act("start", "all")
    site.cluster.wait(site.cluster.members)
    # What etcd has first are the leases from before.
    eventually(lambda: all(lease.held_since > held[name] for name, lease in site.leases().items()), "all hosts have leases again")
    eventually(lambda: site.bound() == EVERYBODY, "the watchdogs are bound to them")
    assert {name: lease.boot_id for name, lease in site.leases().items()} == boots
    assert resets.seen == []
    write_figures({"outage_seconds": seconds, "resets": 0})


def test_a_host_that_is_cut_off_is_reset_and_its_guest_started_elsewhere(site: LeasedSite, resets: Resets) -> None:
    machines, seconds = site.machines, reset_seconds(site, 1)
    site.fence_by_watchdog(1, seconds)
    site.do_everywhere("protect", guard=True)
    machines("cut", "m1")
    begun, evacuation = time.monotonic(), site.begin_book("evacuate", source="m1")
    eventually(lambda: resets.of("m1"), "the watchdog resets the host", seconds=LEASE["lease_seconds"] + seconds + 60)
    took, reset_at = resets.of("m1")[0] - begun, datetime.datetime.now(datetime.timezone.utc)
    text = site.finish(evacuation)
    write_figures({"cut_to_reset_seconds": round(took, 1), "limit_seconds": LEASE["lease_seconds"] + seconds, "evacuated_seconds": time.monotonic() - begun})
    assert took <= LEASE["lease_seconds"] + seconds
    assert evacuation.returncode == 0, text
    assert "Waiting until the watchdog of m1 must have reset it" in " ".join(text.split())
    active = machines.active()
    assert ("web" in active.get(2, set())) + ("web" in active.get(3, set())) == 1
    (record,) = [one for one in site.records() if one["type"] == "evacuation"]
    (evidence,) = [one for one in record["evidence"] if one["kind"] == "watchdog"]
    assert evidence["action"] == "reset"
    (started,) = [one["at"] for one in record["history"] if one["status"] == "pre-migrating"]
    assert datetime.datetime.fromisoformat(started) >= reset_at - datetime.timedelta(seconds=POLL_SECONDS)


def test_a_host_that_was_reset_is_held_while_another_one_hangs(site: LeasedSite, resets: Resets, boots: dict[str, str]) -> None:
    machines = site.machines
    machines("heal", "m1")
    freeze_and_reset(site, resets, 2)
    eventually(lambda: site.leases()["m1"].boot_id != boots["m1"], "the host renews its lease in another boot", seconds=1800)
    assert site.leases()["m3"].boot_id == boots["m3"]
    assert {name for name, _event, _at in resets.seen} == {"m1", "m2"}
    status = machines.on(1, "test -e /run/kvmfleet/guard/held.json && echo held; virsh -q list --name")
    assert status.split() == ["held"]


def freeze_and_reset(site: LeasedSite, resets: Resets, number: int) -> None:
    name, limit = site.name(number), LEASE["lease_seconds"] + reset_seconds(site, number)
    site.machines.on(number, "systemctl kill --signal=STOP kvmfleet-lease")
    begun = time.monotonic()
    eventually(lambda: resets.of(name), "the watchdog resets the host whose service is frozen", seconds=limit + 60)
    took = resets.of(name)[0] - begun
    write_figures({"freeze_to_reset_seconds": round(took, 1), "limit_seconds": limit})
    assert took <= limit
