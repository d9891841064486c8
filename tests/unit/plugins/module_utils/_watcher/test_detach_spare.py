# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that was forked early, for real: it forks."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import detach
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.detach import SpareProcess

OWNER = """
import os, sys
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.detach import SpareProcess

def function(argument):
    open(sys.argv[1], "w").close()
    return {}

owner = os.getpid()
spare = SpareProcess(function)
os.write(1, b"%d\\n" % spare._pid)
sys.stdin.read()
"""


def test_a_spare_process_answers_with_the_state_at_its_fork() -> None:
    state = ["clean"]
    process = SpareProcess(lambda argument: {"pid": os.getpid(), "state": state[0], "argument": argument})
    state[0] = "has used libvirt"
    answer = process.call_once({"a": [1, None]})
    assert answer == {"pid": answer["pid"], "state": "clean", "argument": {"a": [1, None]}}
    assert answer["pid"] != os.getpid()


def test_an_error_of_a_spare_process_is_raised_in_the_caller() -> None:
    def fails(argument: t.Any) -> t.Dict[str, t.Any]:
        raise Conflict("It came too late.", "Run again.", record="r1")

    with pytest.raises(Conflict, match="too late") as caught:
        SpareProcess(fails).call_once({})
    assert caught.value.result == {"record": "r1"}


def test_a_spare_process_that_dies_is_an_error_and_exits(tmp_path: pathlib.Path) -> None:
    def fails(argument: t.Any) -> t.Dict[str, t.Any]:
        raise ZeroDivisionError("the cause")

    caller = os.getpid()
    try:
        with pytest.raises(Internal, match="exited before it started"):
            SpareProcess(fails).call_once({})
    finally:
        if os.getpid() != caller:
            (tmp_path / "second").write_text("", encoding="ascii")
            os._exit(1)
    assert not (tmp_path / "second").exists()


def test_a_spare_process_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detach, "ANSWER_SECONDS", 0.2)

    def hangs(argument: t.Any) -> t.Dict[str, t.Any]:
        time.sleep(2)
        return {}

    with pytest.raises(Internal, match="did not start within"):
        SpareProcess(hangs).call_once({})


@pytest.mark.parametrize("killed", [False, True])
def test_an_unused_spare_process_ends_with_its_owner(tmp_path: pathlib.Path, killed: bool) -> None:
    done = tmp_path / "done"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(done)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    os.kill(pid, 0)
    if killed:
        owner.kill()
    # The spare has the owner's standard output too: it ends when both have.
    assert owner.communicate(timeout=300)[0] == b""
    assert not done.exists()
