# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that is refused for a domain of a dead host ends in a record; what is not about the host leaves none."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import build_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.record_notices import events_of_change
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of

from .sites import WORD, Site, image_of


def unproved(site: Site) -> None:
    site.save("web", seen_by=["kvm1", "kvm3"])


def unseen(site: Site) -> None:
    site.save("web")
    for token in site.images.glob(".kvmfleet-host-*"):
        token.unlink()


def defined_there(site: Site) -> None:
    site.hosts["kvm2"].add(site.save("web"), "web", "shut off")


def name_taken(site: Site) -> None:
    site.save("web")
    site.hosts["kvm2"].add(uuid_of("other"), "web")


def full(site: Site) -> None:
    site.save("web", memory_mib=1024 * 1024)


REFUSED: dict[str, tuple[Callable[[Site], None], str, str]] = {
    "a disk that the host was not proved to see": (unproved, "unsafe", "its access to disk vda was not proved"),
    "a disk that the host does not see": (unseen, "unsafe", "cannot be started on kvm2"),
    "a definition": (defined_there, "conflict", "is defined on this host (kvm2) already"),
    "another domain of that name": (name_taken, "conflict", f"kvm2 has another domain named web ({uuid_of('other')})"),
    "the scheduler": (full, "conflict", "kvm2 cannot accept domain web"),
}


@pytest.mark.parametrize("host", ["kvm2", "kvm3"])
def test_a_domain_whose_image_a_domain_of_a_survivor_uses_is_not_started(site: Site, host: str) -> None:
    """Also without a plan, or if an earlier run has reserved the survivor before the image was brought to another host."""
    uuid = site.save("web")
    site.own_facts[host] = {"domains": [f.domain("imported", disks=[f.disk("vdb", store=image_of(uuid))])]}
    result = build_result(site.evacuate("kvm2"), diff=False)
    assert (result["error_code"], "in use by imported" in result["msg"]) == ("unsafe", True), result["msg"]
    assert site.running() == {}


@pytest.mark.parametrize("who", REFUSED)
def test_a_refused_host_ends_in_a_record_and_a_notice(site: Site, who: str) -> None:
    prepare, code, words = REFUSED[who]
    prepare(site)
    run = site.evacuate("kvm2")
    result = build_result(run, diff=False)
    assert (result["error_code"], words in result["msg"]) == (code, True), result["msg"]
    (record,) = site.ledger.list_records(domain="web")
    assert ([line.status for line in record.history], words in record.last_detail) == (["accepted", "conflict"], True)
    assert [one["id"] for one in result["evacuations"] if one["status"] == "conflict"] == [record.id]
    events = events_of_change(None, record, site.ledger.ledger_id)
    assert [str(event["type"]).rpartition("migration.")[2] for event in events] == ["evacuation.conflict"]
    assert site.running() == ({"kvm2": ["web"]} if who == "another domain of that name" else {})
    assert site.record_summaries() == [("web", "conflict", "kvm2")]
    assert site.possible("web") == ["kvm1"]
    assert not site.ledger.verify_audit()


@pytest.mark.parametrize("who", REFUSED)
def test_check_mode_records_no_refusal(site: Site, who: str) -> None:
    prepare, code, dummy_words = REFUSED[who]
    prepare(site)
    run = site.evacuation("kvm2", check=True, force_down=WORD)
    run.evacuate_domains()
    assert (build_result(run, diff=False)["error_code"], list(site.ledger.list_records())) == (code, [])


def test_a_refusal_does_not_stop_the_other_domains(site: Site) -> None:
    unproved(site)
    site.save("app")
    site.evacuate("kvm2")
    assert sorted(site.record_summaries()) == [("app", "done", "kvm2"), ("web", "conflict", "kvm2")]
    assert site.running() == {"kvm2": ["app"]}


def test_another_host_can_start_the_domain_after_a_refusal(site: Site) -> None:
    unproved(site)
    site.evacuate("kvm2")
    site.evacuate("kvm3")
    assert site.record_summaries() == [("web", "conflict", "kvm2"), ("web", "done", "kvm3")]
    assert site.running() == {"kvm3": ["web"]}


def test_a_record_that_holds_the_domain_is_left_unchanged(site: Site) -> None:
    unproved(site)
    held = site.ledger.open_record(new_record("live-migration", DomainRef(uuid_of("web"), "web"), site.place("kvm1"), site.place("kvm3"), {}, "x"))
    run = site.evacuate("kvm2")
    assert "was not proved" in str(run.jobs[0].error)
    (record,) = site.ledger.list_records()
    assert encode(record) == encode(held.record)


def test_a_record_that_another_run_opens_meanwhile_is_left_unchanged(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    unproved(site)
    opened = site.ledger.open_record

    def late(record: t.Any) -> t.Any:
        monkeypatch.setattr(site.ledger, "open_record", opened)
        opened(new_record("live-migration", DomainRef(uuid_of("web"), "web"), site.place("kvm1"), site.place("kvm3"), {}, "x"))
        return opened(record)

    monkeypatch.setattr(site.ledger, "open_record", late)
    run = site.evacuate("kvm2")
    assert "was not proved" in str(run.jobs[0].error)
    assert site.record_summaries() == [("web", "accepted", "kvm3")]


def locked(site: Site) -> None:
    site.save("web")
    site.locked.add("web")


def lost(site: Site) -> None:
    site.save("web", seen_by=["kvm1"])


def active_elsewhere(site: Site) -> None:
    site.hosts["kvm3"].add(site.save("web"), "web")


@pytest.mark.parametrize("prepare", [locked, lost, active_elsewhere])
def test_what_is_not_about_the_host_leaves_no_record(site: Site, prepare: Callable[[Site], None]) -> None:
    prepare(site)
    run = site.evacuate("kvm2", domains=["web"])
    assert build_result(run, diff=False)["failed"]
    assert list(site.ledger.list_records()) == []


def test_bad_input_and_missing_evidence_leave_no_record(site: Site) -> None:
    site.save("web")
    with pytest.raises(NotFound):
        site.evacuate("kvm2", domains=["nobody"])
    with pytest.raises(Unsafe):
        site.evacuation("kvm2").evacuate_domains()
    assert list(site.ledger.list_records()) == []
