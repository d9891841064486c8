# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the control node does with the facts that a host returns."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import host_facts as module
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import age_seconds

FACTS = {"gathered_at": "1970-01-01T00:00:00.000Z", "host_uuid": "a"}


def outcome(monkeypatch: pytest.MonkeyPatch, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what the action makes of the module's answer."""
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: answer)
    return t.cast("dict[str, t.Any]", module.ActionModule.__new__(module.ActionModule).run(None, {}))


def test_facts_get_the_time_of_their_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    result = outcome(monkeypatch, {"changed": False, "ansible_facts": {"kvmfleet_host": dict(FACTS), "discovered": 1}})
    told = result["ansible_facts"]["kvmfleet_host"]
    assert {**told, "received": None} == {**FACTS, "received": None}
    assert age_seconds(told) is not None
    assert (result["changed"], result["ansible_facts"]["discovered"]) == (False, 1)


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "no libvirt", "error_code": "unreachable"},
        {"unreachable": True, "msg": "no route"},
        {"ansible_job_id": "j1", "started": 1},
        {"ansible_facts": None},
        {"ansible_facts": {"kvmfleet_host": 5}},
    ],
)
def test_an_answer_without_facts_is_returned_unchanged(monkeypatch: pytest.MonkeyPatch, answer: dict[str, t.Any]) -> None:
    assert outcome(monkeypatch, dict(answer)) == answer
