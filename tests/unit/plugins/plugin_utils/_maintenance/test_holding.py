# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds a run, whether that process exists, and who may take its place."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import holding, transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import check_holder, check_take_over, identify_process, is_alive
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, holder, night


def test_a_process_is_alive_until_it_ends() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        found = identify_process(child.pid, "me", at().at)
        alive = is_alive(found)
        child.kill()
        # Its parent has not waited for it yet: it is a zombie.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert (alive, is_alive(found)) == (True, False)
    assert is_alive(found) is False


def test_a_later_process_of_the_same_number_is_another_one() -> None:
    found = identify_process(os.getpid(), "me", at().at)
    assert is_alive(dataclasses.replace(found, started=found.started - 1)) is False


@pytest.mark.parametrize("other", [{"boot_id": "another"}, {"pid_namespace": "pid:[2]"}])
def test_a_process_of_another_control_node_or_container_cannot_be_judged(other: dict[str, str]) -> None:
    assert is_alive(dataclasses.replace(identify_process(os.getpid(), "me", at().at), **t.cast("dict[str, t.Any]", other))) is None


def test_without_a_known_container_no_process_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both processes have none then, and may be in two."""

    def refuse(path: str) -> t.NoReturn:
        raise PermissionError(path)

    monkeypatch.setattr(os, "readlink", refuse)
    found = identify_process(os.getpid(), "me", at().at)
    assert (found.pid_namespace, is_alive(found)) == ("", None)


def test_a_process_of_another_user_that_proc_hides_cannot_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control node mounts /proc with hidepid: the files of a process of another user do not exist."""

    def refuse(pid: int, number: int) -> t.NoReturn:
        raise PermissionError(pid, number)

    with subprocess.Popen(["true"]) as child:
        ended = identify_process(child.pid, "me", at().at)
    assert is_alive(ended) is False
    monkeypatch.setattr(os, "kill", refuse)
    assert is_alive(ended) is None


def test_a_process_is_the_same_after_its_control_node_was_renamed() -> None:
    now = identify_process(os.getpid(), "me", at().at)
    before = dataclasses.replace(now, node="by-another-dhcp-server")
    assert (is_alive(before), now.is_same_process(before)) == (True, True)
    unknown = [dataclasses.replace(holder, boot_id="") for holder in (now, before)]
    assert (is_alive(unknown[1]), unknown[0].is_same_process(unknown[1])) == (None, False)


@pytest.mark.parametrize(
    ("alive", "confirmed", "refused"),
    [(True, False, "still runs"), (True, True, "still runs"), (None, False, "cannot be verified"), (None, True, ""), (False, False, "")],
)
def test_only_a_process_that_is_gone_is_replaced(alive: t.Optional[bool], confirmed: bool, refused: str) -> None:
    if not refused:
        check_take_over(night(), holder(2), alive, confirmed)
        return
    with pytest.raises(Conflict, match=refused):
        check_take_over(night(), holder(2), alive, confirmed)


def test_the_holder_itself_and_a_run_that_nobody_holds_need_no_confirmation() -> None:
    check_take_over(night(), holder(), True, False)
    check_take_over(transitions.close_run(night(), {}, at()), holder(2), None, False)


def test_a_process_that_was_replaced_is_refused() -> None:
    check_holder(night(), holder())
    taken = transitions.take_over(night(), holder(2), at())
    with pytest.raises(Conflict, match="ann@control pid 2 holds it"):
        check_holder(taken, holder())


def test_a_process_that_proc_does_not_have_holds_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that has C(/proc) of another one."""
    monkeypatch.setattr(holding, "_read_stat", lambda _pid: [])
    own = identify_process(os.getpid(), "me", at().at)
    assert own.started == 0
    check_holder(transitions.take_over(night(), own, at()), own)
