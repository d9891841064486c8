# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that renews its lease is on, whatever the evidence says; a lease that ends, or that cannot be read, prevents nothing."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import evidence as evidence_module
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import ProbedFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import SourceAnswers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.renewals import Renewals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReading, SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import Refused
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import WORD, Site, host_id

LEASE_SECONDS, RENEW_SECONDS = 15, 3


class FakeEtcd:
    """Hosts that renew their leases at moments of a clock that only waiting moves; an acknowledgement comes at once."""

    def __init__(self, *hosts: str) -> None:
        self.now = 1000.0
        self.revision = 50
        self.leases: dict[str, SeenLease] = {}
        self.due: dict[str, float] = {}
        self.error: Exception | None = None
        self.reads = 0
        for host in hosts:
            self.due[host] = self.now
            self.pass_time(RENEW_SECONDS)

    def renew(self, host: str, acknowledged: int | None = None) -> None:
        before = self.leases.get(host_id(host))
        known = before.revision if before else 0
        self.revision += 1
        told = (host_id(host), host, "boot 1", self.revision, 1, LEASE_SECONDS, RENEW_SECONDS, LeaseFleet("f", 3), "kvm2", "2026-11-26T20:00:00.000Z")
        self.leases[host_id(host)] = SeenLease(self.revision, HostLease(*told, known if acknowledged is None else acknowledged))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for host, due in self.due.items():
            while self.due[host] <= self.now:
                self.renew(host)
                self.due[host] = due = due + RENEW_SECONDS

    def read_leases(self) -> LeaseReading:
        self.reads += 1
        if self.error:
            raise self.error
        return LeaseReading(self.revision, dict(self.leases))

    def renewals(self) -> Renewals:
        return Renewals(lambda: t.cast("t.Any", self), lambda: self.now, self.pass_time)


def evidence(kind: str = "person", **changes: t.Any) -> Evidence:
    made = Evidence(kind, "kvm1", host_id("kvm1"), None, "off", "off", "", "2026-11-26T20:00:00.000Z", "Ada", 300, "I pulled the plug")
    return replace(made, **changes)


def test_a_host_that_renews_after_the_evidence_is_on() -> None:
    etcd = FakeEtcd("kvm1")
    renewals = etcd.renewals()
    renewals.read_leases()
    renewals.note_evidence()
    # This renewal may have been sent before the evidence, and the next one was sent after this one was acknowledged.
    etcd.renew("kvm1")
    renewals.read_leases()
    renewals.refuse_renewed([evidence()])
    etcd.renew("kvm1")
    renewals.read_leases()
    with pytest.raises(Unsafe, match=r"kvm1 is on, although Ada confirmed that it is off: it has renewed its lease in etcd since \(through kvm2, "):
        renewals.refuse_renewed([evidence()])
    with pytest.raises(Unsafe, match="although it was fenced by fence_ipmilan:"):
        renewals.refuse_renewed([evidence("fence_agent", agent="fence_ipmilan")])


def test_a_renewal_of_another_store_that_says_more_proves_nothing() -> None:
    """A host keeps the revision of its last acknowledgement when it is given another etcd, whose revisions are lower."""
    etcd = FakeEtcd()
    etcd.renew("kvm1", acknowledged=10_000)
    renewals = etcd.renewals()
    renewals.note_evidence()
    renewals.refuse_renewed([evidence()])
    etcd.revision = 40
    etcd.leases = {key: seen._replace(revision=30) for key, seen in etcd.leases.items()}
    renewals.read_leases()
    renewals.refuse_renewed([evidence()])
    # Renewals in the store that was restored count from then on.
    etcd.renew("kvm1")
    etcd.renew("kvm1")
    renewals.read_leases()
    with pytest.raises(Unsafe):
        renewals.refuse_renewed([evidence()])


def test_a_host_that_renews_is_waited_for_until_that_is_proved() -> None:
    etcd = FakeEtcd("kvm1")
    renewals = etcd.renewals()
    renewals.read_leases()
    renewals.note_evidence()
    begun, lines = etcd.now, list[str]()
    with pytest.raises(Unsafe, match="kvm1 is on"):
        renewals.await_expiry([evidence()], show=lines.append)
    assert etcd.now - begun <= 2 * RENEW_SECONDS + 1


def test_a_host_that_was_switched_off_is_waited_for_until_its_lease_has_ended() -> None:
    etcd = FakeEtcd("kvm1")
    renewals = etcd.renewals()
    renewals.read_leases()
    etcd.pass_time(RENEW_SECONDS)
    del etcd.due["kvm1"]
    renewals.note_evidence()
    begun, lines = etcd.now, list[str]()
    renewals.await_expiry([evidence()], show=lines.append)
    assert LEASE_SECONDS <= etcd.now - begun <= LEASE_SECONDS + 2
    assert len(lines) == 1
    assert lines[0].startswith("Waiting until the lease of kvm1 has ended")


def test_a_host_that_has_been_silent_is_not_waited_for() -> None:
    etcd = FakeEtcd("kvm1")
    del etcd.due["kvm1"]
    renewals = etcd.renewals()
    renewals.read_leases()
    etcd.pass_time(RENEW_SECONDS + 2)
    renewals.note_evidence()
    begun = etcd.now
    renewals.await_expiry([evidence(), evidence(host="kvm9", host_id=host_id("kvm9"))])
    assert etcd.now == begun


def test_a_host_that_was_read_only_once_is_waited_for_until_it_would_have_renewed() -> None:
    etcd = FakeEtcd("kvm1")
    del etcd.due["kvm1"]
    renewals = etcd.renewals()
    renewals.note_evidence()
    begun = etcd.now
    renewals.await_expiry([evidence()], only_renewed=True)
    assert etcd.now == begun
    renewals.await_expiry([evidence()])
    assert RENEW_SECONDS < etcd.now - begun <= RENEW_SECONDS + 2


def test_a_renewal_since_an_earlier_step_is_one() -> None:
    etcd = FakeEtcd("kvm1")
    earlier = etcd.renewals()
    earlier.read_leases()
    known = earlier.revision_of(host_id("kvm1"))
    etcd.pass_time(RENEW_SECONDS)
    renewals = etcd.renewals()
    renewals.note_earlier(host_id("kvm1"), known)
    renewals.note_evidence()
    with pytest.raises(Unsafe, match="kvm1 is on"):
        renewals.await_expiry([evidence()], only_renewed=True)


def test_renewals_that_arrive_for_ever_and_are_never_acknowledged_end_the_wait() -> None:
    etcd = FakeEtcd()
    etcd.renew("kvm1")
    renewals = etcd.renewals()
    renewals.note_evidence()

    def sleep(seconds: float) -> None:
        etcd.pass_time(seconds)
        etcd.renew("kvm1", acknowledged=0)

    renewals._sleep = sleep
    with pytest.raises(Unsafe, match="The lease of kvm1 is still renewed"):
        renewals.await_expiry([evidence()])


@pytest.mark.parametrize("error", [Unreachable("No member answers."), Refused(7, "denied")])
def test_leases_that_cannot_be_read_prevent_nothing(error: Exception) -> None:
    etcd = FakeEtcd("kvm1")
    renewals = etcd.renewals()
    renewals.read_leases()
    etcd.error = error
    renewals.note_evidence()
    begun = etcd.now
    renewals.await_expiry([evidence()])
    renewals.require_silence("kvm1", host_id("kvm1"))
    assert etcd.now == begun
    # What was sent before leases could be read again proves nothing either.
    etcd.error = None
    etcd.pass_time(60)
    renewals.read_leases()
    renewals.refuse_renewed([evidence()])


def test_a_ledger_without_leases_prevents_nothing() -> None:
    renewals = Renewals(lambda: None)
    renewals.note_evidence()
    renewals.await_expiry([evidence()])
    renewals.require_silence("kvm1", host_id("kvm1"))


def test_a_reaction_refuses_a_host_that_renews() -> None:
    etcd = FakeEtcd("kvm1")
    renewals = etcd.renewals()
    renewals.read_leases()
    with pytest.raises(SourceAnswers, match="kvm1 renews its lease in etcd"):
        renewals.require_silence("kvm1", host_id("kvm1"))
    del etcd.due["kvm1"]
    renewals, begun = etcd.renewals(), etcd.now
    renewals.require_silence("kvm1", host_id("kvm1"))
    assert RENEW_SECONDS < etcd.now - begun <= RENEW_SECONDS + 2


# In evacuations


@pytest.fixture
def etcd(site: Site, monkeypatch: pytest.MonkeyPatch) -> FakeEtcd:
    """An etcd beside the ledger of the site, in which kvm1 renews its lease."""
    made = FakeEtcd("kvm1")
    site.ledger.open_leases = lambda: t.cast("t.Any", made)  # type: ignore[method-assign]
    monkeypatch.setattr(evidence_module, "Renewals", lambda open_leases: made.renewals(), raising=False)
    return made


def test_a_confirmation_for_the_wrong_chassis_starts_nothing(site: Site, etcd: FakeEtcd) -> None:
    site.save("web")
    with pytest.raises(Unsafe, match="kvm1 is on, although Ada confirmed that it is off"):
        site.evacuate(force_down=WORD)
    assert site.running() == {}


def test_an_agent_that_switches_another_machine_off_starts_nothing(site: Site, etcd: FakeEtcd) -> None:
    site.agent(power="on")
    site.save("web")
    with pytest.raises(Unsafe, match="kvm1 is on, although it was fenced by"):
        site.evacuate()
    assert site.running() == {}
    with pytest.raises(Unsafe, match="kvm1 is on"):
        site.evacuate()


def test_a_host_that_begins_to_renew_before_its_domains_are_started_starts_nothing(site: Site, etcd: FakeEtcd) -> None:
    del etcd.due["kvm1"]
    site.save("web")
    run = site.evacuation(force_down=WORD)
    judge_jobs = run.judge_jobs

    def begin_to_renew(probed: ProbedFleet) -> None:
        judge_jobs(probed)
        etcd.due["kvm1"] = etcd.now
        etcd.pass_time(3 * RENEW_SECONDS)

    run.judge_jobs = begin_to_renew  # type: ignore[method-assign]
    run.evacuate_domains()
    assert ["kvm1 is on" in str(job.error) for job in run.jobs] == [True]
    assert site.running() == {}
    assert [status for _name, status, _host in site.record_summaries()] == ["failed"]


def test_a_host_that_is_really_switched_off_is_evacuated(site: Site, etcd: FakeEtcd) -> None:
    """A person switches off an isolated host on purpose."""
    site.save("web")
    run = site.evacuation(force_down=WORD)
    run.probe_fleet()
    etcd.pass_time(RENEW_SECONDS)
    del etcd.due["kvm1"]
    run.evacuate_domains()
    assert site.running() == {"kvm2": ["web"]}


def test_without_leases_that_can_be_read_the_evidence_counts_as_ever(site: Site, etcd: FakeEtcd) -> None:
    etcd.error = Unreachable("No member answers.")
    site.save("web")
    site.evacuate(force_down=WORD)
    assert site.running() == {"kvm2": ["web"]}
