# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move that version 0.1.0 began, and whose watcher is still of that version: the present code follows, settles, aborts and forces it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.golden.unpacked import VERSION_0_1_0, NoHistory, unpack
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session, acts, check_completed, check_stayed
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

MODULE = "kvmfleet.migration.live_migrate"
Ended = tuple[str, t.Optional[str]]
FINAL = ("completed", "failed", "cancelled", "error")


@pytest.fixture(scope="session")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The collection of version 0.1.0, where Ansible finds it."""
    try:
        return unpack(VERSION_0_1_0, tmp_path_factory.mktemp("old"))
    except NoHistory as error:
        pytest.fail(str(error))


@pytest.fixture
def control_type() -> type[Session]:
    return Session


@pytest.fixture
def old(control: Session, old_tree: pathlib.Path) -> Session:
    """The same control node, with the same ledger, before its upgrade."""
    old = Session(control.lab, control.folder)
    old.environment.update(ANSIBLE_COLLECTIONS_PATH=str(old_tree), PYTHONPATH=str(old_tree))
    return old


def test_the_old_version_is_used_before_the_upgrade(control: Session, old: Session, old_tree: pathlib.Path) -> None:
    """Otherwise the other scenarios would show nothing."""
    assert _module_file(old).startswith(str(old_tree))
    assert not _module_file(control).startswith(str(old_tree))


def _module_file(control: Session) -> str:
    """Return the file of the module that the tasks of a control node run."""
    done = subprocess.run(["ansible-doc", "-j", "-t", "module", MODULE], env=control.environment, capture_output=True, text=True, check=True, timeout=120)
    return str(json.loads(done.stdout)[MODULE]["doc"]["filename"])


def begun(lab: Lab, old: Session, name: str, **arguments: t.Any) -> tuple[Running, Record]:
    """Let version 0.1.0 begin a move; return its task and what its watcher has written."""
    running = old.begin_move(name, 2, **arguments)
    return running, lab.under_way(lab.uuid(name))


@pytest.mark.long
def test_a_move_of_the_old_version_is_followed_to_its_end(lab: Lab, control: Session, old: Session, slow: str) -> None:
    running, state = begun(lab, old, slow, **HELD)
    running.kill()
    done = control.join_move(slow, **HELD)
    check_completed(lab, control, done, slow)
    assert (done.record["id"], done.record["generation"]) == (state["id"], state["generation"])
    last = lab.state_file(state["domain"]["uuid"])
    assert last is not None
    assert last["watcher"] == state["watcher"]


@pytest.mark.long
def test_a_move_whose_old_watcher_has_died_is_taken_over(lab: Lab, control: Session, old: Session, slow: str) -> None:
    running, state = begun(lab, old, slow, **HELD)
    running.kill()
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    done = control.join_move(slow, **HELD)
    check_completed(lab, control, done, slow)
    assert done.record["id"] == state["id"]
    assert done.record["generation"] > state["generation"]
    assert acts(done.record).count("migrate") == 1


@pytest.mark.long
@pytest.mark.parametrize("watcher", ["has ended", "was killed"])
def test_a_move_of_the_old_version_that_ended_without_a_follower_is_settled(lab: Lab, control: Session, old: Session, slow: str, watcher: str) -> None:
    running, state = begun(lab, old, slow, **HELD)
    uuid = state["domain"]["uuid"]
    running.kill()
    if watcher == "was killed":
        lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    lab.hurry(slow)
    eventually(lambda: lab.places(slow) == {2: "running"}, "the guest arrives")
    if watcher == "has ended":
        eventually(lambda: (lab.state_file(uuid) or state)["status"] in FINAL, "the watcher has written its last word")
    assert control.only_record()["status"] not in FINAL
    done = control.move(slow)
    assert done.code == 0, done.text
    record = control.only_record()
    assert (record["id"], record["status"], record["reason"]) == (state["id"], "completed", None)
    assert lab.places(slow) == {2: "running"}


@pytest.mark.long
def test_a_move_of_the_old_version_is_aborted(lab: Lab, control: Session, old: Session, endless: str) -> None:
    running, state = begun(lab, old, endless, **HELD)
    aborted = control.abort(endless)
    check_acted(aborted, state, ("cancelled", "operator"))
    done = running.wait()
    check_stayed(lab, control, done, endless, ("cancelled", "operator"), "aborted")
    assert acts(done.record) == ["migrate", "abort: operator"]


@pytest.mark.long
def test_a_move_of_the_old_version_is_forced(lab: Lab, control: Session, old: Session, endless: str) -> None:
    running, state = begun(lab, old, endless, **HELD)
    forced = control.force(endless)
    check_acted(forced, state, ("completed", None))
    done = running.wait()
    check_completed(lab, control, done, endless)
    assert acts(done.record)[:2] == ["migrate", "force: bandwidth"]


@pytest.mark.long
@pytest.mark.parametrize(("act", "ended", "place"), [("abort", ("cancelled", "operator"), 1), ("force", ("completed", None), 2)])
def test_an_act_on_a_move_whose_old_watcher_has_died_starts_a_new_watcher(
    lab: Lab, control: Session, old: Session, endless: str, act: str, ended: Ended, place: int
) -> None:
    running, state = begun(lab, old, endless, **HELD)
    running.kill()
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    acted = control.abort(endless) if act == "abort" else control.force(endless)
    check_acted(acted, state, ended)
    assert acted.record["generation"] > state["generation"]
    assert lab.places(endless) == {place: "running"}
    # What the new watcher has written is what the next run finds, and closes the record with.
    done = control.move(endless)
    assert done.code == 0, done.text
    record = control.records()[0]
    assert (record["id"], record["status"], record["reason"]) == (state["id"], *ended)


def check_acted(acted: Outcome, state: Record, ended: Ended) -> None:
    """Check that a task acted on the move that the old version began, and says so."""
    assert (acted.code, acted.changed, acted.ended()) == (0, True, ended), acted.text
    assert acted.record["id"] == state["id"]
