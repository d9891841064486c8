# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe in a Python of its own: it stops at an armed moment, says so, and goes on when it may."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.faults.probe import kvmfleet_moments

PROBE = pathlib.Path(kvmfleet_moments.__file__).parent
MARK = kvmfleet_moments.slug("before the job", "web")
CALL = """
from types import SimpleNamespace
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.calls import MigrateCall
order = SimpleNamespace(uuid="u", name="web", flags=[], parameters={}, destination_uri="qemu+tcp://kvm2/system")
host = SimpleNamespace(migrate_domain=lambda *given: print("asked", flush=True), close=lambda: None)
call = MigrateCall(host, order)
call.run()
call.run()
"""

CLOCK = """
import datetime, pickle, sys, time
before = time.monotonic()
print(round(time.time()), round(time.time_ns() / 1e9), round(datetime.datetime.now(datetime.timezone.utc).timestamp()))
print(round(datetime.datetime.now().timestamp()), round(datetime.datetime.utcnow().replace(tzinfo=datetime.timezone.utc).timestamp()))
assert time.monotonic() - before < 60
now = datetime.datetime.now(datetime.timezone.utc)
assert pickle.loads(pickle.dumps(now)) == now == eval(repr(now)) and isinstance(now + datetime.timedelta(1), datetime.datetime)
"""


@pytest.fixture
def process(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[[], subprocess.Popen[str]]]:
    begun: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": f"{PROBE}:{os.environ['PYTHONPATH']}", "KVMFLEET_MOMENTS": str(tmp_path)}
        begun.append(subprocess.Popen([sys.executable, "-c", CALL], env=environment, stdout=subprocess.PIPE, text=True))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()
        one.communicate(timeout=300)


def wait_for_moments(folder: pathlib.Path) -> list[str]:
    file = folder / f"{MARK}.reached"
    limit = time.monotonic() + 30
    while not file.exists() or not file.read_text().endswith("\n"):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return file.read_text().splitlines()


def test_a_process_is_not_stopped_at_a_moment_that_is_not_armed(process: t.Callable[[], subprocess.Popen[str]], tmp_path: pathlib.Path) -> None:
    assert process().communicate(timeout=300)[0] == "asked\nasked\n"
    assert list(tmp_path.iterdir()) == []


def test_a_process_stops_at_an_armed_moment_reports_itself_and_continues(process: t.Callable[[], subprocess.Popen[str]], tmp_path: pathlib.Path) -> None:
    (tmp_path / f"{MARK}.hold").write_text("7")
    running = process()
    assert wait_for_moments(tmp_path) == [f"7 {running.pid} {os.uname().nodename}"]
    assert running.poll() is None
    (tmp_path / f"{MARK}.hold").write_text("8")
    limit = time.monotonic() + 30
    while len(wait_for_moments(tmp_path)) < 2:
        assert time.monotonic() < limit
        time.sleep(0.05)
    (tmp_path / f"{MARK}.hold").unlink()
    assert running.communicate(timeout=300)[0] == "asked\nasked\n"


@pytest.mark.parametrize("seconds", [3600, -3600, 0])
def test_a_shifted_clock_applies_to_all_functions_that_read_the_time(tmp_path: pathlib.Path, seconds: int) -> None:
    file = tmp_path / "clock"
    file.write_text(str(seconds))
    environment = {**os.environ, "PYTHONPATH": f"{PROBE}:{os.environ['PYTHONPATH']}", "KVMFLEET_CLOCK": str(file)}
    begun = time.time()
    told = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", CLOCK], env=environment, capture_output=True, text=True, check=True).stdout
    moments = [int(word) for word in told.split()]
    assert len(moments) == 5
    assert all(begun - 2 <= moment - seconds <= time.time() + 2 for moment in moments)
