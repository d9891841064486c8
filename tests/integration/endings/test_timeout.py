# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move that does not converge at its timeout: it is aborted, or forced by the rungs that it permits."""

from __future__ import annotations

import datetime
import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import contradict
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import (
    Session,
    acts,
    check_completed,
    check_pause,
    check_stayed,
    course,
)
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

LIMIT_SECONDS = 8
# Under this cap the busy guest's set takes 25 seconds to come over once: it has not arrived when the time is over, however slowly it writes.
CAP_MIB = 8
# A suspend under the cap would cost as long as that. What is done instead is much shorter, also on a busy machine.
LONGEST_PAUSE_MS = 12_000
# What a busy machine may add to the limit: a poll, an abort, two readings of both hosts.
LATE_MS = 60_000
# So long that slowness is no reason for a suspend.
PATIENT = {"force_suspend_seconds": 300}

# The longest pause that a policy allows here. The suspended guest's memory needs more over the slow cable, and less than the default of 30 s.
PAUSE_SECONDS = 2

# A cable of 8 MiB/s.
SLOW_MBIT = 64


@pytest.fixture
def slow_cable(lab: Lab) -> t.Iterator[None]:
    lab("slow", lab.host(1), "--mbit", str(SLOW_MBIT))
    yield
    lab("heal", lab.host(1))


@pytest.fixture
def contradicted(lab: Lab, endless: str, slow_cable: None) -> t.Iterator[str]:
    """A guest that does not converge on a slow link; another program sets every allowed downtime back."""
    with contradict(lab, endless):
        yield endless


def test_a_move_is_aborted_at_its_timeout(lab: Lab, control: Session, busy: str) -> None:
    before = lab.check(busy)["increments"]
    done = control.move(busy, timeout_seconds=LIMIT_SECONDS, on_timeout="abort", bandwidth_mib=CAP_MIB)
    check_stayed(lab, control, done, busy, ("cancelled", "timeout"), "timeout")
    assert acts(done.record) == ["migrate", "abort: timeout"]
    assert LIMIT_SECONDS * 1000 <= done.record["result"]["elapsed_ms"] <= LIMIT_SECONDS * 1000 + LATE_MS
    after = lab.check(busy)
    assert after["intact"]
    assert after["increments"] > before


@pytest.mark.long
def test_a_move_is_forced_at_its_timeout(lab: Lab, control: Session, busy: str) -> None:
    done = control.move(busy, timeout_seconds=LIMIT_SECONDS, on_timeout="force_complete", bandwidth_mib=CAP_MIB, **PATIENT)
    check_completed(lab, control, done, busy)
    record = done.record
    assert record["policy"]["on_timeout"] == {"value": "force_complete", "source": "task"}
    assert acts(record)[:2] == ["migrate", "force: bandwidth"]
    assert "force: suspend" not in acts(record)
    assert course(record).index("running") < course(record).index("force_complete") < course(record).index("completed")
    assert record["result"]["mode"] == ("paused" if record["result"]["rung"] == "downtime" else "pre-copy")
    assert record["result"]["elapsed_ms"] >= LIMIT_SECONDS * 1000
    check_pause(record, LONGEST_PAUSE_MS)
    assert lab.check(busy)["intact"]


@pytest.mark.long
def test_a_move_is_forced_by_post_copy_at_its_timeout(lab: Lab, control: Session, busy: str) -> None:
    done = control.move(busy, timeout_seconds=LIMIT_SECONDS, on_timeout="force_complete", bandwidth_mib=CAP_MIB, post_copy=True)
    check_completed(lab, control, done, busy)
    record = done.record
    assert (record["result"]["mode"], record["result"]["rung"]) == ("post-copy", "post_copy")
    assert acts(record)[:2] == ["migrate", "force: post_copy"]
    assert "running (post-copy)" in course(record)
    assert record["result"]["downtime_ms"] < LONGEST_PAUSE_MS
    assert lab.check(busy)["intact"]


@pytest.mark.long
@pytest.mark.usefixtures("slow_cable")
def test_on_a_slow_link_the_downtime_is_about_the_predicted_one(lab: Lab, control: Session, endless: str) -> None:
    """There is no cap to lift: the first rung is the downtime that the remaining memory needs."""
    done = control.move(endless, timeout_seconds=10, on_timeout="force_complete")
    check_completed(lab, control, done, endless)
    record = done.record
    assert (record["result"]["mode"], record["result"]["rung"]) == ("paused", "downtime")
    assert acts(record) == ["migrate", "force: downtime"]
    # The set of 64 MiB crosses it in 8 s; an allowed pause of half a second never did.
    assert record["result"]["downtime_ms"] > 1000
    check_pause(record, 30_000)
    assert lab.check(endless)["intact"]


@pytest.mark.long
def test_the_last_rung_suspends_the_guest_and_it_runs_at_the_destination(lab: Lab, control: Session, contradicted: str) -> None:
    """The guest runs at the destination: the watcher suspended it, not its owner."""
    done = control.move(contradicted, timeout_seconds=9, on_timeout="force_complete", force_suspend_seconds=3)
    check_completed(lab, control, done, contradicted)
    record = done.record
    assert (record["result"]["mode"], record["result"]["rung"]) == ("paused", "suspend")
    assert acts(record) == ["migrate", "force: downtime", "force: suspend"]
    # How much was written since the hypervisor's last look can only be guessed.
    check_pause(record, 40_000, factor=3)
    assert lab.check(contradicted)["intact"]


@pytest.mark.long
def test_a_watcher_that_takes_over_continues_with_the_next_rung(lab: Lab, control: Session, contradicted: str) -> None:
    """The record has the last rung; the new watcher continues with the next one."""
    running = control.begin_move(contradicted, timeout_seconds=9, on_timeout="force_complete", force_suspend_seconds=4)

    def forced() -> Record | None:
        state = lab.state_file(lab.uuid(contradicted))
        return state if state and "force: downtime" in acts(state) else None

    state = eventually(forced, "the watcher has begun to force")
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    done = running.wait()
    check_completed(lab, control, done, contradicted)
    assert done.record["generation"] > state["generation"]
    assert acts(done.record).count("migrate") == 1
    assert acts(done.record)[-1] == "force: suspend"
    assert (done.record["result"]["mode"], done.record["result"]["rung"]) == ("paused", "suspend")
    assert lab.check(contradicted)["intact"]


@pytest.mark.long
def test_a_suspend_that_exceeds_its_limit_is_ended_and_the_guest_stays(lab: Lab, control: Session, contradicted: str) -> None:
    """The link is slower than configured: the guest that the watcher suspended is resumed on its source."""
    limits = {"timeout_seconds": 9, "on_timeout": "force_complete", "force_suspend_seconds": 0, "force_pause_max_seconds": 2, "link_mib": 1000}
    done = control.move(contradicted, **limits)
    check_stayed(lab, control, done, contradicted, ("cancelled", "pause_overrun"), "timeout")
    assert acts(done.record)[:4] == ["migrate", "force: downtime", "force: suspend", "abort: pause_overrun"]
    assert lab.check(contradicted)["intact"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("xml", "variables", "source"),
    [
        (f"<force_pause_max_seconds>{PAUSE_SECONDS}</force_pause_max_seconds>", {}, "domain"),
        ("<profile>gentle</profile>", {"kvmfleet_profiles": {"gentle": {"force_pause_max_seconds": PAUSE_SECONDS}}}, "profile"),
        ("", {"kvmfleet_migration_policy": {"force_pause_max_seconds": PAUSE_SECONDS}}, "host"),
    ],
)
def test_the_longest_pause_of_domain_profile_or_host_ends_a_suspend(
    lab: Lab, control: Session, contradicted: str, xml: str, variables: dict[str, t.Any], source: str
) -> None:
    """The link is slower than configured, so the prediction is far below the limit, which alone ends the pause. With the default, the move would complete."""
    if xml:
        lab.virsh(1, "metadata", contradicted, "urn:kvmfleet:migration:policy", "kvmfleet", f"<policy>{xml}</policy>", "--live", "--config")
    forced = {"timeout_seconds": 9, "on_timeout": "force_complete", "force_suspend_seconds": 0, "link_mib": 1000}
    done = control.move(contradicted, 2, "-e", json.dumps(variables), **forced)
    check_stayed(lab, control, done, contradicted, ("cancelled", "pause_overrun"), "timeout")
    assert done.record["policy"]["force_pause_max_seconds"] == {"value": PAUSE_SECONDS, "source": source}
    assert acts(done.record)[:4] == ["migrate", "force: downtime", "force: suspend", "abort: pause_overrun"]
    begun, ended = (datetime.datetime.fromisoformat(act["at"]) for act in done.record["acts"][2:4])
    print(f"paused for {(ended - begun).total_seconds()} s")
    assert (ended - begun).total_seconds() >= PAUSE_SECONDS
    assert lab.check(contradicted)["intact"]


@pytest.mark.long
def test_auto_converge_is_never_switched_to_post_copy(lab: Lab, control: Session, endless: str) -> None:
    done = control.move(endless, timeout_seconds=4, on_timeout="force_complete", bandwidth_mib=8, auto_converge=True)
    check_completed(lab, control, done, endless)
    assert "force: post_copy" not in acts(done.record)
    assert done.record["result"]["mode"] in ("paused", "pre-copy")
    # A throttled guest mostly converges by itself; then the pause is shorter than what was predicted.
    assert 0 < done.record["result"]["downtime_ms"] < 8000


@pytest.mark.long
def test_a_paused_guest_stays_paused_and_is_not_switched_to_post_copy(lab: Lab, control: Session, endless: str) -> None:
    lab.virsh(1, "suspend", endless)
    done = control.move(endless, post_copy=True, timeout_seconds=3, on_timeout="force_complete", bandwidth_mib=8)
    assert (done.code, done.ended()) == (0, ("completed", None)), done.text
    assert done.record["before"]["state"] == "paused"
    assert "running (post-copy)" not in course(done.record)
    assert lab.places(endless) == {2: "paused"}
    assert control.only_record() == done.record
