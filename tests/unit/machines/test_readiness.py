# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a machine has booted, and what is said of one that has not."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import qemu, readiness
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.sockets import Done, Unreachable


class FakeAgent:
    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)

    def run(self, *argv: str, timeout_seconds: float = 0) -> Done:
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            raise Unreachable("nobody")
        return Done(0, answer, "")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness.time, "sleep", lambda _seconds: None)


def wait(folder: pathlib.Path, *answers: str | None, on: bool = True, seconds: float = 5) -> None:
    (folder / "serial.log").write_text("first\n\n\x1b[0;32mlast words\x1b[0m\r\n")
    readiness.wait_until_running(t.cast("t.Any", FakeAgent(*answers)), folder, seconds, lambda: on)


def test_a_machine_that_starts_slowly_is_waited_for(tmp_path: pathlib.Path) -> None:
    wait(tmp_path, None, "starting\n", None, "running\n")


def test_failed_units_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(readiness.NotReady, match=r"these units failed: a\.service, b\.mount"):
        wait(tmp_path, "degraded\na.service\nb.mount\n")


def test_a_machine_whose_process_has_ended_is_named_with_its_serial_log(tmp_path: pathlib.Path) -> None:
    with pytest.raises(readiness.NotReady, match="its QEMU has ended") as failed:
        wait(tmp_path, on=False)
    assert "last words" in str(failed.value)
    assert "\x1b" not in str(failed.value)


def test_a_machine_whose_agent_stays_silent_times_out(tmp_path: pathlib.Path) -> None:
    with pytest.raises(readiness.NotReady, match="its guest agent has not answered after"):
        wait(tmp_path, seconds=0.05)


def test_the_tail_of_a_serial_log_has_no_empty_lines_and_no_escapes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "serial.log").write_bytes(b"one\n\n\x1b[2Jtwo\xff\r\nthree\n")
    assert qemu.serial_tail(tmp_path, 2).splitlines()[-1] == "three"
    assert "\x1b" not in qemu.serial_tail(tmp_path)
    assert qemu.serial_tail(tmp_path / "missing") == "(the serial log is empty)"


def test_a_kernel_that_panics_is_named_at_once_and_an_earlier_panic_does_not_count(tmp_path: pathlib.Path) -> None:
    class Panicking(FakeAgent):
        def run(self, *argv: str, timeout_seconds: float = 0) -> Done:
            with (tmp_path / "serial.log").open("a") as log:
                log.write("no root\nKernel panic - not syncing: VFS\nrebooted\n")
            raise Unreachable("nobody")

    (tmp_path / "serial.log").write_text("Kernel panic - not syncing: long ago\n")
    readiness.wait_until_running(t.cast("t.Any", FakeAgent("running\n")), tmp_path, 5, lambda: True)
    with pytest.raises(readiness.NotReady, match="its kernel panicked") as failed:
        readiness.wait_until_running(t.cast("t.Any", Panicking()), tmp_path, 5, lambda: True)
    assert str(failed.value).endswith("no root\nKernel panic - not syncing: VFS")
