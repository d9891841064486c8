# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that hosts keep: when they are used, and what is sent otherwise."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import types
import typing as t
import zipfile

import pytest
from ansible.executor.interpreter_discovery import InterpreterDiscoveryRequiredError
from ansible.module_utils._internal._messages import Event, WarningSummary
from ansible.plugins.action import ActionBase

from ansible_collections.kvmfleet.migration.plugins.module_utils import _kept_module as program
from ansible_collections.kvmfleet.migration.plugins.plugin_utils import _kept_modules as kept
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._kept_modules import KeptModuleAction, Launch, load_internals

Result = dict[str, t.Any]
NAME = "kvmfleet.migration.host_facts"
MODULE = pathlib.Path(program.__file__).parents[1] / "modules/host_facts.py"


def pack(content: bytes, comment: bytes = b"") -> str:
    """Return what Ansible packs: the module with that content, and packages without a file of their own."""
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as archive:
            folder = "ansible_collections/kvmfleet/migration/plugins"
            for name, text in ((f"{folder}/__init__.py", b""), (f"{folder}/modules/host_facts.py", content)):
                archive.writestr(name, text)
            archive.comment = comment
        return base64.b64encode(stream.getvalue()).decode()


def send(payload: str) -> bytes:
    """Return what Ansible sends with that payload."""
    return f"wrapper(\nzip_data='{payload}',\n)".encode()


FIRST, SECOND = (pack(MODULE.read_bytes(), comment) for comment in (b"1", b"2"))
ORDINARY = send(FIRST)


def find(name: str, suffix: str) -> types.SimpleNamespace:
    assert (name, suffix) == (NAME, ".py")
    return types.SimpleNamespace(plugin_resolved_path=str(MODULE))


class Action(KeptModuleAction):
    """An action on a host that answers C(answers), in turn; C(sent) is what it was sent."""

    def __init__(self, answers: list[Result]) -> None:
        self.answers = answers
        self.sent: list[tuple[bytes, Result]] = []
        self.pipelining = True
        self.become_user = "root"
        self.payload = ORDINARY
        self._task = types.SimpleNamespace(async_val=0, action=NAME, args={}, delegate_to=None)  # type: ignore[assignment]
        self._connection = types.SimpleNamespace(become=True)
        self._shared_loader_obj = types.SimpleNamespace(module_loader=types.SimpleNamespace(find_plugin_with_context=find))
        self._templar = types.SimpleNamespace(_engine=types.SimpleNamespace(template=lambda text, options: text))

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        return self._execute_module(NAME, {"uri": "qemu:///system"}, task_vars={"ansible_python_interpreter": "/usr/bin/python3", **(task_vars or {})})

    def _is_pipelining_enabled(self, module_style: str, wrap_async: bool = False) -> bool:
        return self.pipelining

    def get_become_option(self, option: str, default: t.Any = None) -> str:
        return self.become_user


def build(action: Action, *_args: t.Any) -> tuple[t.Any, str]:
    internals = load_internals()
    assert internals
    made = internals.built_module(b_module_data=action.payload, module_style="new", shebang="#!/usr/bin/python3", serialization_profile="legacy")
    return made, "/path"


def execute(action: Action, module_name: str, module_args: Result, task_vars: Result, **more: t.Any) -> Result:
    made, _path = action._configure_module(module_name, module_args, task_vars)
    action.sent.append((made.b_module_data, module_args))
    return action.answers.pop(0)


@pytest.fixture(autouse=True)
def payloads(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder of the payloads that the control node keeps."""
    folder = tmp_path / kept.PAYLOADS
    monkeypatch.setattr(kept, "find_payload_folder", lambda internals: str(folder))
    monkeypatch.setattr(ActionBase, "_execute_module", execute)
    monkeypatch.setattr(ActionBase, "_configure_module", build)
    monkeypatch.setattr(kept, "_has_own_utilities", lambda: False)
    return folder


def last_call(script: bytes) -> str:
    return script.decode().rstrip().rpartition("\n")[2]


def test_the_inner_functions_of_this_ansible_are_known() -> None:
    assert load_internals() is not None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "PYTHONUTF8=1"),
        ({"LANG": "de_DE.ISO-8859-1"}, "LANG=de_DE.ISO-8859-1 PYTHONUTF8=1"),
        ({"PYTHONUTF8": "0"}, "PYTHONUTF8=0"),
    ],
)
def test_a_module_names_files_in_utf8_as_libvirt_does(environment: dict[str, str], expected: str) -> None:
    """In a locale with another encoding, Python would not find the file of a saved memory image whose name is not ASCII."""

    def write_prefix(**variables: str) -> str:
        return " ".join(f"{name}={value}" for name, value in variables.items())

    action, known = Action([]), {"LEFT": "over"}
    action._task.environment = [environment]
    action._connection._shell = types.SimpleNamespace(env_prefix=write_prefix)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    assert action._compute_environment_string() == expected
    action._compute_environment_string(known)
    assert known == environment


def test_a_host_that_has_the_module_gets_its_options_alone() -> None:
    action = Action([{"changed": False}])
    assert action.run() == {"changed": False}
    call = last_call(action.sent[0][0])
    assert call.startswith("run_kept_module('/run/kvmfleet', 'host_facts-")
    assert call.endswith("'legacy', 0, None)")
    assert '"uri": "qemu:///system"' in call


def test_a_host_that_does_not_have_it_gets_it_once() -> None:
    action = Action([{program.ANSWER: program.MISSING}, {"changed": True}])
    assert action.run() == {"changed": True}
    assert last_call(action.sent[1][0]).endswith(f"'legacy', 0, '{FIRST}')")


def send_again() -> bytes:
    """Send the module to another host that does not have it, when Ansible would pack something else; return what is sent."""
    action = Action([{program.ANSWER: program.MISSING}, {"changed": True}])
    action.payload = send(SECOND)
    action.run()
    return action.sent[1][0]


def test_the_next_host_gets_what_was_packed_for_the_first_one(payloads: pathlib.Path) -> None:
    Action([{program.ANSWER: program.MISSING}, {"changed": True}]).run()
    assert last_call(send_again()).endswith(f"'legacy', 0, '{FIRST}')")
    [file] = payloads.iterdir()
    assert (payloads.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_a_payload_that_others_could_have_written_is_packed_again(payloads: pathlib.Path, mode: int) -> None:
    Action([{program.ANSWER: program.MISSING}, {"changed": True}]).run()
    [file] = payloads.iterdir()
    file.chmod(mode)
    assert last_call(send_again()).endswith(f"'{SECOND}')")
    assert last_call(send_again()).endswith(f"'{SECOND}')")


def test_a_damaged_payload_is_packed_again(payloads: pathlib.Path) -> None:
    Action([{program.ANSWER: program.MISSING}, {"changed": True}]).run()
    [file] = payloads.iterdir()
    file.write_bytes(file.read_bytes()[1:])
    assert last_call(send_again()).endswith(f"'{SECOND}')")


def test_what_was_packed_during_an_upgrade_is_sent_and_not_kept(payloads: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "compute_checksum", lambda path: "that of the new files")
    action = Action([{program.ANSWER: program.MISSING}, {"changed": True}])
    monkeypatch.setattr(kept, "checksum_module", lambda path: "that of the old files")
    action.run()
    assert action.sent[1][0] == ORDINARY
    assert not payloads.exists()


def test_what_ansible_had_packed_before_an_upgrade_is_sent_and_not_kept(payloads: pathlib.Path) -> None:
    """Ansible packs a module once for a whole run."""
    action = Action([{program.ANSWER: program.MISSING}, {"changed": True}])
    action.payload = send(pack(b"the module of the earlier version"))
    action.run()
    assert action.sent[1][0] == action.payload
    assert not payloads.exists()


def test_a_kept_payload_of_another_version_is_packed_again(payloads: pathlib.Path) -> None:
    Action([{program.ANSWER: program.MISSING}, {"changed": True}]).run()
    [file] = payloads.iterdir()
    kept.keep_payload(str(payloads), file.name.removeprefix(program.PREFIX), pack(b"the module of an earlier version"))
    assert last_call(send_again()).endswith(f"'{SECOND}')")


def test_a_folder_that_others_can_enter_or_that_cannot_be_made_is_not_used(payloads: pathlib.Path) -> None:
    payloads.mkdir(mode=0o755)
    assert last_call(send_again()).endswith(f"'{SECOND}')")
    assert list(payloads.iterdir()) == []
    payloads.rmdir()
    payloads.write_text("in the way", encoding="ascii")
    assert last_call(send_again()).endswith(f"'{SECOND}')")


@pytest.mark.parametrize("answers", [[program.UNUSABLE], [program.MISSING, program.UNUSABLE], [program.MISSING, program.MISSING]])
def test_where_nothing_can_be_kept_the_module_is_sent_as_usual(answers: list[str]) -> None:
    action = Action([*({program.ANSWER: answer} for answer in answers), {"changed": True}])
    assert action.run() == {"changed": True}
    assert action.sent[-1][0] == ORDINARY


@pytest.mark.parametrize("answers", [[{}], [{program.ANSWER: program.UNUSABLE}, {}]])
def test_a_warning_of_a_module_is_its_text(answers: list[Result]) -> None:
    """A module that is not kept answers with the objects of ansible-core 2.19, whose form as a text is that of their fields."""
    answers[-1]["warnings"] = [types.SimpleNamespace(event=types.SimpleNamespace(msg="systemd does not run this host")), "plain"]
    assert Action(answers).run() == {"warnings": ["systemd does not run this host", "plain"]}


def test_the_warnings_of_this_ansible_have_the_form_that_is_expected() -> None:
    assert kept.warning_text(WarningSummary(event=Event(msg="beware"))) == "beware"


def test_a_payload_of_an_unknown_form_is_sent_as_it_is() -> None:
    action = Action([{program.ANSWER: program.MISSING}, {"changed": True}])
    action.payload = b"something else"
    assert action.run() == {"changed": True}
    assert action.sent[-1][0] == b"something else"


def test_options_that_ansible_adds_are_added_to_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Action([{"changed": False}])
    given = {"uri": "qemu:///system"}
    action._execute_module(NAME, given, task_vars={"ansible_python_interpreter": "/usr/bin/python3"})
    assert action.sent[0][1] == given
    assert action.sent[0][1] is not given


def no_pipelining(action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    action.pipelining = False


def another_user(action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    action.become_user = "operator"


def in_the_background(action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    action._task.async_val = 30


def own_utilities(action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_has_own_utilities", lambda: True)


def another_ansible(action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "load_internals", lambda: None)


def unknown_interpreter(action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    def discover(*_args: t.Any, **_more: t.Any) -> None:
        raise InterpreterDiscoveryRequiredError("needed", interpreter_name="python", discovery_mode="auto")

    monkeypatch.setattr("ansible.executor.module_common._get_shebang", discover)
    monkeypatch.setattr(kept, "load_internals", kept.load_internals.__wrapped__)


@pytest.mark.parametrize("unusual", [no_pipelining, another_user, in_the_background, own_utilities, another_ansible, unknown_interpreter])
def test_in_an_unusual_case_the_module_is_sent_as_usual(unusual: t.Callable[[Action, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    action = Action([{"changed": True}])
    unusual(action, monkeypatch)
    assert action.run() == {"changed": True}
    assert [script for script, _args in action.sent] == [ORDINARY]


def test_a_task_in_the_background_and_other_collections_modules_are_sent_as_usual() -> None:
    action = Action([{"changed": True}, {"changed": True}])
    action._execute_module(NAME, {}, task_vars={}, wrap_async=True)
    action._execute_module("ansible.builtin.ping", {}, task_vars={})
    assert [script for script, _args in action.sent] == [ORDINARY, ORDINARY]


def test_an_ansible_whose_inner_functions_have_another_form_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    load = kept.load_internals.__wrapped__
    monkeypatch.setattr("ansible.module_utils._internal._ansiballz._loader.run_module", lambda json_params, profile: None)
    assert load() is None
    monkeypatch.delattr("ansible.executor.module_common._BuiltModule")
    assert load() is None


def test_the_checksum_changes_with_the_module(tmp_path: pathlib.Path) -> None:
    module = tmp_path / "host_facts.py"
    module.write_text("one")
    first = kept.compute_checksum(str(module))
    assert kept.compute_checksum(str(module)) == first
    module.write_text("two")
    assert kept.compute_checksum(str(module)) != first


def test_options_are_passed_as_they_are(tmp_path: pathlib.Path) -> None:
    module = tmp_path / "host_facts.py"
    module.write_text("one")
    text = json.dumps({"quotes": "'\"\\", "lines": "a\nb", "sign": "\u00fc\ud83d"})
    script = Launch("host_facts", str(module), "#!", 5).script(text, None)
    found: list[t.Any] = []
    exec(last_call(script), {"run_kept_module": lambda *given: found.append(given)})
    assert found[0][3] == text
    assert found[0][5] == 5
