# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations from one end to the other: what is started, what is refused, and what the ledger has of it."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import pathlib
import socket
import struct
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    Unreachable,
    Unsafe,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.answer import result_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.run import Evacuation, check_wish
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.encoding import decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.follow import ControllerGone
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuation.fleet import HOSTS, WORD, Site, host_id

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


def test_all_domains_are_started_the_most_important_first(site: Site) -> None:
    site.save("small", memory_mib=512)
    site.save("large", memory_mib=2048)
    site.save("first", priority=9)
    run = site.evacuate()
    assert site.running() == {"kvm2": ["first", "large", "small"]}
    assert site.told() == [(name, "done", "kvm2") for name in ("first", "large", "small")]
    assert [site.possible(name) for name in ("first", "large", "small")] == [["kvm2"]] * 3
    result = result_of(run, diff=True)
    assert result["changed"]
    assert "failed" not in result
    assert result["diff"]["after"] == "first: kvm2\nlarge: kvm2\nsmall: kvm2\n"
    assert not site.ledger.verify_audit()


@pytest.mark.parametrize("who", ["kvm2", "kvm3"])
def test_a_domain_of_a_move_that_the_ledger_has_lost_is_not_started(site: Site, who: str) -> None:
    """The task runs on kvm2; kvm3 has told its facts lately."""
    site.save("web")
    domain = {"uuid": site.save("app"), "name": "app"}
    lost = schema.new_record(s.LIVE_MIGRATION, domain, site.place(who), site.place("kvm1"), {}, "x")
    site.remembered[who] = [{**lost, "generation": 1, "status": s.COMPLETED, "ledger_id": site.ledger.ledger_id}]
    run = site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    result = result_of(run, diff=False)
    assert (result["failed"], result["error_code"]) == (True, "conflict")
    assert [(one["id"], one["remembered_by"]) for one in result["missing_records"]] == [(lost["id"], who)]
    assert [record["domain"]["name"] for record in site.ledger.records()] == ["web"]
    assert any(lost["id"] in warning for warning in run.context.warnings)


def test_a_definition_is_in_no_result_and_no_record(site: Site) -> None:
    site.save("web")
    result = result_of(site.evacuate(), diff=True)
    assert "<domain" not in str(result)
    assert "<domain" not in str(list(site.ledger.records()))


def test_the_record_keeps_the_disks_as_they_were_on_the_source_and_no_other_host(site: Site) -> None:
    site.save("web")
    site.evacuate()
    (record,) = site.ledger.records(domain="web")
    (document,) = site.ledger.domains()
    assert record["before"]["disks"] == document.body["protected"]["disks"] != []
    # Nobody has protected it on kvm2, which dies in turn: how its disks are there is in no document.
    site.silent = {"kvm1", "kvm2"}
    site.evacuate("kvm3", source="kvm2", accept_silent=["kvm1"])
    newer = max(site.ledger.records(domain="web"), key=lambda one: one["generation"])
    assert (newer["source"]["host"], newer["before"]["disks"]) == ("kvm2", None)


def test_a_second_run_has_nothing_to_do_and_fences_nobody(site: Site) -> None:
    site.save("web")
    agent = site.agent()
    site.evacuate()
    asked = len(agent.asked())
    run = site.evacuate()
    assert (run.jobs, len(agent.asked())) == ([], asked)
    named = site.evacuate(domains=["web"])
    assert [record["status"] for record in result_of(named, diff=False)["evacuations"]] == ["done"]
    assert not result_of(named, diff=False)["changed"]


def test_states_come_back_as_they_were_or_as_wished(site: Site) -> None:
    site.save("held", state="paused")
    site.save("idle", state="shut off")
    site.save("web")
    site.evacuate(domains=["held", "idle"])
    assert site.hosts["kvm2"].guests[uuid_of("held")]["state"] == "paused"
    assert site.hosts["kvm2"].guests[uuid_of("idle")]["state"] == "shut off"
    site.evacuate(domains=["web"], state="defined")
    assert site.hosts["kvm2"].guests[uuid_of("web")]["state"] == "shut off"
    assert [record["wanted_state"] for record in site.ledger.records(domain="web")] == ["shut off"]


def test_what_is_left_out_is_named(site: Site) -> None:
    site.save("web")
    site.save("app")
    result = result_of(site.evacuate(domains=["web"]), diff=False)
    assert [entry["name"] for entry in result["not_selected"]] == ["app"]
    assert site.running() == {"kvm2": ["web"]}


def test_one_that_does_not_start_stops_no_other(site: Site) -> None:
    for name in ("web", "bad", "app"):
        site.save(name)
    site.hosts["kvm2"].refuses.add("bad")
    run = site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}
    assert sorted(line[:2] for line in site.told()) == [("app", "done"), ("bad", "failed"), ("web", "done")]
    assert site.possible("bad") == ["kvm1"]
    result = result_of(run, diff=False)
    assert (result["failed"], result["changed"]) == (True, True)
    assert [failure["domain"] for failure in result["failures"]] == ["bad"]
    site.evacuate("kvm3")
    assert site.running() == {"kvm2": ["app", "web"], "kvm3": ["bad"]}


def test_check_mode_predicts_and_changes_nothing(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    run = site.evacuation(check=True)
    run.execute()
    result = result_of(run, diff=True)
    assert (result["changed"], [record["id"] for record in result["evacuations"]]) == (True, [None])
    assert result["diff"]["after"] == "web: kvm2\n"
    assert (site.running(), site.told(), agent.asked()) == ({}, [], [])


# Evidence


def test_the_agent_switches_the_host_off_and_is_asked_again_before_the_start(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    asked: list[str] = []
    site.before_start = lambda: asked.extend(agent.asked())
    site.evacuate()
    assert asked[:3] == ["status", "off", "status"]
    assert asked[3:].count("status") >= 1
    (record,) = site.ledger.records()
    assert (record["evidence"][0]["kind"], record["evidence"][0]["status"]) == ("fence_agent", "off")
    assert {"silence", "locks"} <= {one["kind"] for one in record["evidence"]}


def test_a_record_keeps_what_was_seen_of_its_own_images_and_of_no_others(site: Site) -> None:
    site.save("web")
    site.save("app")
    site.evacuate()
    for record in site.ledger.records():
        seen = [list(one["images"]) for one in record["evidence"] if one["kind"] == "locks"]
        assert seen == [[str(site.images / f"{record['domain']['name']}.qcow2")]]
    assert len(site.told()) == 2


def test_locks_that_were_seen_after_the_fencing_are_not_asked_for_twice(site: Site) -> None:
    site.save("web")
    site.evacuate()
    assert site.phases == [("kvm2", "look"), ("kvm2", "start")]
    site.save("app")
    site.agent(power="on")
    site.phases.clear()
    site.evacuate()
    assert site.phases == [("kvm2", "look"), ("kvm2", "locks"), ("kvm2", "start")]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is waited for takes too long."""
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.run._FRESH_SECONDS", -1.0)


@pytest.mark.usefixtures("slow")
def test_hosts_are_asked_again_after_the_agent_and_leases_were_waited_for(site: Site) -> None:
    """Meanwhile somebody has started one of the domains elsewhere, and the host that takes the others has got another guest."""
    site.save("web")
    uuid = site.save("app")
    site.agent(power="on")
    site.locked.add("web")
    locks = site._locks

    def wait(on: str, work: t.Any) -> t.Any:
        found = locks(on, work)
        if "wait_seconds" in work:
            site.hosts["kvm3"].add(uuid, "app")
            site.locked.clear()
        return found

    site._locks = wait  # type: ignore[method-assign]
    run = site.evacuate()
    assert site.phases == [("kvm2", "look"), ("kvm2", "locks"), ("kvm2", "look"), ("kvm2", "start")]
    assert "is active on kvm3" in errors(run)["app"]
    assert site.running() == {"kvm2": ["web"], "kvm3": ["app"]}


@pytest.mark.usefixtures("slow")
def test_evidence_that_no_agent_renews_outlasts_the_wait_that_the_task_has_chosen(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=299)
    run = site.evacuation(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": then.isoformat()}])
    run.look()
    clock = iter([0.0, 400.0])
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.run.time.monotonic", lambda: next(clock, 400.0))
    run.prove(starts=False)
    assert [one["ttl_seconds"] for one in run.proofs.documents] == [700]


def test_a_host_that_was_switched_on_again_meanwhile_ends_all_starts(site: Site) -> None:
    site.save("web")
    site.save("app")
    agent = site.agent()
    site.deferred = {"web"}
    site.after_start = lambda: agent.switch("on")
    run = site.evacuate()
    assert site.running() == {"kvm2": ["app"]}
    assert "is on" in errors(run)["web"]
    assert sorted(line[:2] for line in site.told()) == [("app", "done"), ("web", "failed")]
    assert site.possible("web") == ["kvm1"]


# An agent whose BMC stops answering.
MUTE = "echo 'Connection timed out'; exit 1"


def test_an_agent_that_stops_answering_before_the_starts_leaves_no_record_open(site: Site) -> None:
    """Nothing was sent to the host that starts the domains: it was not lost, and nothing of ours can be there."""
    site.save("web")
    agent = site.agent()
    run = site.evacuation()
    book = run._book_all

    def book_and_lose_the_bmc(booking: t.Any) -> None:
        book(booking)
        agent.write(MUTE)

    run._book_all = book_and_lose_the_bmc  # type: ignore[method-assign]
    run.execute()
    assert ("kvm2", "start") not in site.phases
    assert "cannot tell any more" in errors(run)["web"]
    assert run.jobs[0].error is not None
    assert run.jobs[0].error.error_code == "unreachable"
    assert site.told() == [("web", "failed", "kvm2")]
    assert site.possible("web") == ["kvm1"]


def test_an_agent_that_stops_answering_between_two_handfuls_closes_what_was_not_begun(site: Site) -> None:
    site.save("web")
    site.save("app")
    agent = site.agent()
    site.deferred = {"web"}
    site.after_start = lambda: agent.write(MUTE)
    run = site.evacuate()
    assert sorted(line[:2] for line in site.told()) == [("app", "done"), ("web", "failed")]
    assert "cannot tell any more" in errors(run)["web"]


def test_an_agent_that_stops_answering_after_the_host_was_lost_leaves_the_record_to_the_next_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.starting._PAUSE_SECONDS", 0)
    site.save("web")
    agent = site.agent()

    def lose_both() -> None:
        agent.write(MUTE)
        raise Unreachable("kvm2 cannot be reached.")

    site.after_start = lose_both
    site.evacuate()
    assert site.told() == [("web", "pre-migrating", "kvm2")]


def test_without_evidence_nothing_is_written_or_started(site: Site) -> None:
    site.save("web")
    with pytest.raises(Unsafe, match="force_down with a reason"):
        site.evacuate(force_down=None)
    assert (site.running(), site.told()) == ({}, [])


def test_a_persons_word_is_recorded(site: Site) -> None:
    site.save("web")
    site.evacuate()
    (record,) = site.ledger.records()
    assert [(one["kind"], one["reason"], one["by"]) for one in record["evidence"][:1]] == [("person", "I pulled the plug", "Ada")]


def test_evidence_of_a_tasks_file_counts(site: Site) -> None:
    site.save("web")
    site.evacuate(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}])
    assert site.running() == {"kvm2": ["web"]}


@pytest.mark.parametrize("changes", [{"status": "on"}, {"action": "reboot"}, {"at": "2020-01-01T00:00:00Z"}, {"host_id": host_id("kvm2")}])
def test_evidence_that_is_none(site: Site, changes: Body) -> None:
    site.save("web")
    with pytest.raises(Unsafe):
        site.evacuate(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": utc_now(), **changes}])
    assert (site.running(), site.told()) == ({}, [])


def test_evidence_about_another_host_is_none_about_this_one(site: Site) -> None:
    site.save("web")
    with pytest.raises(Unsafe, match="no evidence"):
        site.evacuate(fencing=[{"host": "kvm3", "action": "off", "status": "off", "at": utc_now()}])
    assert site.running() == {}


def test_two_kinds_of_evidence_contradict_each_other(site: Site) -> None:
    site.save("web")
    with pytest.raises(InvalidArgument):
        site.evacuate(fencing=[{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}], force_down=WORD)


def test_a_host_that_answers_ssh_is_never_evacuated_and_never_fenced(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    with socket.create_server(("127.0.0.1", site.port)), pytest.raises(Unsafe, match="never evacuated"):
        site.evacuate(force=True)
    assert (agent.asked(), site.told(), site.phases) == ([], [], [("kvm2", "look")])


@pytest.mark.parametrize("evidence", [{"force_down": WORD}, {"fencing": [{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}]}, {}])
def test_a_door_that_refuses_has_answered_whatever_the_evidence(site: Site, evidence: Body) -> None:
    """A reset comes from something that is on and has the address: the host itself, another machine, or a firewall."""
    site.save("web")
    site.refuses = True
    with pytest.raises(Unsafe, match=r"refuses connections from .* never evacuated") as caught:
        site.evacuate(force=True, accept_silent=["kvm1"], **{"force_down": None, **evidence})
    assert "another machine has its address" in str(caught.value)
    assert "firewall" in str(caught.value)
    assert (site.running(), site.told(), site.phases) == ({}, [], [("kvm2", "look")])


@pytest.mark.parametrize("alias", ["kvm1", "kvm3"])
def test_a_host_that_answers_libvirt_is_never_evacuated_under_whatever_name(site: Site, alias: str) -> None:
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
    assert (agent.asked(), site.told()) == ([], [])


def test_an_image_that_somebody_writes_stops_its_own_domain_alone(site: Site) -> None:
    site.save("web")
    site.save("app")
    site.locked.add("web")
    run = site.evacuate(force=True)
    assert site.running() == {"kvm2": ["app"]}
    assert site.told() == [("app", "done", "kvm2")]
    assert "web.qcow2" in errors(run)["web"]
    result = result_of(run, diff=False)
    assert (result["failed"], result["error_code"], [one["domain"] for one in result["failures"]]) == (True, "unsafe", ["web"])
    site.locked.clear()
    site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}


def off(site: Site) -> list[Body]:
    """Return what a tasks file says that has switched the dead host off."""
    return [{"host": "kvm1", "action": "off", "status": "off", "at": utc_now()}]


def accepting(site: Site, *names: str, **more: t.Any) -> Body:
    return {"images": [str(site.images / f"{name}.qcow2") for name in names], "reason": "the NFS server kept its locks", "by": "Ada", **more}


@pytest.mark.parametrize("agent", [True, False])
def test_a_locked_image_is_accepted_once_fencing_is_proved(site: Site, agent: bool) -> None:
    site.save("web")
    site.save("app")
    site.locked |= {"web", "app"}
    if agent:
        site.agent(power="on")
    run = site.evacuate(accept_locked=accepting(site, "web"), **({} if agent else {"fencing": off(site)}))
    assert site.running() == {"kvm2": ["web"]}
    assert "app.qcow2" in errors(run)["app"]
    (record,) = site.ledger.records()
    (accepted,) = [one for one in record["evidence"] if one["kind"] == "accepted_locks"]
    assert (accepted["images"], accepted["by"]) == ([str(site.images / "web.qcow2")], "Ada")
    assert accepted["reason"] == "the NFS server kept its locks"


def test_a_person_s_word_does_not_accept_a_locked_image(site: Site) -> None:
    site.save("web")
    site.locked.add("web")
    run = site.evacuate(force_down=WORD, force=True, accept_locked=accepting(site, "web"))
    assert "a person's word is not enough for both" in errors(run)["web"]
    assert (site.running(), site.told()) == ({}, [])


def test_an_image_that_is_free_needs_no_acceptance_and_the_record_has_none(site: Site) -> None:
    site.save("web")
    site.evacuate(fencing=off(site), accept_locked=accepting(site, "web"))
    (record,) = site.ledger.records()
    assert [one for one in record["evidence"] if one["kind"] == "accepted_locks"] == []


@pytest.mark.parametrize(("changes", "named"), [({"images": []}, "no image"), ({"reason": " "}, "no reason"), ({"images": ["/srv/x"]}, "/srv/x")])
def test_an_acceptance_that_cannot_be_meant(site: Site, changes: Body, named: str) -> None:
    site.save("web")
    with pytest.raises(InvalidArgument, match=named):
        site.evacuate(fencing=off(site), accept_locked={**accepting(site, "web"), **changes})
    assert (site.running(), site.told()) == ({}, [])


def test_an_acceptance_is_good_for_all_shares_of_the_work(site: Site) -> None:
    """Each survivor is told all of it, and starts a part of the domains."""
    site.save("web")
    site.save("app")
    site.locked.add("web")
    site.evacuate(domains=["app"], fencing=off(site), accept_locked=accepting(site, "web"))
    assert site.running() == {"kvm2": ["app"]}


def waits(site: Site) -> list[tuple[list[str], int]]:
    """Return which images were waited for, and for how long."""
    return [([pathlib.Path(path).stem for path in paths], seconds) for paths, seconds in site.waits if seconds]


def test_leases_are_waited_for_as_long_as_their_storage_keeps_them(site: Site) -> None:
    site.save("web", mount_kind="nfs4")
    site.locked.add("web")
    site.evacuate(lock_wait_seconds=None)
    site.save("app", mount_kind="ceph")
    site.locked.add("app")
    site.evacuate(lock_wait_seconds=None)
    site.evacuate(lock_wait_seconds=7)
    assert waits(site) == [(["web"], 105), (["app", "web"], 315), (["app", "web"], 7)]


def test_a_lock_that_outlives_its_host_is_not_waited_for(site: Site) -> None:
    site.save("old", mount_kind="nfs", locks="kept")
    site.save("web", mount_kind="nfs4", locks="leased")
    site.locked.add("old")
    run = site.evacuate(lock_wait_seconds=None)
    assert waits(site) == []
    assert site.running() == {"kvm2": ["web"]}
    assert "NFS 3" in errors(run)["old"]
    assert "SM_NOTIFY" in errors(run)["old"]


@pytest.mark.parametrize("older", [False, True])
def test_a_disk_that_several_guests_write_is_not_judged_by_its_lock(site: Site, older: bool) -> None:
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


def test_a_silent_host_has_to_be_accepted_by_name(site: Site) -> None:
    site.save("web")
    site.silent.add("kvm3")
    with pytest.raises(Unsafe, match=r"accept_silent: \[kvm3\]"):
        site.evacuate()
    with pytest.raises(InvalidArgument, match="kvm9"):
        site.evacuate(accept_silent=["kvm9"])
    assert site.told() == []
    site.evacuate(accept_silent=["kvm3"])
    assert site.running() == {"kvm2": ["web"]}
    (record,) = site.ledger.records()
    assert [one["hosts"] for one in record["evidence"] if one["kind"] == "accepted_silence"] == [["kvm3"]]


def test_a_host_whose_address_leads_to_another_one_has_not_answered(site: Site) -> None:
    site.save("web")
    site.leads_to["kvm3"] = "kvm2"
    with pytest.raises(Unsafe, match=r"kvm3 did not answer.*leads to kvm2.*accept_silent: \[kvm3\]"):
        site.evacuate()
    assert site.told() == []
    site.evacuate(accept_silent=["kvm3"])
    assert site.told() == [("web", "done", "kvm2")]
    (record,) = site.ledger.records()
    assert [one["hosts"] for one in record["evidence"] if one["kind"] == "accepted_silence"] == [["kvm3"]]


def test_a_host_that_may_have_the_domain_and_whose_address_leads_elsewhere_needs_evidence(site: Site) -> None:
    """By its name alone: an older record has no UUID of the host."""
    site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=[site.place("kvm1"), {"host": "kvm3", "host_id": None, "host_uuid": None}]))
    site.leads_to["kvm3"] = "kvm2"
    assert "may be on kvm3 as well" in errors(site.evacuate(accept_silent=["kvm3"]))["web"]
    assert site.told() == []


def test_hosts_whose_addresses_were_mixed_up_have_answered_all_the_same(site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    site.write_host("kvm4")
    site.hosts["kvm3"].add(uuid, "web")
    site.leads_to |= {"kvm3": "kvm4", "kvm4": "kvm3"}
    run = site.evacuate()
    assert "is active on" in errors(run)["web"]
    assert site.running() == {"kvm2": ["app"], "kvm3": ["web"]}


def test_a_host_that_was_renamed_has_answered(site: Site) -> None:
    site.save("web")
    site.write_host("kvm3", name="the name before")
    site.leads_to["the name before"] = "kvm3"
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_second_name_for_a_host_of_the_inventory_may_be_another_host(site: Site) -> None:
    site.save("web")
    site.listed.append("kvm9")
    site.leads_to["kvm9"] = "kvm3"
    with pytest.raises(Unsafe, match=r"kvm9 did not answer.*leads to kvm3"):
        site.evacuate()
    site.evacuate(accept_silent=["kvm9"])
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_with_another_uuid_than_before_has_answered_where_its_facts_say_who_it_is(site: Site) -> None:
    """Libvirt makes a new UUID at each start where the board has none."""
    site.save("web")
    site.uuids["kvm3"] = uuid_of("another")
    site.told_facts.discard("kvm3")
    with pytest.raises(Unsafe, match=rf"kvm3 did not answer.*{uuid_of('another')}.*host_uuid"):
        site.evacuate()
    site.told_facts.add("kvm3")
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_whose_id_is_read_has_answered_whatever_its_uuid(site: Site) -> None:
    site.save("web")
    site.uuids["kvm3"] = uuid_of("another")
    site.told_facts.discard("kvm3")
    site.told_ids = {"kvm2", "kvm3"}
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_hosts_with_other_uuids_than_before_are_known_by_their_host_ids(site: Site) -> None:
    """Also where the ledger has the domain on hosts by their UUIDs of then."""
    site.save("web")
    site.told_ids = set(HOSTS)
    site.told_facts.clear()
    site.uuids = {name: uuid_of(f"another {name}") for name in site.uuids}
    run = site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert run.jobs[0].record is not None
    assert run.jobs[0].record["destination"] == site.place("kvm2")
    site.uuids = {name: uuid_of(f"a third {name}") for name in site.uuids}
    assert site.evacuate().jobs == []
    assert site.told() == [("web", "done", "kvm2")]


@pytest.mark.parametrize("survivor", ["kvm2", "kvm3"])
def test_a_survivor_that_has_the_uuid_of_the_dead_host_is_another_host(site: Site, survivor: str) -> None:
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


def test_a_copy_of_the_dead_host_s_id_counts_as_the_dead_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    site.told_ids = set(HOSTS)
    told = site._answer
    monkeypatch.setattr(site, "_answer", lambda name: {**told(name), "host_id": host_id("kvm1")} if name == "kvm3" else told(name))
    with pytest.raises(Unsafe, match="kvm1 answers"):
        site.evacuate()


def test_a_domain_that_is_on_the_dead_host_by_a_uuid_of_before_alone_is_found(site: Site) -> None:
    """The document is from before the host had an ID."""
    site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=[place("kvm1", None, uuid_of("long ago"))]))
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_hosts_that_share_a_uuid_are_told_apart_by_their_facts(site: Site) -> None:
    """Boards with one UUID for all exist. What answers as kvm4 says that it is kvm3."""
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


def test_the_address_of_the_dead_host_that_leads_to_another_one_says_nothing_of_its_silence(site: Site) -> None:
    site.save("web")
    site.leads_to["kvm1"] = "kvm3"
    with pytest.raises(Unsafe, match=r"The address of kvm1 leads to kvm3"):
        site.evacuate(accept_silent=["kvm1"])
    assert site.told() == []


def test_a_host_that_may_release_itself_is_refused(site: Site) -> None:
    site.save("web")
    site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")})
    with pytest.raises(Unsafe, match="revoke_token"):
        site.evacuate()


def test_a_host_that_was_granted_a_token_before_it_was_fenced_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    prove = Evacuation.prove

    def granted_meanwhile(run: Evacuation, starts: bool = True) -> None:
        site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")})
        prove(run, starts)

    monkeypatch.setattr(Evacuation, "prove", granted_meanwhile)
    with pytest.raises(Unsafe, match="revoke_token"):
        site.evacuate()
    assert (site.running(), site.told()) == ({}, [])


def test_of_a_host_that_will_never_return_a_token_does_not_count(site: Site) -> None:
    site.save("web")
    said = {"at": "then", "by": "somebody", "reason": "burnt"}
    site.write_host("kvm1", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")}, discarded=said)
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_that_nothing_holds_at_boot_is_a_warning(site: Site) -> None:
    site.save("web")
    site.write_host("kvm1", protected={"guard": {"held_at_boot": False}, "token_id": None})
    assert "Nothing holds kvm1" in " ".join(site.evacuate().context.warnings)


# Where a domain may be


def test_a_domain_that_is_active_on_a_host_that_answers_is_not_started(site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    site.hosts["kvm3"].add(uuid, "web")
    run = site.evacuate(force=True)
    assert site.running() == {"kvm2": ["app"], "kvm3": ["web"]}
    assert "is active on kvm3" in errors(run)["web"]
    assert site.told() == [("app", "done", "kvm2")]


def test_the_lock_of_a_domain_that_runs_on_a_host_that_answers_is_explained(site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    site.hosts["kvm3"].add(uuid, "web")
    site.locked.add("web")
    site.evacuate()
    assert site.running() == {"kvm2": ["app"], "kvm3": ["web"]}


@pytest.mark.parametrize("state", ["running", "shut off"])
def test_what_is_on_this_host_already_is_in_the_way(site: Site, state: str) -> None:
    uuid = site.save("web")
    site.hosts["kvm2"].add(uuid, "web", state)
    run = site.evacuate()
    assert isinstance(run.jobs[0].error, Conflict)
    assert site.hosts["kvm2"].guests[uuid]["state"] == state
    assert (site.hosts["kvm2"].starts, site.told()) == ([], [])


def test_a_second_place_that_is_silent_needs_evidence_of_its_own(site: Site) -> None:
    uuid = site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=[site.place("kvm1"), site.place("kvm3")]))
    site.silent.add("kvm3")
    run = site.evacuate()
    assert "may be on kvm3 as well" in errors(run)["web"]
    run = site.evacuate(accept_silent=["kvm3"])
    assert "may be on kvm3 as well" in errors(run)["web"]
    assert site.told() == []
    agent = site.agent("kvm3", power="on")
    with pytest.raises(Unsafe, match="does not say that it is off"):
        site.evacuate()
    assert "off" not in agent.asked()
    agent.switch("off")
    site.evacuate()
    assert site.hosts["kvm2"].view(uuid).active


def test_a_move_that_the_dead_host_had_begun_is_closed_by_evidence(site: Site) -> None:
    uuid = site.save("web")
    record = schema.new_record(s.LIVE_MIGRATION, {"uuid": uuid, "name": "web"}, site.place("kvm1"), site.place("kvm3"), {}, "a test")
    stored = site.ledger.open_record(record)
    for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING):
        record = schema.copied(stored.record)
        schema.advance(record, status, "a test")
        stored = site.ledger.update(stored, record)
    site.evacuate()
    assert site.told() == [("web", "failed", "kvm3"), ("web", "done", "kvm2")]
    assert site.running() == {"kvm2": ["web"]}


def test_a_move_towards_the_dead_host_is_taken_over_once_its_source_has_the_guest_no_more(site: Site) -> None:
    uuid = site.save("web", on="kvm3")
    record = schema.new_record(s.LIVE_MIGRATION, {"uuid": uuid, "name": "web"}, site.place("kvm3"), site.place("kvm1"), {}, "a test")
    site.ledger.open_record(record)
    site.hosts["kvm3"].add(uuid, "web")
    run = site.evacuate()
    assert "is active on kvm3" in errors(run)["web"]
    del site.hosts["kvm3"].guests[uuid]
    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    older, newer = sorted(site.ledger.records(), key=lambda one: str(one["created_at"]))
    assert (older["superseded_by"], newer["status"]) == (newer["id"], "done")


def test_domains_that_are_nowhere_are_named_and_not_started(site: Site) -> None:
    site.save("web")
    site.save("stray", on="kvm3")
    result = result_of(site.evacuate(), diff=False)
    assert [(one["name"], one["hosts"]) for one in result["unaccounted"]] == [("stray", ["kvm3"])]
    assert site.running() == {"kvm2": ["web"]}


# Disks and definitions


def test_a_disk_that_only_the_dead_host_had_is_lost_until_it_returns(site: Site) -> None:
    site.save("local", seen_by=["kvm1"])
    site.save("web")
    result = result_of(site.evacuate(force=True), diff=False)
    assert [entry["name"] for entry in result["lost_until_return"]] == ["local"]
    assert "failed" not in result
    assert site.running() == {"kvm2": ["web"]}
    named = result_of(site.evacuate(domains=["local"], force=True), diff=False)
    assert (named["failed"], named["error_code"]) == (True, "unsafe")
    assert site.told() == [("web", "done", "kvm2")]


def test_a_disk_that_another_host_saw_is_not_started_on_here(site: Site) -> None:
    site.save("web", seen_by=["kvm1", "kvm3"])
    run = site.evacuate(force=True)
    assert "was not proved" in errors(run)["web"]
    assert site.running() == {}
    site.evacuate("kvm3")
    assert site.running() == {"kvm3": ["web"]}


def test_a_guest_that_moved_to_the_dead_host_on_disks_of_its_own_there_is_lost(site: Site) -> None:
    """What was proved is about the host that it left: the dead one may have had another file of that name."""
    site.save("web", seen_by=["kvm2", "kvm3"])
    result = result_of(site.evacuate(), diff=False)
    assert [entry["name"] for entry in result["lost_until_return"]] == ["web"]


def test_a_token_that_is_gone_is_no_proof(site: Site) -> None:
    site.save("web")
    for token in site.images.glob(".kvmfleet-host-*"):
        token.unlink()
    run = site.evacuate(force=True)
    assert "token" in errors(run)["web"]
    assert site.told() == []


def test_an_emulated_tpm_is_not_replaced_by_an_empty_one(site: Site) -> None:
    site.save("web", tpm="/var/lib/libvirt/swtpm/web")
    result = result_of(site.evacuate(), diff=False)
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
        lambda body: body["protected"].update(host=None),
        lambda body: body.update(protected=None),
    ],
)
def test_a_document_that_somebody_edited_starts_nothing_and_stops_no_other(site: Site, change: t.Callable[[Body], t.Any]) -> None:
    site.save("bad")
    site.save("web")
    site.change("bad", change)
    run = site.evacuate(state="running", force=True)
    assert site.running() == {"kvm2": ["web"]}
    assert list(errors(run)) == ["bad"]
    assert "bad" in errors(run)["bad"]
    assert {line[1] for line in site.told() if line[0] == "bad"} <= {"failed"}


def test_a_place_that_is_none_may_be_the_dead_host(site: Site) -> None:
    uuid = site.save("bad")
    path = site.folder / "ledger" / "domains" / f"{uuid}.json"
    document = decode(path.read_bytes())
    path.write_bytes(encode({**document.body, "possible_hosts": ["nowhere"]}, document.version))
    result = result_of(site.evacuate(), diff=False)
    assert [failure["uuid"] for failure in result["failures"]] == [uuid]
    assert site.told() == []


def test_a_document_that_was_set_aside_is_not_forgotten(site: Site) -> None:
    """In no run, until it is back: its domain may have been on the dead host."""
    uuid = site.save("bad")
    site.save("web")
    path = site.folder / "ledger" / "domains" / f"{uuid}.json"
    before = path.read_text()
    path.write_text("{")
    for dummy in range(2):
        result = result_of(site.evacuate(), diff=False)
        assert [failure["uuid"] for failure in result["failures"]] == [uuid]
    assert "failed" not in result_of(site.evacuate(domains=["web"]), diff=False)
    path.write_text(before)
    assert "failed" not in result_of(site.evacuate(), diff=False)
    assert site.running() == {"kvm2": ["bad", "web"]}


def test_a_transient_domain_cannot_be_off(site: Site) -> None:
    site.save("web", persistent=False)
    assert "transient" in errors(site.evacuate(state="defined"))["web"]


# The scheduler


def test_a_host_without_room_is_refused_unless_it_is_forced(site: Site) -> None:
    site.save("web")
    site.memory["kvm2"] = 512
    run = site.evacuate()
    assert isinstance(run.jobs[0].error, Conflict)
    assert site.told() == [("web", "conflict", "kvm2")]
    site.evacuate(force=True)
    newest = max(site.ledger.records(), key=lambda record: str(record["created_at"]))
    assert (newest["status"], newest["forced"]) == ("done", "FORCED_REBUILD")
    assert any("Bypassed" in line["detail"] for line in newest["history"])


def test_domains_that_stay_off_need_no_room(site: Site) -> None:
    site.save("idle", state="shut off")
    site.memory["kvm2"] = 512
    site.evacuate()
    assert site.told() == [("idle", "done", "kvm2")]


def test_each_booking_counts_for_the_next(site: Site) -> None:
    site.save("one", memory_mib=1024)
    site.save("two", memory_mib=1024)
    site.memory["kvm2"] = 1024
    site.evacuate()
    assert sorted(line[1] for line in site.told()) == ["conflict", "done"]


def test_a_host_in_maintenance_takes_nothing(site: Site) -> None:
    site.save("web")
    site.write_host("kvm2", state="maintenance", reason="new memory")
    assert "maintenance" in errors(site.evacuate())["web"]


def test_starts_wait_for_hosts_that_are_busy_but_not_for_ever(site: Site) -> None:
    site.save("web")
    site.deferred = {"web"}
    site.evacuate()
    assert site.told() == [("web", "done", "kvm2")]
    site.save("app")
    site.deferred = {"app", "for ever"}
    run = site.evacuate()
    assert "kvm3: busy." in errors(run)["app"]
    assert site.told()[-1] == ("app", "failed", "kvm2")
    assert site.running() == {"kvm2": ["web"]}


def test_answers_of_a_round_that_came_too_late_serve_the_next_one_and_no_further(site: Site) -> None:
    for name in ("app", "web"):
        site.save(name)
    site.deferred = {"app", "web"}
    site.evacuate()
    assert site.running() == {"kvm2": ["app", "web"]}
    assert site.passed_on == [None, {"round": 1}]


def test_answers_of_a_round_in_which_something_started_serve_no_other(site: Site) -> None:
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
def test_killed_around_the_start_the_next_run_settles_by_asking(site: Site, when: str) -> None:
    site.save("web")
    setattr(site, when, killed)
    with pytest.raises(Killed):
        site.evacuate()
    assert site.told() == [("web", "pre-migrating", "kvm2")]
    assert site.possible("web") == ["kvm1", "kvm2"]
    setattr(site, when, lambda: None)

    elsewhere = site.evacuate("kvm3")
    assert "Run the task on kvm2" in errors(elsewhere)["web"] or "is active on kvm2" in errors(elsewhere)["web"]
    assert "kvm3" not in site.running()

    site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert site.told() == [("web", "done", "kvm2")]
    assert site.hosts["kvm2"].starts == [uuid_of("web")]


@pytest.mark.parametrize(("when", "status"), [("before_start", "failed"), ("after_start", "done")])
def test_what_was_begun_is_settled_even_when_the_dead_host_is_back(site: Site, when: str, status: str) -> None:
    """Nothing is started then, and nothing else is evacuated."""
    site.save("web")
    setattr(site, when, killed)
    with pytest.raises(Killed):
        site.evacuate()
    setattr(site, when, lambda: None)
    site.save("app")
    with socket.create_server(("127.0.0.1", site.port)), pytest.raises(Unsafe, match=f"web is '{status}'"):
        site.evacuate()
    assert site.told() == [("web", status, "kvm2")]
    assert site.running() == ({"kvm2": ["web"]} if status == "done" else {})
    assert site.possible("web") == ["kvm2" if status == "done" else "kvm1"]


def test_killed_before_the_intent_was_written_another_host_may_do_it(site: Site) -> None:
    uuid = site.save("web")
    site.ledger.open_record(schema.new_record(s.EVACUATION, {"uuid": uuid, "name": "web"}, site.place("kvm1"), site.place("kvm2"), {}, "a test"))
    site.evacuate("kvm3")
    assert site.told() == [("web", "failed", "kvm2"), ("web", "done", "kvm3")]
    assert site.running() == {"kvm3": ["web"]}


def test_a_destination_that_died_needs_the_same_evidence_and_is_superseded(site: Site) -> None:
    site.save("web")
    site.after_start = killed
    with pytest.raises(Killed):
        site.evacuate()
    site.after_start = lambda: None
    site.silent.add("kvm2")
    run = site.evacuate("kvm3")
    assert "may be on kvm2 as well" in errors(run)["web"]
    assert "kvm3" not in site.running()
    both = [{"host": name, "action": "off", "status": "off", "at": utc_now()} for name in ("kvm1", "kvm2")]
    site.evacuate("kvm3", fencing=both)
    older, newer = sorted(site.ledger.records(), key=lambda one: str(one["created_at"]))
    assert (older["status"], older["superseded_by"]) == ("pre-migrating", newer["id"])
    assert (newer["status"], newer["destination"]["host"]) == ("done", "kvm3")
    assert {one["host"] for one in newer["evidence"] if one["kind"] == "tasks"} == {"kvm1", "kvm2"}


def test_a_host_that_is_lost_in_the_start_leaves_the_record_to_the_next_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.starting._PAUSE_SECONDS", 0)
    site.save("web")
    site.before_start = lambda: site.silent.add("kvm2")
    run = site.evacuate()
    assert run.jobs[0].error is not None
    assert run.jobs[0].error.error_code == "unreachable"
    assert site.told() == [("web", "pre-migrating", "kvm2")]
    site.before_start = lambda: None
    site.silent.discard("kvm2")
    site.evacuate()
    assert site.told() == [("web", "done", "kvm2")]


def test_a_rival_that_was_faster_is_believed(site: Site) -> None:
    """Between the first look and the booking another run has done the whole evacuation."""
    site.save("web")
    run = site.evacuation(force_down=WORD)
    run.look()
    site.evacuate("kvm3")
    run.look = lambda: None  # type: ignore[method-assign]
    run.execute()
    assert isinstance(run.jobs[0].error, Conflict)
    assert site.running() == {"kvm3": ["web"]}
    assert sorted(line[1:] for line in site.told()) == [("conflict", "kvm2"), ("done", "kvm3")]


def test_a_worker_whose_run_was_killed_starts_nothing_any_more(site: Site) -> None:
    site.save("web")
    site.parent_lives = False
    with pytest.raises(ControllerGone):
        site.evacuate()
    assert (site.running(), site.told()) == ({}, [("web", "pre-migrating", "kvm2")])


def test_a_worker_whose_run_was_killed_while_the_host_worked_writes_nothing(site: Site) -> None:
    site.save("web")
    site.after_start = lambda: setattr(site, "parent_lives", False)
    with pytest.raises(ControllerGone):
        site.evacuate()
    assert (site.running(), site.told()) == ({"kvm2": ["web"]}, [("web", "pre-migrating", "kvm2")])
    site.parent_lives = True
    site.after_start = lambda: None
    site.evacuate()
    assert site.told() == [("web", "done", "kvm2")]


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
def test_what_cannot_be_meant(site: Site, given: Body, error: type[Exception]) -> None:
    site.save("web")
    with pytest.raises(error):
        site.evacuate(**given)
    assert (site.running(), site.told()) == ({}, [])


def test_two_domains_of_one_name(site: Site) -> None:
    site.save("web")
    (document,) = site.ledger.find_domains("web")
    site.ledger.put_domain({**document.body, "uuid": uuid_of("other")}, None)
    with pytest.raises(Conflict, match=uuid_of("other")):
        site.evacuate(domains=["web"])


def test_two_hosts_of_one_name(site: Site) -> None:
    site.save("web")
    twin = {"name": "kvm1", "host_id": host_id("twin"), "host_uuid": uuid_of("twin"), "state": "enabled"}
    site.ledger.put_host(twin, None)
    with pytest.raises(Conflict, match="several hosts"):
        site.evacuate()
    site.evacuate(source=host_id("kvm1"))
    assert site.running() == {"kvm2": ["web"]}


def test_a_host_without_an_identity_is_no_source(site: Site) -> None:
    site.ledger.put_host({"name": "kvm4", "host_id": None, "host_uuid": uuid_of("kvm4"), "state": "enabled"}, None)
    with pytest.raises(InvalidState, match="never protected"):
        site.evacuate(source="kvm4")


@pytest.mark.parametrize(("parallel", "wait"), [(0, 0), (65, 0), (1, -1), (1, 3601)])
def test_numbers_that_cannot_be(parallel: int, wait: int) -> None:
    with pytest.raises(InvalidArgument):
        check_wish(parallel, wait)


def test_what_root_is_needed_for_ends_the_task(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(on: str, work: t.Any) -> t.Any:
        raise Forbidden("This needs root on the host.")

    site.save("web")
    monkeypatch.setattr(site, "_look", refuse)
    with pytest.raises(Forbidden):
        site.evacuate()
    assert site.told() == []
