# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations from one end to the other: what is started, what is refused, and what the ledger has of it."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import os
import pathlib
import socket
import struct
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import SSH_ANSWERS, SSH_SILENT, SSH_UNKNOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode as encoded
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Forbidden,
    Internal,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    TimedOut,
    Unreachable,
    Unsafe,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import fence_levels, starts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import build_assessment, build_result, build_settled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation, ProbedFleet, SourceProof
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import person_evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.starts import GOOD_FOR_SECONDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.tombstones import find_tombstones
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file import folder, journal
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.release import find_withholding
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import ControllerGone
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import GOOD
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import HOSTS, WORD, Site, host_id
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

Body = dict[str, t.Any]


class Holding:
    """An image that is open in another process, with the locks of QEMU for a guest that shares writing."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def close(self) -> None:
        os.close(self._handle)


def hold_as_qemu(path: pathlib.Path) -> Holding:
    handle = os.open(path, os.O_RDWR)
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 101, 1, 0))
    return Holding(handle)


def errors(run: Evacuation) -> dict[str, str]:
    return {job.name: str(job.error) for job in run.jobs if job.error}


def test_all_domains_are_started_by_priority_and_size(site: Site) -> None:
    site.save("small", memory_mib=512)
    site.save("large", memory_mib=2048)
    site.save("first", priority=9)
    run = site.evacuate()
    assert site.running() == {"kvm2": ["first", "large", "small"]}
    assert site.record_summaries() == [(name, "done", "kvm2") for name in ("first", "large", "small")]
    assert [site.possible(name) for name in ("first", "large", "small")] == [["kvm2"]] * 3
    result = build_result(run, diff=True)
    assert result["changed"]
    assert "failed" not in result
    assert result["diff"]["after"] == "first: kvm2\nlarge: kvm2\nsmall: kvm2\n"
    assert not site.ledger.verify_audit()


@pytest.mark.parametrize("who", ["kvm2", "kvm3"])
def test_a_domain_of_a_remembered_move_that_the_ledger_lost_is_not_started(site: Site, who: str) -> None:
    """The task runs on kvm2; the facts of kvm3 are recent."""
    site.save("web")
    domain = DomainRef(site.save("app"), "app")
    lost = new_record(s.LIVE_MIGRATION, domain, site.place(who), site.place("kvm1"), {}, "x")
    site.remembered[who] = [{**encoded(lost), "generation": 1, "status": s.COMPLETED, "ledger_id": site.ledger.ledger_id}]
    run = site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    result = build_result(run, diff=False)
    assert (result["failed"], result["error_code"]) == (True, "conflict")
    assert [(one["id"], one["remembered_by"]) for one in result["missing_records"]] == [(lost.id, who)]
    assert [record.domain.name for record in site.ledger.list_records()] == ["web"]
    assert any(lost.record_id in warning for warning in run.context.warnings)


def test_definitions_are_neither_in_results_nor_in_records(site: Site) -> None:
    site.save("web")
    result = build_result(site.evacuate(), diff=True)
    assert "<domain" not in str(result)
    assert "<domain" not in str(list(site.ledger.list_records()))


def test_the_record_keeps_only_disks_saved_of_its_source(site: Site) -> None:
    site.save("web")
    site.evacuate()
    (record,) = site.ledger.list_records(domain="web")
    (document,) = site.ledger.list_domains()
    assert encoded(record.before)["disks"] == document.body["protected"]["disks"] != []
    # Nobody has protected it on kvm2, which dies in turn: how its disks are there is in no document.
    site.silent = {"kvm1", "kvm2"}
    site.evacuate("kvm3", source="kvm2", accept_silent=["kvm1"])
    newer = max(site.ledger.list_records(domain="web"), key=lambda one: one.generation)
    assert (newer.source.host, newer.before.disks) == ("kvm2", None)


def test_a_second_run_starts_nothing_and_fences_no_host(site: Site) -> None:
    site.save("web")
    agent = site.agent()
    site.evacuate()
    asked = len(agent.asked())
    run = site.evacuate()
    assert (run.jobs, len(agent.asked())) == ([], asked)
    named = site.evacuate(domains=["web"])
    assert [record["status"] for record in build_result(named, diff=False)["evacuations"]] == ["done"]
    assert not build_result(named, diff=False)["changed"]


def test_domains_are_started_in_their_saved_state_or_in_the_state_of_the_task(site: Site) -> None:
    site.save("held", state="paused")
    site.save("idle", state="shut off")
    site.save("web")
    site.evacuate(domains=["held", "idle"])
    assert site.hosts["kvm2"].guests[uuid_of("held")]["state"] == "paused"
    assert site.hosts["kvm2"].guests[uuid_of("idle")]["state"] == "shut off"
    site.evacuate(domains=["web"], state="defined")
    assert site.hosts["kvm2"].guests[uuid_of("web")]["state"] == "shut off"
    assert [record.wanted_state for record in site.ledger.list_records(domain="web")] == ["shut off"]


def test_starts_that_ssh_has_repeated_are_those_of_this_run(site: Site) -> None:
    site.save("web")
    site.save("idle", state="shut off")
    site.repeats_start = True
    result = build_result(site.evacuate(), diff=False)
    assert [(record["domain"]["name"], record["status"]) for record in result["evacuations"]] == [("web", "done"), ("idle", "done")]
    assert (result["changed"], "failures" in result) == (True, False)


def test_orders_that_were_under_way_for_too_long_start_nothing_before_the_source_was_proved_off_again(site: Site) -> None:
    site.save("web")
    agent = site.agent()
    asked: list[int] = []
    site.before_start = lambda: asked.append(len(agent.asked()))
    site.delays = [GOOD_FOR_SECONDS + 1.0, 0.0]
    site.evacuate()
    assert (site.running(), site.record_summaries()) == ({"kvm2": ["web"]}, [("web", "done", "kvm2")])
    assert asked[1] > asked[0]


def test_a_repeated_start_that_comes_too_late_is_the_start_of_this_run(site: Site) -> None:
    site.save("web")
    site.repeats_start, site.delays = True, [0.0, GOOD_FOR_SECONDS + 1.0]
    result = build_result(site.evacuate(), diff=False)
    assert (site.record_summaries(), result["changed"]) == ([("web", "done", "kvm2")], True)


@pytest.mark.parametrize("is_started", [False, True])
def test_what_became_of_a_deferred_start_is_asked_before_its_record_is_closed(site: Site, is_started: bool) -> None:
    """The answer is that of the second of two commands. The first one may start the domain after it."""
    site.save("web")
    agent, start = site.agent(), site._start
    site.delays = [GOOD_FOR_SECONDS + 1.0]

    def start_twice(on: str, work: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        answer = start(on, work)
        if work["start_until"]:
            agent.switch("on")
            if is_started:
                start(on, work)
        return answer

    site._start = start_twice  # type: ignore[method-assign]
    run = site.evacuate()
    assert site.record_summaries() == [("web", "done" if is_started else "failed", "kvm2")]
    assert site.running() == ({"kvm2": ["web"]} if is_started else {})
    assert list(errors(run)) == ([] if is_started else ["web"])


def test_an_agent_that_takes_long_to_answer_leaves_time_for_the_starts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    site.agent().write(f"sleep 1.2\n{GOOD}")
    monkeypatch.setattr(starts, "GOOD_FOR_SECONDS", 1.0)
    site.evacuate()
    assert site.record_summaries() == [("web", "done", "kvm2")]


def test_a_start_that_ssh_has_repeated_after_it_failed_is_settled_by_the_next_run(site: Site) -> None:
    site.save("bad")
    site.hosts["kvm2"].refuses.add("bad")
    site.repeats_start = True
    assert list(errors(site.evacuate())) == ["bad"]
    assert site.record_summaries() == [("bad", "pre-migrating", "kvm2")]
    site.repeats_start = False
    site.evacuate()
    assert site.record_summaries() == [("bad", "failed", "kvm2")]
    assert site.running() == {}


def test_domains_that_are_not_selected_are_reported(site: Site) -> None:
    site.save("web")
    site.save("app")
    result = build_result(site.evacuate(domains=["web"]), diff=False)
    assert [entry["name"] for entry in result["not_selected"]] == ["app"]
    assert site.running() == {"kvm2": ["web"]}


def test_a_domain_that_its_host_did_not_have_any_more_is_started_only_if_it_is_named(site: Site) -> None:
    site.save("web")
    site.save("deleted")
    site.lose("deleted")
    run = site.evacuate()
    (left,) = build_result(run, diff=False)["not_selected"]
    assert (left["name"], left["missing_since"]) == ("deleted", "2026-11-23T18:00:00.000Z")
    assert site.running() == {"kvm2": ["web"]}
    (warning,) = [text for text in run.context.warnings if "deleted" in text]
    assert warning.startswith("Domain deleted is not started: it has been missing from kvm1 since 2026-11-23T18:00:00.000Z")
    run = site.evacuate(domains=["deleted"])
    assert [text for text in run.context.warnings if "is not started" in text] == []
    assert site.running() == {"kvm2": ["deleted", "web"]}
    (document,) = site.ledger.find_domains("deleted")
    assert (site.possible("deleted"), "missing" in document.body) == (["kvm2"], False)


def test_the_uuid_of_a_domain_may_be_given_in_upper_case(site: Site) -> None:
    uuid = site.save("web")
    assert [job.name for job in site.evacuate(domains=[uuid.upper()]).jobs] == ["web"]
    # It was evacuated before.
    assert build_result(site.evacuate(domains=[uuid.upper()]), diff=False)["changed"] is False


def test_the_name_of_a_guest_that_was_made_again_means_the_new_one(site: Site) -> None:
    site.save("deleted")
    site.lose("deleted")
    uuid = site.save("again")
    site.change("deleted", lambda body: body.update(name="again"))
    site.evacuate(domains=["again"])
    assert [record.domain.uuid for record in site.ledger.list_records()] == [uuid]


def test_a_domain_that_was_renamed_since_it_was_saved_is_started_under_its_saved_name(site: Site) -> None:
    """Its move under the new name came before the next protection. The definition has the old one."""
    site.save("web")
    site.change("web", lambda body: body.update(name="www"))
    run = site.evacuate(domains=["www"])
    assert (site.running(), site.record_summaries()) == ({"kvm2": ["web"]}, [("web", "done", "kvm2")])
    assert "Domain www is started as web, the name in its saved definition." in run.context.warnings
    assert [document.domain.name for document in site.ledger.list_domains()] == ["web"]


def test_a_start_of_a_missing_domain_that_has_begun_is_settled(site: Site) -> None:
    site.save("bad")
    site.hosts["kvm2"].refuses.add("bad")
    site.repeats_start = True
    site.evacuate()
    site.lose("bad")
    site.repeats_start = False
    site.evacuate()
    assert site.record_summaries() == [("bad", "failed", "kvm2")]


def test_a_domain_that_does_not_start_does_not_stop_the_others(site: Site) -> None:
    for name in ("web", "bad", "app"):
        site.save(name)
    site.hosts["kvm2"].refuses.add("bad")
    run = site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}
    assert sorted(line[:2] for line in site.record_summaries()) == [("app", "done"), ("bad", "failed"), ("web", "done")]
    assert site.possible("bad") == ["kvm1"]
    result = build_result(run, diff=False)
    assert (result["failed"], result["changed"]) == (True, True)
    assert [failure["domain"] for failure in result["failures"]] == ["bad"]
    site.evacuate("kvm3")
    assert site.running() == {"kvm2": ["app", "web"], "kvm3": ["bad"]}


def test_check_mode_predicts_and_changes_nothing(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    run = site.evacuation(check=True)
    run.evacuate_domains()
    result = build_result(run, diff=True)
    assert (result["changed"], [record["id"] for record in result["evacuations"]]) == (True, [None])
    assert result["diff"]["after"] == "web: kvm2\n"
    assert (site.running(), site.record_summaries(), agent.asked()) == ({}, [], [])


def test_check_mode_without_evidence_names_the_evidence_that_the_source_needs(site: Site) -> None:
    """The dead host is not a further host that may have the domain, and no record is to be settled for it."""
    site.save("web")
    run = site.evacuation(check=True)
    run.evacuate_domains()
    assert "There is no evidence that kvm1 is off" in errors(run)["web"]
    assert "Nothing was started" in errors(run)["web"]
    assert "settle" not in errors(run)["web"]


# Evidence


def test_the_fence_agent_is_asked_again_before_the_starts(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    asked: list[str] = []
    site.before_start = lambda: asked.extend(agent.asked())
    site.evacuate()
    assert asked[:3] == ["status", "off", "status"]
    assert asked[3:].count("status") >= 1
    (record,) = site.ledger.list_records()
    assert (record.evidence[0]["kind"], record.evidence[0]["status"]) == ("fence_agent", "off")
    assert {"silence", "locks"} <= {one["kind"] for one in record.evidence}


def test_no_host_is_fenced_while_the_ledger_cannot_be_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a ledger on a full disk works. The host may be on: its guests would be down, and nothing could be started."""

    def fail(*_args: t.Any) -> t.Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    site.save("web")
    agent = site.agent(power="on")
    with monkeypatch.context() as full:
        for module in (folder, journal):
            full.setattr(module, "write_all", fail)
        site.evacuation(check=True).evacuate_domains()
        with pytest.raises(Internal, match=r"^kvm1 was not fenced by this task, and nothing was started: .*No space left on device.* Free space"):
            site.evacuate()
    assert "off" not in agent.asked()
    assert site.record_summaries() == []
    before = sorted(os.listdir(site.folder / "ledger"))
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert {"ledger.json", "hosts"} <= set(before) <= set(os.listdir(site.folder / "ledger"))
    assert not [name for name in before if "room" in name]


def test_a_record_keeps_the_lock_evidence_of_its_own_images_only(site: Site) -> None:
    site.save("web")
    site.save("app")
    site.evacuate()
    for record in site.ledger.list_records():
        seen = [list(one["images"]) for one in record.evidence if one["kind"] == "locks"]
        assert seen == [[str(site.images / f"{record.domain.name}.qcow2")]]
    assert len(site.record_summaries()) == 2


def test_locks_are_not_checked_again_if_they_were_checked_after_the_fencing(site: Site) -> None:
    site.save("web")
    site.evacuate()
    assert site.phases == [("kvm2", "look"), ("kvm2", "start")]
    site.save("app")
    site.agent(power="on")
    site.phases.clear()
    site.evacuate()
    assert site.phases == [("kvm2", "look"), ("kvm2", "locks"), ("kvm2", "start")]


@pytest.fixture
def slow_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is waited for takes too long."""
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation._FRESH_SECONDS", -1.0)


def during_the_wait(site: Site, act: t.Callable[[], object]) -> None:
    """Let this happen while the locks of images are waited for; afterwards, they are free."""
    locks = site._locks

    def wait(on: str, work: t.Any) -> t.Any:
        found = locks(on, work)
        if "wait_seconds" in work:
            act()
            site.locked.clear()
        return found

    site._locks = wait  # type: ignore[method-assign]


@pytest.mark.usefixtures("slow_waits")
def test_hosts_are_asked_again_after_fencing_and_waiting_for_leases(site: Site) -> None:
    """Meanwhile somebody has started one of the domains elsewhere, and the host that takes the others has got another guest."""
    site.save("web")
    uuid = site.save("app")
    site.agent(power="on")
    site.locked.add("web")
    during_the_wait(site, lambda: site.hosts["kvm3"].add(uuid, "app"))
    run = site.evacuate()
    assert site.phases == [("kvm2", "look"), ("kvm2", "locks"), ("kvm2", "look"), ("kvm2", "start")]
    assert "is active on kvm3" in errors(run)["app"]
    assert site.running() == {"kvm2": ["web"], "kvm3": ["app"]}


@pytest.mark.usefixtures("slow_waits")
def test_given_evidence_stays_valid_during_the_chosen_lock_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=299)
    run = site.evacuation(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": then.isoformat()}])
    probed = run.probe_fleet()
    # It has a clock of its own.
    monkeypatch.setattr(site.ledger, "check_writable", lambda: None)
    clock = iter([0.0, 400.0])
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation.time.monotonic", lambda: next(clock, 400.0))
    run.prove_source_off(probed, starts=False)
    assert [one.ttl_seconds for one in run.proofs.all_evidence] == [700]


def test_starts_end_when_the_dead_host_is_switched_on_again(site: Site) -> None:
    site.save("web")
    site.save("app")
    agent = site.agent()
    site.deferred = {"web"}
    site.after_start = lambda: agent.switch("on")
    run = site.evacuate()
    assert site.running() == {"kvm2": ["app"]}
    assert "is on" in errors(run)["web"]
    assert sorted(line[:2] for line in site.record_summaries()) == [("app", "done"), ("web", "failed")]
    assert site.possible("web") == ["kvm1"]


# An agent whose BMC stops answering.
MUTE = "echo 'Connection timed out'; exit 1"


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence device that reports no state is not queried again."""
    monkeypatch.setattr(fence_levels, "_POLL_SECONDS", 3600)


@pytest.mark.usefixtures("impatience")
def test_records_are_failed_when_the_fence_agent_dies_before_the_starts(site: Site) -> None:
    """Nothing was sent to the host that would start the domains, so nothing can have been started there."""
    site.save("web")
    agent = site.agent()
    run = site.evacuation()
    book = run._reserve_all

    def book_and_lose_the_bmc(*booking: t.Any) -> None:
        book(*booking)
        agent.write(MUTE)

    run._reserve_all = book_and_lose_the_bmc  # type: ignore[method-assign]
    run.evacuate_domains()
    assert ("kvm2", "start") not in site.phases
    assert "no longer reports its state" in errors(run)["web"]
    assert run.jobs[0].error is not None
    assert run.jobs[0].error.error_code == "unreachable"
    assert site.record_summaries() == [("web", "failed", "kvm2")]
    assert site.possible("web") == ["kvm1"]


@pytest.mark.usefixtures("impatience")
def test_pending_records_are_failed_when_the_fence_agent_dies_between_starts(site: Site) -> None:
    site.save("web")
    site.save("app")
    agent = site.agent()
    site.deferred = {"web"}
    site.after_start = lambda: agent.write(MUTE)
    run = site.evacuate()
    assert sorted(line[:2] for line in site.record_summaries()) == [("app", "done"), ("web", "failed")]
    assert "no longer reports its state" in errors(run)["web"]


@pytest.mark.usefixtures("impatience")
def test_a_record_stays_open_when_destination_and_fence_agent_are_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.starts._PAUSE_SECONDS", 0)
    site.save("web")
    agent = site.agent()

    def lose_both() -> None:
        agent.write(MUTE)
        raise Unreachable("kvm2 cannot be reached.")

    site.after_start = lose_both
    site.evacuate()
    assert site.record_summaries() == [("web", "pre-migrating", "kvm2")]


def test_evacuation_without_evidence_is_refused(site: Site) -> None:
    site.save("web")
    with pytest.raises(Unsafe, match="force_down with a reason"):
        site.evacuate(force_down=None)
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_force_down_is_recorded_as_evidence(site: Site) -> None:
    site.save("web")
    site.evacuate()
    (record,) = site.ledger.list_records()
    assert [(one["kind"], one["reason"], one["by"]) for one in record.evidence[:1]] == [("person", "I pulled the plug", "Ada")]


def test_evidence_of_a_tasks_file_is_accepted(site: Site) -> None:
    site.save("web")
    site.evacuate(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}])
    assert site.running() == {"kvm2": ["web"]}


@pytest.mark.parametrize("changes", [{"status": "on"}, {"action": "reboot"}, {"at": "2020-01-01T00:00:00Z"}, {"host_id": host_id("kvm2")}])
def test_evidence_that_does_not_prove_off_is_refused(site: Site, changes: Body) -> None:
    site.save("web")
    with pytest.raises(Unsafe):
        site.evacuate(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": utc_now(), **changes}])
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_evidence_about_another_host_is_refused(site: Site) -> None:
    site.save("web")
    with pytest.raises(Unsafe, match="no evidence"):
        site.evacuate(fencing=[{"host": "kvm3", "action": "off", "status": "off", "at": utc_now()}])
    assert site.running() == {}


def test_two_kinds_of_given_evidence_are_refused(site: Site) -> None:
    site.save("web")
    with pytest.raises(InvalidArgument):
        site.evacuate(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}], force_down=WORD)


def test_a_host_that_answers_ssh_is_never_evacuated_and_never_fenced(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    with socket.create_server(("127.0.0.1", site.port)), pytest.raises(Unsafe, match="never evacuated"):
        site.evacuate(force=True)
    assert (agent.asked(), site.record_summaries(), site.phases) == ([], [], [("kvm2", "look")])


@pytest.mark.parametrize("evidence", [{"force_down": WORD}, {"fencing": [{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}]}, {}])
def test_a_dead_host_that_refuses_connections_is_unsafe_whatever_the_evidence(site: Site, evidence: Body) -> None:
    """A reset comes from something that is on and has the address: the host itself, another machine, or a firewall."""
    site.save("web")
    site.refuses = True
    with pytest.raises(Unsafe, match=r"refuses connections from .* never evacuated") as caught:
        site.evacuate(force=True, accept_silent=["kvm1"], **{"force_down": None, **evidence})
    assert "another machine has its address" in str(caught.value)
    assert "firewall" in str(caught.value)
    assert (site.running(), site.record_summaries(), site.phases) == ({}, [], [("kvm2", "look")])


def test_a_host_is_not_evacuated_on_the_word_of_a_person_while_it_answers_on_its_second_network(site: Site) -> None:
    """Its management network is down, so it does not answer where people look."""
    uuid = site.save("web")
    site.variables["kvm1"] = {"kvmfleet_second_address": "127.0.0.2"}
    with socket.create_server(("127.0.0.2", site.port)):
        with pytest.raises(Unsafe, match=rf"kvm1 answers .* at 127.0.0.2 port {site.port}. A host that answers is never evacuated"):
            site.evacuate()
        # What a step after the confirmation is given.
        given = encoded(person_evidence(WORD, "kvm1", host_id("kvm1"), "ops"))
        with pytest.raises(Unsafe, match="never evacuated"):
            site.evacuate(fencing=[given])
        assert uuid not in site.hosts["kvm2"].guests
        # An agent switches the host off, whatever still answers.
        site.agent()
        assert site.evacuate().jobs[0].error is None
    assert site.hosts["kvm2"].view_domain(uuid).active


def test_the_word_of_a_person_about_another_host_does_not_keep_an_agent_from_switching_off_the_source(site: Site) -> None:
    uuid = site.save("web")
    site.variables["kvm1"] = {"kvmfleet_second_address": "127.0.0.2"}
    site.agent(power="on")
    with socket.create_server(("127.0.0.2", site.port)):
        site.evacuate(fencing=[encoded(person_evidence(WORD, "kvm3", host_id("kvm3"), "ops"))])
    assert site.hosts["kvm2"].view_domain(uuid).active


@pytest.mark.parametrize(("variable", "kind"), [("ansible_host", "person"), ("kvmfleet_second_address", "person"), ("ansible_host", "tasks")])
def test_another_host_is_not_off_on_the_word_of_a_person_while_it_answers_ssh(site: Site, variable: str, kind: str) -> None:
    """Its libvirt alone is down, and its domains run."""
    uuid = site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=[encoded(site.place(name)) for name in ("kvm1", "kvm3")]))
    site.silent.add("kvm3")
    site.variables["kvm3"] = {variable: "127.0.0.3"}
    agent = site.agent(power="on")
    fencing = [{**encoded(person_evidence(WORD, "kvm3", host_id("kvm3"), "ops")), "kind": kind}]
    with socket.create_server(("127.0.0.3", site.port)):
        with pytest.raises(Unsafe, match=rf"kvm3 answers the control node at 127.0.0.3 port {site.port}, although Ada says that it is off"):
            site.evacuate(fencing=fencing)
        assert ("off" in agent.asked(), site.record_summaries()) == (False, [])
    site.evacuate(fencing=fencing)
    assert site.hosts["kvm2"].view_domain(uuid).active


class OtherProbe(contextlib.AbstractContextManager[t.Any]):
    """An attempt to connect to another host as Ansible does."""

    def __init__(self, answer: tuple[str, str]) -> None:
        self.answer, self.is_open = answer, True

    def __exit__(self, *_error: object) -> None:
        self.is_open = False

    def read_answer(self) -> tuple[str, str]:
        assert self.is_open
        return self.answer

    def require_silence(self) -> None:
        raise AssertionError("Its sentence is about the source.")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((SSH_ANSWERS, ""), "kvm3 answers Ansible, although Ada says that it is off: domains of kvm1 could run there"),
        (
            (SSH_UNKNOWN, "rejects the login"),
            r"kvm3 may answer Ansible \(rejects the login\), although Ada .* if another machine has its address now, remove it there\.",
        ),
        ((SSH_SILENT, ""), None),
    ],
)
def test_another_host_is_not_off_on_the_word_of_a_person_while_ansible_reaches_it(site: Site, answer: tuple[str, str], words: str | None) -> None:
    """It is behind a jump host: its address is silent to the control node."""
    uuid, probes = site.save("web"), dict[str, OtherProbe]()
    site.change("web", lambda body: body.update(possible_hosts=[encoded(site.place(name)) for name in ("kvm1", "kvm3")]))
    site.silent.add("kvm3")
    agent = site.agent(power="on")
    run = site.evacuation(fencing=[encoded(person_evidence(WORD, "kvm3", host_id("kvm3"), "ops"))])
    run.proofs.make_probe = lambda name: probes.setdefault(name, OtherProbe(answer))
    with pytest.raises(Unsafe, match=words) if words else contextlib.nullcontext():
        run.evacuate_domains()
    assert ("off" in agent.asked(), [(name, probe.is_open) for name, probe in probes.items()]) == (words is None, [("kvm3", False)])
    assert (uuid in site.hosts["kvm2"].guests) == (words is None)


@pytest.mark.parametrize("is_silent", [False, True])
def test_evidence_about_another_host_that_is_not_needed_forbids_nothing(site: Site, is_silent: bool) -> None:
    """The host is back, or its silence is accepted: nothing depends on what the person said about it."""
    uuid = site.save("web")
    site.variables["kvm3"] = {"ansible_host": "127.0.0.3"}
    if is_silent:
        site.silent.add("kvm3")
    site.agent(power="on")
    fencing = [encoded(person_evidence(WORD, "kvm3", host_id("kvm3"), "ops"))]
    with socket.create_server(("127.0.0.3", site.port)):
        site.evacuate(fencing=fencing, accept_silent=["kvm3"] if is_silent else [])
    assert site.hosts["kvm2"].view_domain(uuid).active


@pytest.mark.parametrize("address", ["[::1]", "::1"])
def test_an_address_on_the_second_network_may_be_in_brackets(site: Site, address: str) -> None:
    site.save("web")
    site.variables["kvm1"] = {"kvmfleet_second_address": address}
    with socket.create_server(("::1", site.port), family=socket.AF_INET6), pytest.raises(Unsafe, match=f"kvm1 answers .* at ::1 port {site.port}"):
        site.evacuate()


def test_only_a_survivor_without_a_way_to_the_second_network_is_a_warning(site: Site) -> None:
    """The control node needs none."""
    site.save("web")
    site.variables["kvm1"] = {"kvmfleet_second_address": "kvm1.invalid"}
    run = site.evacuate()
    warning = "The address kvm1.invalid of kvm1 does not resolve on kvm2, or cannot be reached from there at all: its silence is weak evidence."
    assert (run.jobs[0].error, [text for text in run.proofs.warnings if "weak evidence" in text]) == (None, [warning])


def test_an_address_on_the_second_network_that_is_the_first_one_is_asked_once_and_warned_of(site: Site) -> None:
    site.save("web")
    site.write_host("kvm1", addresses={"libvirt_uri": "qemu+tcp://kvm1/system"})
    site.variables["kvm1"] = {"ansible_host": "kvm1.invalid", "kvmfleet_second_address": "kvm1.invalid"}
    run = site.evacuate()
    assert [endpoint.address for endpoint in run.proofs.list_endpoints()] == ["kvm1.invalid"]
    assert [tried_from in " ".join(run.proofs.warnings) for tried_from in ("on the control node", "on kvm2")] == [True, True]


@pytest.mark.parametrize("alias", ["kvm1", "kvm3"])
def test_a_host_that_answers_libvirt_under_any_name_is_never_evacuated(site: Site, alias: str) -> None:
    site.save("web")
    if alias == "kvm1":
        site.silent.clear()
    else:
        # Nothing says that this is another host with the same board's UUID.
        site.uuids["kvm3"] = site.uuids["kvm1"]
        site.told_facts.discard("kvm3")
    agent = site.agent(power="on")
    with pytest.raises(Unsafe, match="never evacuated"):
        site.evacuate(force=True, accept_silent=["kvm1"])
    assert (agent.asked(), site.record_summaries()) == ([], [])


def test_a_locked_image_prevents_the_start_of_its_domain_alone(site: Site) -> None:
    site.save("web")
    site.save("app")
    site.locked.add("web")
    run = site.evacuate(force=True)
    assert site.running() == {"kvm2": ["app"]}
    assert site.record_summaries() == [("app", "done", "kvm2")]
    assert "web.qcow2" in errors(run)["web"]
    result = build_result(run, diff=False)
    assert (result["failed"], result["error_code"], [one["domain"] for one in result["failures"]]) == (True, "unsafe", ["web"])
    site.locked.clear()
    site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}


@pytest.mark.parametrize(("power", "changed"), [("on", True), ("off", False)])
def test_a_host_that_was_switched_off_is_a_change_although_nothing_was_started(site: Site, power: str, changed: bool) -> None:
    site.save("web")
    site.agent(power=power)
    site.locked.add("web")
    result = build_result(site.evacuate(), diff=False)
    assert (result["failed"], result["changed"], site.running()) == (True, changed, {})


def off_evidence(site: Site) -> list[Body]:
    """Return the evidence of a tasks file that has switched the dead host off."""
    return [{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}]


def accepting(site: Site, *names: str, **more: t.Any) -> Body:
    return {"images": [str(site.images / f"{name}.qcow2") for name in names], "reason": "the NFS server kept its locks", "by": "Ada", **more}


@pytest.mark.parametrize("agent", [True, False])
def test_accept_locked_is_valid_with_proved_fencing(site: Site, agent: bool) -> None:
    site.save("web")
    site.save("app")
    site.locked |= {"web", "app"}
    if agent:
        site.agent(power="on")
    run = site.evacuate(accept_locked=accepting(site, "web"), **({} if agent else {"fencing": off_evidence(site)}))
    assert site.running() == {"kvm2": ["web"]}
    assert "app.qcow2" in errors(run)["app"]
    (record,) = site.ledger.list_records()
    (accepted,) = [one for one in record.evidence if one["kind"] == "accepted_locks"]
    assert (accepted["images"], accepted["by"]) == ([str(site.images / "web.qcow2")], "Ada")
    assert accepted["reason"] == "the NFS server kept its locks"


def test_accept_locked_with_force_down_is_refused(site: Site) -> None:
    site.save("web")
    site.locked.add("web")
    run = site.evacuate(force_down=WORD, force=True, accept_locked=accepting(site, "web"))
    assert "the confirmation of a person is not enough for both" in errors(run)["web"]
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_accept_locked_of_a_free_image_is_not_recorded(site: Site) -> None:
    site.save("web")
    site.evacuate(fencing=off_evidence(site), accept_locked=accepting(site, "web"))
    (record,) = site.ledger.list_records()
    assert [one for one in record.evidence if one["kind"] == "accepted_locks"] == []


@pytest.mark.parametrize(("changes", "named"), [({"images": []}, "no image"), ({"reason": " "}, "no reason"), ({"images": ["/srv/x"]}, "/srv/x")])
def test_invalid_accept_locked_is_refused(site: Site, changes: Body, named: str) -> None:
    site.save("web")
    with pytest.raises(InvalidArgument, match=named):
        site.evacuate(fencing=off_evidence(site), accept_locked={**accepting(site, "web"), **changes})
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_accept_locked_may_name_images_of_other_shares(site: Site) -> None:
    """Each survivor is told all of it, and starts a part of the domains."""
    site.save("web")
    site.save("app")
    site.locked.add("web")
    site.evacuate(domains=["app"], fencing=off_evidence(site), accept_locked=accepting(site, "web"))
    assert site.running() == {"kvm2": ["app"]}


def waits(site: Site) -> list[tuple[list[str], int]]:
    """Return which images were waited for, and for how long."""
    return [([pathlib.Path(path).stem for path in paths], seconds) for paths, seconds in site.waits if seconds]


def test_the_lock_wait_follows_the_lease_of_the_storage(site: Site) -> None:
    site.save("web", mount_kind="nfs4")
    site.locked.add("web")
    site.evacuate(lock_wait_seconds=None)
    site.save("app", mount_kind="ceph")
    site.locked.add("app")
    site.evacuate(lock_wait_seconds=None)
    site.evacuate(lock_wait_seconds=7)
    assert waits(site) == [(["web"], 105), (["app", "web"], 315), (["app", "web"], 7)]


def test_an_nfs3_lock_is_not_waited_for(site: Site) -> None:
    site.save("old", mount_kind="nfs", locks="kept")
    site.save("web", mount_kind="nfs4", locks="leased")
    site.locked.add("old")
    run = site.evacuate(lock_wait_seconds=None)
    assert waits(site) == []
    assert site.running() == {"kvm2": ["web"]}
    assert "NFS 3" in errors(run)["old"]
    assert "SM_NOTIFY" in errors(run)["old"]


@pytest.mark.parametrize("older", [False, True])
def test_locks_of_shareable_disks_are_ignored(site: Site, older: bool) -> None:
    """A living member of the cluster has it open. An older version did not save with the disk that it is shareable, only with the domain's needs."""
    uuid = site.save("member")

    def share(body: Body) -> None:
        body["protected"]["request"]["disks"][0]["shareable"] = True
        body["protected"]["disks"][0] |= {} if older else {"shareable": True}

    site.change("member", share)
    with contextlib.closing(hold_as_qemu(site.images / "member.qcow2")):
        site.locked.add("member")
        site.evacuate()
    assert site.running() == {"kvm2": ["member"]}
    assert site.hosts["kvm2"].starts == [uuid]


def test_a_silent_host_must_be_named_in_accept_silent(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    with pytest.raises(Unsafe, match=r"accept_silent: \[kvm3\]"):
        site.evacuate()
    with pytest.raises(InvalidArgument, match="kvm9"):
        site.evacuate(accept_silent=["kvm9"])
    assert site.record_summaries() == []
    site.evacuate(accept_silent=["kvm3"])
    assert site.running() == {"kvm2": ["web"]}
    (record,) = site.ledger.list_records()
    assert [one["hosts"] for one in record.evidence if one["kind"] == "accepted_silence"] == [["kvm3"]]


def save_on_two_hosts(site: Site, name: str) -> str:
    """Put a domain into the ledger that may be on the dead host, or on kvm3, which is silent then."""
    uuid = site.save(name)
    site.change(name, lambda body: body.update(possible_hosts=encoded([site.place("kvm1"), site.place("kvm3")])))
    site.silent.add("kvm3")
    return uuid


def test_a_domain_that_may_be_on_a_silent_host_does_not_accept_its_silence_for_the_others(site: Site) -> None:
    site.save("web")
    save_on_two_hosts(site, "app")
    agent = site.agent(power="on")
    with pytest.raises(Unsafe, match=r"kvm3 did not answer.*accept_silent: \[kvm3\] \(evacuate_host_accept_silent\)\."):
        site.evacuate()
    assert "off" not in agent.asked()
    assert site.record_summaries() == []
    run = site.evacuate(accept_silent=["kvm3"])
    assert list(errors(run)) == ["app"]
    assert site.running() == {"kvm2": ["web"]}


def test_a_silent_host_that_is_off_by_evidence_need_not_be_accepted(site: Site) -> None:
    site.save("web")
    save_on_two_hosts(site, "app")
    site.agent("kvm3")
    assert errors(site.evacuate()) == {}
    assert site.running() == {"kvm2": ["app", "web"]}


def test_an_accepted_host_that_is_on_forbids_only_the_domains_that_may_be_on_it(site: Site) -> None:
    site.save("web")
    save_on_two_hosts(site, "app")
    agent = site.agent("kvm3", power="on")
    run = site.evacuate(accept_silent=["kvm3"])
    assert list(errors(run)) == ["app"]
    assert "may be on kvm3 as well, which does not answer and is not off by evidence" in errors(run)["app"]
    assert "does not say that it is off" in errors(run)["app"]
    assert site.running() == {"kvm2": ["web"]}
    assert "off" not in agent.asked()


def evidence_of(site: Site) -> list[tuple[str, str]]:
    """Return kind and host, or hosts, of the evidence in the only record."""
    (record,) = site.ledger.list_records()
    return [(one["kind"], one.get("host") or ", ".join(one.get("hosts", []))) for one in record.evidence or () if one["kind"] not in ("silence", "locks")]


def test_a_silent_host_whose_agent_reports_it_as_off_need_not_be_accepted(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    agent = site.agent("kvm3")
    assert errors(site.evacuate()) == {}
    assert site.running() == {"kvm2": ["web"]}
    assert evidence_of(site) == [("person", "kvm1"), ("fence_agent", "kvm3")]
    assert "off" not in agent.asked()


def test_the_agent_of_a_silent_host_that_has_too_many_sessions_is_asked_again(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    agent = site.agent("kvm3")
    agent.write('if [ ! -e "$0.busy" ]; then : > "$0.busy"; echo "insufficient resources for session"; exit 1; fi\n' + GOOD)
    assert errors(site.evacuate()) == {}
    assert site.running() == {"kvm2": ["web"]}


def test_a_silent_host_whose_agent_does_not_report_it_as_off_must_be_accepted(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    agents = [site.agent(name, power="on") for name in ("kvm1", "kvm3")]
    with pytest.raises(Unsafe, match=r"kvm3 did not answer.*does not say that it is off.*accept_silent: \[kvm3\]"):
        site.evacuate()
    assert not any("off" in agent.asked() for agent in agents)
    assert site.record_summaries() == []


def test_a_silent_host_that_is_switched_on_between_two_starts_stops_the_starts(site: Site) -> None:
    site.save("one")
    site.save("two")
    site.silent.add("kvm3")
    agent = site.agent("kvm3")
    site.deferred = {"two"}
    site.after_start = lambda: agent.switch("on")
    assert list(errors(site.evacuate())) == ["two"]
    assert site.running() == {"kvm2": ["one"]}
    assert sorted(site.record_summaries()) == [("one", "done", "kvm2"), ("two", "failed", "kvm2")]


@pytest.mark.parametrize("age_seconds", [0, 3600])
def test_evidence_about_any_silent_host_accepts_its_silence_while_it_is_valid(site: Site, age_seconds: int) -> None:
    site.save("web")
    site.silent.add("kvm3")
    then = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_seconds)).isoformat()
    both = [{"host": name, "action": "off", "status": "off", "at": at} for name, at in (("kvm1", utc_now()), ("kvm3", then))]
    if age_seconds:
        with pytest.raises(Unsafe, match=r"The fencing evidence for kvm3 is 36\d\d seconds old and was valid for 300"):
            site.evacuate(fencing=both)
        assert site.record_summaries() == []
    else:
        site.evacuate(fencing=both)
        assert evidence_of(site) == [("tasks", "kvm1"), ("tasks", "kvm3")]


DISCARDED: Body = {"state": "fenced", "discarded": {"at": "2026-11-01T10:00:00.000Z", "by": "Ada", "reason": "scrapped"}}


def test_a_discarded_host_need_not_be_accepted_again(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    site.write_host("kvm3", **DISCARDED)
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    (record,) = site.ledger.list_records()
    accepted = [one for one in record.evidence or () if one["kind"] == "accepted_silence"]
    assert accepted == [{"kind": "accepted_silence", "hosts": ["kvm3"], "by": "Ada", "at": "2026-11-01T10:00:00.000Z"}]


def test_a_domain_that_may_be_on_a_discarded_host_needs_evidence(site: Site) -> None:
    site.save("web")
    save_on_two_hosts(site, "app")
    site.write_host("kvm3", **DISCARDED)
    assert "may be on kvm3 as well" in errors(site.evacuate())["app"]
    assert site.running() == {"kvm2": ["web"]}


def test_the_successor_of_a_discarded_host_under_its_name_must_be_accepted(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    site.write_host("kvm4", **DISCARDED | {"name": "kvm3"})
    with pytest.raises(Unsafe, match=r"accept_silent: \[kvm3\]"):
        site.evacuate()
    assert site.record_summaries() == []


@pytest.mark.usefixtures("slow_waits")
def test_a_host_that_falls_silent_during_the_fencing_must_be_accepted(site: Site) -> None:
    site.save("web")
    save_on_two_hosts(site, "app")
    site.silent.discard("kvm3")
    site.agent(power="on")
    site.locked.add("web")
    during_the_wait(site, lambda: site.silent.add("kvm3"))
    with pytest.raises(Unsafe, match=r"accept_silent: \[kvm3\]"):
        site.evacuate()
    assert (site.running(), site.record_summaries()) == ({}, [])


@pytest.mark.parametrize("later", [False, True])
def test_a_host_whose_document_cannot_be_read_counts_as_silent_unless_it_answers(site: Site, later: bool) -> None:
    """The ledger alone had its address: it may run a domain that was moved there by hand."""
    web, key = site.save("web"), host_id("kvm3")
    path = site.folder / "ledger" / "hosts" / f"{key}.json"
    document = decode_document(path.read_bytes())
    path.write_bytes(encode_document({**document.body, "schema": 2}, document.version) if later else b"torn")
    site.told_ids.add("kvm3")
    site.evacuation(check=True, force_down=WORD).evacuate_domains()
    site.listed.remove("kvm3")
    site.hosts["kvm3"].add(web, "web")
    # The second reading finds a damaged one among the documents that were set aside.
    for _time in range(2):
        with pytest.raises(Unsafe, match=rf"{key} did not answer.*{'Update the collection' if later else f'Restore hosts/{key}'}.*accept_silent: \[{key}\]"):
            site.evacuate()
    site.hosts["kvm3"].guests.clear()
    site.evacuate(accept_silent=[key])
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_whose_address_leads_to_another_host_counts_as_silent(site: Site) -> None:
    site.save("web")
    site.leads_to["kvm3"] = "kvm2"
    with pytest.raises(Unsafe, match=r"kvm3 did not answer.*leads to kvm2.*accept_silent: \[kvm3\]"):
        site.evacuate()
    assert site.record_summaries() == []
    site.evacuate(accept_silent=["kvm3"])
    assert site.record_summaries() == [("web", "done", "kvm2")]
    (record,) = site.ledger.list_records()
    assert [one["hosts"] for one in record.evidence if one["kind"] == "accepted_silence"] == [["kvm3"]]


def test_a_possible_host_with_a_wrong_address_needs_evidence(site: Site) -> None:
    """By its name alone: an older record has no UUID of the host."""
    site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=[encoded(site.place("kvm1")), {"host": "kvm3", "host_id": None, "host_uuid": None}]))
    site.leads_to["kvm3"] = "kvm2"
    assert "may be on kvm3 as well" in errors(site.evacuate(accept_silent=["kvm3"]))["web"]
    assert site.record_summaries() == []


def test_hosts_with_swapped_addresses_count_as_answered(site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    site.write_host("kvm4")
    site.hosts["kvm3"].add(uuid, "web")
    site.leads_to |= {"kvm3": "kvm4", "kvm4": "kvm3"}
    run = site.evacuate()
    assert "is active on" in errors(run)["web"]
    assert site.running() == {"kvm2": ["app"], "kvm3": ["web"]}


def test_a_renamed_host_counts_as_answered(site: Site) -> None:
    site.save("web")
    site.write_host("kvm3", name="the name before")
    site.leads_to["the name before"] = "kvm3"
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_second_inventory_name_of_a_host_counts_as_silent(site: Site) -> None:
    site.save("web")
    site.listed.append("kvm9")
    site.leads_to["kvm9"] = "kvm3"
    with pytest.raises(Unsafe, match=r"kvm9 did not answer.*leads to kvm3"):
        site.evacuate()
    site.evacuate(accept_silent=["kvm9"])
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_with_a_new_uuid_counts_as_answered_with_its_facts(site: Site) -> None:
    """Libvirt makes a new UUID at each start where the board has none."""
    site.save("web")
    site.uuids["kvm3"] = uuid_of("another")
    site.told_facts.discard("kvm3")
    with pytest.raises(Unsafe, match=rf"kvm3 did not answer.*{uuid_of('another')}.*host_uuid"):
        site.evacuate()
    site.told_facts.add("kvm3")
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_that_answers_with_its_host_id_counts_whatever_its_uuid(site: Site) -> None:
    site.save("web")
    site.uuids["kvm3"] = uuid_of("another")
    site.told_facts.discard("kvm3")
    site.told_ids = {"kvm2", "kvm3"}
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_hosts_with_new_uuids_are_identified_by_their_host_ids(site: Site) -> None:
    """Also where the ledger has the domain on hosts by their UUIDs of then."""
    site.save("web")
    site.told_ids = set(HOSTS)
    site.told_facts.clear()
    site.uuids = {name: uuid_of(f"another {name}") for name in site.uuids}
    run = site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert run.jobs[0].record is not None
    assert run.jobs[0].record.destination == site.place("kvm2")
    site.uuids = {name: uuid_of(f"a third {name}") for name in site.uuids}
    assert site.evacuate().jobs == []
    assert site.record_summaries() == [("web", "done", "kvm2")]


@pytest.mark.parametrize("survivor", ["kvm2", "kvm3"])
def test_a_survivor_with_the_uuid_of_the_dead_host_is_another_host(site: Site, survivor: str) -> None:
    site.save("web")
    site.told_ids = set(HOSTS)
    site.uuids[survivor] = site.uuids["kvm1"]
    site.write_host(survivor)
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_living_host_with_the_uuid_of_the_dead_one_is_another_host(site: Site) -> None:
    site.save("web")
    site.uuids["kvm3"] = site.uuids["kvm1"]
    site.write_host("kvm3")
    site.told_ids = {"kvm3"}
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_with_a_copied_host_id_counts_as_the_dead_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    site.told_ids = set(HOSTS)
    told = site._answer
    monkeypatch.setattr(site, "_answer", lambda name: {**told(name), "host_id": host_id("kvm1")} if name == "kvm3" else told(name))
    with pytest.raises(Unsafe, match="kvm1 answers"):
        site.evacuate()


def test_a_domain_recorded_under_an_old_uuid_of_the_dead_host_is_found(site: Site) -> None:
    """The document is from before the host had an ID."""
    site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=[encoded(HostRef("kvm1", None, uuid_of("long ago")))]))
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_hosts_that_share_a_uuid_are_distinguished_by_their_facts(site: Site) -> None:
    """Boards with one UUID for all exist. The host that answers as kvm4 reports that it is kvm3."""
    site.save("web")
    site.uuids["kvm4"] = site.uuids["kvm3"]
    site.write_host("kvm4")
    site.listed.append("kvm4")
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    site.save("app")
    site.told_facts.add("kvm4")
    site.leads_to["kvm4"] = "kvm3"
    with pytest.raises(Unsafe, match=r"kvm4 did not answer.*leads to kvm3"):
        site.evacuate()


def test_a_dead_host_whose_address_leads_to_another_host_is_unsafe(site: Site) -> None:
    site.save("web")
    site.leads_to["kvm1"] = "kvm3"
    with pytest.raises(Unsafe, match=r"The address of kvm1 leads to kvm3"):
        site.evacuate(accept_silent=["kvm1"])
    assert site.record_summaries() == []


def test_a_host_with_a_clean_shutdown_grant_is_refused(site: Site) -> None:
    site.save("web")
    site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")})
    with pytest.raises(Unsafe, match="revoke_token"):
        site.evacuate()


def test_a_host_that_got_a_grant_before_its_fencing_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    prove = Evacuation.prove_source_off

    def granted_meanwhile(run: Evacuation, probed: ProbedFleet) -> SourceProof:
        site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")})
        return prove(run, probed)

    monkeypatch.setattr(Evacuation, "prove_source_off", granted_meanwhile)
    with pytest.raises(Unsafe, match="revoke_token"):
        site.evacuate()
    assert (site.running(), site.record_summaries()) == ({}, [])


GRANTED = {"guard": {"held_at_boot": True}, "token_id": host_id("token")}


@pytest.mark.parametrize("is_off", [True, False])
def test_a_clean_shutdown_grant_of_another_dead_host_withholds_the_domains_that_may_be_there(site: Site, is_off: bool) -> None:
    """An answer of that host shows that the domain does not run there; while it is off, it may start its guests when it returns."""
    uuid = site.save("web", on="kvm3")
    site.save("app")
    site.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web"), site.place("kvm3"), site.place("kvm1"), {}, "a test"))
    site.write_host("kvm3", protected=GRANTED)
    if is_off:
        site.silent.add("kvm3")
        site.agent("kvm3")
    run = site.evacuate()
    assert site.running() == {"kvm2": ["app"] if is_off else ["app", "web"]}
    assert [name for name, error in errors(run).items() if "revoke_token" in error and "kvm3" in error] == (["web"] if is_off else [])
    site.write_host("kvm3")
    site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}


def test_a_grant_that_another_dead_host_got_meanwhile_withholds_the_domains_that_may_be_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    save_on_two_hosts(site, "web")
    site.agent("kvm3")
    prove = Evacuation.prove_source_off

    def granted_meanwhile(run: Evacuation, probed: ProbedFleet) -> SourceProof:
        site.write_host("kvm3", protected=GRANTED)
        return prove(run, probed)

    monkeypatch.setattr(Evacuation, "prove_source_off", granted_meanwhile)
    assert "revoke_token" in errors(site.evacuate())["web"]
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_the_grant_of_a_discarded_host_does_not_count(site: Site) -> None:
    site.save("web")
    said = {"at": "then", "by": "somebody", "reason": "burnt"}
    site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")}, discarded=said)
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_dead_host_without_a_boot_guard_is_a_warning(site: Site) -> None:
    site.save("web")
    site.write_host("kvm1", protected={"guard": {"held_at_boot": False}, "token_id": None})
    assert "No boot guard holds kvm1" in " ".join(site.evacuate().context.warnings)


# Where a domain may be


def test_a_domain_that_is_active_on_another_host_is_not_started(site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    site.hosts["kvm3"].add(uuid, "web")
    run = site.evacuate(force=True)
    assert site.running() == {"kvm2": ["app"], "kvm3": ["web"]}
    assert "is active on kvm3" in errors(run)["web"]
    assert site.record_summaries() == [("app", "done", "kvm2")]


def test_the_lock_of_a_domain_active_elsewhere_does_not_stop_the_others(site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    site.hosts["kvm3"].add(uuid, "web")
    site.locked.add("web")
    site.evacuate()
    assert site.running() == {"kvm2": ["app"], "kvm3": ["web"]}


def test_a_definition_on_another_living_host_is_a_warning(site: Site) -> None:
    """It may start there when that host restarts, for which its boot guard may have a clean-shutdown token."""
    uuid = site.save("web")
    site.save("app")
    site.hosts["kvm3"].add(uuid, "web", "shut off")
    warnings = [warning for warning in site.evacuate().context.warnings if "as well" in warning]
    assert site.running() == {"kvm2": ["app", "web"]}
    assert len(warnings) == 1
    assert "Domain web is defined on kvm3 as well, and off there" in warnings[0]


@pytest.mark.parametrize("state", ["running", "shut off"])
def test_a_domain_that_exists_on_this_host_already_is_a_conflict(site: Site, state: str) -> None:
    uuid = site.save("web")
    site.hosts["kvm2"].add(uuid, "web", state)
    run = site.evacuate()
    assert isinstance(run.jobs[0].error, Conflict)
    assert site.hosts["kvm2"].guests[uuid]["state"] == state
    assert (site.hosts["kvm2"].starts, site.record_summaries()) == ([], [("web", "conflict", "kvm2")])


def test_a_silent_second_possible_host_needs_its_own_evidence(site: Site) -> None:
    uuid = site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=encoded([site.place("kvm1"), site.place("kvm3")])))
    site.silent.add("kvm3")
    run = site.evacuate(accept_silent=["kvm3"])
    assert "may be on kvm3 as well" in errors(run)["web"]
    assert site.record_summaries() == []
    agent = site.agent("kvm3", power="on")
    with pytest.raises(Unsafe, match="does not say that it is off"):
        site.evacuate()
    assert "off" not in agent.asked()
    agent.switch("off")
    site.evacuate()
    assert site.hosts["kvm2"].view_domain(uuid).active


def test_a_foreign_job_that_a_person_wanted_to_abort_does_not_block_the_evacuation(site: Site) -> None:
    """Its destination is unknown: no host can be named, and the whole fleet is asked, as without a record."""
    uuid = site.save("web")
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web"), site.place("kvm1"), HostRef(None, None, None), {}, "a test")
    site.ledger.open_record(record.advance(s.RUNNING, "a test"))
    assert errors(site.evacuate()) == {}
    assert site.possible("web") == ["kvm2"]


def test_a_move_from_the_dead_host_is_failed_and_its_domain_evacuated(site: Site) -> None:
    uuid = site.save("web")
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web"), site.place("kvm1"), site.place("kvm3"), {}, "a test")
    stored = site.ledger.open_record(record)
    for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING):
        stored = site.ledger.update_record(stored, stored.record.advance(status, "a test"))
    site.evacuate()
    assert site.record_summaries() == [("web", "failed", "kvm3"), ("web", "done", "kvm2")]
    assert site.running() == {"kvm2": ["web"]}


def test_a_move_to_the_dead_host_is_superseded_once_its_source_lost_the_guest(site: Site) -> None:
    uuid = site.save("web", on="kvm3")
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web"), site.place("kvm3"), site.place("kvm1"), {}, "a test")
    site.ledger.open_record(record)
    site.hosts["kvm3"].add(uuid, "web")
    run = site.evacuate()
    assert "is active on kvm3" in errors(run)["web"]
    del site.hosts["kvm3"].guests[uuid]
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    older, newer = sorted(site.ledger.list_records(), key=lambda one: one.created_at)
    assert (older.superseded_by, newer.status) == (newer.id, "done")


@pytest.mark.parametrize("ends", [("kvm3", "kvm1"), ("kvm1", "kvm3")])
def test_a_domain_stays_on_the_hosts_of_a_superseded_move_if_its_evacuation_fails(site: Site, ends: tuple[str, str]) -> None:
    uuid = site.save("web", on=ends[0])
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web"), site.place(ends[0]), site.place(ends[1]), {}, "a test")
    stored = site.ledger.open_record(record)
    site.ledger.update_record(stored, stored.record.advance(s.RUNNING, "a test"))
    site.silent.add("kvm3")
    site.agent("kvm3")
    site.hosts["kvm2"].refuses.add("web")
    site.evacuate()
    assert site.record_summaries()[-1] == ("web", "failed", "kvm2")
    assert sorted(site.possible("web")) == ["kvm1", "kvm3"]
    site.hosts["kvm2"].refuses.clear()
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


@pytest.mark.parametrize("kind", [s.LIVE_MIGRATION, s.COLD_MIGRATION])
@pytest.mark.parametrize("on", ["kvm2", "kvm3"])
def test_a_domain_that_is_off_on_the_source_of_its_move_is_not_started_because_the_destination_died(site: Site, on: str, kind: str) -> None:
    """The move may never have begun, or is being undone. Its owner may have shut the guest down."""
    uuid = site.save("web", on="kvm3")
    stored = site.ledger.open_record(new_record(kind, DomainRef(uuid, "web"), site.place("kvm3"), site.place("kvm1"), {}, "a test"))
    for status in (s.SCHEDULED, s.QUEUED):
        stored = site.ledger.update_record(stored, stored.record.advance(status, "a test"))
    site.save("app")
    site.hosts["kvm3"].add(uuid, "web", "shut off")
    run = site.evacuate(on)
    assert site.running() == {on: ["app"]}
    assert list(errors(run)) == ["web"]
    assert "kvm3 answers and has the domain, which is off there." in errors(run)["web"]
    assert ("web", "queued", "kvm1") in site.record_summaries()
    site.ledger.update_record(stored, stored.record.advance(s.FAILED, "a person"))
    assert errors(site.evacuate(on)) == {}
    assert site.running() == {on: ["app"]}


def obstacles(site: Site, host: str) -> tuple[list[str], list[str]]:
    """Return the IDs of the records that withhold a host, and of those that its cleanup closes."""
    withholding = find_withholding(site.ledger.list_records(), HostIdentity(host, host_id(host), site.uuids[host], None))
    tombstones = find_tombstones(site.ledger, host_id(host))
    return [record.record_id for record in withholding], [one.record_id for tombstone in tombstones for one in (tombstone.record, *tombstone.older)]


@pytest.mark.parametrize("ends", [("kvm3", "kvm1"), ("kvm1", "kvm3")])
def test_a_move_between_two_dead_hosts_withholds_both_until_they_were_cleaned(site: Site, ends: tuple[str, str]) -> None:
    """The guest may have been on either host, and both may start it when they return."""
    uuid = site.save("web", on=ends[0])
    older = new_record(s.LIVE_MIGRATION, DomainRef(uuid, "web"), site.place(ends[0]), site.place(ends[1]), {}, "a test")
    stored = site.ledger.open_record(older)
    site.ledger.update_record(stored, stored.record.advance(s.RUNNING, "a test"))
    site.silent.add("kvm3")
    site.agent("kvm3")
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    (newer,) = site.ledger.list_records(statuses=[s.DONE])
    assert obstacles(site, "kvm3") == ([older.id], [older.id])
    assert sorted(obstacles(site, "kvm1")[0]) == sorted(obstacles(site, "kvm1")[1]) == sorted([older.record_id, newer.record_id])


@pytest.mark.parametrize("kind", [s.LIVE_MIGRATION, s.COLD_MIGRATION])
def test_a_move_from_the_dead_host_is_superseded_if_its_destination_has_the_domain(site: Site, kind: str) -> None:
    """The guest may have run there, and what is left there has to be cleaned up."""
    uuid = site.save("web")
    older = new_record(kind, DomainRef(uuid, "web"), site.place("kvm1"), site.place("kvm3"), {}, "a test")
    site.ledger.open_record(older)
    site.hosts["kvm3"].add(uuid, "web", "shut off")
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert site.record_summaries() == [("web", "accepted", "kvm3"), ("web", "done", "kvm2")]
    assert obstacles(site, "kvm3") == ([older.id], [older.id])


def test_an_evacuation_to_a_host_that_died_withholds_this_host_until_it_was_cleaned(site: Site) -> None:
    site.save("web")
    site.after_start = killed
    with pytest.raises(Killed):
        site.evacuate("kvm3")
    site.after_start = lambda: None
    site.silent.add("kvm3")
    site.agent("kvm3")
    site.evacuate()
    assert site.running()["kvm2"] == ["web"]
    (older,) = site.ledger.list_records(statuses=[s.PRE_MIGRATING])
    assert obstacles(site, "kvm3") == ([older.id], [older.id])


def test_a_domain_is_unaccounted_although_a_record_of_it_was_superseded(site: Site) -> None:
    site.save("web")
    site.save("stray", on="kvm3")
    older = site.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(uuid_of("stray"), "stray"), site.place("kvm3"), site.place("kvm2"), {}, "x"))
    site.ledger.update_record(older, older.record.supersede(uuid_of("newer record")))
    result = build_result(site.evacuate(), diff=False)
    assert [one["name"] for one in result["unaccounted"]] == ["stray"]


def test_domains_that_are_on_no_host_are_unaccounted_and_not_started(site: Site) -> None:
    site.save("web")
    site.save("stray", on="kvm3")
    result = build_result(site.evacuate(), diff=False)
    assert [(one["name"], one["hosts"]) for one in result["unaccounted"]] == [("stray", ["kvm3"])]
    assert site.running() == {"kvm2": ["web"]}
    site.lose("stray", "kvm3")
    assert build_result(site.evacuate(), diff=False)["unaccounted"] == []


# Disks and definitions


def test_a_domain_with_a_disk_of_the_dead_host_is_lost_until_return(site: Site) -> None:
    site.save("local", seen_by=["kvm1"])
    site.save("web")
    result = build_result(site.evacuate(force=True), diff=False)
    assert [entry["name"] for entry in result["lost_until_return"]] == ["local"]
    assert "failed" not in result
    assert site.running() == {"kvm2": ["web"]}
    named = build_result(site.evacuate(domains=["local"], force=True), diff=False)
    assert (named["failed"], named["error_code"]) == (True, "unsafe")
    assert site.record_summaries() == [("web", "done", "kvm2")]


def test_a_domain_is_started_only_where_its_disk_was_proved(site: Site) -> None:
    site.save("web", seen_by=["kvm1", "kvm3"])
    run = site.evacuate(force=True)
    assert "was not proved" in errors(run)["web"]
    assert "Start it on a host with access to all that it needs: kvm3." in errors(run)["web"]
    assert site.running() == {}
    site.evacuate("kvm3")
    assert site.running() == {"kvm3": ["web"]}


def test_a_guest_that_moved_to_the_dead_host_after_protect_is_lost_until_return(site: Site) -> None:
    """What was proved is about the host that it left: the dead one may have had another file of that name."""
    site.save("web", seen_by=["kvm2", "kvm3"])
    result = build_result(site.evacuate(), diff=False)
    assert [entry["name"] for entry in result["lost_until_return"]] == ["web"]


def test_a_missing_storage_token_is_no_proof(site: Site) -> None:
    site.save("web")
    for token in site.images.glob(".kvmfleet-host-*"):
        token.unlink()
    run = site.evacuate(force=True)
    assert "token" in errors(run)["web"]
    assert site.record_summaries() == [("web", "conflict", "kvm2")]


def test_a_domain_with_a_local_emulated_tpm_is_lost_until_return(site: Site) -> None:
    site.save("web", tpm="/var/lib/libvirt/swtpm/web")
    result = build_result(site.evacuate(), diff=False)
    assert "TPM" in result["lost_until_return"][0]["reasons"][0]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["protected"].update(files="nvram"),
        lambda body: body["protected"].update(files=[{"what": "nvram"}]),
        lambda body: body["protected"]["disks"][0].update(backing_devices=["/dev/sda"]),
        lambda body: body["protected"].update(definition=None),
        lambda body: body["protected"].update(definition="a shopping list"),
        lambda body: body["protected"].update(state="flying"),
        lambda body: body["protected"].update(disks="vda"),
        lambda body: body["protected"].update(disks=[]),
        lambda body: body["protected"].update(request=None),
        lambda body: body["protected"].update(request={"memory_mib": -1, "vcpus": 1}),
        lambda body: body["protected"].update(persistent="yes"),
        lambda body: body["protected"].update(tpm=5),
        lambda body: body["protected"].update(host=None),
        lambda body: body.update(protected=None),
    ],
)
def test_an_edited_document_starts_nothing_and_does_not_stop_the_others(site: Site, change: t.Callable[[Body], t.Any]) -> None:
    site.save("bad")
    site.save("web")
    site.change("bad", change)
    run = site.evacuate(state="running", force=True)
    assert site.running() == {"kvm2": ["web"]}
    assert list(errors(run)) == ["bad"]
    assert "bad" in errors(run)["bad"]
    assert {line[1] for line in site.record_summaries() if line[0] == "bad"} <= {"failed"}


@pytest.mark.parametrize("missing", ["host", "host_uuid"])
def test_a_key_that_the_saved_host_lacks_counts_as_null(site: Site, missing: str) -> None:
    site.save("web")
    site.change("web", lambda body: body["protected"]["host"].pop(missing))
    run = site.evacuate(state="running")
    assert (errors(run), site.running()) == ({}, {"kvm2": ["web"]})


def test_a_domain_with_invalid_possible_hosts_is_a_failure(site: Site) -> None:
    uuid = site.save("bad")
    path = site.folder / "ledger" / "domains" / f"{uuid}.json"
    document = decode_document(path.read_bytes())
    path.write_bytes(encode_document({**document.body, "possible_hosts": ["nowhere"]}, document.version))
    result = build_result(site.evacuate(), diff=False)
    assert [failure["uuid"] for failure in result["failures"]] == [uuid]
    assert site.record_summaries() == []


def test_a_document_that_was_set_aside_stays_a_failure(site: Site) -> None:
    """Every evacuation of all domains reports it until it is back, because its domain may have been on the dead host."""
    uuid = site.save("bad")
    site.save("web")
    path = site.folder / "ledger" / "domains" / f"{uuid}.json"
    before = path.read_text()
    path.write_text("{")
    for dummy in range(2):
        result = build_result(site.evacuate(), diff=False)
        assert [failure["uuid"] for failure in result["failures"]] == [uuid]
    assert "failed" not in build_result(site.evacuate(domains=["web"]), diff=False)
    path.write_text(before)
    assert "failed" not in build_result(site.evacuate(), diff=False)
    assert site.running() == {"kvm2": ["bad", "web"]}


def test_a_domain_whose_document_a_later_version_wrote_is_a_failure(site: Site) -> None:
    uuid = site.save("newer")
    site.save("web")
    path = site.folder / "ledger" / "domains" / f"{uuid}.json"
    document = decode_document(path.read_bytes())
    path.write_bytes(encode_document({**document.body, "schema": 2}, document.version))
    run = site.evacuate()
    (failure,) = build_result(run, diff=False)["failures"]
    assert (failure["uuid"], failure["error_code"]) == (uuid, "not_supported")
    assert "may have been on kvm1, and was not started. Update the collection" in failure["msg"]
    assert [entry.uuid for entry in build_assessment(run).refused] == [uuid]
    assert site.running() == {"kvm2": ["web"]}


def test_state_defined_is_refused_for_a_transient_domain(site: Site) -> None:
    site.save("web", persistent=False)
    assert "transient" in errors(site.evacuate(state="defined"))["web"]


# The scheduler


def test_a_host_without_capacity_is_refused_unless_forced(site: Site) -> None:
    site.save("web")
    site.memory["kvm2"] = 512
    run = site.evacuate()
    assert isinstance(run.jobs[0].error, Conflict)
    assert site.record_summaries() == [("web", "conflict", "kvm2")]
    site.evacuate(force=True)
    newest = max(site.ledger.list_records(), key=lambda record: record.created_at)
    assert (newest.status, newest.forced) == ("done", "FORCED_REBUILD")
    assert any("Bypassed" in (line.detail or "") for line in newest.history)


def test_domains_that_stay_shut_off_need_no_capacity(site: Site) -> None:
    site.save("idle", state="shut off")
    site.memory["kvm2"] = 512
    site.evacuate()
    assert site.record_summaries() == [("idle", "done", "kvm2")]


def test_each_reservation_counts_for_the_next_one(site: Site) -> None:
    site.save("one", memory_mib=1024)
    site.save("two", memory_mib=1024)
    site.memory["kvm2"] = 1024
    site.evacuate()
    assert sorted(line[1] for line in site.record_summaries()) == ["conflict", "done"]


def test_a_host_in_maintenance_starts_nothing(site: Site) -> None:
    site.save("web")
    site.write_host("kvm2", state="maintenance", reason="new memory")
    assert "maintenance" in errors(site.evacuate())["web"]


def test_deferred_starts_are_repeated_up_to_a_limit(site: Site) -> None:
    site.save("web")
    site.deferred = {"web"}
    site.evacuate()
    assert site.record_summaries() == [("web", "done", "kvm2")]
    site.save("app")
    site.deferred = {"app", "for ever"}
    run = site.evacuate()
    assert "Cannot verify what is running on other hosts: kvm3: busy." in errors(run)["app"]
    assert site.record_summaries()[-1] == ("app", "failed", "kvm2")
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_that_is_always_late_for_its_starts_is_named_and_not_the_others(site: Site) -> None:
    site.save("web")
    site.agent()
    site.delays = [GOOD_FOR_SECONDS + 1.0] * (starts.IDLE_ROUNDS + 1)
    message = errors(site.evacuate())["web"]
    assert message.startswith("kvm2 was not ready for a start within 15 s after kvm1 had been found off, 11 times in succession.")
    assert "other hosts" not in message
    assert (site.running(), site.record_summaries()) == ({}, [("web", "failed", "kvm2")])


def test_peer_answers_are_passed_on_to_one_repeated_start(site: Site) -> None:
    for name in ("app", "web"):
        site.save(name)
    site.deferred = {"app", "web"}
    site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}
    assert site.passed_on == [None, 1]


def test_peer_answers_are_not_passed_on_after_a_start(site: Site) -> None:
    for name in ("app", "web"):
        site.save(name)
    site.deferred = {"web"}
    site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}
    assert site.passed_on == [None, None]


# Crashes and rivals


class Killed(BaseException):
    """kill -9."""


def killed() -> None:
    raise Killed


@pytest.mark.parametrize("when", ["before_start", "after_start"])
def test_a_run_killed_around_a_start_is_settled_by_the_next_run_on_that_host(site: Site, when: str) -> None:
    site.save("web")
    setattr(site, when, killed)
    with pytest.raises(Killed):
        site.evacuate()
    assert site.record_summaries() == [("web", "pre-migrating", "kvm2")]
    assert site.possible("web") == ["kvm1", "kvm2"]
    setattr(site, when, lambda: None)

    elsewhere = site.evacuate("kvm3")
    assert "Run the task on kvm2" in errors(elsewhere)["web"] or "is active on kvm2" in errors(elsewhere)["web"]
    assert "kvm3" not in site.running()

    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert site.record_summaries() == [("web", "done", "kvm2")]
    assert site.hosts["kvm2"].starts == [uuid_of("web")]


def begin_one_of_two(site: Site, when: str) -> None:
    """Evacuate web in a process that is killed around its start; app was not begun."""
    site.save("web")
    setattr(site, when, killed)
    with pytest.raises(Killed):
        site.evacuate()
    setattr(site, when, lambda: None)
    site.save("app")


@pytest.mark.parametrize(("when", "status"), [("before_start", "failed"), ("after_start", "done")])
def test_a_started_evacuation_is_settled_when_the_dead_host_is_back(site: Site, when: str, status: str) -> None:
    """Nothing is started then, and nothing else is evacuated."""
    begin_one_of_two(site, when)
    with socket.create_server(("127.0.0.1", site.port)), pytest.raises(Unsafe, match=f"web is '{status}'"):
        site.evacuate()
    assert site.record_summaries() == [("web", status, "kvm2")]
    assert site.running() == ({"kvm2": ["web"]} if status == "done" else {})
    assert site.possible("web") == ["kvm2" if status == "done" else "kvm1"]


@pytest.mark.parametrize(("when", "status"), [("before_start", "failed"), ("after_start", "done")])
def test_what_was_begun_is_settled_by_a_task_that_evacuates_nothing(site: Site, when: str, status: str) -> None:
    """A host that is back may have been protected again: a new grant, and disks of its own, prevent starts alone."""
    begin_one_of_two(site, when)
    site.silent.clear()
    site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": "a grant"})
    site.change("web", lambda body: body["protected"]["disks"][0].update(seen_by=[host_id("kvm1")]))
    assert site.evacuation(check=True).settle_begun() == []
    assert site.evacuation("kvm3").settle_begun() == []
    assert site.record_summaries() == [("web", "pre-migrating", "kvm2")]
    result = build_settled(site.evacuation().settle_begun())
    assert (result["changed"], result.get("failed"), [record["status"] for record in result["evacuations"]]) == (True, None, [status])
    assert site.record_summaries() == [("web", status, "kvm2")]
    assert site.running() == ({"kvm2": ["web"]} if status == "done" else {})
    assert site.possible("web") == ["kvm2" if status == "done" else "kvm1"]
    assert build_settled(site.evacuation().settle_begun()) == {"changed": False, "evacuations": []}


def test_what_was_begun_and_cannot_be_settled_is_a_failure(site: Site) -> None:
    uuid = site.save("web")
    site.before_start = killed
    with pytest.raises(Killed):
        site.evacuate()
    site.before_start = lambda: None
    site.silent.clear()
    # Not by this evacuation.
    site.hosts["kvm2"].add(uuid, "web", "shut off")
    result = build_settled(site.evacuation().settle_begun())
    assert result["failed"]
    assert "already has a domain of that UUID" in str(result["msg"])
    assert site.record_summaries() == [("web", "pre-migrating", "kvm2")]


def test_a_run_killed_before_pre_migrating_can_be_repeated_on_another_host(site: Site) -> None:
    uuid = site.save("web")
    site.ledger.open_record(new_record(s.EVACUATION, DomainRef(uuid, "web"), site.place("kvm1"), site.place("kvm2"), {}, "a test"))
    site.evacuate("kvm3")
    assert site.record_summaries() == [("web", "failed", "kvm2"), ("web", "done", "kvm3")]
    assert site.running() == {"kvm3": ["web"]}


def test_a_record_of_a_dead_destination_needs_evidence_and_is_superseded(site: Site) -> None:
    site.save("web")
    site.after_start = killed
    with pytest.raises(Killed):
        site.evacuate()
    site.after_start = lambda: None
    site.silent.add("kvm2")
    with pytest.raises(Unsafe, match="kvm2 did not answer"):
        site.evacuate("kvm3")
    run = site.evacuate("kvm3", accept_silent=["kvm2"])
    assert "may be on kvm2 as well" in errors(run)["web"]
    assert "kvm3" not in site.running()
    both = [{"host": name, "action": "off", "status": "off", "at": utc_now()} for name in ("kvm1", "kvm2")]
    site.evacuate("kvm3", fencing=both)
    older, newer = sorted(site.ledger.list_records(), key=lambda one: one.created_at)
    assert (older.status, older.superseded_by) == ("pre-migrating", newer.id)
    assert (newer.status, newer.destination.host) == ("done", "kvm3")
    assert {one["host"] for one in newer.evidence if one["kind"] == "tasks"} == {"kvm1", "kvm2"}


def test_a_record_stays_open_when_the_destination_is_lost_during_the_start(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.starts._PAUSE_SECONDS", 0)
    site.save("web")
    site.before_start = lambda: site.silent.add("kvm2")
    run = site.evacuate()
    assert run.jobs[0].error is not None
    assert run.jobs[0].error.error_code == "unreachable"
    assert site.record_summaries() == [("web", "pre-migrating", "kvm2")]
    site.before_start = lambda: None
    site.silent.discard("kvm2")
    site.evacuate()
    assert site.record_summaries() == [("web", "done", "kvm2")]


def test_a_record_that_is_damaged_during_the_start_does_not_stop_the_others(site: Site) -> None:
    site.save("app", priority=9)
    site.save("web")

    def damage() -> None:
        (record,) = [record for record in site.ledger.list_records() if record.domain.name == "app"]
        (site.folder / "ledger" / "migrations" / "open" / f"{record.id}.json").write_bytes(b"torn")

    site.after_start = damage
    run = site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}
    assert site.record_summaries() == [("web", "done", "kvm2")]
    (error,) = errors(run).items()
    assert error[0] == "app"
    assert "what became of domain app on kvm2: It is running on kvm2." in error[1]
    assert "Check set_aside in the ledger. Then run the task on kvm2 again" in error[1]


@pytest.mark.parametrize("failure", [Forbidden("Read-only file system.", "Repair it."), Internal("No space left on device.", "Free space.")])
def test_a_start_that_the_ledger_cannot_store_is_named_with_what_became_of_it(site: Site, monkeypatch: pytest.MonkeyPatch, failure: KvmfleetError) -> None:
    def fail(*_args: t.Any) -> t.Any:
        raise failure

    for name in ("app", "bad"):
        site.save(name)
    site.hosts["kvm2"].refuses.add("bad")
    site.after_start = lambda: monkeypatch.setattr(site.ledger, "update_record", fail)
    found = errors(site.evacuate())
    assert "domain app on kvm2: It is running on kvm2. The last known status of its record is 'pre-migrating'." in found["app"]
    assert failure.message in found["app"]
    assert "domain bad on kvm2: Failed to start bad: no." in found["bad"]
    monkeypatch.undo()
    site.after_start = lambda: None
    site.evacuate()
    assert sorted(line[:2] for line in site.record_summaries()) == [("app", "done"), ("bad", "failed")]


def test_a_lock_that_another_process_holds_stops_only_the_domains_that_wait_for_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen domains are reserved under the lock at once."""
    names = [f"web{number:02}" for number in range(17)]
    for number, name in enumerate(names):
        site.save(name, memory_mib=64, priority=17 - number)
    hold, taken = site.ledger.hold_lock, list[str]()

    def hold_once(key: str, timeout_seconds: float = 30) -> t.Any:
        taken.append(key)
        if len(taken) > 1:
            raise TimedOut("The lock was held by another process for more than 30 s; nothing was changed.", "Wait for the run that holds it.")
        return hold(key, timeout_seconds)

    monkeypatch.setattr(site.ledger, "hold_lock", hold_once)
    run = site.evacuate()
    assert site.running() == {"kvm2": names[:16]}
    assert list(errors(run)) == names[16:]
    assert "web16 was not started. The lock was held" in errors(run)["web16"]
    assert {line[1] for line in site.record_summaries()} == {"done"}


def test_an_evacuation_finished_by_a_concurrent_run_is_a_conflict(site: Site) -> None:
    """Between the first check and the reservation, another run has completed the evacuation."""
    site.save("web")
    run = site.evacuation(force_down=WORD)
    probed = run.probe_fleet()
    site.evacuate("kvm3")
    run.probe_fleet = lambda: probed  # type: ignore[method-assign]
    run.evacuate_domains()
    assert isinstance(run.jobs[0].error, Conflict)
    assert site.running() == {"kvm3": ["web"]}
    assert sorted(line[1:] for line in site.record_summaries()) == [("conflict", "kvm2"), ("done", "kvm3")]


def test_a_worker_of_a_killed_run_starts_nothing(site: Site) -> None:
    site.save("web")
    site.parent_lives = False
    with pytest.raises(ControllerGone):
        site.evacuate()
    assert (site.running(), site.record_summaries()) == ({}, [("web", "pre-migrating", "kvm2")])


def test_a_worker_of_a_killed_run_fences_nothing(site: Site) -> None:
    """Its guests may run there, and no task would start them elsewhere."""
    site.save("web")
    agent, site.parent_lives = site.agent(power="on"), False
    with pytest.raises(ControllerGone):
        site.evacuate()
    assert ("off" in " ".join(agent.asked()), site.running(), site.record_summaries()) == (False, {}, [])


def test_a_worker_of_a_killed_run_writes_nothing(site: Site) -> None:
    site.save("web")
    site.after_start = lambda: setattr(site, "parent_lives", False)
    with pytest.raises(ControllerGone):
        site.evacuate()
    assert (site.running(), site.record_summaries()) == ({"kvm2": ["web"]}, [("web", "pre-migrating", "kvm2")])
    site.parent_lives = True
    site.after_start = lambda: None
    site.evacuate()
    assert site.record_summaries() == [("web", "done", "kvm2")]


# Bad input


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"source": "kvm9"}, NotFound),
        ({"source": ""}, NotFound),
        ({"source": "kvm2"}, KvmfleetError),
        ({"domains": []}, InvalidArgument),
        ({"domains": ["nobody"]}, NotFound),
    ],
)
def test_an_invalid_source_or_domain_is_refused(site: Site, given: Body, error: type[Exception]) -> None:
    site.save("web")
    with pytest.raises(error):
        site.evacuate(**given)
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_an_ambiguous_domain_name_is_a_conflict(site: Site) -> None:
    site.save("web")
    (document,) = site.ledger.find_domains("web")
    site.ledger.put_domain(domain_entry({**document.body, "uuid": uuid_of("other")}), None)
    with pytest.raises(Conflict, match=uuid_of("other")):
        site.evacuate(domains=["web"])


def test_an_ambiguous_host_name_is_a_conflict(site: Site) -> None:
    site.save("web")
    twin = {"name": "kvm1", "host_id": host_id("twin"), "host_uuid": uuid_of("twin"), "state": "enabled"}
    site.ledger.put_host(host_entry(twin), None)
    with pytest.raises(Conflict, match="several hosts"):
        site.evacuate()
    site.evacuate(source=host_id("kvm1"))
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_that_was_never_protected_cannot_be_evacuated(site: Site) -> None:
    site.ledger.put_host(host_entry({"name": "kvm4", "host_id": None, "host_uuid": uuid_of("kvm4"), "state": "enabled"}), None)
    with pytest.raises(InvalidState, match="never protected"):
        site.evacuate(source="kvm4")


def test_a_host_that_requires_root_ends_the_task(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(on: str, work: t.Any) -> t.Any:
        raise Forbidden("This needs root on the host.")

    site.save("web")
    monkeypatch.setattr(site, "_look", refuse)
    with pytest.raises(Forbidden):
        site.evacuate()
    assert site.record_summaries() == []
