# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is printed during a move, and to whom: at a terminal, to ansible-runner, and to nobody."""

from __future__ import annotations

import json
import re
import signal
import typing as t

import ansible_runner
import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS, Control, Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

RUNNING = re.compile(r"\[(?P<lab>\w+)1\] (?P=lab)1 -> (?P=lab)2 +slow +running +\d+ % +\d+ MiB left +\d+ MiB/s .*pause <= \d+ ms")

ARROW = "1 -> "

PLAY = """\
- hosts: {host}
  gather_facts: false
  tasks:
    - name: Move
      kvmfleet.migration.live_migrate: {arguments}
      no_log: {no_log}
"""


@pytest.fixture
def own_signals() -> t.Iterator[None]:
    """Take back the signals that ansible-runner catches for itself and keeps, or a test run could not be ended any more."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def write_play(lab: Lab, control: Control, name: str, no_log: bool = False) -> str:
    arguments = {"name": name, "destination": lab.host(2), "bandwidth_mib": 12, "ledger": str(control.path)}
    path = control.folder / "play.yml"
    path.write_text(PLAY.format(host=lab.host(1), arguments=json.dumps(arguments), no_log=str(no_log).lower()))
    return str(path)


@pytest.mark.long
def test_progress_lines_are_printed_without_verbosity(lab: Lab, control: Control, slow: str) -> None:
    done = control.move(slow, bandwidth_mib=12)
    assert done.code == 0
    assert any(RUNNING.match(line) for line in done.lines), done.text
    assert any("completed" in line and "paused" in line for line in done.lines)
    percents = [int(found[1]) for line in done.lines if (found := re.search(r" (\d+) % ", line))]
    assert percents == sorted(percents)
    assert len(done.lines) < 30


@pytest.mark.long
def test_progress_none_prints_nothing(control: Control, slow: str) -> None:
    done: Outcome = control.move(slow, progress="none")
    assert done.ended() == ("completed", None)
    assert done.lines == []


@pytest.mark.long
def test_no_log_prints_nothing(lab: Lab, control: Control, slow: str) -> None:
    process = control.popen(["ansible-playbook", "-i", control.inventory, write_play(lab, control, slow, no_log=True)])
    text, dummy = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, text
    assert ARROW not in text
    assert slow not in text
    assert control.only_record()["status"] == "completed"
    assert lab.places(slow) == {2: "running"}


def test_progress_lines_reach_ansible_runner_during_the_move(lab: Lab, control: Control, slow: str, own_signals: None) -> None:
    (control.folder / "runner").mkdir()
    uuid = lab.uuid(slow)
    seen: list[tuple[str, str]] = []

    def handle(event: dict[str, t.Any]) -> bool:
        if ARROW in event.get("stdout", ""):
            state = lab.state_file(uuid) or {}
            seen.append((event["event"], str(state.get("status"))))
        return True

    done = ansible_runner.run(
        private_data_dir=str(control.folder / "runner"),
        playbook=write_play(lab, control, slow),
        inventory=control.inventory,
        envvars=control.environment,
        event_handler=handle,
        quiet=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.status, done.rc) == ("successful", 0)
    assert ("verbose", "running") in seen, seen
    assert control.only_record()["status"] == "completed"


def test_a_move_continues_after_the_session_of_the_user_ends(lab: Lab, control: Control, slow: str) -> None:
    """The login session dies with everything in it; the watcher goes on, and the task finds it again."""
    operator = Control(lab, control.folder, "--user", "operator", "--become")
    running = operator.begin_move(slow, **HELD)
    uuid = lab.uuid(slow)
    state = lab.under_way(uuid)
    sessions = [line.split() for line in lab.on(1, "ps", "-o", "pid=,args=", "-u", "operator").splitlines()]
    pids = [fields[0] for fields in sessions]
    assert pids, "nobody is logged in"
    assert str(state["watcher"]["pid"]) not in pids
    # What one of them began ends with it, and cannot be killed again.
    lab.try_("exec", lab.host(1), "--", "kill", "-9", *pids)
    eventually(lambda: not set(pids) & set(lab.on(1, "ps", "-A", "-o", "pid=").split()), "the end of the session")
    lab.hurry(slow)
    done = running.wait()
    assert (done.code, done.ended()) == (0, ("completed", None)), done.text
    assert done.record["generation"] == state["generation"]
    last = eventually(lambda: lab.state_file(uuid), "the state file")
    assert last["watcher"]["pid"] == state["watcher"]["pid"]
    assert lab.places(slow) == {2: "running"}
