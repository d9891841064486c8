# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second session forces a move, or changes its bandwidth."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import migrate_by_virsh
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import BUSY_MS, Session, acts, check_completed, check_pause, course
from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]
# The endless guest's set under the cap that holds it takes a minute, and so would its pause: the cap is lifted first.
LONGEST_PAUSE_MS = 20_000


def test_a_move_in_pre_copy_is_forced(lab: Lab, control: Session, endless: str) -> None:
    running = control.begin_move(endless, **HELD)
    lab.under_way(lab.uuid(endless))
    predicted = control.force(endless, "--check")
    assert (predicted.code, predicted.changed, predicted.record["status"]) == (0, True, "running"), predicted.text
    assert lab.has_job(endless)
    forced = control.force(endless)
    assert (forced.code, forced.changed, forced.ended()) == (0, True, ("completed", None)), forced.text
    done = running.wait()
    check_completed(lab, control, done, endless)
    assert forced.record["id"] == done.record["id"]
    assert acts(done.record)[:2] == ["migrate", "force: bandwidth"]
    assert course(done.record).index("running") < course(done.record).index("force_complete")
    check_pause(done.record, LONGEST_PAUSE_MS)
    assert lab.check(endless)["intact"]


def test_a_move_that_permits_post_copy_is_forced_by_post_copy(lab: Lab, control: Session, endless: str) -> None:
    running = control.begin_move(endless, **HELD, post_copy=True)
    lab.under_way(lab.uuid(endless))
    forced = control.force(endless)
    assert (forced.code, forced.ended()) == (0, ("completed", None)), forced.text
    check_completed(lab, control, running.wait(), endless)
    assert (forced.record["result"]["mode"], forced.record["result"]["rung"]) == ("post-copy", "post_copy")
    assert lab.check(endless)["intact"]


@pytest.mark.long
def test_a_bandwidth_cap_of_the_force_task_is_kept(lab: Lab, control: Session, guest: Make) -> None:
    """The given cap stays, so the speed of the link without it is unknown: the prediction is for the capped rate, and the actual downtime is shorter."""
    endless = guest("endless", "--mib", "64", "--dirty-mib", "32", "--rate", "24000")
    running = control.begin_move(endless, **HELD)
    lab.under_way(lab.uuid(endless))
    forced = control.force(endless, bandwidth_mib=8)
    check_completed(lab, control, running.wait(), endless)
    assert (forced.record["result"]["mode"], forced.record["result"]["rung"]) == ("paused", "downtime")
    assert 0 < forced.record["result"]["downtime_ms"] <= 2 * forced.record["result"]["predicted_downtime_ms"] + BUSY_MS
    assert lab.virsh(2, "domstate", endless).strip() == "running"


@pytest.mark.long
def test_a_queued_move_cannot_be_forced(lab: Lab, control: Session, endless: str, guest: Make) -> None:
    queued = guest("queued", "--mib", "48")
    running = control.begin_moves([(endless, 2), (queued, 2)], parallel=1, **HELD)
    lab.under_way(lab.uuid(endless))
    refused = control.force(queued)
    assert refused.refused() == "invalid_state"
    assert "queued" in refused.msg
    assert control.force(endless).ended() == ("completed", None)
    done = running.wait()
    assert [record["status"] for record in done.records] == ["completed", "completed"], done.text
    assert "force_complete" not in course(done.records[1])
    assert (lab.places(queued), lab.places(endless)) == ({2: "running"}, {2: "running"})


@pytest.mark.long
def test_force_without_a_move_or_with_bad_options_is_refused(lab: Lab, control: Session, slow: str) -> None:
    assert control.force(slow).refused() == "not_found"
    assert control.force(slow, complete=False, bandwidth_mib=1).refused() == "not_found"
    assert control.force("nobody").refused() == "not_found"
    assert control.force(slow, complete=False).refused() == "invalid_argument"
    assert control.force(slow, bandwidth_mib=-1).refused() == "invalid_argument"
    assert lab.places(slow) == {1: "running"}


@pytest.mark.long
def test_the_bandwidth_of_a_move_is_changed_without_forcing_it(lab: Lab, control: Session, endless: str) -> None:
    running = control.begin_move(endless, **HELD, timeout_seconds=600)
    lab.under_way(lab.uuid(endless))
    changed = control.force(endless, complete=False, bandwidth_mib=4)
    assert (changed.code, changed.changed, changed.record["status"]) == (0, True, "running"), changed.text
    assert lab.virsh(1, "migrate-getspeed", endless).strip() == "4"
    assert "force_complete" not in course(changed.record)
    assert lab.has_job(endless)
    assert control.force(endless, complete=False, bandwidth_mib=0).changed
    check_completed(lab, control, running.wait(), endless)


@pytest.mark.long
def test_the_bandwidth_of_a_move_is_changed_in_post_copy(lab: Lab, control: Session, endless: str) -> None:
    """libvirt has separate bandwidths for pre-copy and post-copy."""
    running = control.begin_move(endless, **HELD, post_copy=True, post_copy_bandwidth_mib=1)
    lab.under_way(lab.uuid(endless))
    forced = control.force(endless, wait_seconds=1)
    assert (forced.code != 0, forced.changed, forced.result["error_code"]) == (True, True, "timeout"), forced.text
    changed = control.force(endless, complete=False, bandwidth_mib=2)
    assert (changed.code, changed.record["status"]) == (0, "running (post-copy)"), changed.text
    assert lab.virsh(1, "migrate-getspeed", endless, "--postcopy").strip() == "2"
    assert control.force(endless, complete=False, bandwidth_mib=0).changed
    check_completed(lab, control, running.wait(), endless)


@pytest.mark.long
def test_a_foreign_job_is_forced(lab: Lab, control: Session, endless: str, foreign: subprocess.Popen[str]) -> None:
    forced = control.force(endless)
    assert (forced.code, forced.changed) == (0, True), forced.text
    foreign.communicate(timeout=LIMIT_SECONDS)
    assert foreign.returncode == 0
    assert lab.places(endless) == {2: "running"}
    assert lab.check(endless)["intact"]


@pytest.mark.long
def test_a_foreign_job_is_forced_on_after_its_task_has_ended(lab: Lab, control: Session, mended: None, guest: Make) -> None:
    name = guest("web", "--mib", "128", "--dirty-mib", "48", "--rate", "8100")
    lab("slow", lab.host(1), "--mbit", "16")
    with migrate_by_virsh(lab, name) as foreign:
        forced = control.force(name, wait_seconds=5)
        assert (forced.code != 0, forced.result["error_code"]) == (True, "timeout"), forced.text
        assert "continues there to force the migration" in forced.msg
        foreign.communicate(timeout=LIMIT_SECONDS)
        assert foreign.returncode == 0
    assert lab.places(name) == {2: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "rung", "why"),
    [
        ("", "force: post_copy", None),
        ("<post_copy>False</post_copy>", "force: bandwidth", "its policy forbids post-copy"),
        ("<profile>database</profile>", "force: bandwidth", "which this host cannot read"),
        ("<auto_converge>yes</auto_converge>", "force: bandwidth", "its policy requests auto-converge"),
        ("<post_copy>perhaps</post_copy>", "force: bandwidth", "its policy cannot be read (post_copy)"),
    ],
)
def test_a_foreign_job_that_permits_post_copy_is_forced_as_the_policy_of_its_guest_permits(
    lab: Lab, control: Session, endless: str, policy: str, rung: str, why: str | None
) -> None:
    lab.virsh(1, "metadata", endless, "urn:kvmfleet:migration:policy", "kvmfleet", f"<policy>{policy}</policy>", "--live", "--config")
    with migrate_by_virsh(lab, endless, "--postcopy"):
        forced = control.force(endless)
    assert (forced.code, forced.changed) == (0, True), forced.text
    assert acts(forced.record)[0] == rung
    assert ("is not switched to post-copy" in forced.warnings, (why or "") in forced.warnings) == (why is not None, True)
    assert lab.places(endless) == {2: "running"}
    assert lab.check(endless)["intact"]
