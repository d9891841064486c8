# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Setting a domain's policy: what is written where, what is refused, and what stays."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import Operator, by_hand, written
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]

PROFILES = {
    "kvmfleet_profiles": {
        "database": {"post_copy": False, "priority": 100},
        "batch": {"auto_converge": True},
        "both": {"auto_converge": True, "post_copy": True},
    }
}


def test_a_policy_is_set_read_and_removed_idempotently(lab: Lab, operator: Operator, web: str) -> None:
    fields = {"post_copy": False, "timeout_seconds": 600, "labels": ["ssd"], "group": {"name": "web", "policy": "anti-affinity", "max_per_host": 2}}
    first = operator.policy(web, **fields)
    assert first.changed
    assert first.result["policy"] == fields
    assert written(lab, web) == written(lab, web, "config") == {"post_copy": "false", "timeout_seconds": "600", "group": "", "labels": ""}
    assert not operator.policy(web, **fields).changed
    read = operator.policy(web)
    assert not read.changed
    assert read.result["policy"] == fields
    assert read.result["effective"]["timeout_seconds"] == {"value": 600, "source": "domain"}
    assert read.result["effective"]["downtime_ms"] == {"value": 500, "source": "default"}
    assert operator.policy(web, unset=["labels", "group"]).result["policy"] == {"post_copy": False, "timeout_seconds": 600}
    gone = operator.policy(web, state="absent")
    assert (gone.changed, gone.result["policy"]) == (True, {})
    assert "urn:kvmfleet" not in lab.virsh(1, "dumpxml", web) + lab.virsh(1, "dumpxml", "--inactive", web)
    assert not operator.policy(web, state="absent").changed


@pytest.mark.long
def test_check_mode_and_diff_write_nothing(lab: Lab, operator: Operator, web: str) -> None:
    done = operator.policy(web, 1, "--check", "--diff", priority=7)
    assert done.changed
    assert done.result["policy"] == {"priority": 7}
    assert '+    "priority": 7' in done.text
    assert written(lab, web) == written(lab, web, "config") == {}


@pytest.mark.long
def test_the_policy_of_a_transient_or_inactive_domain_is_written_to_its_definition(lab: Lab, operator: Operator, guest: Make) -> None:
    passing, off = guest("passing", "--transient"), guest("off", "--off")
    assert operator.policy(passing, priority=1).changed
    assert operator.policy(off, priority=2).changed
    assert written(lab, passing) == {"priority": "1"}
    assert written(lab, off, "config") == {"priority": "2"}
    assert operator.policy(off).result["policy"] == {"priority": 2}


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"post_copy": True, "auto_converge": True}, "conflict", "both"),
        ({"profile": "gold"}, "invalid_argument", "batch, both, database"),
        pytest.param({"profile": "database", "post_copy": True}, "conflict", "post_copy", marks=pytest.mark.long),
        pytest.param({"profile": "batch", "post_copy": True}, "conflict", "both", marks=pytest.mark.long),
        pytest.param({"timeout_seconds": -1}, "invalid_argument", "timeout_seconds is -1", marks=pytest.mark.long),
        pytest.param({"downtime_ms": 0}, "invalid_argument", "downtime_ms is 0", marks=pytest.mark.long),
        pytest.param({"force_pause_max_seconds": 0}, "invalid_argument", "force_pause_max_seconds is 0", marks=pytest.mark.long),
        pytest.param({"profile": "both"}, "conflict", "both", marks=pytest.mark.long),
        pytest.param({"priority": 5000}, "invalid_argument", "priority", marks=pytest.mark.long),
        pytest.param({"group": {"name": "a", "policy": "affinity", "max_per_host": 2}}, "invalid_argument", "max_per_host", marks=pytest.mark.long),
        pytest.param({"labels": [""]}, "invalid_argument", "label", marks=pytest.mark.long),
        pytest.param({"state": "absent", "priority": 1}, "invalid_argument", "unset", marks=pytest.mark.long),
    ],
)
def test_invalid_policies_are_refused_and_not_written(lab: Lab, operator: Operator, web: str, fields: dict[str, t.Any], code: str, named: str) -> None:
    done = operator.policy(web, variables=PROFILES, **fields)
    assert (done.refused(), named in done.msg) == (code, True), done.msg
    assert written(lab, web) == written(lab, web, "config") == {}


@pytest.mark.long
def test_a_value_of_the_domain_overrides_its_profile_but_not_a_veto(operator: Operator, web: str) -> None:
    done = operator.policy(web, variables=PROFILES, profile="database", downtime_ms=200)
    effective = done.result["effective"]
    assert effective["post_copy"] == {"value": False, "source": "profile"}
    assert effective["priority"] == {"value": 100, "source": "profile"}
    assert effective["downtime_ms"] == {"value": 200, "source": "domain"}
    # The contradiction is also seen when the profile was there first.
    assert operator.policy(web, variables=PROFILES, post_copy=True).refused() == "conflict"


def test_the_policy_of_an_unknown_domain_is_not_found(operator: Operator) -> None:
    assert operator.policy("nobody", priority=1).refused() == "not_found"


@pytest.mark.long
def test_a_domain_that_is_being_moved_is_refused_at_once(lab: Lab, operator: Operator, guest: Make) -> None:
    busy = guest("busy", "--mib", "128", "--dirty-mib", "96")
    running = operator.begin_move(busy, **HELD)
    lab.under_way(lab.uuid(busy))
    done = operator.policy(busy, priority=3)
    # Libvirt itself would have waited for half a minute, and ended with a timeout.
    assert done.refused() == "invalid_state"
    assert busy in done.msg
    assert not operator.policy(busy).changed
    lab.virsh(1, "domjobabort", busy)
    running.wait()
    assert written(lab, busy) == {}
    assert operator.policy(busy, priority=3).changed


@pytest.mark.long
def test_elements_and_attributes_of_a_newer_version_are_kept(lab: Lab, operator: Operator, web: str) -> None:
    by_hand(lab, web, '<novel a="1"><part/></novel><priority since="2">5</priority>', "--live", "--config")
    assert operator.policy(web).result["policy"] == {"priority": 5}
    assert operator.policy(web, priority=6, post_copy=False).changed
    for options in ((), ("--inactive",)):
        xml = lab.virsh(1, "dumpxml", *options, web)
        assert '<kvmfleet:novel a="1">' in xml.replace("'", '"')
        assert "<kvmfleet:part/>" in xml
        assert '<kvmfleet:priority since="2">6<' in xml.replace("'", '"')


@pytest.mark.long
@pytest.mark.parametrize(
    ("element", "named"), [("<timeout_seconds>soon</timeout_seconds>", "timeout_seconds"), ("<downtime_ms>-5</downtime_ms>", "downtime_ms")]
)
def test_an_invalid_policy_written_by_hand_is_refused_until_it_is_repaired(lab: Lab, operator: Operator, web: str, element: str, named: str) -> None:
    by_hand(lab, web, f"{element}<priority>1</priority>", "--live", "--config")
    for done in (operator.policy(web), operator.policy(web, priority=2), operator.move(web)):
        assert done.refused() == "invalid_argument"
        assert f"<{named}>" in done.msg
        assert web in done.msg
    assert lab.places(web) == {1: "running"}
    assert operator.policy(web, **{named: 20}).result["policy"] == {named: 20, "priority": 1}
    assert operator.move(web).record["policy"][named] == {"value": 20, "source": "domain"}


@pytest.mark.long
def test_state_absent_removes_an_invalid_policy(lab: Lab, operator: Operator, web: str) -> None:
    by_hand(lab, web, "<post_copy>maybe</post_copy><drain>now</drain><drain>later</drain>", "--live", "--config")
    done = operator.policy(web)
    assert done.refused() == "invalid_argument"
    assert "<post_copy>" in done.msg
    assert "<drain>" in done.msg
    assert operator.policy(web, state="absent").changed
    assert operator.policy(web).result["policy"] == {}


@pytest.mark.long
def test_booleans_may_be_written_by_hand_as_people_write_them(lab: Lab, operator: Operator, web: str) -> None:
    by_hand(lab, web, "<post_copy>No</post_copy><auto_converge>on</auto_converge>", "--live", "--config")
    read = operator.policy(web)
    assert read.result["policy"] == {"post_copy": False, "auto_converge": True}
    assert not operator.policy(web, post_copy=False).changed
    assert written(lab, web) == {"post_copy": "No", "auto_converge": "on"}
