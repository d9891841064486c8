# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import survey as survey_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey import survey_hosts, unproved_devices, unshared_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyQuestion, UnprovedDevice
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
TO_2, TO_3 = "qemu+tcp://kvm2/system", "qemu+tcp://kvm3/system"


def facts_of(host: t.Any) -> HostFacts:
    return gather_facts(host)[0]


def request_with(disks: t.List[t.Dict[str, t.Any]]) -> DomainRequest:
    return decode(DomainRequest, {"memory_mib": 1, "vcpus": 1, "disks": disks})


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet("kvm1", "kvm2", "kvm3")


def surveyed(fleet: FakeFleet, *uris: str, shared: bool = True, **wanted: t.Any) -> t.Dict[str, t.Any]:
    move = {"name": None, "uuid": None, "known_uuids": [], "destination_uris": list(uris or (TO_2,)), **wanted}
    return t.cast("t.Dict[str, t.Any]", encode(survey_hosts(fleet.open(LOCAL_URI), [decode(SurveyQuestion, move)], fleet.open, lambda path: shared, facts_of)))


def test_a_domain_is_found_by_name_or_uuid_with_facts_of_both_hosts(fleet: FakeFleet) -> None:
    fleet.guest(memory_bytes=3 * GIB)
    for found in (surveyed(fleet, name="web1"), surveyed(fleet, uuid=UUID)):
        (domain,) = found["domains"]
        assert (domain["found"], domain["info"]["uuid"], domain["info"]["memory_bytes"], domain["there"]) == (True, UUID, 3 * GIB, {})
    assert found["source"]["host_uuid"] == fleet.source.host_uuid
    assert found["destinations"][TO_2]["memory"] == {"total_bytes": 64 * GIB, "free_bytes": 64 * GIB}
    assert "host" not in found["destinations"][TO_2]


def test_a_destination_that_does_not_answer_does_not_hide_the_others(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.machines["kvm3"].go_dark()
    found = surveyed(fleet, TO_2, TO_3, "qemu+tcp://nowhere/system", name="web1")["destinations"]
    assert [found[uri]["answered"] for uri in (TO_2, TO_3, "qemu+tcp://nowhere/system")] == [True, False, False]
    assert found[TO_3]["error_code"] == "unreachable"


def test_a_destination_that_hangs_does_not_hide_the_others(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest()
    released = threading.Event()
    monkeypatch.setattr(survey_module, "DESTINATION_SECONDS", 1.0)

    def described(host: t.Any) -> HostFacts:
        return facts_of(host) if host.uri != TO_3 or released.wait(60) else HostFacts()

    move = SurveyQuestion("web1", None, (TO_2, TO_3))
    try:
        found = survey_hosts(fleet.open(LOCAL_URI), [move], fleet.open, lambda path: True, described).destinations
    finally:
        released.set()
    assert [found[uri].answered for uri in (TO_2, TO_3)] == [True, False]
    assert (found[TO_3].error_code, TO_3 in str(found[TO_3].msg)) == ("unreachable", True)


def test_a_domain_that_left_is_found_at_the_destination_by_its_uuid(fleet: FakeFleet) -> None:
    fleet.guest(on="kvm2")
    (domain,) = surveyed(fleet, TO_2, TO_3, name="web1", known_uuids=[UUID])["domains"]
    assert (domain["found"], list(domain["there"]), domain["there"][TO_2]["uuid"]) == (False, [TO_2], UUID)
    assert domain["there"][TO_2]["active"] is True


def test_a_domain_that_left_is_not_found_by_its_name(fleet: FakeFleet) -> None:
    fleet.guest(on="kvm2", uuid=OTHER)
    (domain,) = surveyed(fleet, name="web1", known_uuids=[UUID])["domains"]
    assert domain["there"] == {}


def test_another_domain_with_the_same_name_at_the_destination_is_reported(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest(on="kvm2", uuid=OTHER)
    (domain,) = surveyed(fleet, name="web1")["domains"]
    assert domain["name_taken"] == {TO_2: OTHER}


def test_only_writable_local_files_are_unshared_disks(fleet: FakeFleet) -> None:
    disks = (
        domain_states.Disk("vda", "file", "/a"),
        domain_states.Disk("vdb", "file", "/b", readonly=True),
        domain_states.Disk("vdc", "network", "iqn"),
        domain_states.Disk("vdd", "file", ""),
        domain_states.Disk("vde", "block", "/dev/sdb"),
        domain_states.Disk("vdf", "dir", "/c"),
    )
    fleet.guest(disks=disks)
    assert surveyed(fleet, name="web1", shared=False)["domains"][0]["unshared_disks"] == ["vda", "vdf"]
    assert surveyed(fleet, name="web1", shared=True)["domains"][0]["unshared_disks"] == []


def for_the_next_start(fleet: FakeFleet) -> None:
    """Give web1, which runs with 1 GiB and vda, other memory and another disk for its next start."""
    domain = fleet.guest(disks=(domain_states.Disk("vda", "file", "/srv/now"),))
    domain.live_definition = domain.xml()
    added = "<disk type='file' device='disk'><source file='/srv/next'/><target dev='vdb'/></disk><interface type='bridge'><source bridge='br9'/></interface>"
    more = f"<memory unit='b'>{64 * GIB}</memory>"
    domain.definition = domain.xml().replace("</devices>", f"{added}</devices>").replace(f"<memory unit='b'>{GIB}</memory>", more)


def test_a_guest_that_is_shut_down_for_its_move_is_judged_by_its_next_start(fleet: FakeFleet) -> None:
    for_the_next_start(fleet)
    fleet.machines["kvm2"].paths = {"/srv/now": True, "/srv/next": True}
    (domain,) = surveyed(fleet, name="web1", is_cold=True, shared=False)["domains"]
    request = domain["request"]
    assert (request["memory_mib"], [disk["target"] for disk in request["disks"]]) == (64 * 1024, ["vda", "vdb"])
    assert [network["source"] for network in request["networks"]] == ["br9"]
    assert (domain["unshared_disks"], sorted(domain["paths"][TO_2])) == (["vda", "vdb"], ["/srv/next", "/srv/now"])
    assert (domain["info"]["memory_bytes"], domain["info"]["view"]["state"]) == (64 * GIB, domain_states.RUNNING)


@pytest.mark.parametrize("wanted", [{}, {"is_cold": True, "save_folder": "/srv/save"}])
def test_a_guest_that_keeps_its_memory_is_judged_as_it_runs(fleet: FakeFleet, wanted: t.Dict[str, t.Any]) -> None:
    for_the_next_start(fleet)
    (domain,) = surveyed(fleet, name="web1", shared=False, **wanted)["domains"]
    assert (domain["request"]["memory_mib"], domain["unshared_disks"], domain["info"]["memory_bytes"]) == (1024, ["vda"], GIB)


def test_block_devices_not_proved_on_other_hosts_are_listed_with_their_identity() -> None:
    disks = [
        domain_states.Disk("vda", "block", "/dev/vg0/web"),
        domain_states.Disk("vdb", "block", "/dev/mapper/mpatha"),
        domain_states.Disk("vdc", "block", "/dev/sr0", readonly=True),
        domain_states.Disk("vdd", "volume", "web.img"),
        domain_states.Disk("vde", "volume", "rbd.img"),
        domain_states.Disk("vdf", "file", "/srv/web.img"),
        domain_states.Disk("vdg", "block", ""),
        domain_states.Disk("vdh", "block", "/dev/sdb"),
        domain_states.Disk("vdi", "nvme", "pci:0000:01:00.0/1"),
        domain_states.Disk("vdj", "vhostuser", "/run/disk.sock"),
        domain_states.Disk("vdk", "network", "nas-export"),
        domain_states.Disk("vdl", "network", "own-export"),
    ]
    facts = [
        {"target": "vda", "source": "/dev/vg0/web", "shared": None, "store": "lvm:x"},
        {"target": "vdb", "source": "/dev/mapper/mpatha", "shared": True, "store": "mpath:y"},
        {"target": "vdd", "source": "default/web.img", "shared": False, "store": None},
        {"target": "vde", "source": "ceph/rbd.img", "shared": True, "store": None},
        {"target": "vdk", "source": "nas-export", "shared": True, "store": "nbd:nas:/nas-export"},
        {"target": "vdl", "source": "own-export", "shared": None, "store": None},
    ]
    assert unproved_devices(disks, request_with(facts)) == [
        UnprovedDevice("vda", "/dev/vg0/web", "lvm:x"),
        UnprovedDevice("vdd", "default/web.img", None),
        UnprovedDevice("vdh", "/dev/sdb", None),
        UnprovedDevice("vdi", "pci:0000:01:00.0/1", None),
        UnprovedDevice("vdj", "/run/disk.sock", None),
        UnprovedDevice("vdl", "own-export", None),
    ]
    assert [one.target for one in unproved_devices(disks, None)] == ["vda", "vdb", "vdd", "vde", "vdh", "vdi", "vdj"]


def test_a_survey_lists_unproved_devices_and_checks_boot_files(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest(disks=(domain_states.Disk("vda", "block", "/dev/vg0/web"),))
    asked = []
    monkeypatch.setattr(type(fleet.open(TO_2)), "has_path", lambda _host, path: asked.append(path) or path == "/dev/vg0/web")

    def described(host: t.Any) -> HostFacts:
        facts = encode(facts_of(host))
        for domain in facts["domains"]:
            domain["request"].update(boot_files=[{"what": "kernel", "path": "/boot/vmlinuz"}], nvram="/srv/nvram/web.fd")
        return decode(HostFacts, facts)

    move = SurveyQuestion("web1", None, (TO_2,))
    (domain,) = encode(survey_hosts(fleet.open(LOCAL_URI), [move], fleet.open, lambda path: True, described).domains)
    assert [one["target"] for one in domain["unproved_devices"]] == ["vda"]
    assert domain["unshared_disks"] == []
    assert {path: domain["paths"][TO_2].get(path) for path in ("/boot/vmlinuz", "/srv/nvram")} == {"/boot/vmlinuz": False, "/srv/nvram": False}
    assert "/boot/vmlinuz" in asked


def test_backing_files_that_are_not_shared_are_listed() -> None:
    shared = {"role": "backing", "kind": "file", "source": "/nfs/base", "shared": True, "store": None}
    local = {**shared, "source": "/srv/base"}
    device = {"role": "backing", "kind": "block", "source": "/dev/vg0/base", "shared": None, "store": "lvm:x"}
    network = {"role": "data", "kind": "network", "source": "", "shared": True, "store": None}
    disks = [
        {"target": "vda", "files": [shared, local], "files_problem": None},
        {"target": "vdb", "files": [device, network], "files_problem": "it cannot be read"},
        {"target": "vdc"},
    ]
    found = unshared_files(request_with(disks), lambda path: path.startswith("/nfs/"))
    assert [(one.target, one.path, one.why) for one in found] == [("vda", "/srv/base", None), ("vdb", None, "it cannot be read")]
    # What protect has seen proves it.
    assert unproved_devices([], request_with(disks)) == [UnprovedDevice("vdb", "/dev/vg0/base", "lvm:x")]


def test_a_survey_leaves_no_connection_to_a_destination_and_changes_nothing(fleet: FakeFleet) -> None:
    fleet.guest()
    surveyed(fleet, TO_2, TO_3, name="web1")
    assert {host.uri for host in fleet.connections if not host.is_closed} == {LOCAL_URI}
    assert [machine.calls for machine in fleet.machines.values()] == [[], [], []]


def test_connections_are_closed_when_the_source_fails(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.source.refuse["find"] = NotFound("gone")
    fleet.source.refuse["roll"] = NotFound("gone")
    with pytest.raises(NotFound):
        surveyed(fleet, name="web1")
    assert {host.uri for host in fleet.connections if not host.is_closed} == {LOCAL_URI}


def test_a_destination_reports_the_paths_that_it_can_check(fleet: FakeFleet) -> None:
    disks = (
        domain_states.Disk("vda", "file", "/a"),
        domain_states.Disk("vdb", "file", "/b", readonly=True),
        domain_states.Disk("vdc", "block", "/dev/x"),
        domain_states.Disk("vdd", "network", "p/i"),
    )
    fleet.guest(disks=disks)
    fleet.machines["kvm2"].paths = {"/a": True, "/b": False, "p/i": True}
    (domain,) = surveyed(fleet, TO_2, TO_3, name="web1")["domains"]
    assert domain["paths"] == {TO_2: {"/a": True, "/b": False}, TO_3: {}}
    assert [disk["source"] for disk in domain["request"]["disks"]] == ["/a", "/b", "/dev/x", "p/i"]


def test_a_destination_compares_the_cpu_of_the_domain(fleet: FakeFleet) -> None:
    fleet.guest(cpu_features=("avx2", "aes"))
    fleet.machines["kvm3"].lacking = {"avx2", "fma"}
    (domain,) = surveyed(fleet, TO_2, TO_3, name="web1")["domains"]
    assert domain["cpu"] == {TO_2: {"passed": True, "reason": None}, TO_3: {"passed": False, "reason": "its CPU lacks avx2"}}


def test_a_destination_that_cannot_compare_gives_no_verdict(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.machines["kvm2"].refuse["compare_cpu"] = InvalidArgument("no such machine type")
    assert surveyed(fleet, name="web1")["domains"][0]["cpu"] == {}


def test_the_source_and_silent_hosts_are_not_asked_about_a_domain(fleet: FakeFleet) -> None:
    fleet.guest(disks=(domain_states.Disk("vda", "file", "/a"),))
    fleet.machines["kvm3"].go_dark()
    (domain,) = surveyed(fleet, TO_3, "qemu+tcp://kvm1/system", name="web1")["domains"]
    assert (domain["cpu"], domain["paths"]) == ({}, {})


def test_no_destination_is_asked_about_an_inactive_or_moving_domain(fleet: FakeFleet) -> None:
    fleet.guest(state=domain_states.SHUTOFF)
    fleet.guest("db1", OTHER, job=domain_states.JOB_OUTGOING)
    for name in ("web1", "db1"):
        (domain,) = surveyed(fleet, name=name)["domains"]
        assert (domain["cpu"], domain["paths"]) == ({}, {})


def test_source_and_destinations_are_described_as_host_facts_describes_them(fleet: FakeFleet) -> None:
    fleet.guest()
    found = surveyed(fleet, name="web1")
    for facts in (found["source"], found["destinations"][TO_2]):
        assert {key: facts[key] for key in ("answered", "arch", "cpus")} == {"answered": True, "arch": "x86_64", "cpus": 16}
    assert found["destinations"][TO_2]["mounts"] is None
    assert "mounts" in found["destinations"][TO_2]["unverified"]
    assert [domain["name"] for domain in found["source"]["domains"]] == ["web1"]


def test_the_dirty_rates_of_several_guests_are_measured_but_for_those_that_are_known(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest()
    fleet.guest(name="web2", uuid=OTHER)
    source = fleet.open(LOCAL_URI)
    started: t.List[t.List[str]] = []
    monkeypatch.setattr(source, "start_dirty_rates", lambda uuids, seconds: started.append(list(uuids)) or list(uuids))
    questions = [decode(SurveyQuestion, {"name": None, "uuid": uuid, "known_uuids": [], "destination_uris": [TO_2]}) for uuid in (UUID, OTHER)]
    survey_hosts(source, questions, fleet.open, lambda path: True, facts_of, lambda *_given: None)
    monkeypatch.setattr(source, "recent_dirty_rates", lambda uuids, seconds: {OTHER: 5} if seconds <= 60 else {})
    survey_hosts(source, questions, fleet.open, lambda path: True, facts_of, lambda *_given: None)
    assert started == [[UUID, OTHER], [UUID]]


def test_a_host_that_cannot_say_what_it_has_measured_is_surveyed_all_the_same(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.guest()
    fleet.guest(name="web2", uuid=OTHER)
    source = fleet.open(LOCAL_URI)

    def fail(uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        raise NotFound("libvirt has no such figures.")

    monkeypatch.setattr(source, "recent_dirty_rates", fail)
    questions = [decode(SurveyQuestion, {"name": None, "uuid": uuid, "known_uuids": [], "destination_uris": [TO_2]}) for uuid in (UUID, OTHER)]
    survey = survey_hosts(source, questions, fleet.open, lambda path: True, facts_of, lambda *_given: None)
    assert [domain.found for domain in survey.domains] == [True, True]
    assert sorted(source.read_dirty_rates([UUID, OTHER])) == sorted([UUID, OTHER])
