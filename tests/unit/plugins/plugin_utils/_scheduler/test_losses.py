# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of the loss of hosts when facts, storage or the time of the search do not suffice."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.loss_rules import SeenImages, make_loss_rules
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.losses import CAN, CANNOT, UNKNOWN, LossSearch, worst_verdict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, record, silent_host, uuid_of

ID = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a0"


def search(*hosts: HostState, seen: t.Optional[t.Dict[str, SeenImages]] = None, **options: t.Any) -> LossSearch:
    """The search of a fleet of these hosts."""
    guests = {
        state.name: [
            Request.from_needs(domain.request, domain.uuid, domain.name, state.name, state.host_uuid)
            for domain in state.hardware.facts.domains or ()
            if domain.active
        ]
        for state in hosts
    }
    return LossSearch(Fleet({state.name: state for state in hosts}), guests, make_loss_rules(seen), **options)


def test_a_host_whose_guests_have_a_place_can_be_lost() -> None:
    loss = search(host("kvm1", f.domain("web1")), host("kvm2")).judge(["kvm1"])
    assert (loss.verdict, loss.missing_mib, loss.hosts) == (CAN, 0, ("kvm1",))


def test_two_hosts_that_can_be_lost_alone_need_not_be_lost_together() -> None:
    pair = search(host("kvm1", f.domain("web1", 4096)), host("kvm2", f.domain("web2", 4096)), host("kvm3", memory_mib=6000))
    assert [loss.verdict for loss in pair.judge_all(1)] == [CAN, CAN, CAN]
    losses = {loss.hosts: loss for loss in pair.judge_all(2)}
    assert {hosts: loss.verdict for hosts, loss in losses.items()} == {("kvm1", "kvm2"): CANNOT, ("kvm1", "kvm3"): CAN, ("kvm2", "kvm3"): CAN}
    assert losses["kvm1", "kvm2"].missing_mib > 0
    (guest,) = pair.explain(losses["kvm1", "kvm2"])
    assert [(refusal.hosts, refusal.filters) for refusal in guest.refused] == [(("kvm3",), ("memory",))]


@pytest.mark.parametrize(
    ("disk", "verdict", "reason"),
    [
        (f.disk("vda", shared=False), CANNOT, "/var/lib/libvirt/images/vda.qcow2 of web1 is on storage of kvm1 alone."),
        (f.disk("vda", shared=None, store=None), UNKNOWN, "Whether the image"),
        (f.disk("vda", shared=False, optional=True), CAN, ""),
    ],
)
def test_an_image_that_only_the_lost_host_has_is_lost_with_it(disk: f.Document, verdict: str, reason: str) -> None:
    wanted = search(host("kvm1", f.domain("web1", disks=[disk])), host("kvm2"))
    loss = wanted.judge(["kvm1"])
    assert loss.verdict == verdict
    assert "".join(refusal.reason for guest in wanted.explain(loss) for refusal in guest.refused if loss.verdict != CAN).startswith(reason)


def test_what_protect_has_proved_decides_over_the_facts() -> None:
    local = f.domain("web1", disks=[f.disk("vda", shared=False)])
    hosts = host("kvm1", local, host_id=f"{ID}1"), host("kvm2", host_id=f"{ID}2"), host("kvm3", host_id=f"{ID}3")
    proved = {uuid_of("web1"): {"disk vda": frozenset({f"{ID}1", f"{ID}2"})}}
    assert search(*hosts, seen=proved).judge(["kvm1"]).verdict == CAN
    both = search(*hosts, seen=proved).judge(["kvm1", "kvm2"])
    assert both.verdict == CANNOT
    (guest,) = search(*hosts, seen=proved).explain(both)
    assert guest.refused[0].reason == "Its access to disk vda of web1 was not proved by protect."


def test_all_guests_without_a_place_are_named_beside_one_that_no_host_could_take() -> None:
    guests = [f.domain("stuck", 512, disks=[f.disk("vda", shared=False)]), f.domain("web1", 4096), f.domain("web2", 4096)]
    fleet = search(host("kvm1", *guests), host("kvm2", memory_mib=6000))
    loss = fleet.judge(["kvm1"])
    assert (loss.verdict, [guest.request.name for guest in fleet.explain(loss)]) == (CANNOT, ["stuck", "web2"])


@pytest.mark.parametrize("private", [{"nvram": "/var/lib/libvirt/qemu/nvram/web1.fd"}, {"tpm": True}])
def test_private_state_that_was_not_protected_may_be_lost(private: t.Dict[str, t.Any]) -> None:
    assert search(host("kvm1", f.domain("web1", **private)), host("kvm2")).judge(["kvm1"]).verdict == UNKNOWN


@pytest.mark.parametrize("unknown", [{"networks": None}, {"platforms": None}])
def test_a_host_of_which_something_is_not_known_proves_nothing(unknown: t.Dict[str, t.Any]) -> None:
    web1 = f.domain("web1", networks=[{"type": "network", "source": "default"}])
    loss = search(host("kvm1", web1), host("kvm2", **unknown)).judge(["kvm1"])
    assert loss.verdict == UNKNOWN


def test_a_guest_that_starts_gets_the_cpu_of_its_host() -> None:
    """It was given the whole CPU of its host, and of another host it is given that one."""
    cpu = {"model": "Haswell", "vendor": "Intel", "features": f.FEATURES}
    web1 = f.domain("web1", cpu={"mode": "host-passthrough"})
    for other in ({**cpu, "microcode": 2}, {**cpu, "vendor": "AMD", "features": []}, None):
        assert search(host("kvm1", web1, host_cpu={**cpu, "microcode": 1}), host("kvm2", host_cpu=other)).judge(["kvm1"]).verdict == CAN


def test_a_guest_of_host_model_that_starts_needs_no_feature_of_its_lost_host() -> None:
    seen = {"mode": "custom", "model": "Haswell", "features": {"amx": "require"}}
    for more, verdict in (({}, CANNOT), ({"start_cpu": {"mode": "host-model", "model": None, "features": {}}}, CAN)):
        web1 = f.domain("web1", cpu=seen, **more)
        assert search(host("kvm1", web1), host("kvm2")).judge(["kvm1"]).verdict == verdict


def test_a_start_needs_no_newer_qemu_and_no_trait() -> None:
    web1 = f.domain("web1", hypervisor=10_000_000, traits=["COMPUTE_MIGRATE_POST_COPY"], blockers=["It has a snapshot."])
    assert search(host("kvm1", web1), host("kvm2", traits=[])).judge(["kvm1"]).verdict == CAN


def test_libvirts_comparison_of_a_cpu_counts() -> None:
    refused = {uuid_of("web1"): CpuVerdict(False, "its CPU lacks avx2")}
    wanted = search(host("kvm1", f.domain("web1")), host("kvm2", cpu_verdicts=refused))
    (guest,) = wanted.explain(wanted.judge(["kvm1"]))
    assert guest.refused[0].filters == ("cpu_model",)


def test_a_host_without_an_answer_is_unknown_and_takes_no_guest() -> None:
    uncertain = {"kvm3": "It did not answer."}
    wanted = search(host("kvm1", f.domain("web1")), silent_host("kvm3"), uncertain=uncertain)
    assert (wanted.judge(["kvm3"]).verdict, wanted.judge(["kvm3"]).reason) == (UNKNOWN, "kvm3: It did not answer.")
    assert wanted.judge(["kvm1"]).verdict == CANNOT
    assert wanted.explain(wanted.judge(["kvm3"])) == []


def test_a_host_in_maintenance_takes_no_guest_and_its_memory_does_not_count() -> None:
    closed = host("kvm2", entry={"name": "kvm2", "state": "maintenance"})
    assert search(host("kvm1", f.domain("web1")), closed).judge(["kvm1"]).verdict == CANNOT


def test_a_guest_whose_move_is_under_way_has_its_place() -> None:
    moving = record("web1", "kvm1", "kvm2", memory_mib=8000)
    hosts = host("kvm1", f.domain("web1", 8000)), host("kvm2", records=[moving])
    assert search(*hosts).judge(["kvm1"]).verdict == CAN


def test_a_search_without_time_claims_nothing() -> None:
    # The first fit puts the two largest guests on one host, and the only solutions have them apart.
    sizes = [4000, 4000, 3000, 3000, 3000, 3000]
    hosts = (
        host("kvm1", *(f.domain(f"web{size}-{number}", size) for number, size in enumerate(sizes))),
        host("kvm2", memory_mib=10000),
        host("kvm3", memory_mib=10000),
    )
    assert search(*hosts).judge(["kvm1"]).verdict == CAN
    assert search(*hosts).judge(["kvm1"], budget=0).verdict == UNKNOWN


def test_rules_that_depend_on_the_order_of_starts_prove_no_refusal() -> None:
    first = f.domain("web1", group={"name": "set", "policy": "soft-anti-affinity"})
    second = f.domain("web2", group={"name": "set", "policy": "anti-affinity"})
    assert search(host("kvm1", first, second), host("kvm2")).judge(["kvm1"]).verdict == UNKNOWN


def test_members_that_differ_in_how_many_a_host_may_have_are_refused_in_any_order() -> None:
    first = f.domain("web1", group={"name": "set", "policy": "anti-affinity", "max_per_host": 2})
    second = f.domain("web2", group={"name": "set", "policy": "anti-affinity"})
    assert search(host("kvm1", first, second), host("kvm2")).judge(["kvm1"]).verdict == CANNOT


def test_the_worst_verdict_of_none_is_that_it_can() -> None:
    assert worst_verdict([]) == CAN
    assert worst_verdict([CAN, CANNOT, UNKNOWN]) == CANNOT
    assert worst_verdict([CAN, UNKNOWN]) == UNKNOWN


def in_pages(name: str, mib: int) -> f.Document:
    return f.domain(name, mib, hugepages=[{"size_kib": 2048, "mib": mib}])


def pool(total_mib: int, free_mib: int, cell_mib: int = 8704) -> list[f.Document]:
    pages = [{"size_kib": 2048, "total": total_mib // 2, "free": free_mib // 2}]
    return [{"id": 0, "total_mib": cell_mib, "free_mib": cell_mib, "cpus": [0], "pages": pages}]


def test_guests_in_huge_pages_need_no_other_memory_of_the_hosts_that_take_them() -> None:
    lost = host("kvm1", in_pages("db1", 4096), in_pages("db2", 4096), numa_cells=pool(8192, 0))
    assert search(lost, host("kvm2", f.domain("web1", 256), numa_cells=pool(8192, 8192))).judge(["kvm1"]).verdict == CAN
    assert search(lost, host("kvm2", numa_cells=pool(6144, 6144))).judge(["kvm1"]).verdict == CANNOT


def test_ordinary_guests_have_no_place_in_huge_pages() -> None:
    lost = host("kvm1", f.domain("web1", 1024), f.domain("web2", 2048))
    assert search(lost, host("kvm2", numa_cells=pool(5120, 5120))).judge(["kvm1"]).verdict == CAN
    loss = search(lost, host("kvm2", numa_cells=pool(5122, 5122))).judge(["kvm1"])
    assert (loss.verdict, loss.missing_mib) == (CANNOT, 2)


def test_a_move_under_way_has_its_place_in_huge_pages_or_beside_them() -> None:
    lost = host("kvm1", in_pages("db1", 4096), f.domain("web1", 3072))
    moving = record("db1", "kvm1", "kvm2", "running", memory_mib=4096, hugepages=[{"size_kib": 2048, "mib": 4096}])
    assert search(lost, host("kvm2", records=[moving], numa_cells=pool(5120, 4096))).judge(["kvm1"]).verdict == CAN
    assert search(lost, host("kvm2", records=[moving], numa_cells=pool(5122, 4096))).judge(["kvm1"]).verdict == CANNOT
