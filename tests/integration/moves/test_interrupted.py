# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dies in the middle of a move: the control node, the watcher, the login session. The move does not."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

# What a busy machine may add: a poll, an abort, two readings of both hosts.
LATE_MS = 5000
UNSETTLED = ("accepted", "scheduled", "queued", "preparing", "running")


def is_running(lab: Lab, watcher: dict[str, t.Any]) -> bool:
    return lab.try_("exec", lab.host(1), "--", "kill", "-0", str(watcher["pid"])).returncode == 0


def killed_in_the_middle(lab: Lab, control: Control, name: str, **arguments: t.Any) -> Record:
    """Begin a move and kill Ansible; return the state file."""
    running = control.begin_move(name, **arguments)
    state = lab.under_way(lab.uuid(name))
    running.kill()
    assert is_running(lab, state["watcher"])
    assert control.only_record()["status"] in UNSETTLED
    return state


def finish_unseen(lab: Lab, control: Control, name: str) -> Record:
    """Kill Ansible and let the watcher end the move alone; the ledger does not know of it. Return the state file."""
    state = killed_in_the_middle(lab, control, name, bandwidth_mib=2)
    lab.hurry(name)
    uuid = state["domain"]["uuid"]

    def completed() -> Record | None:
        found = lab.state_file(uuid)
        return found if found and found["status"] == "completed" else None

    last = eventually(completed, "the watcher ends the move alone")
    eventually(lambda: not is_running(lab, state["watcher"]), "the watcher ends")
    assert lab.places(name) == {2: "running"}
    assert control.only_record()["status"] in UNSETTLED
    return last


def test_the_next_run_follows_what_a_killed_one_began(lab: Lab, control: Control, slow: str) -> None:
    state = killed_in_the_middle(lab, control, slow, bandwidth_mib=2)
    again = control.join_move(slow, timeout_seconds=99)
    assert (again.code, again.changed, again.ended()) == (0, True, ("completed", None)), again.text
    assert (again.record["id"], again.record["generation"]) == (state["id"], state["generation"])
    assert "timeout_seconds=99" in again.warnings
    assert control.only_record() == again.record
    assert lab.places(slow) == {2: "running"}


def test_a_timeout_holds_without_a_control_node(lab: Lab, control: Control, endless: str) -> None:
    state = killed_in_the_middle(lab, control, endless, bandwidth_mib=8, timeout_seconds=5)
    eventually(lambda: not lab.has_job(endless), "the watcher aborts")
    last = eventually(lambda: (found := lab.state_file(state["domain"]["uuid"])) and found["status"] == "cancelled" and found, "it is written down")
    assert last["reason"] == "timeout"
    assert last["result"]["elapsed_ms"] <= 5000 + LATE_MS
    assert lab.places(endless) == {1: "running"}


def test_a_move_that_ended_unseen_is_settled_by_the_next_run(lab: Lab, control: Control, slow: str) -> None:
    last = finish_unseen(lab, control, slow)
    again = control.move(slow)
    assert (again.code, again.ended()) == (0, ("completed", None)), again.text
    assert not again.changed
    assert again.record["result"] == last["result"]
    assert control.only_record() == again.record


def test_a_move_that_ended_unseen_is_found_out_without_its_state_file(lab: Lab, control: Control, slow: str) -> None:
    last = finish_unseen(lab, control, slow)
    lab.on(1, "rm", f"/run/kvmfleet/{last['domain']['uuid']}.json")
    again = control.move(slow)
    assert (again.code, again.ended()) == (0, ("completed", None)), again.text
    assert not again.changed
    assert again.record["id"] == last["id"]
    assert again.record["progress"]["percent"] == 100
    assert control.only_record() == again.record
    assert lab.places(slow) == {2: "running"}


def test_an_ended_move_to_elsewhere_is_settled_and_the_guest_is_not_fetched(lab: Lab, control: Control, slow: str) -> None:
    """It is no longer on this source: whoever wants it on a third host moves it from where it is."""
    finish_unseen(lab, control, slow)
    again = control.move(slow, 3)
    assert again.code != 0, again.text
    assert again.result["error_code"] == "not_found"
    assert control.only_record()["status"] == "completed"
    assert lab.places(slow) == {2: "running"}


def test_a_killed_watcher_is_replaced_at_once(lab: Lab, control: Control, endless: str) -> None:
    uuid = lab.uuid(endless)
    running = control.begin_move(endless, timeout_seconds=9, bandwidth_mib=8)
    first = lab.under_way(uuid)
    lab.on(1, "kill", "-9", str(first["watcher"]["pid"]))
    done = running.wait()
    assert done.refused() == "timeout"
    assert "has died" in done.warnings
    last = lab.state_file(uuid)
    assert last is not None
    assert last["watcher"]["pid"] != first["watcher"]["pid"]
    assert last["generation"] == done.record["generation"] > first["generation"]
    assert (done.record["id"], done.record["reason"]) == (first["id"], "timeout")
    # The clock did not start anew with the second watcher.
    assert 9000 <= done.record["result"]["elapsed_ms"] <= 9000 + LATE_MS
    assert control.only_record() == done.record
    assert lab.places(endless) == {1: "running"}


def test_the_next_run_watches_a_job_that_nobody_watches(lab: Lab, control: Control, slow: str) -> None:
    state = killed_in_the_middle(lab, control, slow, bandwidth_mib=2)
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    again = control.join_move(slow)
    assert (again.code, again.changed, again.ended()) == (0, True, ("completed", None)), again.text
    assert again.record["id"] == state["id"]
    assert again.record["generation"] > state["generation"]
    assert control.only_record() == again.record
    assert lab.places(slow) == {2: "running"}
