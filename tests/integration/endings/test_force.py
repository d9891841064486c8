# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second session that makes a move end, or changes how fast it goes."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import BUSY_MS, Session, acts, check_completed, check_pause, course
from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]
# The endless guest's set under the cap that holds it takes a minute, and so would its pause: the cap is lifted first.
LONGEST_PAUSE_MS = 20_000


def test_in_pre_copy(lab: Lab, control: Session, endless: str) -> None:
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


def test_where_post_copy_is_permitted(lab: Lab, control: Session, endless: str) -> None:
    running = control.begin_move(endless, **HELD, post_copy=True)
    lab.under_way(lab.uuid(endless))
    forced = control.force(endless)
    assert (forced.code, forced.ended()) == (0, ("completed", None)), forced.text
    check_completed(lab, control, running.wait(), endless)
    assert (forced.record["result"]["mode"], forced.record["result"]["rung"]) == ("post-copy", "post_copy")
    assert lab.check(endless)["intact"]


def test_with_a_cap_of_its_own(lab: Lab, control: Session, guest: Make) -> None:
    """The cap that is given stays. What a link without it would carry is not known then: the pause is predicted from the cap, and is shorter."""
    endless = guest("endless", "--mib", "64", "--dirty-mib", "32", "--rate", "24000")
    running = control.begin_move(endless, **HELD)
    lab.under_way(lab.uuid(endless))
    forced = control.force(endless, bandwidth_mib=8)
    check_completed(lab, control, running.wait(), endless)
    assert (forced.record["result"]["mode"], forced.record["result"]["rung"]) == ("paused", "downtime")
    assert 0 < forced.record["result"]["downtime_ms"] <= 2 * forced.record["result"]["predicted_downtime_ms"] + BUSY_MS
    assert lab.virsh(2, "domstate", endless).strip() == "running"


def test_what_has_not_begun(lab: Lab, control: Session, endless: str, guest: Make) -> None:
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
def test_nothing_to_force(lab: Lab, control: Session, slow: str) -> None:
    assert control.force(slow).refused() == "not_found"
    assert control.force(slow, complete=False, bandwidth_mib=1).refused() == "not_found"
    assert control.force("nobody").refused() == "not_found"
    assert control.force(slow, complete=False).refused() == "invalid_argument"
    assert control.force(slow, bandwidth_mib=-1).refused() == "invalid_argument"
    assert lab.places(slow) == {1: "running"}


@pytest.mark.long
def test_only_its_speed(lab: Lab, control: Session, endless: str) -> None:
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
def test_its_speed_in_post_copy(lab: Lab, control: Session, endless: str) -> None:
    """Libvirt keeps that of post-copy apart from the one before it."""
    running = control.begin_move(endless, **HELD, post_copy=True, post_copy_bandwidth_mib=1)
    lab.under_way(lab.uuid(endless))
    assert control.force(endless, wait_seconds=1).refused() == "timeout"
    changed = control.force(endless, complete=False, bandwidth_mib=2)
    assert (changed.code, changed.record["status"]) == (0, "running (post-copy)"), changed.text
    assert lab.virsh(1, "migrate-getspeed", endless, "--postcopy").strip() == "2"
    assert control.force(endless, complete=False, bandwidth_mib=0).changed
    check_completed(lab, control, running.wait(), endless)


@pytest.mark.long
def test_a_migration_that_is_not_ours(lab: Lab, control: Session, endless: str, foreign: subprocess.Popen[str]) -> None:
    forced = control.force(endless)
    assert (forced.code, forced.changed) == (0, True), forced.text
    foreign.communicate(timeout=LIMIT_SECONDS)
    assert foreign.returncode == 0
    assert lab.places(endless) == {2: "running"}
    assert lab.check(endless)["intact"]
