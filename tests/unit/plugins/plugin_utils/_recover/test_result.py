# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.verify_request import DomainsResult
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import (
    HostRecovery,
    list_failed,
    list_moved_back,
    list_problems,
    result_lines,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.task_results import DomainItemResult, MoveBack, ReportedDomain
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import record, uid

Body = dict[str, t.Any]

ITEM = {"uuid": uid("web1"), "name": "web1"}


def test_failed_and_unreachable_items_are_reported_with_their_reason() -> None:
    results = [{"item": ITEM, "failed": False}, {"item": ITEM, "failed": True, "msg": "no"}, {"item": ITEM, "unreachable": True, "msg": "gone"}]
    assert [entry.reason for entry in list_failed([decode(DomainItemResult, result) for result in results], "start")] == ["no", "gone"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"migrations": [encode(record("web1", "kvm2", "kvm1"))]}, None),
        ({"failed": True, "migrations": [encode(record("web1", "kvm2", "kvm1"))], "failures": [{"uuid": uid("db1"), "msg": "no"}]}, None),
        ({"migrations": []}, None),
        ({"failed": True, "failures": [{"uuid": uid("web1"), "msg": "refused"}]}, "refused"),
        ({"failed": True, "msg": "broken"}, "broken"),
        ({"unreachable": True, "msg": "gone"}, "gone"),
        ({"failed": True, "failures": [{"uuid": uid("db1"), "msg": "no"}], "migrations": [encode(record("web1", "kvm2", "kvm1", s.CANCELLED))]}, "'cancelled'"),
    ],
)
def test_each_planned_move_moved_back_or_failed_with_a_reason(result: Body, reason: t.Optional[str]) -> None:
    brought_home, failed = list_moved_back([MoveBack(**ITEM, source="kvm2")], [decode(DomainsResult, {"item": "kvm2", **result})])
    if reason is None:
        assert (brought_home, failed) == ([ReportedDomain(**ITEM, source="kvm2")], [])
    else:
        assert (brought_home, reason in str(failed[0].reason)) == ([], True)


def test_a_move_of_a_source_that_was_not_asked_is_failed_except_in_check_mode() -> None:
    moves = [MoveBack(**ITEM, source="kvm2")]
    assert "not started" in str(list_moved_back(moves, [])[1][0].reason)
    assert list_moved_back(moves, [], check_mode=True)[0] == [ReportedDomain(**ITEM, source="kvm2")]


def host_result(**changes: t.Any) -> HostRecovery:
    lists: Body = {
        key: [] for key in ("cleaned", "superseded", "deleted", "kept", "refused", "started", "stayed_off", "brought_home", "skipped", "failed", "notes")
    }
    return decode(HostRecovery, {**lists, "released": True, "enabled": True, "error": "", **changes})


def test_lines_and_problems_of_a_recovery_name_domain_host_and_reason() -> None:
    result = host_result(
        started=[ITEM],
        stayed_off=[{"uuid": uid("db1"), "name": "db1\n", "reason": "It ran."}],
        refused=[{**ITEM, "reason": "It is active here."}],
        failed=[{"what": "start", **ITEM, "reason": "It may run on kvm9."}],
        superseded=[{**ITEM, "reason": "It has come back."}],
        deleted=[{**ITEM, "record": "r", "paths": ["/a/disk"]}],
        kept=[
            {**ITEM, "record": "r", "target": "vda", "path": "/a/image", "only_copy": False, "reason": "other hosts see it too"},
            {"uuid": None, "name": None, "record": "r", "target": None, "path": None, "only_copy": True, "reason": "Its age is unknown.", "paths": ["/q"]},
        ],
        enabled=False,
        error="Stopped.",
    )
    lines = result_lines({"kvm1": result})
    assert {"OFF     db1\\n on kvm1: It ran.", "STARTED web1 on kvm1", "BACK    web1 on kvm1: It has come back.", "DELETED /a/disk of web1 on kvm1"} <= set(
        lines
    )
    assert {"KEPT    /a/image of web1 on kvm1: other hosts see it too", "KEPT    /q of record r on kvm1: Its age is unknown."} <= set(lines)
    assert lines[-1] == "kvm1: 0 cleaned, 1 started, 0 brought home, 1 failed. Its boot is released, and it does NOT accept domains."
    assert list_problems(result) == ["Stopped.", "Failed to start web1: It may run on kvm9.", "web1 was not cleaned up: It is active here."]
    assert list_problems(host_result()) == []


def test_files_that_were_kept_for_one_reason_share_a_line() -> None:
    files = [{**ITEM, "name": f"web{number // 2}", "path": f"/a/{number}", "reason": "other hosts see it too"} for number in range(24)]
    other = {**ITEM, "name": "db", "path": "/a/cd.iso", "reason": "it is read-only"}
    assert result_lines({"kvm1": host_result(kept=[*files, other])})[:-1] == [
        "KEPT    each of 24 files on kvm1 (web0, web1, web10, web11, web2, web3, web4, web5 and 4 more): other hosts see it too",
        "KEPT    /a/cd.iso of db on kvm1: it is read-only",
    ]
