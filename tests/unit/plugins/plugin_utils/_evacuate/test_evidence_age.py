# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The age of evidence that another task has taken: that of an agent that is asked again is no reason to refuse, that of all other evidence is."""

from __future__ import annotations

import datetime
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FencingConfig, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import check_evidence, confirm_evidence

from .fence_programs import Agent, leveled
from .sites import Body, Site, host_id

SBD = r"""case "$*" in *dump) printf 'Timeout (watchdog) : 1\nTimeout (msgwait) : 2\n';; esac"""


def taken_ago(seconds: float, agent: str, **more: t.Any) -> Body:
    """Return evidence of an agent, as the step that fenced the host returns it, which is that old."""
    at = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)).isoformat()
    return {"kind": "fence_agent", "host": "kvm1", "agent": agent, "action": "off", "status": "off", "at": at, **more}


@pytest.mark.parametrize("age_seconds", [310, 7200, -7])
def test_evidence_of_an_agent_that_is_asked_again_has_no_age(site: Site, age_seconds: int) -> None:
    """Between the fencing and the starts, the hosts of a large fleet are asked, and the clock may be set."""
    site.save("web")
    agent = site.agent()
    site.evacuate(fencing=[taken_ago(age_seconds, str(agent.path), host_id=host_id("kvm1"))])
    assert site.running() == {"kvm2": ["web"]}
    (record,) = site.ledger.list_records()
    assert abs(datetime.datetime.fromisoformat(record.evidence[0]["at"]) - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(seconds=60)


@pytest.mark.parametrize(("change", "error", "sentence"), [("on", Unsafe, "kvm1 is on, says"), ("silent", Unreachable, "no longer reports its state")])
def test_old_evidence_of_an_agent_that_no_longer_reports_off_starts_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, change: str, error: type[KvmfleetError], sentence: str
) -> None:
    site.save("web")
    agent = site.agent(power=change)
    if change == "silent":
        agent.write("exit 1")
        site.variables["kvm1"] = {"kvmfleet_fencing": {"agent": str(agent.path), "options": {}, "status_timeout_seconds": 1}}
    with pytest.raises(error, match=sentence):
        site.evacuate(fencing=[taken_ago(310, str(agent.path))])
    assert (site.running(), site.record_summaries()) == ({}, [])


@pytest.mark.parametrize(
    "changes",
    [{"agent": "fence_other"}, {"agent": None}, {"kind": "tasks"}, {"kind": "person", "reason": "unplugged"}],
    ids=["another agent", "no agent", "tasks file", "person"],
)
def test_old_evidence_that_no_agent_confirms_starts_nothing(site: Site, changes: Body) -> None:
    site.save("web")
    agent = site.agent()
    with pytest.raises(Unsafe, match=r"is 31\d seconds old and was valid for 300"):
        site.evacuate(fencing=[{**taken_ago(310, str(agent.path)), **changes}])
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_old_evidence_of_an_agent_that_the_inventory_no_longer_names_starts_nothing(site: Site) -> None:
    site.save("web")
    with pytest.raises(Unsafe, match=r"is 31\d seconds old"):
        site.evacuate(fencing=[taken_ago(310, "/usr/sbin/fence_gone")])
    assert (site.running(), site.record_summaries()) == ({}, [])


def refusal(given: Body, config: FencingConfig | None) -> str:
    """Return why the evidence is refused; empty if it is accepted."""
    try:
        check_evidence(given, "kvm1", "id-1", "a test", datetime.datetime.now(datetime.UTC), config)
    except Unsafe as error:
        return error.message
    return ""


def test_evidence_of_a_level_has_no_age_while_the_inventory_names_all_its_devices(tmp_path: pathlib.Path) -> None:
    bmc, left, right = (Agent(tmp_path, name=name) for name in ("bmc", "left", "right"))
    of_strips = taken_ago(310, f"{left.path}, {right.path}", level=2)
    assert refusal(of_strips, leveled([bmc], [left, right])) == ""
    for other in (leveled([left, right], [bmc]), leveled([bmc]), leveled([bmc], [left]), None):
        assert "seconds old" in refusal(of_strips, other)
    assert "seconds old" in refusal({**of_strips, "level": 0}, leveled([left, right]))


def test_old_evidence_of_a_message_on_a_disk_is_refused(tmp_path: pathlib.Path) -> None:
    """Its status says only that the message was written once. The host may have read it and come back."""
    sbd, program = Agent(tmp_path, name="fence_sbd", power="off"), Agent(tmp_path, SBD, name="sbd")
    config = parse_fencing({"agent": str(sbd.path), "options": {"devices": "/dev/a", "plug": "kvm1", "sbd_path": str(program.path)}}, "kvm1")
    assert refusal(taken_ago(10, str(sbd.path)), config) == ""
    assert "seconds old" in refusal(taken_ago(310, str(sbd.path)), config)


def test_a_date_in_the_future_is_refused_unless_a_small_step_of_the_clock_explains_it(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    assert refusal(taken_ago(-200, str(agent.path)), agent.config()) == ""
    assert "in the future" in refusal(taken_ago(-400, str(agent.path)), agent.config())
    assert "in the future" in refusal({**taken_ago(-200, str(agent.path)), "kind": "tasks"}, agent.config())


def test_a_watchdog_has_no_agent_that_could_be_asked_again(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    of_watchdog = {**taken_ago(310, str(agent.path)), "kind": "watchdog", "action": "reset", "lease_revision": 7}
    assert "seconds old" in refusal(of_watchdog, agent.config(watchdog_seconds=60))


def test_old_evidence_that_was_accepted_is_renewed_by_its_confirmation(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    now = datetime.datetime.now(datetime.UTC)
    evidence = check_evidence(taken_ago(310, str(agent.path)), "kvm1", "id-1", "a test", now, agent.config())
    assert confirm_evidence(evidence, agent.config(), now).at > evidence.at
    agent.switch("on")
    with pytest.raises(Unsafe, match="kvm1 is on"):
        confirm_evidence(evidence, agent.config(), now)
