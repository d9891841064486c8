# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all action plugins share: errors become results with a code, whoever raised them."""

from __future__ import annotations

import errno
import getpass
import os
import re
import types
import typing as t
import uuid
from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver, status
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars

ROOT = Path(__file__).parents[4]
TASK_VARS = {"inventory_hostname": "kvm1"}


class Reading(FleetAction):
    """An action plugin that asks its module once; the module answers as it is told."""

    MODULE = "host"

    def __init__(self, answer: t.Any, async_val: int = 0, **args: t.Any) -> None:
        self._task = types.SimpleNamespace(args=args, async_val=async_val, check_mode=False, diff=False, delegate_to=None)
        self._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
        self._load_name = "host"
        self._loader = None
        self.answer = answer
        self.asked: t.List[t.Dict[str, t.Any]] = []

    def argument_spec(self) -> t.Dict[str, t.Any]:
        return {"count": {"type": "int", "default": 1}}

    def run_task(self, args: t.Dict[str, t.Any], task_vars: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        return {"count": args["count"], **self.run_phase("read", {"what": "all"}, "qemu:///system", task_vars)}

    def _execute_module(self, **call: t.Any) -> t.Any:
        self.asked.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


PHASED = [path.stem for path in sorted((ROOT / "plugins" / "action").glob("*.py")) if "self.run_phase(" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("module", PHASED)
def test_a_module_that_is_run_by_phases_requires_no_option(module: str) -> None:
    """Its phases are run with C(uri) and C(_work) alone."""
    parts = (ROOT / "plugins" / "modules" / f"{module}.py").read_text(encoding="utf-8").partition("EXAMPLES = ")
    assert not re.findall(r"^    required: true$", parts[0], re.MULTILINE)


def test_options_are_parsed_and_passed_to_the_module() -> None:
    action = Reading({"found": True}, count="3")
    assert action.run(task_vars=TASK_VARS) == {"count": 3, "found": True}
    (call,) = action.asked
    assert call["module_name"] == "kvmfleet.migration.host"
    assert call["module_args"] == {"uri": "qemu:///system", "_work": {"what": "all", "phase": "read"}}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"failed": True, "msg": "No start of json", "module_stdout": "", "module_stderr": "", "rc": 137}, r"\(exit code 137\): No start of json\."),
        ({"failed": True, "msg": "No end", "module_stdout": '{"domains": ["<graphics passwd=', "module_stderr": "", "rc": 137}, r"\(exit code 137\): No end\."),
        ({"failed": True, "msg": "", "module_stdout": 400 * "x", "module_stderr": "", "rc": 137}, r"\(exit code 137\): x{300}\."),
        ({"failed": True, "msg": "x", "module_stderr": "Traceback:\nMemoryError: too much\n", "rc": 1}, r"\(exit code 1\): MemoryError: too much\."),
        ({"rc": 137, "module_stderr": "\n"}, r"\(exit code 137\): it said nothing\."),
    ],
)
def test_a_killed_module_is_an_internal_error_that_names_its_host(answer: t.Any, told: str) -> None:
    action = Reading(answer)
    result = action.run(task_vars=TASK_VARS)
    assert (result["failed"], result["changed"], result["error_code"]) == (True, False, "internal")
    assert re.search(rf"^host ended on \S+ before it had answered {told} .*Run the task again", result["msg"]), result["msg"]


def test_a_host_without_a_writable_folder_is_named_with_the_next_step() -> None:
    told = "Traceback:\nFileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/root']\n"
    result = Reading({"failed": True, "msg": "x", "module_stderr": told, "rc": 1}).run(task_vars=TASK_VARS)
    assert (result["failed"], result["changed"], result["error_code"]) == (True, False, "internal")
    assert re.search(r"^host could not be started on \S+, because no file can be written there: .*Free space on .*has done nothing", result["msg"]), result[
        "msg"
    ]


CLOSED = "Shared connection to 10.0.0.1 closed.\r\n"
SHIM = "pyenv: python3.13: command not found\n\nThe `python3.13' command exists in these Python versions:\n  3.13.0\n\nNote: See 'pyenv help global'\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"rc": 127, "module_stderr": CLOSED, "module_stdout": "/bin/sh: 1: /nonexistent/python3: not found\r\n"},
            "/bin/sh: 1: /nonexistent/python3: not found",
        ),
        ({"rc": 127, "module_stderr": SHIM, "module_stdout": ""}, "pyenv: python3.13: command not found"),
        ({"rc": 126, "module_stderr": CLOSED, "module_stdout": "sh: 1: /usr/bin/python3: Permission denied\n"}, "sh: 1: /usr/bin/python3: Permission denied"),
        ({"rc": 1, "module_stderr": "sudo: /opt/python3: command not found\n" + CLOSED, "module_stdout": ""}, "sudo: /opt/python3: command not found"),
        ({"rc": 127, "module_stderr": CLOSED, "module_stdout": ""}, "the host said nothing"),
    ],
)
def test_a_python_that_cannot_run_is_reported_with_its_own_message(answer: t.Any, words: str) -> None:
    result = Reading({"failed": True, **answer}).run(task_vars=TASK_VARS)
    assert result["error_code"] == "internal"
    assert result["msg"].startswith(f"host could not be started on kvm1: {words} (exit code {answer['rc']}). Set ansible_python_interpreter of kvm1 ")


def test_the_closing_message_of_ssh_is_not_part_of_the_reason() -> None:
    answer = {"failed": True, "rc": 137, "module_stderr": "Killed\r\n" + CLOSED, "module_stdout": ""}
    assert "(exit code 137): Killed." in Reading(answer).run(task_vars=TASK_VARS)["msg"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (AnsibleConnectionFailure("no route"), e.Unreachable),
        ({"unreachable": True, "msg": "no route"}, e.Unreachable),
        ({"failed": True, "msg": "no root", "error_code": "forbidden"}, e.Forbidden),
        ({"failed": True, "msg": "odd", "error_code": "no such code"}, e.Internal),
        ({"failed": True, "module_stderr": "Traceback", "rc": 1}, e.Internal),
        ({"rc": 137, "module_stderr": "Killed"}, e.Internal),
    ],
)
def test_a_module_that_fails_gives_the_task_its_error(answer: t.Any, error: t.Type[e.KvmfleetError]) -> None:
    with pytest.raises(error, match=r"no route|no root|odd|Traceback|Killed"):
        Reading(answer).run_with_options(TASK_VARS)
    result = Reading(answer).run(task_vars=TASK_VARS)
    assert (result["failed"], result["changed"], result["error_code"]) == (True, False, error.error_code)


@pytest.mark.parametrize("is_of_ansible", [True, False])
def test_a_module_for_which_the_control_node_has_no_process_is_an_unreachable_host(is_of_ansible: bool) -> None:
    """A task that follows moves asks again, and keeps what it knows of them."""
    error: Exception = OSError(errno.EAGAIN, "Resource temporarily unavailable")
    if is_of_ansible:
        error, cause = AnsibleError("Unable to execute ssh command line on a controller."), error
        error.__cause__ = cause
    with pytest.raises(e.Unreachable, match=r"kvm1 cannot be reached: .*Resource temporarily unavailable"):
        Reading(error).run_with_options(TASK_VARS)


@pytest.mark.parametrize("end", ["ssh: No route to host", "ssh: No route to host.", "ssh: "])
@pytest.mark.parametrize("is_raised", [True, False])
def test_why_a_host_cannot_be_reached_is_one_sentence_before_the_next_step(is_raised: bool, end: str) -> None:
    why = f"Make sure this host can be reached over {end}"
    with pytest.raises(e.Unreachable, match=r"over ssh(: No route to host)?\. Run the task again"):
        Reading(AnsibleConnectionFailure(why) if is_raised else {"unreachable": True, "msg": why}).run_with_options(TASK_VARS)


def test_another_error_of_ansible_is_none_of_the_host() -> None:
    with pytest.raises(AnsibleError, match="Incorrect sudo password"):
        Reading(AnsibleError("Incorrect sudo password")).run_with_options(TASK_VARS)


@pytest.mark.parametrize("wrong", [{"count": "many"}, {"cuont": 1}])
def test_invalid_options_have_an_error_code(wrong: t.Dict[str, t.Any]) -> None:
    action = Reading({}, **wrong)
    result = action.run(task_vars=TASK_VARS)
    assert (result["failed"], result["error_code"]) == (True, "invalid_argument")
    assert "count" in result["msg"] or "cuont" in result["msg"]
    assert action.asked == []


def test_the_keyword_async_is_refused_with_a_code() -> None:
    action = Reading({}, async_val=30)
    result = action.run(task_vars=TASK_VARS)
    assert (result["failed"], result["error_code"]) == (True, "invalid_argument")
    assert "async" in result["msg"]
    assert action.asked == []


def test_a_delegated_task_is_about_the_host_it_runs_on() -> None:
    action = Reading({})
    action._task.delegate_to = "kvm2"
    assert action.target_host(TASK_VARS) == "kvm2"


class Announcing(Reading):
    """An action plugin that refuses a move, and then fails."""

    def run_task(self, args: t.Dict[str, t.Any], task_vars: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        settings = self.settings(task_vars)
        where = settings.ledger("kvm1", None)
        ledger = self.attach_notifier(open_ledger(*where), settings, "kvm1", where)
        record = new_record(s.LIVE_MIGRATION, DomainRef(str(uuid.uuid4()), "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "me")
        stored = ledger.open_record(record)
        refused = stored.record.advance(s.CONFLICT, "me")
        ledger.update_record(stored, refused)
        raise e.Conflict("No room.")


def announcing(folder: Path, notices: t.Any, check_mode: bool = False) -> t.Dict[str, t.Any]:
    action = Announcing({})
    action._task.check_mode = check_mode
    variables = {"kvmfleet_ledger": str(folder / "ledger"), "kvmfleet_notices": notices}
    result: t.Dict[str, t.Any] = action.run(task_vars=task_vars("kvm1", variables))
    assert (result["failed"], result["msg"], result["error_code"]) == (True, "No room.", "conflict")
    return result


def test_a_failed_task_sends_a_notice_and_fails_the_same_way_without_a_receiver(tmp_path: Path) -> None:
    with Receiver() as receiver:
        wanted = {"url": receiver.url, "spool": str(tmp_path / "spool"), "retries": 0}
        assert "warnings" not in announcing(tmp_path, wanted)
        assert receiver.kinds() == ["move.conflict"]
        assert "warnings" not in announcing(tmp_path, wanted, check_mode=True)
        assert "warnings" not in announcing(tmp_path, None)
        assert len(receiver.requests) == 1
        receiver.answers.append(status(500))
        (warning,) = announcing(tmp_path, wanted)["warnings"]
        assert "not sent" in warning
    (warning,) = announcing(tmp_path, {"url": "none"})["warnings"]
    assert "No notices are sent" in warning


@pytest.mark.parametrize("changed", [False, True])
def test_a_failed_phase_keeps_its_migrations_and_whether_it_has_changed_anything(changed: bool) -> None:
    """A task that fails returns the record, as it is then."""
    answer = {"failed": True, "msg": "too late", "error_code": "invalid_state", "migrations": [{"id": "x"}], "other": 1}
    result = Reading({**answer, **({"changed": True} if changed else {})}).run(task_vars=TASK_VARS)
    assert (result["error_code"], result["migrations"], "other" in result, result["changed"]) == ("invalid_state", [{"id": "x"}], False, changed)


@pytest.mark.parametrize(
    ("variables", "end"),
    [
        ({}, r"pid \d+"),
        ({"awx_user_name": "ann", "awx_job_id": 42}, r"pid \d+, AWX user ann, job 42"),
        ({"awx_user_name": "ann"}, r"pid \d+, AWX user ann"),
        ({"awx_job_id": "42"}, r"pid \d+, AWX job 42"),
        ({"tower_user_name": "ann", "tower_job_id": 7}, r"pid \d+, AWX user ann, job 7"),
        ({"awx_user_name": "ann", "tower_user_name": "bob"}, r"pid \d+, AWX user ann"),
        ({"awx_user_name": "  ", "awx_job_id": None}, r"pid \d+"),
        ({"awx_user_name": ["ann"], "awx_job_id": True}, r"pid \d+"),
        ({"awx_user_name": "a\nb\x1b[31m"}, r"pid \d+, AWX user a\\nb\\x1b\[31m"),
        ({"awx_user_name": "a" * 5000}, r"pid \d+, AWX user a{100}"),
    ],
)
def test_the_actor_is_the_user_of_the_control_node_and_of_awx(variables: t.Dict[str, t.Any], end: str) -> None:
    assert re.fullmatch(rf"\S+@\S+ {end}", describe_actor(variables))


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 54321"), OSError("No username set in the environment")])
def test_the_actor_of_a_container_may_have_no_name(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Execution environments run with any user ID. Python 3.13 raises C(OSError), earlier ones C(KeyError)."""

    def fail() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    assert re.fullmatch(rf"{os.geteuid()}@\S+ pid {os.getpid()}", describe_actor({}))
