# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import heartbeat_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import Heartbeat
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN


def refuse_files(*arguments: t.Any, **options: t.Any) -> t.NoReturn:
    raise OSError(errno.ENFILE, "Too many open files in system")


class Beating:
    """A run that beats, and its heartbeat as a watcher reads it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.clock = FakeClock()
        self.path = pathlib.Path(heartbeat_path(RUN, str(folder)))
        self.heartbeat = Heartbeat(RUN, self.clock, str(folder))

    def beat(self, counter: str) -> None:
        self.path.write_text(counter, encoding="ascii")

    def fresh_after(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return self.heartbeat.is_fresh()


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Beating:
    return Beating(tmp_path)


def test_a_run_with_heartbeats_stays_fresh(run: Beating) -> None:
    for counter in range(10):
        run.beat(str(counter))
        assert run.fresh_after(59)


def test_a_run_without_a_first_heartbeat_is_fresh_for_60_seconds(run: Beating) -> None:
    assert run.fresh_after(59.9)
    assert not run.fresh_after(0.3)


def test_a_run_is_lost_after_60_seconds_and_fresh_again_after_a_heartbeat(run: Beating) -> None:
    run.beat("1")
    assert run.fresh_after(1)
    assert run.fresh_after(59.9)
    assert not run.fresh_after(0.2)
    run.beat("2")
    assert run.fresh_after(0)


@pytest.mark.parametrize("modified", [0, 4102444800])
def test_a_jump_of_the_host_clock_does_not_affect_the_heartbeat(run: Beating, modified: int) -> None:
    run.beat("1")
    run.fresh_after(0)
    os.utime(run.path, (modified, modified))
    assert run.fresh_after(59)
    assert not run.fresh_after(2)


def test_an_unchanged_counter_is_not_a_heartbeat(run: Beating) -> None:
    run.beat("7")
    assert run.fresh_after(1)
    run.beat("7")
    assert not run.fresh_after(61)


def test_a_counter_with_any_content_is_only_compared(run: Beating) -> None:
    run.path.write_bytes(b"\xff\x00 not a number " * 1000)
    assert run.fresh_after(59)


def test_the_heartbeat_file_is_removed_at_the_end(run: Beating) -> None:
    run.beat("1")
    run.heartbeat.remove_file()
    run.heartbeat.remove_file()
    assert not run.path.exists()


def test_a_deleted_heartbeat_file_is_not_a_heartbeat(run: Beating) -> None:
    """The sweep of a later run, or a person, has removed it."""
    run.beat("1")
    assert run.fresh_after(1)
    run.path.unlink()
    assert run.fresh_after(50)
    assert not run.fresh_after(10.1)
    run.beat("2")
    assert run.fresh_after(0)


def test_a_heartbeat_that_cannot_be_read_now_ends_no_watcher(run: Beating, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has no file left. A watcher that ended for that would leave all its running moves alone."""
    run.beat("1")
    assert run.fresh_after(1)
    with monkeypatch.context() as full:
        full.setattr("builtins.open", refuse_files)
        assert run.fresh_after(50)
        assert not run.fresh_after(10.1)
    run.beat("2")
    assert run.fresh_after(0)
