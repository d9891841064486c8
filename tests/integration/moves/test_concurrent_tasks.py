# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several tasks for one domain at the same time: one job, one record, and a conflict for all others."""

from __future__ import annotations

import json
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import BUILD, LIMIT_SECONDS, Control, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, HELD, Lab, eventually

START = """\
import json, sys
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.run import start_moves
print(json.dumps(start_moves("qemu:///system", json.load(sys.stdin))))
"""


def start_phase(lab: Lab, record: Record) -> dict[str, t.Any]:
    """Call the module's start phase on the first host, as a control node does that was asleep for a while."""
    uri = record["connection"]["destination_uri"]
    order = {"record": record, "source_uri": "qemu:///system", "destination_uri": uri, "flags": ["live", "peer2peer"]}
    work = json.dumps({"run_id": record["id"], "parallel": 1, "orders": [order]})
    command = ("exec", lab.host(1), "--", "env", f"PYTHONPATH={BUILD}", "/usr/bin/python3", "-B", "-c", START)
    done = lab.try_(*command, stdin=work)
    assert done.returncode == 0, done.stderr
    return t.cast("dict[str, t.Any]", json.loads(done.stdout))


@pytest.fixture
def foreign(lab: Lab, slow: str) -> t.Iterator[subprocess.Popen[str]]:
    """A migration that somebody began with virsh."""
    uri = f"qemu+tcp://{lab.host(2)}/system"
    options = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--bandwidth", "1", slow, uri)
    command = [str(COMMAND), "--prefix", lab.prefix, "virsh", lab.host(1), *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        eventually(lambda: lab.has_job(slow), "virsh migrates")
        yield process
        process.communicate(timeout=LIMIT_SECONDS)


def give_up(lab: Lab, guest: str, running: Running) -> None:
    """Abort a move as an operator does; its task says so, and the guest stays."""
    lab.virsh(1, "domjobabort", guest)
    done = running.wait()
    assert done.refused() == "aborted"
    assert done.ended() == ("cancelled", "operator")
    assert lab.places(guest) == {1: "running"}


@pytest.mark.long
def test_a_second_task_with_another_ledger_is_refused_during_a_move(lab: Lab, control: Control, endless: str) -> None:
    first = control.begin_move(endless, **HELD)
    lab.under_way(lab.uuid(endless))
    rival = control.move(endless, ledger=str(control.folder / "other"))
    assert rival.refused() == "conflict"
    assert "ledger" in rival.msg
    give_up(lab, endless, first)


@pytest.mark.long
def test_a_start_order_with_an_old_generation_is_refused(lab: Lab, control: Control, endless: str) -> None:
    record = control.move(endless, timeout_seconds=1, **HELD).record
    late = {**record, "status": "queued", "acts": [], "history": record["history"][:3]}
    answer = start_phase(lab, late)
    assert answer["taken"] == {}
    refusal = answer["refused"][record["domain"]["uuid"]]
    assert refusal["error_code"] == "conflict"
    assert "too late" in refusal["msg"]
    assert lab.places(endless) == {1: "running"}
    assert not lab.has_job(endless)


@pytest.mark.long
def test_a_start_order_is_refused_while_a_watcher_runs(lab: Lab, control: Control, endless: str) -> None:
    running = control.begin_move(endless, **HELD)
    state = lab.under_way(lab.uuid(endless))
    answer = start_phase(lab, {**state, "status": "queued", "generation": state["generation"] + 1})
    assert answer["taken"] == {}
    assert "already watched" in answer["refused"][state["domain"]["uuid"]]["msg"]
    give_up(lab, endless, running)
    assert control.only_record()["generation"] == state["generation"]


def test_a_foreign_job_is_adopted(lab: Lab, control: Control, slow: str, foreign: subprocess.Popen[str]) -> None:
    adopted = control.join_move(slow)
    assert (adopted.code, adopted.changed, adopted.ended()) == (0, True, ("completed", None)), adopted.text
    assert [line["status"] for line in adopted.record["history"]][:2] == ["accepted", "running"]
    assert "migrate" not in [act["act"] for act in adopted.record["acts"]]
    assert isinstance(adopted.record["result"]["elapsed_ms"], int)
    assert control.only_record() == adopted.record
    foreign.communicate(timeout=LIMIT_SECONDS)
    assert foreign.returncode == 0
    assert lab.places(slow) == {2: "running"}


@pytest.mark.long
def test_a_foreign_job_to_another_destination_is_a_conflict(lab: Lab, control: Control, slow: str, foreign: subprocess.Popen[str]) -> None:
    rival = control.move(slow, 3)
    assert rival.refused() == "conflict"
    assert slow in rival.msg
    assert lab.host(3) in rival.msg
    assert control.records() == []
    lab.hurry(slow)
    foreign.communicate(timeout=LIMIT_SECONDS)
    assert lab.places(slow) == {2: "running"}
