# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The short command that reads the state and updates the heartbeat, run by a real shell, and the parsing of its output."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import subprocess
import threading
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._proc_files import read_start_ticks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import source_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
RUN = "6a1d0a1e-0000-4000-8000-000000000001"
ME = Watcher(os.getpid(), read_start_ticks(os.getpid()))


class ShellAction:
    """An action plugin whose host is this machine."""

    def __init__(self, noise: str = "") -> None:
        self.noise = noise
        self.pipelining = True
        # As SSH does with a command whose connection was lost before its answer.
        self.repeats = False
        self.phases: t.List[t.Any] = []
        self.spare: t.Any = None
        self.at = encode(boot_moment())

    def target_host(self, task_vars: t.Any) -> str:
        return "kvm1"

    def _is_pipelining_enabled(self, module_style: str) -> bool:
        return self.pipelining

    def run_phase(self, phase: str, work: t.Any, uri: str, task_vars: t.Any, module: t.Any) -> t.Any:
        self.phases.append((phase, work))
        survey = {"source": {"answered": False}, "destinations": {}, "domains": []}
        return {"survey": survey, "at": self.at, **({"spare": self.spare} if self.spare and "run_id" in work else {})}

    def _low_level_execute_command(self, command: str, in_data: t.Optional[bytes] = None) -> t.Dict[str, t.Any]:
        for _time in range(2 if self.repeats else 1):
            done = subprocess.run(["/bin/sh", "-c", command], input=in_data, capture_output=True, check=False, timeout=300)
        return {"rc": done.returncode, "stdout": self.noise + done.stdout.decode(), "stderr": done.stderr.decode()}


def source(action: t.Any) -> SourceHost:
    return SourceHost(action, {}, "qemu:///system")


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(source_host, "RUN_FOLDER", str(tmp_path))
    return tmp_path


def state_of(uuid: str, **more: t.Any) -> dict[str, t.Any]:
    ends = HostRef("kvm1", None, None), HostRef("kvm2", None, None)
    record = encode(new_record("live-migration", DomainRef(uuid, "a {b} 1"), *ends, {}, "watcher"))
    return {**record, "watcher": encode(ME), **more}


def write_state(folder: pathlib.Path, uuid: str, **more: t.Any) -> None:
    (folder / f"{uuid}.json").write_text(json.dumps(state_of(uuid, **more)) + "\n", encoding="utf-8")


def test_a_poll_writes_the_heartbeat_and_reads_the_state_files(folder: pathlib.Path) -> None:
    write_state(folder, UUID)
    write_state(folder, OTHER, watcher={**encode(ME), "start_ticks": 1})
    found = source(ShellAction()).poll_states(RUN, 42, {UUID: ME, OTHER: ME}, None)
    assert {uuid: state.is_alive for uuid, state in found.items()} == {UUID: True, OTHER: False}
    heartbeat = folder / f"{RUN}.heartbeat"
    assert heartbeat.read_text(encoding="ascii") == "42"
    assert heartbeat.stat().st_mode & 0o777 == 0o600


def test_a_poll_omits_missing_state_files_and_finds_dead_watchers(folder: pathlib.Path) -> None:
    dead = Watcher(2**22 + 1, 5)
    write_state(folder, UUID, watcher=encode(dead))
    found = source(ShellAction()).poll_states(RUN, 1, {UUID: dead, OTHER: dead}, None)
    assert {uuid: state.is_alive for uuid, state in found.items()} == {UUID: False}


def test_output_of_a_login_shell_is_ignored(folder: pathlib.Path) -> None:
    write_state(folder, UUID)
    found = source(ShellAction(noise="Welcome!\n\n  4 updates\nLast login: yesterday\n² 3\n" + "9" * 5000 + " x\n")).poll_states(RUN, 1, {UUID: ME}, None)
    assert found[UUID].is_alive is True


@pytest.mark.parametrize(
    "text",
    [
        "{torn",
        '{"a":' * 5000,
        "{}",
        '{"domain":{"uuid":["a"]}}',
        json.dumps(state_of(UUID, progress={})),
        json.dumps(state_of(UUID, watcher=None)),
        json.dumps(state_of(UUID, watcher={"pid": ["a"], "start_ticks": 5})),
        json.dumps(state_of(UUID, watcher={"pid": 5})),
        '{"seen":',
        '{"seen":[]}',
    ],
)
def test_a_damaged_state_file_is_an_internal_error(folder: pathlib.Path, text: str) -> None:
    (folder / f"{UUID}.json").write_text(f"{text}\n", encoding="ascii")
    with pytest.raises(e.Internal, match="state file"):
        source(ShellAction()).poll_states(RUN, 1, {UUID: ME}, None)


def test_the_seen_hosts_file_is_read_with_the_state_files(folder: pathlib.Path) -> None:
    write_state(folder, UUID)
    (folder / f"{RUN}.seen").write_text(json.dumps({"seen": {"qemu:///system": {"domains": []}}}, separators=(",", ":")) + "\n", encoding="utf-8")
    (folder / f"{OTHER}.seen").write_text('{"seen":{}}\n', encoding="utf-8")
    host = source(ShellAction())
    assert list(host.poll_states(RUN, 1, {UUID: ME}, None)) == [UUID]
    assert host.seen == {"qemu:///system": {"domains": []}}


def no_process() -> AnsibleError:
    """Return what Ansible raises at the limit of processes."""
    error = AnsibleError("Unable to execute ssh command line on a controller.")
    error.__cause__ = OSError(errno.EAGAIN, "Resource temporarily unavailable")
    return error


def poll_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    action = ShellAction()

    def refuse(command: str, in_data: t.Optional[bytes] = None) -> t.NoReturn:
        raise error

    monkeypatch.setattr(action, "_low_level_execute_command", refuse)
    source(action).poll_states(RUN, 1, {UUID: ME}, None)


@pytest.mark.parametrize("error", [no_process(), OSError(errno.EAGAIN, "Resource temporarily unavailable")])
def test_a_poll_for_which_the_control_node_has_no_process_is_repeated(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any other error than that of a silent host, the task would end, and with its heartbeats all moves that wait."""
    with pytest.raises(e.Unreachable, match=r"kvm1 cannot be reached: .*temporarily unavailable"):
        poll_with(error, monkeypatch)


def test_a_poll_whose_password_is_rejected_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred polls with a password that was changed meanwhile would lock the account of the operator on the source."""
    with pytest.raises(AnsibleError, match="Incorrect sudo password"):
        poll_with(AnsibleError("Incorrect sudo password"), monkeypatch)


def test_a_poll_returns_when_a_watcher_ends(folder: pathlib.Path) -> None:
    ending = subprocess.Popen(["sleep", "0.3"])
    watcher = Watcher(ending.pid, read_start_ticks(ending.pid))
    write_state(folder, UUID, watcher=encode(watcher))
    threading.Thread(target=ending.wait).start()
    assert source(ShellAction()).poll_states(RUN, 1, {UUID: watcher}, None)[UUID].is_alive is False


def test_a_host_without_the_run_folder_has_no_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_host, "RUN_FOLDER", "/nonexistent/kvmfleet")
    result = source(ShellAction()).poll_states(RUN, 1, {UUID: ME}, None)
    assert result == {}


WORK = {"run_id": RUN, "parallel": 1, "orders": []}
REPORT = {"taken": {}, "refused": {}}


def prepare(action: ShellAction, process: subprocess.Popen[bytes], **more: t.Any) -> SourceHost:
    """A source whose survey has left this process as its spare watcher."""
    action.spare = {"watcher": {"pid": process.pid}, **more}
    host = source(action)
    host.prepare_moves([], RUN)
    return host


def spare_process(script: str, folder: pathlib.Path) -> subprocess.Popen[bytes]:
    """Start a shell in the place of a spare watcher; $1 is the beginning of the names of its files."""
    process = subprocess.Popen(["/bin/sh", "-c", f"f={RUN}.$$; while [ ! -e $f.orders ]; do sleep 0.02; done; {script}"], cwd=folder)
    threading.Thread(target=process.wait).start()
    return process


def test_a_spare_watcher_gets_the_orders_and_reports(folder: pathlib.Path) -> None:
    script = f"mv $f.orders $f.taken; echo '{json.dumps(REPORT)}' > $f.new; mv $f.new $f.started; sleep 0.3"
    action = ShellAction(noise="Welcome!\n")
    process = spare_process(script, folder)
    host = prepare(action, process, session_warning="It stays.")
    assert action.phases == [("prepare", {"wanted": [], "run_id": RUN})]
    assert host.start_watcher({**WORK, "orders": ["x" * 300_000]}) == {**REPORT, "session_warning": "It stays."}
    assert json.loads((folder / f"{RUN}.{process.pid}.taken").read_text(encoding="ascii"))["orders"] == ["x" * 300_000]
    assert sorted(os.listdir(folder)) == [f"{RUN}.{process.pid}.started", f"{RUN}.{process.pid}.taken"]


def test_a_command_that_ssh_repeats_gets_the_same_report_and_leaves_no_orders(folder: pathlib.Path) -> None:
    action = ShellAction()
    action.repeats = True
    process = spare_process(f"mv $f.orders $f.taken; echo '{json.dumps(REPORT)}' > $f.started; sleep 1", folder)
    assert prepare(action, process).start_watcher(WORK) == REPORT
    assert sorted(os.listdir(folder)) == [f"{RUN}.{process.pid}.started", f"{RUN}.{process.pid}.taken"]


def test_the_orders_of_a_spare_watcher_that_has_ended_are_withdrawn_and_a_module_starts_the_moves(folder: pathlib.Path) -> None:
    action = ShellAction()
    host = prepare(action, ended := subprocess.Popen(["true"]))
    ended.wait()
    host.start_watcher(WORK)
    assert [phase for phase, _work in action.phases] == ["prepare", "start"]
    assert os.listdir(folder) == []


def test_orders_that_were_taken_are_never_given_to_another_watcher(folder: pathlib.Path) -> None:
    action = ShellAction()
    host = prepare(action, spare_process("mv $f.orders $f.taken", folder))
    with pytest.raises(e.Internal, match="exited before it started its work"):
        host.start_watcher(WORK)
    assert [phase for phase, _work in action.phases] == ["prepare"]


def test_a_spare_watcher_is_used_once(folder: pathlib.Path) -> None:
    action = ShellAction()
    host = prepare(action, spare_process(f"mv $f.orders $f.taken; echo '{json.dumps(REPORT)}' > $f.started; sleep 0.3", folder))
    assert host.start_watcher(WORK) == REPORT
    host.start_watcher(WORK)
    assert [phase for phase, _work in action.phases] == ["prepare", "start"]


def test_orders_whose_connection_was_lost_are_sent_to_the_same_spare_watcher_again(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another watcher, started meanwhile, would not know whether this one has taken them."""
    action, commands = ShellAction(), list[str]()
    host = prepare(action, spare_process(f"mv $f.orders $f.taken; echo '{json.dumps(REPORT)}' > $f.started; sleep 0.3", folder))
    run = action._low_level_execute_command

    def lose_first(command: str, in_data: t.Optional[bytes] = None) -> t.Any:
        commands.append(command)
        if len(commands) == 1:
            raise AnsibleConnectionFailure("Data could not be sent to remote host.")
        return run(command, in_data)

    monkeypatch.setattr(action, "_low_level_execute_command", lose_first)
    with pytest.raises(e.Unreachable):
        host.start_watcher(WORK)
    host.prepare_moves([])
    assert host.start_watcher(WORK) == REPORT
    assert commands[0] == commands[1]
    assert [phase for phase, _work in action.phases] == ["prepare", "prepare"]


def no_folder(folder: pathlib.Path, pid: int) -> None:
    folder.rmdir()


def no_space(folder: pathlib.Path, pid: int) -> None:
    (folder / f"{RUN}.{pid}.orders.new").mkdir()


@pytest.mark.parametrize("prevent", [no_folder, no_space])
def test_orders_that_cannot_be_written_are_given_to_a_module_which_says_why(folder: pathlib.Path, prevent: t.Callable[[pathlib.Path, int], None]) -> None:
    action, waiting = ShellAction(), subprocess.Popen(["sleep", "300"])
    host = prepare(action, waiting)
    prevent(folder, waiting.pid)
    host.start_watcher(WORK)
    waiting.kill()
    waiting.wait()
    assert [phase for phase, _work in action.phases] == ["prepare", "start"]


@pytest.mark.parametrize(("run_id", "pipelining"), [(None, True), (RUN, False)])
def test_without_a_run_or_without_pipelining_no_spare_watcher_is_requested(run_id: t.Optional[str], pipelining: bool) -> None:
    action = ShellAction()
    action.pipelining = pipelining
    host = source(action)
    host.prepare_moves([], run_id)
    host.start_watcher(WORK)
    assert action.phases == [("prepare", {"wanted": []}), ("start", WORK)]


def test_an_order_may_be_under_way_for_some_minutes_after_the_survey() -> None:
    action = ShellAction()
    host = source(action)
    assert host.order_until() is ABSENT
    host.prepare_moves([])
    until = host.order_until()
    assert until
    assert 0 < (until.seconds_since(boot_moment()) or 0) <= source_host.ORDER_SECONDS
    action.at = {"boot_id": "", "seconds": 5.0}
    host.prepare_moves([])
    assert host.order_until() is ABSENT
