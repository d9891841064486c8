# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The attempt to connect to a dead host as Ansible does: what counts as silence, as an answer, and as neither."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
import types
import typing as t

import pytest
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure, AnsibleError
from ansible.playbook.play_context import PlayContext

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.ansible_probe import AnsibleProbe, Connector, try_connection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import SourceAnswers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

TIMED_OUT = "Failed to connect to the host via ssh: ssh: connect to host 192.0.2.1 port 22: Connection timed out"
SLOW_LOGIN = "Failed to connect to the host via ssh: Connection timed out during banner exchange"


class Tries:
    """A connection plugin that fails in this order; none is a success."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> str:
        self.seconds.append(seconds)
        failure = self._failures.pop(0)
        if failure:
            raise failure
        return "what its program says"


@pytest.mark.parametrize(
    ("failures", "says", "seconds"),
    [
        ((None,), "answers", [5.0]),
        ((AnsibleConnectionFailure(TIMED_OUT),), "silent", [5.0]),
        ((AnsibleConnectionFailure(SLOW_LOGIN), AnsibleConnectionFailure(SLOW_LOGIN)), "silent", [5.0, 13.0]),
        ((AnsibleConnectionFailure(SLOW_LOGIN), None), "answers", [5.0, 13.0]),
        ((AnsibleError("sshpass is missing."),), "unknown", [5.0]),
    ],
)
def test_a_login_that_has_begun_gets_the_limit_of_the_user(failures: tuple[Exception | None, ...], says: str, seconds: list[float]) -> None:
    tries = Tries(*failures)
    assert (try_connection(tries, 13.0)[0], tries.seconds) == (says, seconds)


@pytest.mark.parametrize(
    "failure",
    [
        AnsibleAuthenticationFailure("Invalid/incorrect password:"),
        AnsibleConnectionFailure("Failed to connect to the host via ssh: root@192.0.2.1: Permission denied (publickey)."),
        AnsibleConnectionFailure("Failed to connect to the host via ssh: Host key verification failed."),
        AnsibleConnectionFailure("Failed to connect to the host via ssh: Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures"),
        AnsibleConnectionFailure("Failed to connect to the host via ssh: Unable to negotiate with 192.0.2.1 port 22: no matching host key type found."),
        AnsibleConnectionFailure("Failed to connect to the host via ssh: channel 0: open failed: administratively prohibited: open failed"),
        # Behind a jump host: something at the address has refused.
        AnsibleConnectionFailure("Failed to connect to the host via ssh: channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed"),
    ],
)
def test_a_server_that_rejects_the_login_is_not_silent(failure: Exception) -> None:
    """It may be that of a jump host: then nothing is known about the host."""
    assert try_connection(Tries(failure), 13.0)[0] == "unknown"
    tries = Tries(AnsibleConnectionFailure(SLOW_LOGIN), failure)
    assert (try_connection(tries, 13.0)[0], tries.seconds) == ("unknown", [5.0, 13.0])
    with AnsibleProbe("kvm1", Tries(failure), 10.0) as probe, pytest.raises(Unsafe, match="answers Ansible: it, or a jump host before it, rejects the login"):
        probe.require_silence()


def test_a_key_that_ssh_cannot_read_is_no_rejection() -> None:
    text = 'Failed to connect to the host via ssh: Load key "/home/op/.ssh/old": Permission denied\nchannel 0: open failed: connect failed: No route to host'
    assert try_connection(Tries(AnsibleConnectionFailure(text)), 13.0)[0] == "silent"


def test_a_host_behind_a_jump_host_is_silent_if_the_jump_host_cannot_reach_it() -> None:
    text = "Failed to connect to the host via ssh: channel 0: open failed: connect failed: No route to host\nstdio forwarding failed"
    assert try_connection(Tries(AnsibleConnectionFailure(f"{text}\nConnection closed by UNKNOWN port 65535")), 13.0) == ("silent", "")


def test_a_task_without_a_log_knows_what_ssh_says(tmp_path: pathlib.Path) -> None:
    made = connector(tmp_path, context(no_log=True))
    with pytest.raises(AnsibleConnectionFailure, match="Connection timed out"):
        made.connect(5.0)


def test_a_short_limit_of_the_user_is_not_tried_again() -> None:
    tries = Tries(AnsibleConnectionFailure(SLOW_LOGIN))
    assert (try_connection(tries, 3.0)[0], tries.seconds) == ("silent", [5.0])


def test_only_a_silent_host_passes() -> None:
    with AnsibleProbe("kvm1", Tries(AnsibleConnectionFailure(TIMED_OUT)), 10.0) as probe:
        probe.require_silence()
    with AnsibleProbe("kvm1", Tries(None), 10.0) as probe:
        assert probe.read_answer() == ("answers", "what its program says")
    with AnsibleProbe("kvm1", Tries(None), 10.0) as probe, pytest.raises(SourceAnswers, match="kvm1 answers Ansible"):
        probe.require_silence()
    with AnsibleProbe("kvm1", Tries(AnsibleError("sshpass is missing.")), 10.0) as probe, pytest.raises(Unsafe, match="answers Ansible: sshpass is"):
        probe.require_silence()
    with AnsibleProbe("kvm1", Tries(), 10.0) as probe, pytest.raises(Unsafe, match="ended without a result"):
        probe.require_silence()


def test_an_attempt_that_hangs_is_ended_with_its_programs_and_is_not_silence(tmp_path: pathlib.Path) -> None:
    started = tmp_path / "pid"

    def hang(seconds: float) -> None:
        subprocess.run(["sh", "-c", f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 300"], check=True)

    with AnsibleProbe("kvm1", hang, 1.0, grace_seconds=1.0) as probe, pytest.raises(Unsafe, match="after 2 s, the connection was neither open nor refused"):
        probe.require_silence()
    pid = int(started.read_text())
    end = time.monotonic() + 10
    while pathlib.Path(f"/proc/{pid}").exists() and "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_attempt_prints_nothing_and_leaves_no_process(capfd: pytest.CaptureFixture[str]) -> None:
    def shout(seconds: float) -> None:
        os.write(1, b"shouted")
        raise AnsibleConnectionFailure(TIMED_OUT)

    with AnsibleProbe("kvm1", shout, 10.0) as probe:
        probe.require_silence()
        process = probe._process
    assert capfd.readouterr().out == ""
    with pytest.raises(ChildProcessError):
        os.waitpid(process, os.WNOHANG)


def connector(tmp_path: pathlib.Path, context: PlayContext | None = None, own: dict[str, t.Any] | None = None, **variables: t.Any) -> Connector:
    """Return a connector whose SSH writes down its arguments, and fails as with a silent host.

    :arg own: the variables of kvm2, for which the task runs.
    """
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\necho "Connection timed out" >&2\nexit 255\n')
    program.chmod(0o755)
    hostvars = {"kvm1": {"ansible_ssh_executable": str(program), **variables}, "kvm2": own or {}}
    task = types.SimpleNamespace(connection="ssh", dump_attrs=lambda: {"retries": 3, "timeout": 0})
    return Connector("kvm1", Settings({"hostvars": hostvars}), context or PlayContext(), t.cast(t.Any, task), own or {})


def context(**values: t.Any) -> PlayContext:
    made = PlayContext()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def test_a_password_and_a_timeout_of_the_command_line_apply_and_those_of_another_host_do_not(tmp_path: pathlib.Path) -> None:
    """Ansible puts those of the command line into the variables of each task; the inventory does not have them."""
    of_the_user = connector(tmp_path, context(password="typed", timeout=13))
    assert (of_the_user.password, of_the_user.read_user_seconds()) == ("typed", 13)
    own = {"ansible_password": "of kvm2", "ansible_timeout": 50}
    of_another = connector(tmp_path, context(password="of kvm2", timeout=50), own)
    assert (of_another.password, of_another.read_user_seconds()) == (None, 10)


def test_the_connection_has_the_variables_of_the_host_and_none_is_kept(tmp_path: pathlib.Path) -> None:
    made = connector(tmp_path, ansible_host="192.0.2.1", ansible_port=2222, ansible_user="ada", ansible_ssh_common_args="-J jump", ansible_ssh_timeout=40)
    assert made.read_user_seconds() == 40
    with pytest.raises(AnsibleConnectionFailure, match="Connection timed out"):
        made.connect(5.0)
    given = (tmp_path / "arguments").read_text().splitlines()
    assert {"ConnectTimeout=5", "Port=2222", 'User="ada"', "jump", "192.0.2.1", 'ControlPath="none"'} <= set(given), given


def test_the_timeout_of_ansible_applies_to_a_host_without_one(tmp_path: pathlib.Path) -> None:
    assert connector(tmp_path).read_user_seconds() == 10
    assert connector(tmp_path, ansible_timeout=30).read_user_seconds() == 30
    assert connector(tmp_path, ansible_timeout=30, ansible_ssh_timeout=20).read_user_seconds() == 20
