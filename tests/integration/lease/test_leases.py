# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that renew their leases in a real etcd, and what their watchdogs would be told when that ends."""

from __future__ import annotations

import time

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.lease.conftest import LEASE
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.leased import LeasedSite
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS

ETCD_PORTS = "20000:32000"


def renewed(site: LeasedSite, number: int) -> bool:
    """Wait until a host has renewed its lease twice more, and return true."""
    before = site.leases()[number].count
    eventually(lambda: site.leases()[number].count >= before + 2, f"host {number} renews its lease")
    return True


def cut_off_from_etcd(site: LeasedSite, number: int) -> None:
    """Drop what a host sends to the members; its peers are still reached."""
    chain = "LAB-OUT"
    site.lab.on(number, "sh", "-c", f"iptables -w -N {chain} && iptables -w -I OUTPUT 1 -j {chain}")
    site.lab.on(number, "iptables", "-w", "-A", chain, "-d", site.lab.layout.control_address, "-p", "tcp", "--dport", ETCD_PORTS, "-j", "DROP")


def test_leases_are_renewed_and_a_host_that_is_cut_off_may_not_keep_running(site: LeasedSite) -> None:
    first = site.leases()
    assert sorted(first) == list(HOSTS)
    assert {lease.fleet.size for lease in first.values()} == {len(HOSTS)}
    assert len({lease.fleet.digest for lease in first.values()}) == 1
    assert all(renewed(site, number) for number in HOSTS)
    later = site.leases()
    assert {number: lease.held_since for number, lease in later.items()} == {number: lease.held_since for number, lease in first.items()}
    assert [site.may_run(number)[0] for number in HOSTS] == [True] * len(HOSTS)
    site.lab("cut", site.lab.host(1), "--all")
    begun = time.monotonic()
    eventually(lambda: not site.may_run(1)[0], "the host is told to end", seconds=60)
    assert time.monotonic() - begun >= LEASE["lease_seconds"] - LEASE["renew_seconds"] - 0.5
    assert "only 1 of 3 hosts" in site.may_run(1)[1]
    assert [site.may_run(number)[0] for number in (2, 3)] == [True, True]
    site.lab("heal", site.lab.host(1))
    eventually(lambda: site.may_run(1)[0], "the host has its lease again")
    eventually(lambda: site.leases()[1].held_since > later[1].held_since, "the gap is in the lease")


def stay(site: LeasedSite, seconds: float) -> None:
    """Ask again and again for that time whether each host may keep running; each has to."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        verdicts = [site.may_run(number) for number in HOSTS]
        assert [keeps for keeps, _why in verdicts] == [True] * len(HOSTS), verdicts


@pytest.mark.long
def test_an_outage_of_etcd_ends_no_host(site: LeasedSite) -> None:
    """Nor does its beginning, when one host has lost its lease and others have theirs for a moment, nor its end, when others have theirs again."""
    site.lab("etcd", "kill", "all")
    stay(site, 2 * LEASE["lease_seconds"])
    assert all("may run on for another" in site.may_run(number)[1] for number in HOSTS)
    site.lab("lease", site.lab.host(1), "freeze")
    # The test asks the peers itself where the service does not.
    eventually(lambda: "3 of 3 hosts say that they have none" in site.may_run(1)[1], "the time that the service knew of is over")
    site.lab("lease", site.lab.host(1), "thaw")
    site.lab("etcd", "start", "all")
    stay(site, LEASE["lease_seconds"])
    assert all(renewed(site, number) for number in HOSTS)


def test_a_host_that_is_cut_off_from_etcd_only_renews_its_lease_through_a_peer(site: LeasedSite) -> None:
    since = site.leases()[1].held_since
    cut_off_from_etcd(site, 1)
    peers = {site.lab.host(2), site.lab.host(3)}
    eventually(lambda: site.leases()[1].path in peers, "the lease goes through a peer")
    assert renewed(site, 1)
    assert site.leases()[1].held_since == since
    assert site.may_run(1)[0]


@pytest.mark.long
def test_a_service_that_was_killed_or_hangs_is_noticed_and_never_uses_a_number_twice(site: LeasedSite) -> None:
    counts = []
    for _turn in range(20):
        counts.append(site.leases()[1].count)
        site.lab("lease", site.lab.host(1), "kill")
        eventually(lambda: site.leases()[1].count > counts[-1], "the service comes back")
    assert counts == sorted(set(counts))
    since = site.leases()[2].held_since
    site.lab("lease", site.lab.host(2), "freeze")
    eventually(lambda: not site.may_run(2)[0], "the host with the service that hangs is told to end")
    assert "only 1 of 3" in site.may_run(2)[1]
    site.lab("lease", site.lab.host(2), "thaw")
    eventually(lambda: site.leases()[2].held_since > since, "it has its lease again")


@pytest.mark.long
def test_a_boot_begins_with_numbers_that_were_never_used_and_may_run_before_its_first_lease(site: LeasedSite) -> None:
    before = site.leases()[1]
    site.lab("poweroff", site.lab.host(1))
    site.lab("etcd", "freeze", "all")
    site.lab("poweron", site.lab.host(1))
    eventually(lambda: "no lease since it was started" in site.may_run(1)[1], "a host without its first lease may run")
    site.lab("etcd", "thaw", "all")
    eventually(lambda: site.leases()[1].boot_id != before.boot_id, "the new boot renews the lease")
    after = site.leases()[1]
    assert after.count > before.count
    eventually(lambda: site.leases()[1].held_since > before.count, "it has its lease")


@pytest.mark.long
def test_the_service_is_installed_once_and_removed(site: LeasedSite) -> None:
    again = site.task(3, "host_lease", {})
    assert (again.code, again.changed, again.result["files"]) == (0, False, []), again.text
    removed = site.task(3, "host_lease", {"state": "absent"})
    assert (removed.code, removed.changed) == (0, True), removed.text
    eventually(lambda: 3 not in site.leases(), "the lease is gone")
    checked = site.task(3, "host_lease", {}, "--check")
    assert (checked.code, checked.changed) == (0, True), checked.text
    assert 3 not in site.leases()
    # The role installs it as the module does.
    site.protect()
    eventually(lambda: 3 in site.leases(), "the lease is back")
    assert site.task(3, "host_lease", {}).changed is False


@pytest.mark.long
def test_what_cannot_be_a_lease_is_refused_with_a_sentence(site: LeasedSite) -> None:
    """What was installed stays as it was."""
    own = site.variables_of(3)["kvmfleet_lease"]
    wrong = {
        "has no password": {**own, "password": ""},
        "a lease of 12 s could end although only two renewals were late": {**own, "renew_seconds": 5},
        "'70000'": {**own, "port": 70000},
        "have the same user": {**own, "user": site.variables_of(1)["kvmfleet_lease"]["user"]},
        "which may write the whole ledger": {**own, "user": site.etcd["kvmfleet_etcd"]["user"]},
        "etcd would refuse the host": {key: value for key, value in own.items() if key not in ("cert_file", "key_file")},
    }
    try:
        for sentence, value in wrong.items():
            site.variable(3, "kvmfleet_lease", value)
            refused = site.task(3, "host_lease", {})
            assert refused.refused() == "invalid_argument", refused.text
            assert sentence in refused.msg
            assert own["password"] not in refused.text
    finally:
        site.variable(3, "kvmfleet_lease", own)
    assert site.task(3, "host_lease", {}).changed is False
