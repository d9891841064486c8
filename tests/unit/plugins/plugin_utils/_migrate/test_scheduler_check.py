# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(scheduler_check): verdicts with reasons, for a domain and for a saved request; nothing is written."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import (
    OTHER,
    another_move,
    close_host,
    memory_saved,
    room_for,
    run_one_move,
    variables_taken,
)


def filters_of(result: t.Mapping[str, t.Any]) -> dict[str, list[str]]:
    """The filters that refuse each host."""
    return {verdict["host"]: [failure["filter"] for failure in verdict["failures"]] for verdict in result["verdicts"]}


def refused(control: Control, **given: t.Any) -> dict[str, t.Any]:
    with pytest.raises(e.Conflict) as caught:
        control.check(**given)
    return caught.value.as_result()


def test_the_best_host_is_selected_and_the_others_have_reasons(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    result = control.check(name="web1")
    assert (result["selected"], result["changed"]) == ("kvm3", False)
    assert [verdict["host"] for verdict in result["verdicts"]] == ["kvm3", "kvm2"]
    assert filters_of(result) == {"kvm2": ["memory"], "kvm3": []}
    assert set(result["verdicts"][0]) == {"host", "passed", "failures", "warnings", "weight", "filters_off"}
    assert result["lines"][0] == "web1 can go to kvm3."
    assert result["lines"][1] == f"kvm2: no. {result['verdicts'][1]['failures'][0]['reason']}"


def test_the_verdicts_for_people_have_the_best_host_first_and_warnings(control: Control) -> None:
    control.fleet.guest()
    control.fleet.machines["kvm3"].go_dark()
    result = control.check(name="web1")
    warnings = [f"kvm2: {warning}" for warning in result["verdicts"][0]["warnings"]]
    assert result["lines"] == ["web1 can go to kvm2.", f"kvm3: no. {result['verdicts'][1]['failures'][0]['reason']}", *warnings]
    control.fleet.machines["kvm3"].come_back()
    both = control.check(name="web1")
    assert both["lines"][0] == f"web1 can go to {', '.join(verdict['host'] for verdict in both['verdicts'])} (best first)."


def test_a_job_of_the_domain_is_a_warning_for_each_candidate(control: Control) -> None:
    guest = control.fleet.guest()
    assert not [text for verdict in control.check(name="web1")["verdicts"] for text in verdict["warnings"] if "job" in text]
    guest.other_job = "a backup"
    result = control.check(name="web1")
    told = "Domain web1 on kvm1 has a job in progress (a backup): a move is refused until its end, or waits for it (busy_wait_seconds)."
    assert [told in verdict["warnings"] for verdict in result["verdicts"]] == [True, True]
    assert f"kvm2: {told}" in result["lines"]


def test_scheduler_check_writes_nothing(control: Control) -> None:
    control.fleet.guest()
    control.check(name="web1")
    assert (control.records(), control.source.phases) == ([], ["survey"])
    assert [machine.calls for machine in control.fleet.machines.values()] == [[], [], []]


def test_a_check_that_no_host_passes_is_an_error_with_all_verdicts(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 3)
    close_host(control, "kvm3", "a fan")
    result = refused(control, uuid=UUID)
    assert result["error_code"] == "conflict"
    assert filters_of(result) == {"kvm2": ["memory"], "kvm3": ["enabled"]}
    assert "a fan" in result["msg"]
    assert "4096 MiB" in result["msg"]
    assert "kvm2 cannot accept domain web1" in refused(control, name="web1", destination="kvm2")["msg"]


def test_scheduler_check_gives_the_same_reason_as_the_move(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    room_for(control, "kvm2", 6)
    another_move(control, "kvm2", 3 * 1024, s.SCHEDULED)
    reason = refused(control, name="web1", destination="kvm2")["verdicts"][0]["failures"][0]["reason"]
    assert reason in str(run_one_move(control, check=True).error)


def test_a_silent_candidate_is_refused_in_its_verdict(control: Control) -> None:
    control.fleet.guest()
    control.fleet.machines["kvm2"].go_dark()
    result = control.check(name="web1")
    assert (result["selected"], filters_of(result)["kvm2"]) == ("kvm3", ["up"])
    assert filters_of(refused(control, name="web1", destination="kvm9")) == {"kvm9": ["up"]}


def test_the_source_as_a_candidate_is_refused_in_its_verdict(control: Control) -> None:
    control.fleet.guest()
    assert filters_of(refused(control, name="web1", candidates=["kvm1"])) == {"kvm1": ["not_source"]}


def test_a_domain_that_is_not_here_is_not_found(control: Control) -> None:
    control.fleet.guest(on="kvm2")
    with pytest.raises(e.NotFound, match=r"web1.*kvm1"):
        control.check(name="web1")


def test_a_host_with_another_domain_of_the_same_name_is_refused(control: Control) -> None:
    control.fleet.guest()
    control.fleet.guest(on="kvm2", uuid=OTHER)
    assert filters_of(control.check(name="web1"))["kvm2"] == ["name"]


def test_a_host_with_another_domain_that_has_the_file_of_the_variables_is_refused(control: Control) -> None:
    variables_taken(control)
    assert filters_of(control.check(name="web1"))["kvm2"] == ["firmware"]


def test_a_host_with_older_memory_of_the_guest_is_refused(control: Control) -> None:
    memory_saved(control)
    assert filters_of(control.check(name="web1"))["kvm2"] == ["managed_save"]


def test_settings_of_the_task_override_those_of_the_inventory(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    control.fleet.guest("db1", OTHER, on="kvm2", memory_bytes=3 * GIB)
    room_for(control, "kvm2", 5)
    control.variables("kvm2")["kvmfleet_scheduler"] = {"ram_allocation_ratio": 1.0}
    assert filters_of(control.check(name="web1"))["kvm2"] == ["memory"]
    assert control.check(name="web1", destination="kvm2", scheduler={"ram_allocation_ratio": 2})["selected"] == "kvm2"
    with pytest.raises(e.InvalidArgument, match="scheduler"):
        control.check(name="web1", scheduler={"ram_allocation_ratio": 0})


def test_a_check_without_a_ledger_uses_only_the_answers_of_hosts(control: Control) -> None:
    control.fleet.guest()
    close_host(control, "kvm2", "a fan")
    assert control.check(name="web1", ledger=False, destination="kvm2")["selected"] == "kvm2"


def test_a_returned_request_can_be_checked_again(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    request = control.check(name="web1")["request"]
    assert (request["uuid"], request["name"], request["memory_mib"]) == (UUID, "web1", 4096)
    again = control.check(request=request)
    assert filters_of(again) == {"kvm1": ["not_source"], "kvm2": [], "kvm3": []}
    assert again["request"] == request


def test_a_saved_request_is_checked_from_the_present_host_of_its_domain(control: Control) -> None:
    control.fleet.guest(memory_bytes=4 * GIB)
    request = control.check(name="web1")["request"]
    run_one_move(control, destination="kvm3")
    assert filters_of(control.check(request=request)) == {"kvm1": [], "kvm2": [], "kvm3": ["not_source"]}


def test_a_request_without_a_domain_is_checked(control: Control) -> None:
    room_for(control, "kvm1", 3)
    room_for(control, "kvm2", 4)
    room_for(control, "kvm3", 3)
    result = control.check(request={"memory_mib": 4096, "vcpus": 1})
    assert filters_of(result) == {"kvm1": ["memory"], "kvm2": [], "kvm3": ["memory"]}
    assert result["selected"] == "kvm2"


def test_a_request_larger_than_any_host_is_refused_everywhere(control: Control) -> None:
    result = refused(control, request={"memory_mib": 10**9, "vcpus": 10**6})
    assert "None of the 3 candidates can accept what the request asks for" in result["msg"]
    assert all({"memory", "cpus"} <= set(refusing) for refusing in filters_of(result).values())


def test_disks_to_copy_need_free_space(control: Control) -> None:
    disk = {"target": "vda", "kind": "file", "device": "disk", "source": "/images/a", "readonly": False, "shareable": False, "shared": None, "bytes": 5 * GIB}
    request = {"memory_mib": 64, "vcpus": 1, "disks": [disk]}
    control.source.facts["kvm2"] = {"pools": [_pool(capacity=10 * GIB, available=4 * GIB)], "mounts": None}
    control.source.facts["kvm3"] = {"pools": [_pool(capacity=10 * GIB, available=6 * GIB)], "mounts": None}
    result = control.check(request=request, candidates=["kvm2", "kvm3"], copy_storage="full")
    assert filters_of(result) == {"kvm2": ["disk"], "kvm3": []}
    assert any("not tested from both hosts" in warning for warning in result["verdicts"][0]["warnings"])


def _pool(capacity: int, available: int) -> dict[str, t.Any]:
    return {"name": "images", "type": "dir", "active": True, "path": "/images", "capacity_bytes": capacity, "available_bytes": available}


def test_a_request_without_disks_to_copy_has_no_warning(control: Control) -> None:
    result = control.check(request={"memory_mib": 64, "vcpus": 1}, candidates=["kvm2"], copy_storage="auto")
    assert result["verdicts"][0]["warnings"] == []


@pytest.fixture
def user(control: Control, monkeypatch: pytest.MonkeyPatch) -> Control:
    """A control node whose task runs as a user whom libvirt gives only its read-only connection."""
    monkeypatch.setattr(gather, "is_root", lambda: False)
    for machine in control.fleet.machines.values():
        machine.is_read_only = True
    return control


def test_what_a_user_may_not_read_is_listed_and_warned_of_for_each_host(user: Control) -> None:
    user.fleet.guest()
    result = user.check(name="web1")
    assert (result["selected"], set(result["unverified_reasons"])) == ("kvm2", {"kvm1", "kvm2", "kvm3"})
    assert "read-only connection" in result["unverified_reasons"]["kvm2"]["cpu_comparison"]
    for verdict in result["verdicts"]:
        for host in (verdict["host"], "kvm1"):
            (warning,) = [text for text in verdict["warnings"] if text.startswith(f"Not checked on {host}, because it was read without root: ")]
            assert all(what in warning for what in result["unverified_reasons"][host]), warning


def test_a_refused_check_of_a_user_lists_what_is_unknown_too(user: Control) -> None:
    user.fleet.guest(memory_bytes=4 * GIB)
    room_for(user, "kvm2", 3)
    result = refused(user, name="web1", destination="kvm2")
    assert (filters_of(result), set(result["unverified_reasons"])) == ({"kvm2": ["memory"]}, {"kvm1", "kvm2"})


def test_boot_files_and_cpus_that_were_not_checked_are_warnings(user: Control) -> None:
    user.fleet.guest()
    user.source.needs[UUID] = {
        "boot_files": [{"what": "kernel", "path": "/boot/vmlinuz"}],
        "cpu": {"mode": "custom", "model": "EPYC"},
        "arch": "x86_64",
        "virt_type": "kvm",
    }
    (verdict,) = user.check(name="web1", destination="kvm2")["verdicts"]
    assert verdict["passed"] is True
    assert any("/boot/vmlinuz" in warning and "withholds" in warning for warning in verdict["warnings"])
    assert any("run the CPU of web1 could not be determined" in warning for warning in verdict["warnings"])


def test_a_check_of_root_has_no_list_of_unknowns(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "is_root", lambda: True)
    control.fleet.guest()
    result = control.check(name="web1")
    assert "unverified_reasons" not in result
    assert not [text for verdict in result["verdicts"] for text in verdict["warnings"] if "Not checked" in text]


def test_a_copied_disk_of_unknown_size_is_a_warning(control: Control) -> None:
    disk = {"target": "vda", "kind": "file", "device": "disk", "source": "/images/a", "readonly": False, "shareable": False, "shared": None, "bytes": None}
    (verdict,) = control.check(request={"memory_mib": 64, "vcpus": 1, "disks": [disk]}, candidates=["kvm2"], copy_storage="full")["verdicts"]
    assert "The size of disk vda is not known, so no space is counted for it." in verdict["warnings"]
