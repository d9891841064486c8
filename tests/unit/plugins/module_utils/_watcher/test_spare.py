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

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import spare
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.spare import SpareProcess

OWNER = """
import os, sys
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.spare import SpareProcess

def function(argument):
    open(sys.argv[1], "w").close()
    return {}

owner = os.getpid()
spare = SpareProcess(function)
os.write(1, b"%d\\n" % spare._pid)
sys.stdin.read()
"""


def test_it_answers_from_a_process_as_this_one_was_before() -> None:
    state = ["clean"]
    process = SpareProcess(lambda argument: {"pid": os.getpid(), "state": state[0], "argument": argument})
    state[0] = "has used libvirt"
    answer = process.call({"a": [1, None]})
    assert answer == {"pid": answer["pid"], "state": "clean", "argument": {"a": [1, None]}}
    assert answer["pid"] != os.getpid()


def test_an_error_of_ours_is_raised_here() -> None:
    def fails(argument: t.Any) -> t.Dict[str, t.Any]:
        raise Conflict("It came too late.", "Run again.", record="r1")

    with pytest.raises(Conflict, match="too late") as caught:
        SpareProcess(fails).call({})
    assert caught.value.result == {"record": "r1"}


def test_one_that_dies_is_an_error_and_no_second_module_runs_on(tmp_path: pathlib.Path) -> None:
    def fails(argument: t.Any) -> t.Dict[str, t.Any]:
        raise ZeroDivisionError("the cause")

    caller = os.getpid()
    try:
        with pytest.raises(Internal, match="ended before it began"):
            SpareProcess(fails).call({})
    finally:
        if os.getpid() != caller:
            (tmp_path / "second").write_text("", encoding="ascii")
            os._exit(1)
    assert not (tmp_path / "second").exists()


def test_one_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare, "ANSWER_SECONDS", 0.2)

    def hangs(argument: t.Any) -> t.Dict[str, t.Any]:
        time.sleep(2)
        return {}

    with pytest.raises(Internal, match="did not begin within"):
        SpareProcess(hangs).call({})


@pytest.mark.parametrize("killed", [False, True])
def test_one_that_is_not_asked_ends_with_its_owner_and_does_nothing(tmp_path: pathlib.Path, killed: bool) -> None:
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
