# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import socket
import types
import typing as t

import pytest
from ansible.module_utils import basic

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ShapeError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, Internal, InvalidArgument, NotSupported


class RecordingModule:
    """What an AnsibleModule was told at its end."""

    def __init__(self) -> None:
        self.failed: t.Optional[t.Dict[str, t.Any]] = None
        self.result: t.Optional[t.Dict[str, t.Any]] = None

    def fail_json(self, **result: t.Any) -> None:
        self.failed = result

    def exit_json(self, **result: t.Any) -> None:
        self.result = result


def run_recorded(work: t.Callable[[t.Any], t.Dict[str, t.Any]]) -> RecordingModule:
    module = RecordingModule()
    m.run_module(t.cast(t.Any, module), work)
    return module


def test_the_result_of_the_work_is_the_result_of_the_module() -> None:
    assert run_recorded(lambda module: {"changed": False}).result == {"changed": False}


def test_an_error_of_the_collection_is_a_failed_result_and_any_other_is_raised() -> None:
    def refuse(module: t.Any) -> t.Dict[str, t.Any]:
        raise Conflict("It is taken.", record="r1")

    assert run_recorded(refuse).failed == {"msg": "It is taken.", "error_code": "conflict", "record": "r1"}
    with pytest.raises(ZeroDivisionError):
        run_recorded(lambda module: {"x": 1 // 0})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "a", "uuid": "b"}, "mutually exclusive: name|uuid. Correct the task. Nothing was changed."),
        ({"seconds": "soon"}, "seconds"),
        ({"seconds": float("inf")}, "'seconds' must be a whole number"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_options_that_ansible_refuses_have_an_error_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: t.Dict[str, t.Any], words: str
) -> None:
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    spec = {"name": {"type": "str"}, "uuid": {"type": "str"}, "seconds": {"type": "int"}}
    with pytest.raises(SystemExit):
        m.new_module(basic.AnsibleModule, argument_spec=spec, mutually_exclusive=[("name", "uuid")])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["failed"], answer["error_code"]) == (True, "invalid_argument")
    assert words in answer["msg"]


def test_two_names_of_one_option_are_refused_before_anything_is_done() -> None:
    module = RecordingModule()
    module.validation_result = types.SimpleNamespace(_warnings=[{"option": "name", "alias": "guest"}])  # type: ignore[attr-defined]
    m.run_module(t.cast(t.Any, module), lambda module: {"x": 1 // 0})
    assert module.failed == {
        "msg": "'name' and 'guest' are names of one option. Give one of them. Nothing was changed.",
        "error_code": "invalid_argument",
    }


def test_a_phase_is_called_with_uri_and_work() -> None:
    phases = {"prepare": lambda uri, work: {"uri": uri, "work": dict(work)}}
    done = m.run_phase(phases, {"uri": "qemu:///system", "_work": {"phase": "prepare", "wanted": []}})
    assert (done["uri"], done["work"]["wanted"]) == ("qemu:///system", [])


@pytest.mark.parametrize("work", [None, {}, {"phase": "start"}, {"phase": None}, {"phase": "__class__"}])
def test_a_module_without_a_known_phase_is_refused(work: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="one half of an action plugin"):
        m.run_phase({"prepare": lambda uri, work: {}}, {"uri": "qemu:///system", "_work": work})


@pytest.mark.parametrize(("uid", "refused"), [(0, False), (1000, True)])
def test_root_is_required(monkeypatch: pytest.MonkeyPatch, uid: int, refused: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    if not refused:
        m.require_root()
        return
    with pytest.raises(Forbidden, match="become"):
        m.require_root()


def test_a_remote_uri_is_refused_where_a_local_one_is_required() -> None:
    assert m.require_local("qemu:///system") == "qemu:///system"
    with pytest.raises(NotSupported, match=r"qemu\+ssh://kvm2/system"):
        m.require_local("qemu+ssh://kvm2/system")
    with pytest.raises(InvalidArgument, match="uri is"):
        m.require_local("kvm2")


@pytest.mark.parametrize("name", [None, "web1", "web 1", "o'brien", "..", "é"])
def test_possible_domain_names_are_accepted(name: t.Optional[str]) -> None:
    m.check_domain_name(name)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a\nb", "a\x00", "\x7f"])
def test_impossible_domain_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="target is"):
        m.check_domain_name(name, "target")


def test_work_of_an_unexpected_form_is_an_internal_error() -> None:
    def read_order(uri: str, work: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
        raise ShapeError("orders[0].uuid", "text")

    with pytest.raises(Internal, match=r"start cannot read .*: orders\[0\].uuid must be text"):
        m.run_phase({"start": read_order}, {"uri": "qemu:///system", "_work": {"phase": "start"}})


@pytest.mark.parametrize("make", [os.pipe, lambda: tuple(one.detach() for one in socket.socketpair())], ids=["pipe", "socket"])
def test_a_process_whose_output_nobody_reads_has_lost_its_task(make: t.Callable[[], tuple[int, int]], tmp_path: pathlib.Path) -> None:
    reader, output = make()
    try:
        assert not m.has_lost_task(output)
        os.close(reader)
        assert m.has_lost_task(output)
    finally:
        os.close(output)
    with open(tmp_path / "output", "w", encoding="ascii") as stream, open(os.devnull, "w", encoding="ascii") as null:
        assert not m.has_lost_task(stream.fileno())
        assert not m.has_lost_task(null.fileno())
