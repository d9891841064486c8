# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._guard import install, program
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard.program import BY_CONTROL, BY_INSTALL, Guard, GuardError

from .boots import DB, GRANT, NONCE, WEB, Machine

GARBAGE = ["", "null", "[]", "{", "7", '"x"', "{}", '{"boot_id": 5, "by": "control"}', '{"by": "control"}', "[" * 100000, "\x00\xff"]


def _grant(machine: Machine, grant: str = GRANT) -> None:
    machine.have_storage_program()
    machine.write("var/lib/kvmfleet/guard/grant.json", json.dumps(machine.grant(grant)))


def _shut_down_cleanly(machine: Machine) -> None:
    _grant(machine)
    machine.guard.release(BY_INSTALL)
    assert machine.guard.leave_token()


def test_a_boot_is_held_until_it_is_released_and_every_boot_anew(machine: Machine) -> None:
    for dummy in range(2):
        assert machine.starts_guests()
        assert machine.guard.hold() is None
        assert machine.guard.status()["held"]["why"] == "there is no clean-shutdown token"
        assert not machine.starts_guests()
        assert not machine.runs_libvirt_guests()
        machine.guard.release(BY_CONTROL)
        assert machine.runs_libvirt_guests()
        assert machine.guard.status()["held"] is None
        machine.boot()


@pytest.mark.parametrize("before", [None, 0o755])
def test_the_folder_of_states_is_root_s_alone_though_the_guard_is_first_there(machine: Machine, before: t.Optional[int]) -> None:
    folder = machine.root / "run/kvmfleet"
    if before:
        folder.mkdir()
        folder.chmod(before)
    machine.guard.hold()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "guard")] == [0o700, 0o700]


def test_after_the_release_no_daemon_that_is_restarted_starts_guests_either(machine: Machine) -> None:
    machine.guard.hold()
    machine.guard.release(BY_CONTROL)
    machine.mark.unlink()
    released = machine.guard.hold()
    assert released is not None
    assert released["by"] == BY_CONTROL
    assert not machine.starts_guests()


def test_the_release_tells_what_a_boot_would_have_started_and_so_does_the_next_call(machine: Machine) -> None:
    machine.define("web1", WEB)
    machine.define("db1", DB, suffix=".once")
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB} {DB}\nlxc:/// not-a-uuid\n")
    machine.guard.hold()
    document, is_new = machine.guard.release(BY_CONTROL)
    assert is_new
    assert document["would_start"] == [
        {"uuid": DB, "name": "db1", "why": ["once", "libvirt-guests"]},
        {"uuid": WEB, "name": "web1", "why": ["autostart", "libvirt-guests"]},
    ]
    assert machine.guard.release(BY_CONTROL) == (document, False)


def test_what_libvirt_guests_would_start_is_set_aside_before_it_may_run(machine: Machine) -> None:
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB}\n")
    machine.guard.hold()
    assert machine.listed.exists()
    machine.guard.release(BY_CONTROL)
    assert not machine.listed.exists()
    assert (machine.root / "var/lib/libvirt/libvirt-guests.kvmfleet-held").read_text() == f"default {WEB}\n"


def test_a_list_that_cannot_be_set_aside_keeps_the_host_held(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB}\n")
    machine.guard.hold()
    monkeypatch.setattr(program.os, "replace", _read_only)
    with pytest.raises(OSError, match="Read-only"):
        machine.guard.release(BY_CONTROL)
    assert machine.guard.released() is None
    assert not machine.runs_libvirt_guests()


def test_a_definition_that_cannot_be_read_is_named_without_uuid(machine: Machine) -> None:
    machine.define("web1", WEB)
    machine.write("etc/libvirt/qemu/web1.xml", "<domain><uuid>")
    assert machine.guard.would_start() == [{"uuid": None, "name": "web1", "why": ["autostart"]}]


def test_the_installing_boot_is_left_as_it_is(machine: Machine) -> None:
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB}\n")
    machine.guard.release(BY_INSTALL)
    machine.guard.hold()
    assert machine.starts_guests()
    assert machine.listed.exists()


@pytest.mark.parametrize("text", GARBAGE)
def test_a_release_that_is_garbage_or_of_another_boot_is_none(machine: Machine, text: str) -> None:
    machine.write("run/kvmfleet/guard/released.json", text)
    assert machine.guard.hold() is None
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()


def test_a_release_of_another_boot_is_none(machine: Machine) -> None:
    document = {"boot_id": GRANT, "by": BY_CONTROL, "at": "2026-01-01T00:00:00Z"}
    machine.write("run/kvmfleet/guard/released.json", json.dumps(document))
    assert machine.guard.hold() is None
    assert not machine.runs_libvirt_guests()


def test_a_token_releases_one_boot_and_is_gone_before_anything_starts(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    assert machine.guard.hold() is None
    assert not machine.token.exists()
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()
    released = machine.guard.confirm()
    assert released is not None
    assert (released["by"], released["grant"]) == ("token", GRANT)
    assert machine.guard.confirm() == machine.guard.hold() == released
    assert machine.guard.status()["held"] is None
    assert machine.starts_guests()
    assert machine.runs_libvirt_guests()
    assert not machine.token.exists()
    machine.boot()
    assert machine.guard.confirm() is None


def test_a_token_that_was_revoked_elsewhere_releases_nothing_and_is_not_granted_any_more(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    assert machine.revoke_elsewhere(machine.stores[1]) == [str(machine.stores[1])]
    machine.boot()
    assert machine.guard.confirm() is None
    assert "revoked" in machine.guard.status()["held"]["why"]
    assert not machine.starts_guests()
    assert machine.guard.grant() is None


@pytest.mark.parametrize("spoil", ["unmount", "other store", "gone", "no folder"])
def test_a_token_that_shared_storage_cannot_confirm_in_time_releases_nothing(machine: Machine, spoil: str) -> None:
    _shut_down_cleanly(machine)
    store = machine.stores[0]
    if spoil == "other store":
        machine.mount(store, nonce=WEB)
    elif spoil == "no folder":
        shutil.rmtree(store)
        store.write_text("a file")
    else:
        machine.unmount(store)
        if spoil == "gone":
            store.rmdir()
    machine.boot()
    assert machine.guard.confirm() is None
    assert str(store) in machine.guard.status()["held"]["why"]
    assert not machine.starts_guests()
    machine.mount(machine.stores[1])
    assert machine.guard.confirm() is None


def test_storage_that_is_mounted_late_is_waited_for(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.unmount(machine.stores[0])
    machine.boot()
    machine.guard.hold()
    mounting = threading.Timer(2, machine.mount, [machine.stores[0]])
    mounting.start()
    released = Guard(str(machine.root), confirm_seconds=120).confirm()
    mounting.join()
    assert released is not None


def test_storage_that_does_not_answer_is_left_alone_and_the_boot_is_held(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _shut_down_cleanly(machine)
    machine.write(program.STORAGE_PROGRAM, "import time; time.sleep(600)")
    monkeypatch.setattr(program, "_LEAST_SECONDS", 1.0)
    machine.boot()
    assert machine.guard.confirm() is None
    assert "did not answer" in machine.guard.status()["held"]["why"]


@pytest.mark.parametrize("text", ["", "raise SystemExit(1)", "print('lost'); raise SystemExit(3)"])
def test_a_storage_program_that_is_broken_confirms_nothing(machine: Machine, text: str) -> None:
    _shut_down_cleanly(machine)
    if text:
        machine.write(program.STORAGE_PROGRAM, text)
    else:
        (machine.root / program.STORAGE_PROGRAM).unlink()
    machine.boot()
    assert machine.guard.confirm() is None
    assert not machine.starts_guests()


@pytest.mark.parametrize("wrong", [{"folders": {}}, {"folders": None}, {"folders": ["/x"]}, {"folders": {"relative": NONCE}}, {"host_id": None}])
def test_a_grant_that_names_no_shared_storage_confirms_no_token(machine: Machine, wrong: t.Dict[str, t.Any]) -> None:
    machine.have_storage_program()
    machine.write("var/lib/kvmfleet/guard/grant.json", json.dumps({**machine.grant(), **wrong}))
    machine.guard.release(BY_INSTALL)
    assert machine.guard.leave_token()
    machine.boot()
    assert machine.guard.confirm() is None
    assert "storage" in machine.guard.status()["held"]["why"]


def test_a_grant_that_is_taken_back_while_storage_is_asked_releases_nothing(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    machine.guard.hold()
    install.revoke(str(machine.root))
    assert machine.guard.confirm() is None
    assert not machine.starts_guests()


def test_a_host_that_is_released_while_it_waits_for_storage_is_released_by_the_control_node(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    machine.guard.hold()
    machine.guard.release(BY_CONTROL)
    released = machine.guard.confirm()
    assert released is not None
    assert released["by"] == BY_CONTROL
    assert not machine.starts_guests()


def test_only_the_grant_that_was_revoked_is(machine: Machine) -> None:
    machine.revoke_elsewhere(machine.stores[0], DB)
    _shut_down_cleanly(machine)
    machine.boot()
    assert machine.guard.confirm() is not None


def test_a_daemon_restarted_after_a_release_by_token_leaves_libvirts_own_mark(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    machine.guard.confirm()
    machine.mark.touch()
    machine.guard.confirm()
    assert machine.mark.exists()


def test_a_held_host_leaves_no_token(machine: Machine) -> None:
    _grant(machine)
    machine.guard.hold()
    assert machine.guard.leave_token() is None
    assert not machine.token.exists()


def test_a_host_without_grant_leaves_no_token(machine: Machine) -> None:
    machine.guard.release(BY_INSTALL)
    assert machine.guard.leave_token() is None


@pytest.mark.parametrize("text", [*GARBAGE, json.dumps({"token": "x", "grant": GRANT}), json.dumps({"token": WEB}), json.dumps({"token": WEB, "grant": DB})])
def test_a_token_that_is_garbage_or_of_another_grant_holds_and_is_deleted(machine: Machine, text: str) -> None:
    _grant(machine)
    machine.write("var/lib/kvmfleet/guard/token.json", text)
    assert machine.guard.confirm() is None
    assert not machine.token.exists()


def test_a_token_that_cannot_be_deleted_does_not_count_now_or_later_in_this_boot(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    with monkeypatch.context() as patch:
        patch.setattr(program.os, "unlink", _keeping(machine.token))
        assert machine.guard.confirm() is None
    assert "cannot be deleted" in machine.guard.status()["held"]["why"]
    assert machine.guard.confirm() is None
    assert not machine.token.exists()


def test_a_token_that_is_found_while_the_boot_is_released_is_deleted(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.guard.hold()
    assert not machine.token.exists()


@pytest.mark.parametrize("call", ["unlink", "replace", "fsync"])
def test_a_guard_that_dies_at_any_step_has_let_nothing_start_and_the_next_run_holds_or_released_by_the_token(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for number in range(9):
        _shut_down_cleanly(machine)
        machine.boot()
        with monkeypatch.context() as patch:
            patch.setattr(program.os, call, _dying_at(number, getattr(os, call)))
            try:
                machine.guard.confirm()
            except _Killed:
                assert not machine.starts_guests() or machine.guard.released()
        released = machine.guard.confirm()
        assert machine.starts_guests() == (released is not None)
        assert machine.runs_libvirt_guests() == (released is not None)


def test_without_the_mark_the_guard_fails_so_that_no_daemon_is_started(machine: Machine) -> None:
    machine.write("run/libvirt", "a file in the place of a folder")
    assert _run(machine, "hold").returncode == 1
    machine.boot()
    (machine.root / "run/libvirt/qemu").mkdir(parents=True)
    machine.mark.symlink_to("/nowhere/at/all")
    with pytest.raises(GuardError, match="link to nothing"):
        machine.guard.hold()


def test_without_a_boot_id_the_guard_fails_so_that_no_daemon_is_started(machine: Machine) -> None:
    machine.write("proc/sys/kernel/random/boot_id", "garbage")
    machine.write("run/kvmfleet/guard/released.json", json.dumps({"boot_id": "garbage", "by": BY_CONTROL}))
    done = _run(machine, "hold")
    assert done.returncode == 1
    assert "daemon is not started" in done.stderr


def test_the_program_runs_alone_and_says_what_it_did(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.define("web1", WEB)
    assert "Held: no guest starts by itself" in _run(machine, "hold").stdout
    assert json.loads(_run(machine, "status").stdout)["held"]["why"]
    assert "No token is left" in _run(machine, "shutdown").stdout
    assert f"{WEB} web1 (autostart)" in _run(machine, "release").stdout
    assert "This boot was released" in _run(machine, "hold").stdout
    assert _run(machine, "start").returncode == 2


def _run(machine: Machine, verb: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", program.__file__, "--root", str(machine.root), verb]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


class _Killed(BaseException):
    pass


def _dying_at(number: int, real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
    calls = iter(range(100))

    def call(*arguments: t.Any, **named: t.Any) -> t.Any:
        if next(calls) == number:
            raise _Killed
        return real(*arguments, **named)

    return call


def _read_only(*_arguments: t.Any) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _keeping(kept: pathlib.Path) -> t.Callable[..., None]:
    real = os.unlink

    def unlink(path: str) -> None:
        if path == str(kept):
            _read_only()
        real(path)

    return unlink
