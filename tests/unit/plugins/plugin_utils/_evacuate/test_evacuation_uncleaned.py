# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that was evacuated is back and not cleaned when the host that has its domain dies."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup import CopyCleaner
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_survey import CleanupSurvey
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import CleanupQuestion
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, KvmfleetError, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import Surroundings
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.cleanup import CleanupOutcome, HostCleanup
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import FakeStartingHost
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site, host_id


class CleanableHost(FakeStartingHost):
    """Also implements what a cleanup needs of a host."""

    def __init__(self, uuid: str) -> None:
        super().__init__()
        self.uuid = uuid

    def host_id(self) -> None:
        return None

    def host_uuid(self) -> str:
        return self.uuid

    def find_domain(self, uuid: str) -> domain_states.DomainInfo:
        return domain_states.DomainInfo(uuid, self.guests[uuid]["name"], self.view_domain(uuid), autostart=False, memory_bytes=0, vcpus=1, disks=())

    @contextlib.contextmanager
    def open_folder(self, path: str) -> t.Iterator[t.NoReturn]:
        raise NotFound(path)

    def read_surroundings(self) -> Surroundings:
        return Surroundings((), (), (), (), (), ())

    def read_definition(self, uuid: str) -> str:
        return self.definitions[self.guests[uuid]["name"]]

    def read_whole_definition(self, uuid: str, persistent: bool) -> str:
        return self.read_definition(uuid)

    def iterate_definitions(self) -> t.Iterator[tuple[str, str, str]]:
        yield from [(uuid, guest["name"], self.read_definition(uuid)) for uuid, guest in self.guests.items()]

    def has_managed_save(self, uuid: str) -> bool:
        return False

    def count_snapshots(self, uuid: str) -> tuple[int, int]:
        return 0, 0

    def undefine_inactive(self, uuid: str) -> None:
        if self.view_domain(uuid).active:
            raise InvalidState("it is active")
        self.guests.pop(uuid, None)


class ReturnedSite(Site):
    """Its first host has a domain, and can be cleaned. No other host than the first two sees the disk of the domain."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.hosts = {name: CleanableHost(self.uuids[name]) for name in self.hosts}
        self.save("web", seen_by=("kvm1", "kvm2"))
        (document,) = self.ledger.find_domains("web")
        self.hosts["kvm1"].define_domain(document.body["protected"]["definition"])

    def power(self, name: str, on: bool) -> None:
        for guest in self.hosts[name].guests.values():
            guest["state"] = "shut off"
        (self.silent.discard if on else self.silent.add)(name)

    def evacuate_all(self, source: str, on: str, *also_off: str) -> list[str]:
        """Evacuate a host by evidence; return the errors."""
        off = [{"host": name, "action": "off", "status": "off", "at": utc_now()} for name in (source, *also_off)]
        run = self.evacuate(on, source=source, fencing=off)
        self.set_state(source, s.FENCED)
        return [str(job.error) for job in run.jobs if job.error]

    def set_state(self, name: str, state: str) -> None:
        self.write_host(name, state=state)

    def clean(self, name: str) -> CleanupOutcome:
        uris = {other: other for other in ("kvm1", "kvm2", "kvm3") if other != name}
        cleanup = HostCleanup(self.ledger, self.place(name), lambda phase, work: self._clean(name, phase, work), uris, "quarantine", 14, "a test", check=False)
        return cleanup.clean_host()

    def _open(self, name: str) -> t.Any:
        if name in self.silent:
            raise Unreachable("no answer")
        return self.hosts[name]

    def _clean(self, name: str, phase: str, work: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        host = self._open(name)
        survey = CleanupSurvey(host, host_id(name), work["uris"], self._open, lambda record: (), "/none")
        plans = survey.plan_cleanups([decode(CleanupQuestion, domain) for domain in work["domains"]])
        if phase == "survey":
            return {"changed": False, "plans": encode(plans)}
        (plan,) = plans
        if plan.kind != "clean":
            return {"changed": False, "plan": encode(plan)}
        done = CopyCleaner(host, host_id(name), Quarantine(plan.record, str(self.folder / f"kept-{name}"))).remove_copy(plan, work["storage"])
        return {"changed": done.changed, "plan": encode(plan), "done": encode(done)}


@pytest.fixture
def site(tmp_path: pathlib.Path) -> ReturnedSite:
    """The first host was evacuated to the second one, and is back."""
    site = ReturnedSite(tmp_path)
    site.power("kvm1", on=False)
    assert site.evacuate_all("kvm1", "kvm2") == []
    site.power("kvm1", on=True)
    assert site.running() == {"kvm2": ["web"]}
    return site


def test_a_leftover_is_kept_while_the_host_of_its_domain_is_only_silent(site: ReturnedSite) -> None:
    site.power("kvm2", on=False)
    (refused,) = site.clean("kvm1").refused
    assert "the copy here may be the only one; kvm2 did not answer" in refused.reason
    assert uuid_of("web") in site.hosts["kvm1"].guests


def test_a_host_with_a_leftover_starts_nothing_of_another_dead_host(site: ReturnedSite) -> None:
    site.set_state("kvm1", s.ENABLED)
    site.power("kvm2", on=False)
    (error,) = site.evacuate_all("kvm2", "kvm1")
    assert "clean up this host first (kvmfleet.migration.evacuation_cleanup)" in error
    assert site.running() == {}


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_returned_host_is_cleaned_and_takes_its_domain_back_when_the_host_of_the_domain_has_died(site: ReturnedSite, is_begun: bool) -> None:
    """:arg is_begun: the domain may be on the third host, which died too, because its evacuation to that host had begun."""
    site.power("kvm2", on=False)
    others: list[str] = []
    if is_begun:
        stored = site.ledger.open_record(new_record(s.EVACUATION, DomainRef(uuid_of("web"), "web"), site.place("kvm2"), site.place("kvm3"), {}, "a test"))
        site.ledger.update_record(stored, stored.record.advance(s.PRE_MIGRATING, "a test"))
        site.power("kvm3", on=False)
        site.set_state("kvm3", s.FENCED)
        others = ["kvm3"]
    assert len(site.evacuate_all("kvm2", "kvm1", *others)) == 1
    assert [entry.name for entry in site.clean("kvm1").cleaned] == ["web"]
    site.set_state("kvm1", s.ENABLED)
    assert site.evacuate_all("kvm2", "kvm1", *others) == []
    assert site.running() == {"kvm1": ["web"]}
    assert site.possible("web") == ["kvm1"]
    # What is left on the other hosts is removed when they are back.
    for name in ("kvm2", *others):
        site.power(name, on=True)
        site.clean(name)
    assert {name for name, host in site.hosts.items() if uuid_of("web") in host.guests} == {"kvm1"}
    assert list(site.ledger.list_records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE))) == []


def test_two_returned_hosts_with_leftovers_do_not_wait_for_each_other(site: ReturnedSite) -> None:
    site.change("web", lambda body: body["protected"]["disks"][0].update(seen_by=[host_id(name) for name in ("kvm1", "kvm2", "kvm3")]))
    site.power("kvm2", on=False)
    assert site.evacuate_all("kvm2", "kvm3") == []
    site.power("kvm2", on=True)
    site.power("kvm3", on=False)
    site.set_state("kvm3", s.FENCED)
    for name in ("kvm1", "kvm2"):
        assert [entry.name for entry in site.clean(name).cleaned] == ["web"]


def test_a_cleanup_never_removes_a_copy_that_runs(site: ReturnedSite) -> None:
    site.power("kvm2", on=False)
    site.set_state("kvm2", s.FENCED)
    site.hosts["kvm1"].guests[uuid_of("web")]["state"] = "running"
    with pytest.raises(KvmfleetError, match="is active on this host"):
        site.clean("kvm1")
    assert site.running() == {"kvm1": ["web"]}
