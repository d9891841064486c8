# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that leaves its parent, for real: it forks."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import detach
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.detach import Report, launch_process

PATIENCE_SECONDS = 300.0
RUN = "5a3f0c62-0000-4000-8000-00000000000a"

OWNER = """
    import os, sys, time
    from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.detach import launch_process

    def work(report):
        report({"pid": os.getpid(), "session": os.getsid(0), "folder": os.getcwd()})
        while not os.path.exists(sys.argv[1] + "/go"):
            time.sleep(0.02)
        with open(sys.argv[1] + "/done.new", "w") as stream:
            stream.write(str(os.getppid()))
        os.rename(sys.argv[1] + "/done.new", sys.argv[1] + "/done")

    import json
    print(json.dumps({**launch_process(work, sys.argv[1] + "/log", "run"), "owner": os.getpid(), "owner_session": os.getsid(0)}), flush=True)
"""


def wait_for_file(path: pathlib.Path) -> bool:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not path.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    return path.exists()


def children() -> t.Set[str]:
    """Return the processes that this one has to reap; what runs the tests may have some of its own."""
    found = set()
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


def launch_and_report(work: t.Callable[[Report], None], folder: pathlib.Path) -> t.Dict[str, t.Any]:
    return launch_process(work, str(folder / "log"), RUN)


def test_the_launcher_gets_the_report_and_the_work_continues(tmp_path: pathlib.Path) -> None:
    def work(report: Report) -> None:
        report({"taken": {"a": 1}, "pid": os.getpid()})
        (tmp_path / "after").write_text("x", encoding="ascii")

    report = launch_and_report(work, tmp_path)
    assert report["taken"] == {"a": 1}
    assert report["pid"] != os.getpid()
    assert wait_for_file(tmp_path / "after")


def test_launching_leaves_no_child_process(tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as bystander:
        before = children()
        assert str(bystander.pid) in before
        launch_and_report(lambda report: report({}), tmp_path)
        assert children() == before
        bystander.kill()


def test_a_reported_error_is_raised_in_the_launcher(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Conflict, match="too late") as caught:
        launch_and_report(lambda report: report(Conflict("It came too late.", "Run again.", record="r1").as_result()), tmp_path)
    assert caught.value.result == {"record": "r1"}


def test_work_that_dies_before_its_report_is_an_error_with_a_traceback_in_the_log(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work(report: Report) -> None:
        raise ZeroDivisionError("the cause")

    with capfd.disabled(), pytest.raises(Internal, match="exited before it started"):
        launch_and_report(work, tmp_path)
    assert wait_for_file(tmp_path / "log")
    assert "ZeroDivisionError: the cause" in (tmp_path / "log").read_text(encoding="utf-8")


def test_output_of_the_work_is_dropped_and_its_errors_are_logged(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work(report: Report) -> None:
        os.write(1, b"to standard output")
        os.write(2, b"to standard error")
        report({})
        (tmp_path / "done").write_text("x", encoding="ascii")

    launch_and_report(work, tmp_path)
    assert wait_for_file(tmp_path / "done")
    assert "to standard" not in "".join(capfd.readouterr())
    assert (tmp_path / "log").read_text(encoding="utf-8") == "to standard error"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_log_that_is_a_link_is_an_error_and_the_child_exits(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    caller = os.getpid()
    try:
        with pytest.raises(Internal, match="exited before it started"):
            launch_and_report(lambda report: report({}), tmp_path)
    finally:
        if os.getpid() != caller:
            (tmp_path / "second").write_text("", encoding="ascii")
            os._exit(1)
    assert not (tmp_path / "second").exists()
    assert not (tmp_path / "victim").exists()


def test_a_full_disk_of_the_log_is_an_error_and_the_child_exits(tmp_path: pathlib.Path) -> None:
    def work(report: Report) -> None:
        raise OSError("the cause")

    caller = os.getpid()
    try:
        with pytest.raises(Internal, match="exited before it started"):
            launch_process(work, "/dev/full", RUN)
    finally:
        if os.getpid() != caller:
            (tmp_path / "second").write_text("", encoding="ascii")
            os._exit(1)
    assert not (tmp_path / "second").exists()


def test_work_that_does_not_report_in_time_is_an_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detach, "READY_TIMEOUT_SECONDS", 0.2)

    def work(report: Report) -> None:
        wait_for_file(tmp_path / "never mind")

    monkeypatch.setitem(globals(), "PATIENCE_SECONDS", 1.0)
    with pytest.raises(Internal, match="did not start"):
        launch_and_report(work, tmp_path)


@pytest.mark.parametrize("end", ["exit", "group", "hangup"])
def test_the_work_survives_the_end_of_its_launcher(tmp_path: pathlib.Path, end: str) -> None:
    """By a normal end, by a kill of the whole process group, and by a hangup of the session."""
    script = textwrap.dedent(OWNER) + ("" if end == "exit" else "\nsys.stdin.read()\n")
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=dict(os.environ)
    )
    assert owner.stdout is not None
    report = json.loads(owner.stdout.readline())
    if end != "exit":
        os.killpg(report["owner"], signal.SIGKILL if end == "group" else signal.SIGHUP)
    owner.communicate(timeout=PATIENCE_SECONDS)
    assert (report["folder"], report["session"] != report["owner_session"]) == ("/", True)
    os.kill(report["pid"], signal.SIGHUP)
    os.kill(report["pid"], signal.SIGINT)
    (tmp_path / "go").write_text("", encoding="ascii")
    assert wait_for_file(tmp_path / "done")
    assert int((tmp_path / "done").read_text(encoding="ascii")) != report["owner"]


def test_a_process_that_cannot_leave_the_session_reports_a_warning_and_continues(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detach, "join_own_scope", lambda run_id: f"{run_id} stays.")

    def work(report: Report) -> None:
        report({"pid": os.getpid()})
        (tmp_path / "after").write_text("x", encoding="ascii")

    assert launch_and_report(work, tmp_path)["session_warning"] == f"{RUN} stays."
    assert wait_for_file(tmp_path / "after")


def test_a_process_leaves_the_session_before_its_work_begins(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed with the session in between has begun nothing."""

    def joins(run_id: str) -> None:
        (tmp_path / "joined").write_text(f"{run_id} {os.getpid()}", encoding="ascii")

    monkeypatch.setattr(detach, "join_own_scope", joins)
    report = launch_and_report(lambda report: report({"joined": (tmp_path / "joined").read_text(encoding="ascii"), "pid": os.getpid()}), tmp_path)
    assert report == {"joined": f"{RUN} {report['pid']}", "pid": report["pid"]}


def test_a_process_whose_event_loop_runs_forks_no_watcher(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of libvirt's event loop is in no fork, and without it nothing notices a host that is gone."""
    monkeypatch.setattr(connection, "_LOOP", [threading.current_thread()])
    with pytest.raises(Internal, match="keepalive"):
        launch_and_report(lambda report: report({}), tmp_path)
    assert not (tmp_path / "log").exists()
