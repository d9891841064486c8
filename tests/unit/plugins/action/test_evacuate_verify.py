# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module evacuate_verify: what became of each domain of a dead host."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import evacuate_verify
from ansible_collections.kvmfleet.migration.plugins.action.evacuate_verify import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

Body = dict[str, t.Any]
NAMES = ("web", "db", "idle", "huge")


def named(name: str, **more: t.Any) -> Body:
    return {"uuid": f"uuid of {name}", "name": name, **more}


PLAN: Body = {
    "source": {"host": "kvm1"},
    "domains": [named(name) for name in NAMES],
    "shares": {"kvm2": ["uuid of web", "uuid of db"], "kvm3": ["uuid of idle"]},
    "refused": [],
    "uncovered": [],
    "not_selected": [],
    "lost_until_return": [],
    "unaccounted": [],
    "evidence": [{"kind": "person"}],
}


def record(name: str, host: str, status: str = "done") -> Body:
    domain = {"uuid": f"uuid of {name}", "name": name}
    return {"id": f"record of {name}", "status": status, "domain": domain, "destination": {"host": host}, "wanted_state": "running"}


DONE = {"kvm2": {"evacuations": [record("web", "kvm2"), record("db", "kvm2", "completed")]}, "kvm3": {"evacuations": [record("idle", "kvm3")]}}


@pytest.fixture(autouse=True)
def display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evacuate_verify, "Display", lambda: types.SimpleNamespace(display=print))


def verify(started: t.Any, check_mode: bool = False, no_log: bool = False, **plan: t.Any) -> Body:
    action = ActionModule.__new__(ActionModule)
    action._loader = None
    action._task = types.SimpleNamespace(async_val=0, check_mode=check_mode, diff=False, delegate_to=None, no_log=no_log)
    action._task.args = {"plan": {**PLAN, **plan}, "publish_as": "evacuate_host_result", "_work": {"started": started}}
    done: Body = action.run_with_options(task_vars("kvm2"))
    check_document("evacuation-result.json", done["result"])
    return done


def test_domains_that_were_started_are_shown_and_published(capsys: pytest.CaptureFixture[str]) -> None:
    done = verify(DONE)
    own = done["result"]["kvm1"]
    assert [(one["name"], one["host"], one["state"], one["record"]) for one in own["evacuated"]] == [
        ("web", "kvm2", "running", "record of web"),
        ("db", "kvm2", "running", "record of db"),
        ("idle", "kvm3", "running", "record of idle"),
    ]
    assert (own["failed"], own["evidence"], done["problem"], done["changed"]) == ([], [{"kind": "person"}], "", False)
    assert done["ansible_stats"] == {"data": {"evacuate_host_result": done["result"]}, "per_host": False, "aggregate": True}
    assert "EVACUATED web -> kvm2\n" in capsys.readouterr().out
    verify(DONE, no_log=True)
    assert capsys.readouterr().out == ""


def test_every_domain_that_was_not_started_is_reported_once_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    started = {
        "kvm2": {
            "evacuations": [record("web", "kvm2")],
            "failures": [{"uuid": "uuid of db", "domain": "db", "msg": "No memory."}],
            "failed": True,
            "msg": "No memory.",
        },
        "kvm3": {"unreachable": True, "msg": "no route."},
    }
    done = verify(started, refused=[named("old", reason="It is active.")], uncovered=[named("huge", reason="kvm2: too large", reasons={})])
    failed = [(one["name"], one["reason"]) for one in done["result"]["kvm1"]["failed"]]
    assert failed == [("old", "It is active."), ("huge", "kvm2: too large"), ("db", "No memory."), ("idle", "No memory. no route.")]
    words = "Of the domains that may have been on kvm1 these were not started: old, huge, db, idle. It is active. kvm2: too large No memory. "
    assert done["problem"].startswith(words)
    assert "FAILED huge: kvm2: too large" in capsys.readouterr().out


def test_a_domain_whose_record_is_not_done_counts_as_not_started() -> None:
    done = verify({**DONE, "kvm3": {"evacuations": [record("idle", "kvm3", "pre-migrating")]}})
    assert [one["name"] for one in done["result"]["kvm1"]["failed"]] == ["idle"]


def test_lost_until_return_is_a_problem_and_unaccounted_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    done = verify(DONE, lost_until_return=[named("local", reasons=["no disk"])], unaccounted=[named("odd", hosts=["kvm2"])])
    assert done["problem"] == "Of the domains that may have been on kvm1 these were not started: local."
    output = capsys.readouterr().out
    assert "LOST UNTIL IT RETURNS local" in output
    assert "UNACCOUNTED FOR odd (uuid of odd): it should be on kvm2, and no host that answers has it" in output
    assert verify(DONE, unaccounted=[named("odd")])["problem"] == ""


def test_check_mode_reports_accepted_records_as_would_be_evacuated(capsys: pytest.CaptureFixture[str]) -> None:
    predicted = {host: {"evacuations": [{**one, "status": "accepted"} for one in result["evacuations"]]} for host, result in DONE.items()}
    done = verify(predicted, check_mode=True)
    assert (len(done["result"]["kvm1"]["evacuated"]), done["problem"]) == (3, "")
    assert "WOULD BE EVACUATED web -> kvm2" in capsys.readouterr().out


def test_an_assessment_without_a_plan_has_no_shares() -> None:
    assessed = {key: value for key, value in PLAN.items() if key not in ("shares", "uncovered", "evidence")}
    action = ActionModule.__new__(ActionModule)
    action._loader = None
    action._task = types.SimpleNamespace(async_val=0, check_mode=False, diff=False, delegate_to=None, no_log=True)
    action._task.args = {"plan": assessed}
    done = action.run_with_options(task_vars("kvm2"))
    assert done["result"]["kvm1"] == {key: [] for key in ("evacuated", "failed", "not_selected", "lost_until_return", "unaccounted", "evidence")}
    assert "ansible_stats" not in done


@pytest.mark.parametrize(("started", "plan"), [({}, {"source": {}}), ({}, {"domains": [5]}), ({"kvm2": 5}, {}), ({"kvm2": {"evacuations": [{}]}}, {})])
def test_an_invalid_plan_or_start_result_is_refused(started: Body, plan: Body) -> None:
    with pytest.raises(InvalidArgument):
        verify(started, **plan)
