# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An evacuation on the evidence of a watchdog: the etcd is real, with three members; a thread stands for the lease of each host."""

from __future__ import annotations

import contextlib
import pathlib
import time
import typing as t
from dataclasses import replace

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import lease_evidence, reset_watch
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.lease_evidence import Void
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.plan import plan_evacuation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.reset_watch import ResetWatch, check_watchdog, confirm_reset
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry, HostProtection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import withdraw_watchdog
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.renewing import (
    LEASE_SECONDS,
    RESET_SECONDS,
    RenewingHost,
    protected_watchdog,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import HOSTS, Site, host_id

FENCING = {"watchdog_seconds": RESET_SECONDS}
BROKEN_BMC = 'echo "Failed: Unable to connect"; exit 1'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("etcd"))
    try:
        made.up(3)
        yield made
    finally:
        made.down()


class WatchedSite(Site):
    """A site with its ledger on etcd, whose hosts renew their leases; that of kvm1 has ended."""

    def __init__(self, folder: pathlib.Path, location: str) -> None:
        super().__init__(folder)
        self.location = location
        self.ledger = EtcdLedger(parse_address(location), EtcdOptions())  # type: ignore[assignment]
        for name in HOSTS:
            seen = encode(protected_watchdog()) if name == "kvm1" else None
            self.write_host(name, protected={"guard": {"held_at_boot": True}, "token_id": None, "watchdog": seen})
        self.variables["kvm1"] = {"kvmfleet_fencing": FENCING}
        self.renewing = {name: RenewingHost(location, host_id(name), name) for name in HOSTS}
        self.renewing["kvm1"].die()

    def entry(self) -> HostEntry:
        document = self.ledger.read_host(host_id("kvm1"))
        assert document is not None
        return document.host

    def move_in(self, name: str, *statuses: str) -> None:
        """Record a move of a saved domain from kvm3 to kvm1, up to the last of these statuses."""
        (document,) = self.ledger.find_domains(name)
        move = new_record(s.LIVE_MIGRATION, DomainRef(document.domain.uuid, name), self.place("kvm3"), self.place("kvm1"), {}, by="a test")
        stored = self.ledger.open_record(move)
        for status in statuses:
            stored = self.ledger.update_record(stored, stored.record.advance(status, "a test"))

    def renew_once_more(self) -> None:
        """Let kvm1 renew its lease for the last time: from the second renewal on, it names a revision of etcd."""
        self.renewing["kvm1"] = RenewingHost(self.location, host_id("kvm1"), "kvm1")
        self.renewing["kvm1"].die()

    def failed_evacuation(self) -> KvmfleetError:
        with pytest.raises(KvmfleetError) as failed:
            self.evacuate(force_down=None)
        assert self.running() == {}
        return failed.value

    def close(self) -> None:
        for host in self.renewing.values():
            host.die()


@pytest.fixture
def site(tmp_path: pathlib.Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[WatchedSite]:
    monkeypatch.setattr(reset_watch, "_POLL_SECONDS", 0.2)
    monkeypatch.setattr(reset_watch, "_GRACE_SECONDS", 3.0)
    made = WatchedSite(tmp_path, f"{cluster.location().rstrip('/')}/{tmp_path.name}")
    with contextlib.closing(made):
        yield made


def test_a_host_whose_watchdog_must_have_reset_it_is_evacuated(site: WatchedSite) -> None:
    uuid, begun, lines = site.save("one"), time.monotonic(), list[str]()
    run = site.evacuation(force_down=None)
    run.proofs.show = lines.append
    run.evacuate_domains()
    # The lease, the reset, and the margin.
    assert time.monotonic() - begun > LEASE_SECONDS + RESET_SECONDS
    assert [job.error for job in run.jobs] == [None]
    assert site.running() == {"kvm2": ["one"]}
    (evidence,) = run.proofs.all_evidence
    assert (evidence.origin, evidence.agent, evidence.action, evidence.status, evidence.host) == ("watchdog", None, "reset", "off", "kvm1")
    assert "kvm2, kvm3 held theirs (2 of the 2 needed in a fleet of 3)" in evidence.output
    (record,) = site.ledger.list_records(domain=uuid)
    assert encode(evidence) | {"at": None} == encode((record.evidence or ())[0]) | {"at": None}
    assert len(lines) == 1
    assert lines[0].startswith("Waiting until the watchdog of kvm1 must have reset it: ")


def test_a_host_that_renews_its_lease_is_not_evacuated_and_the_next_run_goes_on(site: WatchedSite) -> None:
    site.save("one")
    site.renewing["kvm1"] = RenewingHost(site.location, host_id("kvm1"), "kvm1")
    error = site.failed_evacuation()
    assert isinstance(error, Unsafe)
    assert "kvm1 could not be fenced: its watchdog does not show that it is off: kvm1 has renewed its lease since" in error.message
    assert error.result["reason"] == "fencing_impossible"
    assert any("watchdog_seconds" in str(choice) for choice in t.cast("list[str]", error.result["choices"]))
    assert site.entry().fencing
    site.renewing["kvm1"].die()
    site.evacuate(force_down=None)
    assert site.running() == {"kvm2": ["one"]}
    assert not (site.entry().fencing or None) or not site.entry().fencing.is_impossible  # type: ignore[union-attr]


def test_without_other_hosts_that_hold_leases_nothing_is_started(site: WatchedSite) -> None:
    site.save("one")
    site.renewing["kvm3"].die()
    assert "only 1 of the 2 other hosts that are needed in a fleet of 3 hold leases" in site.failed_evacuation().message


def test_a_watchdog_that_protect_saw_in_another_boot_is_no_evidence(site: WatchedSite) -> None:
    site.save("one")
    site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": None, "watchdog": encode(protected_watchdog("boot 0"))})
    begun = time.monotonic()
    assert "kvm1 was protected in another boot than that of its last lease" in site.failed_evacuation().message
    assert time.monotonic() - begun < LEASE_SECONDS


def test_an_outage_of_etcd_during_the_wait_is_waited_for(site: WatchedSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are frozen for longer than a lease: all hosts lose theirs, and the wait begins anew."""
    monkeypatch.setattr(reset_watch, "_GRACE_SECONDS", 60.0)
    # The leases are so short that the hosts take longer than one to come back to etcd.
    monkeypatch.setattr(lease_evidence._Fleet, "steady_seconds", 0.0)
    config = parse_fencing(FENCING, "kvm1")
    assert config
    watch = ResetWatch(config, site.entry(), site.ledger.open_leases(), lambda line: None, poll_seconds=0.2).start()
    time.sleep(1.0)
    for number in cluster.members:
        cluster.signal(number, "freeze")
    time.sleep(LEASE_SECONDS + 1.0)
    thawed = time.monotonic()
    for number in cluster.members:
        cluster.signal(number, "thaw")
    assert not isinstance(watch.wait(), Void)
    assert time.monotonic() - thawed > LEASE_SECONDS + RESET_SECONDS


def test_the_watchdog_counts_after_the_bmc_has_failed(site: WatchedSite) -> None:
    """It is waited for while the BMC is tried."""
    site.save("one")
    agent = site.agent("kvm1")
    agent.write(BROKEN_BMC)
    site.variables["kvm1"] = {"kvmfleet_fencing": {"agent": str(agent.path), "options": {}, **FENCING}}
    run = site.evacuate(force_down=None)
    (evidence,) = run.proofs.all_evidence
    assert evidence.origin == "watchdog"
    assert [one.power for one in evidence.attempts or ()] == ["unknown"]
    assert site.running() == {"kvm2": ["one"]}


def test_a_bmc_that_works_is_not_waited_beyond(site: WatchedSite) -> None:
    site.save("one")
    agent = site.agent("kvm1", "on")
    agent_text = agent.path.read_text()
    assert "Powered OFF" in agent_text
    site.variables["kvm1"] = {"kvmfleet_fencing": {"agent": str(agent.path), "options": {}, **FENCING}}
    begun = time.monotonic()
    run = site.evacuate(force_down=None)
    assert run.proofs.all_evidence[0].origin == "fence_agent"
    assert time.monotonic() - begun < LEASE_SECONDS + RESET_SECONDS


def test_evidence_of_an_earlier_step_counts_until_the_host_renews_its_lease(site: WatchedSite) -> None:
    site.save("one")
    run = site.evacuation(force_down=None)
    probed = run.probe_fleet(True)
    run.prove_source_off(probed, starts=False)
    given = encode(run.proofs.all_evidence)
    # The tasks that start domains are given it, and ask again.
    begun = time.monotonic()
    assert site.evacuate(fencing=given, force_down=None).proofs.all_evidence[0].origin == "watchdog"
    assert time.monotonic() - begun < LEASE_SECONDS
    site.save("two")
    site.renewing["kvm1"] = RenewingHost(site.location, host_id("kvm1"), "kvm1", boot_id="boot 2")
    with pytest.raises(Unsafe, match=r"was reset by its watchdog at .*, and is on again: its lease of boot boot 2 was renewed since"):
        site.evacuate(fencing=given, force_down=None)
    assert site.running() == {"kvm2": ["one"]}


ARRIVED = (s.SCHEDULED, s.QUEUED, s.RUNNING, s.COMPLETED)


def test_what_came_to_a_host_after_its_last_renewal_may_run_there_since_the_reset(site: WatchedSite) -> None:
    """It has started again, cannot reach etcd, and a drain has moved guests to it. Then its network fails: its last lease is still that of the first boot."""
    for name in ("before", "after", "refused", "moving"):
        site.save(name)
    site.move_in("before", *ARRIVED)
    site.renew_once_more()
    site.move_in("after", *ARRIVED)
    site.move_in("refused", s.CONFLICT)
    site.move_in("moving", s.SCHEDULED, s.QUEUED)
    errors = {job.name: str(job.error or "") for job in site.evacuate(force_down=None).jobs}
    assert site.running() == {"kvm2": ["before", "refused"]}
    refusal = (
        "Domain {} may have come to kvm1 after the last renewal of its lease, and then runs there since the reset by the watchdog. It was not started. Find out"
        " whether kvm1 is off, e.g. on its console, and confirm that with force_down and a reason (evacuate_host_force_down and evacuate_host_reason)."
    )
    assert errors == {"before": "", "refused": "", "after": refusal.format("after"), "moving": refusal.format("moving")}
    # The confirmation of a person is about the whole host.
    site.evacuate()
    assert site.running() == {"kvm2": ["after", "before", "moving", "refused"]}


def test_what_came_to_a_host_after_the_reset_is_not_planned_for_another_one(site: WatchedSite) -> None:
    uuids = [site.save(name) for name in ("before", "after")]
    site.renew_once_more()
    site.move_in("after", *ARRIVED)
    run = site.evacuation(force_down=None)
    probed = run.probe_fleet(True)
    run.prove_source_off(probed, starts=False)
    assert plan_evacuation(run, probed, ["kvm2"]).by_host == {"kvm2": uuids[:1]}


def test_evidence_that_was_withdrawn_since_counts_no_more(site: WatchedSite) -> None:
    """The host was released in another boot, or its watchdog unbound, while the wait for its reset went on."""
    site.save("one")
    run = site.evacuation(force_down=None)
    probed = run.probe_fleet(True)
    run.prove_source_off(probed, starts=False)
    withdraw_watchdog(site.ledger, host_id("kvm1"))
    with pytest.raises(Unsafe, match="what the ledger had of that watchdog was withdrawn since: kvm1 was released, or its watchdog unbound"):
        site.evacuate(fencing=encode(run.proofs.all_evidence), force_down=None)
    assert site.running() == {}


def test_evidence_that_is_withdrawn_between_two_starts_stops_the_starts(site: WatchedSite) -> None:
    for name in ("one", "two"):
        site.save(name)
    site.deferred = {"two"}
    site.after_start = lambda: withdraw_watchdog(site.ledger, host_id("kvm1"))
    errors = {job.name: str(job.error or "") for job in site.evacuate(force_down=None).jobs}
    assert site.running() == {"kvm2": ["one"]}
    assert errors["one"] == ""
    assert "what the ledger had of that watchdog was withdrawn since" in errors["two"]
    assert sorted((name, status) for name, status, _destination in site.record_summaries()) == [("one", "done"), ("two", "failed")]


def test_a_host_that_answers_is_not_evacuated_whatever_its_lease_says(site: WatchedSite) -> None:
    site.save("one")
    site.refuses = True
    with pytest.raises(Unsafe, match="A host that answers is never evacuated"):
        site.evacuate(force_down=None)


def test_a_ledger_in_a_folder_has_no_leases(tmp_path: pathlib.Path) -> None:
    site = Site(tmp_path)
    site.save("one")
    site.variables["kvm1"] = {"kvmfleet_fencing": FENCING}
    with pytest.raises(Unsafe, match="the ledger is a folder, and only a ledger on etcd has leases"):
        site.evacuate(force_down=None)


def test_etcd_with_one_member_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path / "etcd")
    try:
        cluster.up(1)
        site = WatchedSite(tmp_path, cluster.location())
        with contextlib.closing(site):
            site.save("one")
            assert "etcd has 1 voting members, and a watchdog is evidence with at least 3" in site.failed_evacuation().message
    finally:
        cluster.down()


EVIDENCE = Evidence("watchdog", "kvm1", host_id("kvm1"), None, "reset", "off", "it did", "2026-11-26T20:00:00.000Z", "a test", 300, None, lease_revision=7)


@pytest.mark.parametrize("fencing", [None, {"levels": [[{"agent": "/bin/true"}]]}])
def test_evidence_of_a_watchdog_that_the_inventory_no_longer_names_is_refused(site: WatchedSite, fencing: t.Any) -> None:
    with pytest.raises(Unsafe, match="has no watchdog_seconds in kvmfleet_fencing"):
        confirm_reset(EVIDENCE, parse_fencing(fencing, "kvm1"), site.ledger.open_leases())


def test_evidence_of_a_watchdog_needs_a_lease_that_can_be_read(site: WatchedSite) -> None:
    config = parse_fencing(FENCING, "kvm1")
    with pytest.raises(Unsafe, match="its lease cannot be read again"):
        confirm_reset(EVIDENCE, config, None)
    with pytest.raises(Unsafe, match="is on again"):
        confirm_reset(EVIDENCE, config, site.ledger.open_leases())
    with pytest.raises(Unsafe, match="was removed from etcd"):
        confirm_reset(replace(EVIDENCE, host_id=host_id("kvm9")), config, site.ledger.open_leases())


class SilentReader:
    """Stands for an etcd that never answers."""

    def count_members(self) -> int:
        raise Unreachable("Nobody answers.")


def test_an_etcd_that_never_answers_ends_the_wait_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset_watch, "_GRACE_SECONDS", 0.1)
    config = parse_fencing(FENCING, "kvm1")
    assert config
    entry = HostEntry("kvm1", host_id("kvm1"), None, "enabled")
    verdict = ResetWatch(config, entry, t.cast("t.Any", SilentReader()), lambda line: None, poll_seconds=0.05).start().wait()
    assert verdict == Void("etcd does not answer: Nobody answers.")


def test_a_watchdog_that_can_never_be_evidence_is_refused_when_the_host_is_protected() -> None:
    config = parse_fencing({"watchdog_seconds": 14}, "kvm1")
    assert config
    entry = HostEntry("kvm1", host_id("kvm1"), None, "enabled", protected=HostProtection(watchdog=protected_watchdog(reset_seconds=14)))
    check_watchdog(config, entry, has_leases=True)
    check_watchdog(config, HostEntry("kvm1", None, None, "enabled"), has_leases=True)
    with pytest.raises(InvalidArgument, match="only a ledger on etcd has leases"):
        check_watchdog(config, entry, has_leases=False)
    entry = replace(entry, protected=HostProtection(watchdog=protected_watchdog(reset_seconds=15)))
    with pytest.raises(InvalidArgument, match="a watchdog shorter than its reset is no evidence: /dev/watchdog0 needs 15 s"):
        check_watchdog(config, entry, has_leases=True)
