# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One plan for all survivors: the share of each host, and domains without a destination."""

from __future__ import annotations

import os
import pathlib
import struct
import typing as t

import pytest
from ansible.errors import AnsibleUndefinedVariable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import add_shares
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.plan import Shares, plan_evacuation, refuse_missing_destination
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.request import NOT_ROOT
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import WORD, Site, host_id, image_of


def plan(
    site: Site,
    destination: str = "",
    force: bool = False,
    survivors: tuple[str, ...] = ("kvm2", "kvm3"),
    since: t.Mapping[str, t.Any] | None = None,
    **given: t.Any,
) -> tuple[Evacuation, Shares]:
    run = site.evacuation(force=force, **{"force_down": WORD, **given})
    probed = run.probe_fleet()
    run.reuse_evidence(probed)
    return run, plan_evacuation(run, probed, survivors, since, destination)


def test_every_domain_is_in_exactly_one_share(site: Site) -> None:
    names = [f"web{number}" for number in range(6)]
    uuids = [site.save(name) for name in names]
    site.save("idle", state="shut off")
    run, shares = plan(site)
    assert sorted([*shares.by_host["kvm2"], *shares.by_host["kvm3"]]) == sorted([*uuids, uuid_of("idle")])
    assert shares.by_host["kvm2"]
    assert shares.by_host["kvm3"]
    assert shares.uncovered == []
    assert encode(add_shares(run, shares))["evidence"][0]["kind"] == "person"
    assert "<domain" not in str(encode(add_shares(run, shares)))
    for host, share in shares.by_host.items():
        site.evacuate(host, domains=share)
    assert sorted([*site.running()["kvm2"], *site.running()["kvm3"]]) == names
    assert {line[1] for line in site.record_summaries()} == {"done"}


def imported(name: str, image: str, **changes: t.Any) -> dict[str, t.Any]:
    """Return the facts of a host to which a person has brought an image, under a new UUID."""
    return {"domains": [f.domain(name, uuid=uuid_of("imported"), disks=[f.disk("vda", store=image, **changes)])]}


def test_a_domain_whose_image_another_one_uses_is_not_started(site: Site) -> None:
    """Its owner has imported the image elsewhere while its host was failing. The name alone would only exclude that host, and a block device has no locks."""
    web, other = site.save("web"), site.save("other")
    site.own_facts["kvm2"] = imported("web", image_of(web))
    run, shares = plan(site)
    assert [*shares.by_host["kvm2"], *shares.by_host["kvm3"]] == [other]
    (refused,) = [job for job in run.jobs if job.error]
    for words in ("web", web, "disk vda", f"web ({uuid_of('imported')}) on kvm2", "undefine it on kvm1"):
        assert words in str(refused.error)


@pytest.mark.parametrize("changes", [{"readonly": True}, {"shareable": True}])
def test_an_image_that_another_domain_may_share_prevents_nothing(site: Site, changes: dict[str, t.Any]) -> None:
    web = site.save("web")
    site.own_facts["kvm2"] = imported("clone", image_of(web), **changes)
    assert [web] in plan(site)[1].by_host.values()


def test_a_domain_whose_image_another_one_is_built_on_is_not_started(site: Site) -> None:
    web = site.save("web")
    below = {"role": "backing", "kind": "file", "source": "/srv/web.qcow2", "shared": True, "store": image_of(web)}
    site.own_facts["kvm2"] = imported("clone", image_of("clone"), files=[below])
    assert plan(site)[1].by_host == {"kvm2": [], "kvm3": []}


@pytest.mark.parametrize("is_written", [True, False])
def test_a_domain_whose_base_another_one_writes_is_not_started(site: Site, is_written: bool) -> None:
    """Linked clones are built on one image, which none of them writes."""
    web, base = site.save("web"), {"role": "backing", "kind": "file", "source": "/srv/base.qcow2", "shared": True, "store": "nas:/srv/base.qcow2"}
    site.change("web", lambda body: body["protected"]["request"]["disks"][0].update(files=[base]))
    site.own_facts["kvm2"] = imported("other", "nas:/srv/base.qcow2") if is_written else imported("other", image_of("other"), files=[base])
    run, shares = plan(site)
    assert [*shares.by_host["kvm2"], *shares.by_host["kvm3"]] == ([] if is_written else [web])
    assert all("web.qcow2, built on /srv/base.qcow2) is in use by other" in str(job.error) for job in run.jobs) is is_written


def test_a_domain_that_stays_off_may_share_its_image(site: Site) -> None:
    web = site.save("web", state="shut off")
    site.own_facts["kvm2"] = imported("clone", image_of(web))
    assert [web] in plan(site)[1].by_host.values()


def test_a_template_is_defined_although_later_clones_are_built_on_its_image(site: Site) -> None:
    template, clone = site.save("golden", state="shut off"), site.images / "golden-web1.qcow2"
    name = str(site.images / "golden.qcow2").encode()
    clone.write_bytes(struct.pack(">4sIQI", b"QFI\xfb", 3, 512, len(name)).ljust(512, b"\0") + name)
    os.utime(site.images / "golden.qcow2", (100, 100))
    assert plan(site)[1].by_host == {"kvm2": [template], "kvm3": []}
    run = site.evacuate()
    assert [(job.error, job.record.status if job.record else None) for job in run.jobs] == [(None, "done")]


def test_a_domain_goes_where_its_disks_are_seen(site: Site) -> None:
    only = site.save("only", seen_by=["kvm1", "kvm3"])
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [only]}


def test_a_domain_goes_where_its_file_system_answers(site: Site) -> None:
    names = [f"web{number}" for number in range(4)]
    uuids = [site.save(name) for name in names]
    root = {"path": "/", "kind": "nfs4", "store": None, "capacity_bytes": None, "available_bytes": None, "silent": True}
    site.own_facts["kvm2"] = {"mounts": [root]}
    assert {host: sorted(share) for host, share in plan(site)[1].by_host.items()} == {"kvm2": [], "kvm3": sorted(uuids)}
    site.own_facts["kvm3"] = {"mounts": [root]}
    assert all("that file system does not answer" in one.reason for one in plan(site)[1].uncovered)


def test_a_domain_without_capacity_is_uncovered_unless_forced_to_a_named_host(site: Site) -> None:
    huge = site.save("huge", memory_mib=1024 * 1024)
    run, shares = plan(site)
    assert [(one.name, sorted(one.reasons)) for one in shares.uncovered] == [("huge", ["kvm2", "kvm3"])]
    assert "whole host" in encode(add_shares(run, shares))["uncovered"][0]["reason"]
    dummy, unforced = plan(site, destination="kvm3")
    assert [(one.name, sorted(one.reasons)) for one in unforced.uncovered] == [("huge", ["kvm3"])]
    dummy, forced = plan(site, destination="kvm3", force=True)
    assert forced.by_host == {"kvm2": [], "kvm3": [huge]}


def test_important_domains_get_the_room_that_is_left(site: Site) -> None:
    """Two small domains would fit in place of the important one, and are left for later."""
    site.memory |= {"kvm2": 4096 + 512, "kvm3": 0}
    important = site.save("important", memory_mib=4096, priority=9)
    for name in ("one", "two"):
        site.save(name, memory_mib=2048)
    dummy, shares = plan(site, survivors=("kvm2",))
    assert shares.by_host == {"kvm2": [important]}
    assert sorted(str(one.name) for one in shares.uncovered) == ["one", "two"]


PROFILES = {"db": {"group": {"name": "db", "policy": "anti-affinity"}, "labels": ["ssd"], "priority": 9}}


def test_the_group_of_a_profile_keeps_the_domains_of_a_dead_host_apart(site: Site) -> None:
    site.variables = {name: {"kvmfleet_profiles": {"db": {"group": PROFILES["db"]["group"]}}} for name in site.listed}
    for name in ("db1", "db2", "db3"):
        site.save(name, policy={"profile": "db"})
    dummy, shares = plan(site)
    assert [len(shares.by_host[host]) for host in ("kvm2", "kvm3")] == [1, 1]
    assert [one.name for one in shares.uncovered] == ["db3"]


def test_a_running_guest_has_the_group_of_its_profile(site: Site) -> None:
    site.variables = {name: {"kvmfleet_profiles": {"db": {"group": PROFILES["db"]["group"]}}} for name in site.listed}
    site.own_facts["kvm2"] = {"domains": [f.domain("db1", policy={"profile": "db"})]}
    uuid = site.save("db2", policy={"profile": "db"})
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}


@pytest.mark.parametrize("error", [InvalidArgument("wrong"), AnsibleUndefinedVariable("'region' is undefined")])
def test_a_profile_that_cannot_be_read_prevents_no_evacuation(site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_args: t.Any) -> None:
        raise error

    monkeypatch.setattr(Settings, "profile", refuse)
    site.own_facts["kvm2"] = {"domains": [f.domain("db1", policy={"profile": "db"})]}
    uuid = site.save("db2", policy={"profile": "db"})
    dummy, shares = plan(site)
    assert [uuid] in shares.by_host.values()
    site.evacuate()
    assert site.running()["kvm2"] == ["db2"]


def test_a_domain_is_started_where_the_labels_of_its_profile_are(site: Site) -> None:
    site.variables = {name: {"kvmfleet_profiles": {"db": {"labels": ["ssd"]}}} for name in site.listed}
    site.variables["kvm3"]["kvmfleet_scheduler"] = {"labels": ["ssd"]}
    uuid, off = site.save("db1", policy={"profile": "db"}), site.save("db2", policy={"profile": "db"}, state="shut off")
    dummy, shares = plan(site)
    assert shares.by_host["kvm2"] == []
    assert sorted(shares.by_host["kvm3"]) == sorted([uuid, off])


def test_the_priority_of_a_profile_decides_who_gets_the_room_and_who_starts_first(site: Site) -> None:
    site.variables = {name: {"kvmfleet_profiles": PROFILES} for name in site.listed}
    site.variables["kvm2"]["kvmfleet_scheduler"] = {"labels": ["ssd"]}
    site.memory |= {"kvm2": 4096 + 512, "kvm3": 0}
    site.save("large", memory_mib=4096)
    important = site.save("small", memory_mib=2048, policy={"profile": "db"})
    run, shares = plan(site, survivors=("kvm2",))
    assert shares.by_host == {"kvm2": [important]}
    assert [job.name for job in run.jobs] == ["small", "large"]


def test_a_named_host_starts_all_domains(site: Site) -> None:
    uuids = [site.save(f"web{number}") for number in range(4)]
    dummy, shares = plan(site, destination="kvm3")
    assert (sorted(shares.by_host["kvm3"]), shares.by_host["kvm2"], shares.uncovered) == (sorted(uuids), [], [])


def test_a_start_that_has_begun_elsewhere_stays_there_whatever_host_is_named(site: Site) -> None:
    uuid = site.save("web")
    site.before_start = lambda: (never for never in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        site.evacuate("kvm3")
    site.before_start = lambda: None
    dummy, shares = plan(site, destination="kvm2")
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}


def test_a_plan_with_a_start_that_has_begun_needs_evidence_about_its_silent_host(site: Site) -> None:
    site.save("web")
    site.before_start = lambda: (never for never in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        site.evacuate("kvm3")
    site.save("app")
    site.silent.add("kvm3")
    with pytest.raises(Unsafe, match=r"accept_silent: \[kvm3\]"):
        plan(site, survivors=("kvm2",))
    both = [{"host": name, "action": "off", "status": "off", "at": utc_now()} for name in ("kvm1", "kvm3")]
    dummy, shares = plan(site, survivors=("kvm2",), fencing=both, force_down=None)
    assert sorted(shares.by_host["kvm2"]) == sorted(map(uuid_of, ("app", "web")))


def test_a_domain_that_may_start_on_another_dead_host_by_a_token_is_in_no_share(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body.update(possible_hosts=encode([site.place("kvm1"), site.place("kvm3")])))
    app = site.save("app")
    site.silent.add("kvm3")
    site.agent("kvm3")
    site.write_host("kvm3", protected={"guard": {"held_at_boot": True}, "token_id": host_id("token")})
    run, shares = plan(site, survivors=("kvm2",))
    assert shares.by_host == {"kvm2": [app]}
    assert [job.name for job in run.jobs if "revoke_token" in str(job.error)] == ["web"]


def test_a_domain_that_no_survivor_can_start_has_a_record_with_all_reasons(site: Site) -> None:
    site.save("huge", memory_mib=1024 * 1024)
    small = site.save("small")
    dummy, shares = plan(site)
    (record,) = site.ledger.list_records()
    assert (record.domain.name, record.type, record.status, record.destination.host) == ("huge", "evacuation", "conflict", "kvm2")
    assert "kvm2: " in record.last_detail
    assert "kvm3: " in record.last_detail
    assert [one.record for one in shares.uncovered] == [record.id]
    assert [small] in shares.by_host.values()
    assert site.possible("huge") == ["kvm1"]
    assert not site.ledger.verify_audit()


def test_a_plan_in_check_mode_records_no_refusal(site: Site) -> None:
    site.save("huge", memory_mib=1024 * 1024)
    run = site.evacuation(check=True, force_down=WORD)
    probed = run.probe_fleet()
    run.reuse_evidence(probed)
    assert [(one.name, bool(one.record)) for one in plan_evacuation(run, probed, ["kvm2", "kvm3"]).uncovered] == [("huge", False)]
    assert list(site.ledger.list_records()) == []


def test_a_domain_that_another_record_holds_has_no_second_one(site: Site) -> None:
    uuid = site.save("huge", memory_mib=1024 * 1024)
    held = site.ledger.open_record(new_record("live-migration", DomainRef(uuid, "huge"), site.place("kvm1"), site.place("kvm2"), {}, "x"))
    dummy, shares = plan(site)
    assert [(one.name, bool(one.record)) for one in shares.uncovered] == [("huge", False)]
    assert [record.id for record in site.ledger.list_records()] == [held.record.id]


def test_a_host_with_another_domain_of_that_name_does_not_get_it(site: Site) -> None:
    uuid = site.save("web")
    site.hosts["kvm2"].add(uuid_of("other"), "web")
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}
    dummy, refused = plan(site, destination="kvm2", force=True)
    assert [one.reason for one in refused.uncovered] == [f"kvm2: It has another domain named web ({uuid_of('other')})."]


def test_only_the_named_domains_are_in_shares(site: Site) -> None:
    site.save("app")
    web = site.save("web")
    run, shares = plan(site, domains=["web"])
    assert [uuid for share in shares.by_host.values() for uuid in share] == [web]
    assert [(one["name"], one["state"]) for one in encode(add_shares(run, shares))["not_selected"]] == [("app", "running")]


def test_a_domain_that_its_host_did_not_have_any_more_is_in_no_share(site: Site) -> None:
    site.save("deleted")
    site.lose("deleted")
    web = site.save("web")
    run, shares = plan(site)
    assert [uuid for share in shares.by_host.values() for uuid in share] == [web]
    assert [(one["name"], one["missing_since"]) for one in encode(add_shares(run, shares))["not_selected"]] == [("deleted", "2026-11-23T18:00:00.000Z")]


@pytest.mark.parametrize(("answers", "statuses"), [(("kvm2",), ["conflict"]), (("kvm2", "kvm3"), [])])
def test_a_named_host_that_did_not_answer_is_refused_before_anything_else(site: Site, answers: tuple[str, ...], statuses: list[str]) -> None:
    site.save("web")
    run = site.evacuation(force_down=WORD)
    run.probe_fleet()
    refuse_missing_destination(run, "kvm3", answers, {})
    records = list(site.ledger.list_records())
    assert [(record.status, record.destination.host, record.destination.host_id) for record in records] == [(one, "kvm3", host_id("kvm3")) for one in statuses]
    assert [str(job.error) for job in run.jobs if job.error] == [
        "The destination kvm3 does not answer. Domain web was not started. Name another host, or none." for dummy in statuses
    ]


def test_a_named_host_without_root_is_refused_with_that_reason(site: Site) -> None:
    site.save("web")
    run = site.evacuation(force_down=WORD)
    run.probe_fleet()
    refuse_missing_destination(run, "kvm3", ["kvm2"], {"kvm3": NOT_ROOT})
    (job,) = run.jobs
    assert isinstance(job.error, Forbidden)
    assert str(job.error) == (
        "The destination kvm3 cannot start domains: the user is not root there, and only root can start domains. Domain web was not started. "
        "Set become: true for kvm3, or name another host."
    )
    assert [(record.status, record.destination.host) for record in site.ledger.list_records()] == [("conflict", "kvm3")]


def test_a_silent_host_is_not_recorded_in_check_mode_or_without_a_name(site: Site) -> None:
    site.save("web")
    for name, check in (("kvm3", True), ("", False)):
        run = site.evacuation(check=check, force_down=WORD)
        run.probe_fleet()
        refuse_missing_destination(run, name, ["kvm2"], {})
        assert bool(run.open_jobs()) == (not name)
    assert list(site.ledger.list_records()) == []


def test_proofs_of_disks_count_after_a_host_got_a_new_uuid(site: Site) -> None:
    uuid = site.save("web", seen_by=["kvm1", "kvm3"])
    site.told_ids = {"kvm2", "kvm3"}
    site.uuids = {name: uuid_of(f"another {name}") for name in site.uuids}
    dummy, shares = plan(site)
    assert shares.uncovered == []
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}


def test_force_does_not_override_unproved_disks(site: Site) -> None:
    site.save("only", seen_by=["kvm1", "kvm2"], memory_mib=1024 * 1024)
    dummy, shares = plan(site, destination="kvm2", force=True)
    assert shares.by_host == {"kvm2": [uuid_of("only")], "kvm3": []}
    site.change("only", lambda body: body["protected"]["disks"][0].update(seen_by=[*body["protected"]["disks"][0]["seen_by"][:1], uuid_of("x")]))
    dummy, shares = plan(site, destination="kvm2", force=True)
    assert [one.name for one in shares.uncovered] == ["only"]


def test_a_domain_whose_start_has_begun_stays_in_the_share_of_its_host(site: Site) -> None:
    uuid = site.save("web")
    site.before_start = lambda: (never for never in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        site.evacuate("kvm3")
    site.before_start = lambda: None
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}


def test_a_host_with_an_old_definition_of_the_domain_does_not_get_it(site: Site) -> None:
    uuid = site.save("web")
    site.hosts["kvm2"].add(uuid, "web", "shut off")
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}


def end_record(site: Site, name: str, destination: str, *statuses: str, source: str = "kvm1", kind: str = s.EVACUATION) -> None:
    """Record an evacuation from the dead host, or another move, that ended so."""
    stored = site.ledger.open_record(new_record(kind, DomainRef(uuid_of(name), name), site.place(source), site.place(destination), {}, "ops"))
    for status in statuses:
        stored = site.ledger.update_record(stored, stored.record.advance(status, "ops"))


def test_a_host_on_which_a_start_has_failed_is_the_last_choice(site: Site) -> None:
    """Facts do not show everything that a start needs, for example the fixed port of a console, and each run would choose the same host."""
    web = site.save("web")
    (first,) = [host for host, share in plan(site)[1].by_host.items() if share]
    (second,) = {"kvm2", "kvm3"} - {first}
    end_record(site, "web", first, s.PRE_MIGRATING, s.FAILED)
    # A refusal by all hosts may be recorded after it.
    end_record(site, "web", first, s.CONFLICT)
    assert plan(site)[1].by_host == {first: [], second: [web]}
    assert plan(site, destination=first)[1].by_host == {first: [web], second: []}
    site.memory[second] = 64
    assert plan(site)[1].by_host == {first: [web], second: []}
    site.memory[second] = site.memory[first]
    end_record(site, "web", second, s.PRE_MIGRATING, s.FAILED)
    assert plan(site)[1].by_host == {first: [web], second: []}


def test_an_important_domain_gets_the_only_host_that_has_its_disk_although_its_start_has_failed_there(site: Site) -> None:
    """The others would take the room of that host while it is avoided."""
    important = site.save("db", memory_mib=4096, priority=9, seen_by=["kvm1", "kvm2"])
    for name in ("web1", "web2"):
        site.save(name, memory_mib=4096)
    site.memory.update(kvm2=6144, kvm3=6144)
    end_record(site, "db", "kvm2", s.PRE_MIGRATING, s.FAILED)
    shares = plan(site)[1]
    assert (shares.by_host["kvm2"], len(shares.by_host["kvm3"]), len(shares.uncovered)) == ([important], 1, 1)


def test_a_domain_whose_start_has_failed_keeps_its_affinity_group_from_no_host(site: Site) -> None:
    group = {"group": {"name": "db", "policy": "affinity"}}
    site.variables = {name: {"kvmfleet_profiles": {"db": group}} for name in site.listed}
    uuids = [site.save(name, seen_by=["kvm1", "kvm2"], policy={"profile": "db"}) for name in ("db1", "db2")]
    end_record(site, "db1", "kvm2", s.PRE_MIGRATING, s.FAILED)
    shares = plan(site)[1]
    assert (sorted(shares.by_host["kvm2"]), shares.uncovered) == (sorted(uuids), [])


@pytest.mark.parametrize("damage", ["torn", None])
def test_a_record_of_a_failed_start_that_cannot_be_read_prevents_no_plan(site: Site, damage: str | None) -> None:
    web = site.save("web")
    end_record(site, "web", "kvm2", s.PRE_MIGRATING, s.FAILED)
    (path,) = [path for path in pathlib.Path(site.ledger.path).rglob("*.json") if path.stem == site.ledger.find_domains("web")[0].domain.last_record]
    path.write_text(damage) if damage else path.unlink()
    assert [web] in plan(site)[1].by_host.values()


def test_a_start_that_failed_before_the_domain_ran_again_does_not_count(site: Site) -> None:
    web = site.save("web")
    (first,) = [host for host, share in plan(site)[1].by_host.items() if share]
    end_record(site, "web", first, s.PRE_MIGRATING, s.FAILED)
    end_record(site, "web", "kvm1", s.RUNNING, s.COMPLETED, source="kvm3", kind=s.LIVE_MIGRATION)
    end_record(site, "web", first, s.CONFLICT)
    assert plan(site)[1].by_host[first] == [web]


def test_a_survivor_of_another_ledger_does_not_get_a_share(site: Site) -> None:
    """It would refuse to start anything for this one."""
    uuid = site.save("web")
    site.own_facts["kvm2"] = {"ledger_id": uuid_of("theirs")}
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}


def test_a_domain_that_runs_somewhere_is_in_no_share(site: Site) -> None:
    uuid = site.save("web")
    site.hosts["kvm3"].add(uuid, "web")
    run, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": []}
    assert "is active on kvm3" in encode(add_shares(run, shares))["refused"][0]["reason"]


def test_a_survivor_without_facts_is_refused(site: Site) -> None:
    site.save("web")
    with pytest.raises(InvalidArgument, match="kvm1"):
        plan(site, survivors=("kvm2", "kvm1"))


@pytest.mark.parametrize("by_its_clock", ["1970-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z"])
def test_a_wrong_clock_of_a_survivor_does_not_matter(site: Site, by_its_clock: str) -> None:
    site.save("web")
    site.gathered_at = by_its_clock
    dummy, shares = plan(site)
    assert shares.uncovered == []
    assert sum(map(len, shares.by_host.values())) == 1


def test_facts_received_after_the_evidence_count_whatever_their_age(site: Site) -> None:
    """The slowest host took its time; the others' facts aged meanwhile."""
    site.save("web")
    since = BootMoment(boot_moment().boot_id, boot_moment().seconds - 100)
    site.received_ago = 90
    with pytest.raises(InvalidArgument, match=r"kvm3 \(they are \d+ s old, and 60 s is the limit\)"):
        plan(site)
    dummy, shares = plan(site, since=since)
    assert shares.uncovered == []
    site.received_ago = 110
    with pytest.raises(InvalidArgument, match="kvm3"):
        plan(site, since=since)


def test_facts_cached_by_another_control_node_are_refused(site: Site) -> None:
    site.save("web")
    site.boot_id = "another control node"
    with pytest.raises(InvalidArgument, match=r"kvm3 \(their age is not known"):
        plan(site, since=boot_moment())


def test_a_domain_with_a_locked_image_is_in_no_share(site: Site) -> None:
    site.save("web")
    other = site.save("app")
    site.locked.add("web")
    run, shares = plan(site)
    assert [uuid for share in shares.by_host.values() for uuid in share] == [other]
    assert [one["name"] for one in encode(add_shares(run, shares))["refused"]] == ["web"]


def test_a_survivor_whose_document_was_damaged_gets_no_domain(site: Site) -> None:
    uuids = [site.save(f"web{number}") for number in range(4)]
    site.write_host("kvm3", state="fenced")
    (site.folder / "ledger" / "hosts" / f"{host_id('kvm3')}.json").write_text("torn")
    site.own_facts["kvm3"] = {"host_id": host_id("kvm3")}
    _run, shares = plan(site)
    assert sorted(shares.by_host["kvm2"]) == sorted(uuids)
    assert not shares.by_host.get("kvm3")


def test_the_evacuation_of_a_host_whose_document_was_damaged_says_what_to_restore(site: Site) -> None:
    site.save("web")
    (site.folder / "ledger" / "hosts" / f"{host_id('kvm1')}.json").write_text("torn")
    with pytest.raises(NotFound, match=rf"no host 'kvm1' whose document can be read.*restore hosts/{host_id('kvm1')}\.json.*Nothing was started"):
        plan(site)
