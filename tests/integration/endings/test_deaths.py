# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What dies while a guest is in post-copy, or between two watchers: the guest goes on where it can, and nothing is destroyed where it cannot."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import contradict, kill_hypervisor, state_of
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.phases import POST_COPY, await_post_copy
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session, acts, check_completed
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]

pytestmark = pytest.mark.usefixtures("mended")

CALM = ("--mib", "64", "--dirty-mib", "40", "--rate", "500")
SIDES = [pytest.param(1, id="source"), pytest.param(2, id="destination")]


@pytest.fixture
def calm(guest: Make) -> str:
    """A guest whose post-copy takes long: it reaches for its pages slowly."""
    return guest("calm", *CALM)


@pytest.fixture
def forgetful(lab: Lab, mended: None) -> t.Iterator[None]:
    """Kill libvirtd at the source afterwards: it holds the job of a guest that died in post-copy, and lets nobody undefine it."""
    yield
    lab("libvirtd", lab.host(1), "kill")


@pytest.mark.parametrize("side", SIDES)
def test_libvirtd_dies_in_post_copy(lab: Lab, control: Session, calm: str, side: int) -> None:
    """The hypervisors end it alone; the definition that libvirt then leaves on the source is removed."""
    running = control.begin_move(calm, **POST_COPY)
    await_post_copy(lab, calm)
    lab("libvirtd", lab.host(side), "kill")
    done = running.wait()
    check_completed(lab, control, done, calm)
    assert done.record["result"]["mode"] == "post-copy"
    assert lab.check(calm)["intact"]


@pytest.mark.parametrize("side", SIDES)
def test_libvirtd_is_restarted_in_pre_copy(lab: Lab, control: Session, calm: str, side: int) -> None:
    running = control.begin_move(calm, bandwidth_mib=4)
    lab.under_way(lab.uuid(calm))
    lab("libvirtd", lab.host(side), "restart")
    done = running.wait()
    assert done.record["status"] in ("completed", "failed"), done.text
    where = 2 if done.record["status"] == "completed" else 1
    eventually(lambda: lab.places(calm) == {where: "running"}, f"the guest is where the record says: {done.record['status']}")
    assert control.only_record() == done.record
    assert lab.check(calm)["intact"]


def test_the_hypervisor_at_the_destination_dies_in_post_copy(lab: Lab, control: Session, calm: str) -> None:
    """What it had written there is lost: the old copy on the source is never let run, and never removed."""
    running = control.begin_move(calm, **POST_COPY)
    await_post_copy(lab, calm)
    kill_hypervisor(lab, 2, calm)
    done = running.wait()
    assert done.ended() == ("error", "memory_lost"), done.text
    assert done.result["error_code"] == "internal"
    assert state_of(lab, calm, 1) == "paused (post-copy failed)"
    assert not {"destroy_source", "resume_source", "undefine_destination"} & set(acts(done.record))
    assert control.only_record() == done.record
    again = control.move(calm)
    assert again.code != 0, again.text
    assert control.only_record()["status"] == "error"
    assert state_of(lab, calm, 1) == "paused (post-copy failed)"


@pytest.mark.usefixtures("forgetful")
def test_the_hypervisor_at_the_source_dies_in_post_copy(lab: Lab, control: Session, calm: str) -> None:
    """Pages that only it had are lost: the guest at the destination is left as it is, for a person to end."""
    running = control.begin_move(calm, **POST_COPY)
    await_post_copy(lab, calm)
    kill_hypervisor(lab, 1, calm)
    done = running.wait()
    assert done.ended() == ("error", "memory_lost"), done.text
    assert state_of(lab, calm, 1).startswith("shut off")
    assert state_of(lab, calm, 2) in ("running (post-copy failed)", "paused (post-copy failed)")
    assert control.only_record() == done.record


def test_the_watcher_dies_in_post_copy(lab: Lab, control: Session, calm: str) -> None:
    running = control.begin_move(calm, **POST_COPY)
    state = await_post_copy(lab, calm)
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    done = running.wait()
    check_completed(lab, control, done, calm)
    assert (done.record["id"], done.record["result"]["mode"]) == (state["id"], "post-copy")
    assert done.record["generation"] > state["generation"]
    assert "has died" in done.warnings
    assert lab.check(calm)["intact"]


def test_the_watcher_and_the_control_node_die_in_post_copy(lab: Lab, control: Session, calm: str) -> None:
    running = control.begin_move(calm, **POST_COPY)
    state = await_post_copy(lab, calm)
    running.kill()
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    again = control.move(calm)
    assert (again.code, again.ended()) == (0, ("completed", None)), again.text
    assert (again.record["id"], again.record["result"]["mode"]) == (state["id"], "post-copy")
    assert lab.places(calm) == {2: "running"}
    assert control.only_record() == again.record


def test_a_watcher_that_takes_over_goes_on_forcing(lab: Lab, control: Session, endless: str) -> None:
    """It knows which rung was tried from the record; it comes to the next one."""
    lab("slow", lab.host(1), "--mbit", "64")
    with contradict(lab, endless):
        running = control.begin_move(endless, timeout_seconds=9, on_timeout="force_complete", force_suspend_seconds=4)

        def forced() -> dict[str, t.Any] | None:
            state = lab.state_file(lab.uuid(endless))
            return state if state and "force: downtime" in acts(state) else None

        state = eventually(forced, "the watcher has begun to force")
        lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
        done = running.wait()
    check_completed(lab, control, done, endless)
    assert done.record["generation"] > state["generation"]
    assert acts(done.record).count("migrate") == 1
    assert acts(done.record)[-1] == "force: suspend"
    assert (done.record["result"]["mode"], done.record["result"]["rung"]) == ("paused", "suspend")
    assert lab.check(endless)["intact"]
