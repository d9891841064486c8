# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import failed_items, moved_home, problems, result_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.withheld import keeping_out, withholding
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import record, uid

Body = dict[str, t.Any]
KVM1 = Identity("kvm1", uid("id kvm1"), uid("libvirt kvm1"), "m1")


def evacuation(status: str, source: str = "kvm1", **changes: t.Any) -> Body:
    made = record("web1", source, "kvm2", status, kind=s.EVACUATION)
    return {**made, **changes}


@pytest.mark.parametrize("status", [s.ACCEPTED, s.PRE_MIGRATING, s.DONE, s.ERROR])
def test_an_open_evacuation_withholds_its_source_also_a_superseded_one(status: str) -> None:
    for one in (evacuation(status), evacuation(status, superseded_by="newer")):
        assert withholding([one], KVM1) == [one]
        assert keeping_out([one], KVM1) == [one]


@pytest.mark.parametrize("one", [evacuation(s.COMPLETED), evacuation(s.FAILED), evacuation(s.DONE, "kvm3"), record("web1", "kvm1", "kvm2", s.RUNNING)])
def test_others_do_not(one: Body) -> None:
    assert withholding([one], KVM1) == []


def test_a_record_without_a_host_id_forbids_by_name_or_libvirt_uuid() -> None:
    for source in ({"host": "kvm1", "host_id": None, "host_uuid": None}, {"host": "old", "host_id": None, "host_uuid": KVM1.host_uuid}):
        assert withholding([{**evacuation(s.DONE), "source": source}], KVM1)
        assert withholding([{**evacuation(s.DONE), "source": {**source, "host_id": uid("id other")}}], KVM1) == []


def test_unsettled_moves_at_either_end_keep_a_host_out_and_a_tombstone_of_another_source_does_not() -> None:
    leaving, coming = record("web1", "kvm1", "kvm2", s.ERROR), record("web1", "kvm3", "kvm1", s.RUNNING)
    taken = record("web1", "kvm3", "kvm1", s.DONE, kind=s.EVACUATION)
    assert keeping_out([leaving, coming, taken, record("web1", "kvm1", "kvm2")], KVM1) == [leaving, coming]


ITEM = {"uuid": uid("web1"), "name": "web1"}


def test_failed_and_unreachable_items_are_told_with_their_reason() -> None:
    results = [{"item": ITEM, "failed": False}, {"item": ITEM, "failed": True, "msg": "no"}, {"item": ITEM, "unreachable": True, "msg": "gone"}]
    assert [entry["reason"] for entry in failed_items(results, "start")] == ["no", "gone"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"migrations": [record("web1", "kvm2", "kvm1")]}, None),
        ({"failed": True, "migrations": [record("web1", "kvm2", "kvm1")], "failures": [{"uuid": uid("db1"), "msg": "no"}]}, None),
        ({"migrations": []}, None),
        ({"failed": True, "failures": [{"uuid": uid("web1"), "msg": "refused"}]}, "refused"),
        ({"failed": True, "msg": "broken"}, "broken"),
        ({"unreachable": True, "msg": "gone"}, "gone"),
        ({"failed": True, "failures": [{"uuid": uid("db1"), "msg": "no"}], "migrations": [record("web1", "kvm2", "kvm1", s.CANCELLED)]}, "'cancelled'"),
    ],
)
def test_what_came_home(result: Body, reason: t.Optional[str]) -> None:
    told = moved_home([{**ITEM, "source": "kvm2"}], [{"item": "kvm2", **result}])
    if reason is None:
        assert (told["brought_home"], told["failed"]) == ([{**ITEM, "source": "kvm2"}], [])
    else:
        assert (told["brought_home"], reason in told["failed"][0]["reason"]) == ([], True)


def test_a_source_that_was_never_asked_has_sent_nothing_but_in_check_mode_would() -> None:
    moves = [{**ITEM, "source": "kvm2"}]
    assert "not started" in moved_home(moves, [])["failed"][0]["reason"]
    assert moved_home(moves, [], check_mode=True)["brought_home"] == moves


def own(**changes: t.Any) -> Body:
    lists: Body = {key: [] for key in ("cleaned", "superseded", "deleted", "kept", "refused", "started", "brought_home", "skipped", "failed", "notes")}
    return {**lists, "released": True, "enabled": True, "error": "", **changes}


def test_lines_and_problems_name_domain_host_and_reason() -> None:
    result = own(
        started=[ITEM],
        refused=[{**ITEM, "reason": "It is active here."}],
        failed=[{"what": "start", **ITEM, "reason": "It may run on kvm9."}],
        superseded=[{**ITEM, "reason": "It has come back."}],
        deleted=[{**ITEM, "record": "r", "paths": ["/a/disk"]}],
        enabled=False,
        error="Stopped.",
    )
    lines = result_lines({"kvm1": result})
    assert {"STARTED web1 on kvm1", "BACK    web1 on kvm1: It has come back.", "DELETED /a/disk of web1 on kvm1"} <= set(lines)
    assert lines[-1] == "kvm1: 0 cleaned, 1 started, 0 brought home, 1 failed. Its boot is released, and it does NOT take domains."
    assert problems(result) == ["Stopped.", "Failed to start web1: It may run on kvm9.", "web1 was not cleaned up: It is active here."]
    assert problems(own()) == []
