# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adaptive downtime: a busy guest is switched as soon as possible, and a move that converges is left alone."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session, acts, check_completed, check_stayed, course
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]

FIRST_MS, LONGEST_MS = 50, 500
# It writes much faster than its cap carries, also on a machine that has little time for it.
RACING = ("--mib", "96", "--dirty-mib", "64", "--rate", "24000")
# What a busy machine may add to a pause.
LATE_MS = 5000


def allowed(record: Record) -> list[int]:
    return [sample["allowed_downtime_ms"] for sample in record["samples"]]


def test_adaptive_downtime_grows_until_a_busy_guest_can_be_moved(lab: Lab, control: Session, guest: Make) -> None:
    """Its working set is transferred under the cap in 0.25 s; the ramp would have allowed that after minutes."""
    name = guest("busy", "--mib", "96", "--dirty-mib", "8", "--rate", "16000")
    done = control.move(name, bandwidth_mib=32)
    check_completed(lab, control, done, name)
    assert done.record["policy"]["downtime_strategy"] == {"value": "adaptive", "source": "default"}
    assert "downtime_allowed" in course(done.record)
    assert allowed(done.record)[0] == FIRST_MS
    assert FIRST_MS < allowed(done.record)[-1] <= LONGEST_MS
    assert (done.record["result"]["mode"], done.record["result"]["rung"]) == ("pre-copy", None)
    assert 0 < done.record["result"]["downtime_ms"] <= LONGEST_MS + LATE_MS
    assert done.record["result"]["predicted_downtime_ms"] <= LONGEST_MS
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_adaptive_downtime_stays_at_its_first_value_for_a_guest_that_converges(lab: Lab, control: Session, guest: Make) -> None:
    name = guest("calm", "--mib", "96", "--dirty-mib", "48", "--rate", "500")
    done = control.move(name, bandwidth_mib=32)
    check_completed(lab, control, done, name)
    assert set(allowed(done.record)) == {FIRST_MS}
    assert "downtime_allowed" not in course(done.record)


def test_a_known_link_allows_a_downtime_beyond_the_bandwidth_cap(lab: Lab, control: Session, guest: Make) -> None:
    """Its working set takes 8 s under the cap and less than 1 s at the speed of the link: the move converges without force."""
    racing = guest("racing", *RACING)
    done = control.move(racing, bandwidth_mib=8, link_mib=400)
    check_completed(lab, control, done, racing)
    assert acts(done.record) == ["migrate"]
    assert allowed(done.record)[-1] > LONGEST_MS
    assert done.record["result"]["predicted_downtime_ms"] <= LONGEST_MS
    assert 0 < done.record["result"]["downtime_ms"] <= LONGEST_MS + LATE_MS
    assert lab.check(racing)["intact"]


@pytest.mark.long
def test_without_a_known_link_the_allowed_downtime_never_exceeds_the_longest(lab: Lab, control: Session, guest: Make) -> None:
    """The longest downtime is allowed before half of the time is over; the move still times out."""
    racing = guest("racing", *RACING)
    done = control.move(racing, bandwidth_mib=8, timeout_seconds=32)
    check_stayed(lab, control, done, racing, ("cancelled", "timeout"), "timeout")
    assert max(allowed(done.record)) == LONGEST_MS
    assert any(sample["allowed_downtime_ms"] == LONGEST_MS and sample["elapsed_ms"] < 16_000 for sample in done.record["samples"])


@pytest.mark.long
def test_downtime_options_select_the_stepped_ramp_unless_adaptive_is_named(lab: Lab, control: Session, guest: Make) -> None:
    name = guest("ramped", "--mib", "96", "--dirty-mib", "8", "--rate", "16000")
    done = control.move(name, bandwidth_mib=32, downtime_ms=400, timeout_seconds=20)
    check_completed(lab, control, done, name)
    assert done.record["policy"]["downtime_strategy"] == {"value": "stepped", "source": "task"}
    assert "downtime_allowed" not in course(done.record)
    named = control.play(
        2, [("live_migrate", {"name": name, "destination": lab.host(1), "bandwidth_mib": 32, "downtime_ms": 400, "downtime_strategy": "adaptive"})]
    )
    assert named[0]["migrations"][0]["policy"]["downtime_strategy"] == {"value": "adaptive", "source": "task"}
    assert "downtime_allowed" in course(named[0]["migrations"][0])
