# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, program, storage_program
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.program import BY_CONTROL, BY_INSTALL, Guard, GuardError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode

from .boots import DB, GRANT, HOST_ID, NONCE, WEB, Machine

GARBAGE = ["", "null", "[]", "{", "7", '"x"', "{}", '{"boot_id": 5, "by": "control"}', '{"by": "control"}', "[" * 100000, "\x00\xff"]


def _grant(machine: Machine, grant: str = GRANT) -> None:
    machine.have_storage_program()
    machine.write("var/lib/kvmfleet/guard/grant.json", json.dumps(encode(machine.grant(grant))))


def _shut_down_cleanly(machine: Machine) -> None:
    _grant(machine)
    machine.guard.release_boot(BY_INSTALL)
    assert machine.guard.leave_token()


def test_every_boot_is_held_until_it_is_released(machine: Machine) -> None:
    for dummy in range(2):
        assert machine.starts_guests()
        assert machine.guard.hold_boot() is None
        assert machine.guard.report_status()["held"]["why"] == "there is no clean-shutdown token"
        assert not machine.starts_guests()
        assert not machine.runs_libvirt_guests()
        machine.guard.release_boot(BY_CONTROL)
        assert machine.runs_libvirt_guests()
        assert machine.guard.report_status()["held"] is None
        machine.boot()


@pytest.mark.parametrize("before", [None, 0o755])
def test_the_run_folder_that_the_guard_creates_is_private_to_root(machine: Machine, before: t.Optional[int]) -> None:
    folder = machine.root / "run/kvmfleet"
    if before:
        folder.mkdir()
        folder.chmod(before)
    machine.guard.hold_boot()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "guard")] == [0o700, 0o700]


def test_a_restarted_daemon_starts_no_guests_after_the_release(machine: Machine) -> None:
    machine.guard.hold_boot()
    machine.guard.release_boot(BY_CONTROL)
    machine.mark.unlink()
    released = machine.guard.hold_boot()
    assert released is not None
    assert released["by"] == BY_CONTROL
    assert not machine.starts_guests()


def test_a_release_lists_the_withheld_starts_every_time(machine: Machine) -> None:
    machine.define("web1", WEB)
    machine.define("db1", DB, suffix=".once")
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB} {DB}\nlxc:/// not-a-uuid\n")
    machine.guard.hold_boot()
    document, is_new = machine.guard.release_boot(BY_CONTROL)
    assert is_new
    assert document["would_start"] == [
        {"uuid": DB, "name": "db1", "why": ["once", "libvirt-guests"]},
        {"uuid": WEB, "name": "web1", "why": ["autostart", "libvirt-guests"]},
    ]
    assert machine.guard.release_boot(BY_CONTROL) == (document, False)


def test_the_list_of_libvirt_guests_is_moved_away_before_the_release(machine: Machine) -> None:
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB}\n")
    machine.guard.hold_boot()
    assert machine.listed.exists()
    machine.guard.release_boot(BY_CONTROL)
    assert not machine.listed.exists()
    assert (machine.root / "var/lib/libvirt/libvirt-guests.kvmfleet-held").read_text() == f"default {WEB}\n"


def test_a_list_of_libvirt_guests_that_cannot_be_moved_keeps_the_host_held(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB}\n")
    machine.guard.hold_boot()
    monkeypatch.setattr(program.os, "replace", _read_only)
    with pytest.raises(OSError, match="Read-only"):
        machine.guard.release_boot(BY_CONTROL)
    assert machine.guard.read_release() is None
    assert not machine.runs_libvirt_guests()


def test_an_unreadable_definition_is_listed_without_its_uuid(machine: Machine) -> None:
    machine.define("web1", WEB)
    machine.write("etc/libvirt/qemu/web1.xml", "<domain><uuid>")
    assert machine.guard.would_start() == [{"uuid": None, "name": "web1", "why": ["autostart"]}]


def test_a_boot_released_by_the_installation_is_not_held(machine: Machine) -> None:
    machine.write("var/lib/libvirt/libvirt-guests", f"default {WEB}\n")
    machine.guard.release_boot(BY_INSTALL)
    machine.guard.hold_boot()
    assert machine.starts_guests()
    assert machine.listed.exists()


@pytest.mark.parametrize("text", GARBAGE)
def test_a_damaged_release_file_does_not_release_the_boot(machine: Machine, text: str) -> None:
    machine.write("run/kvmfleet/guard/released.json", text)
    assert machine.guard.hold_boot() is None
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()


def test_a_release_of_another_boot_does_not_release_this_one(machine: Machine) -> None:
    document = {"boot_id": GRANT, "by": BY_CONTROL, "at": "2026-01-01T00:00:00Z"}
    machine.write("run/kvmfleet/guard/released.json", json.dumps(document))
    assert machine.guard.hold_boot() is None
    assert not machine.runs_libvirt_guests()


def test_a_token_releases_one_boot_and_is_deleted_before_guests_start(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    assert machine.guard.hold_boot() is None
    assert not machine.token.exists()
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()
    released = machine.guard.confirm_token()
    assert released is not None
    assert (released["by"], released["grant"]) == ("token", GRANT)
    assert machine.guard.confirm_token() == machine.guard.hold_boot() == released
    assert machine.guard.report_status()["held"] is None
    assert machine.starts_guests()
    assert machine.runs_libvirt_guests()
    assert not machine.token.exists()
    machine.boot()
    assert machine.guard.confirm_token() is None


def test_a_token_revoked_on_another_host_releases_nothing_and_ends_the_grant(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    assert machine.revoke_elsewhere(machine.stores[1]) == [str(machine.stores[1])]
    machine.boot()
    assert machine.guard.confirm_token() is None
    assert "revoked" in machine.guard.report_status()["held"]["why"]
    assert not machine.starts_guests()
    assert machine.guard.read_grant_id() is None


@pytest.mark.parametrize("how", ["no grant", "another grant", "revoked"])
def test_an_earlier_copy_of_the_disk_does_not_use_a_grant_that_was_withdrawn(machine: Machine, how: str) -> None:
    _shut_down_cleanly(machine)
    kept, copy = machine.root / "var/lib/kvmfleet/guard", machine.root / "copy"
    shutil.copytree(kept, copy)
    if how == "revoked":
        install.revoke_grant(str(machine.root))
    else:
        assert not install.install_guard(str(machine.root), grant=machine.grant(DB) if how == "another grant" else None).unrevoked
    shutil.rmtree(kept)
    shutil.copytree(copy, kept)
    machine.boot()
    assert machine.guard.confirm_token() is None
    assert "revoked" in machine.guard.report_status()["held"]["why"]


class Killed(BaseException):
    """kill -9."""


def _kill_at_write(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Kill the process before its write of that number: the tombstones, the note of withdrawn grants, and the removal of the token and of the grant."""
    left = [number]

    def dying(write: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def act(*args: t.Any) -> t.Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return write(*args)

        return act

    for module, name in ((install, "leave_tombstones"), (program, "write_json"), (install, "_unlink_durably")):
        monkeypatch.setattr(module, name, dying(getattr(module, name)))


@pytest.mark.parametrize("how", ["protect", "revoke"])
@pytest.mark.parametrize("writes", range(4))
def test_a_withdrawal_that_was_killed_is_continued_from_the_grant_in_the_ledger(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, writes: int, how: str
) -> None:
    """The ledger has the grant until the host has answered, so the next task withdraws it again."""
    _shut_down_cleanly(machine)
    kept, copy = machine.root / "var/lib/kvmfleet/guard", machine.root / "copy"
    shutil.copytree(kept, copy)

    def withdraw() -> str:
        if how == "revoke":
            return install.revoke_grant(str(machine.root), grant=GRANT, withdrawn=machine.grant())[1]
        return install.install_guard(str(machine.root), taken_back=[GRANT], withdrawn=machine.grant()).unrevoked

    with monkeypatch.context() as killing:
        _kill_at_write(killing, writes)
        with pytest.raises(Killed):
            withdraw()
    assert withdraw() == ""
    assert (machine.guard.read_grant_id(), machine.token.exists(), machine.guard.list_revoked_grants()) == (None, False, [GRANT])
    # Also an earlier copy of the disk releases nothing.
    shutil.rmtree(kept)
    shutil.copytree(copy, kept)
    machine.boot()
    assert machine.guard.confirm_token() is None


def test_a_grant_that_was_withdrawn_without_storage_is_revoked_when_the_ledger_still_has_it(machine: Machine) -> None:
    """The task died after the host had forgotten the grant, so that its warning was lost, and before the ledger was written."""
    _shut_down_cleanly(machine)
    hidden = [store.rename(store.with_name(f"{store.name}-away")) for store in machine.stores]
    assert install.NOT_REVOKED_ON_STORAGE in install.install_guard(str(machine.root), taken_back=[GRANT], withdrawn=machine.grant()).unrevoked
    assert install.NOT_REVOKED_ON_STORAGE in install.install_guard(str(machine.root), taken_back=[GRANT], withdrawn=machine.grant()).unrevoked
    for store, away in zip(machine.stores, hidden):
        away.rename(store)
    assert install.install_guard(str(machine.root), taken_back=[GRANT], withdrawn=machine.grant()).unrevoked == ""
    assert install.list_revoking_folders(machine.grant()) == sorted(map(str, machine.stores))


def test_a_grant_that_no_folder_can_revoke_is_withdrawn_with_a_warning(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    for store in machine.stores:
        machine.unmount(store)
    unrevoked = install.install_guard(str(machine.root)).unrevoked
    assert install.NOT_REVOKED_ON_STORAGE in unrevoked
    assert str(machine.stores[1]) in unrevoked
    assert machine.guard.read_grant_id() is None


@pytest.mark.parametrize("spoil", ["unmount", "other store", "gone", "no folder"])
def test_a_token_that_shared_storage_does_not_confirm_releases_nothing(machine: Machine, spoil: str) -> None:
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
    assert machine.guard.confirm_token() is None
    assert str(store) in machine.guard.report_status()["held"]["why"]
    assert not machine.starts_guests()
    machine.mount(machine.stores[1])
    assert machine.guard.confirm_token() is None


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_copy_of_shared_storage_does_not_confirm_a_token(machine: Machine, is_copied: bool) -> None:
    """Others revoke the token on the storage that they use."""
    for store in machine.stores:
        file = store / f"{storage_program.HOST_TOKEN_PREFIX}{HOST_ID}"
        file.write_text(json.dumps({"host_id": HOST_ID, "nonce": NONCE, "inode": file.stat().st_ino}))
    _shut_down_cleanly(machine)
    if is_copied:
        machine.stores[0].rename(machine.root / "old")
        shutil.copytree(machine.root / "old", machine.stores[0])
    machine.boot()
    assert (machine.guard.confirm_token() is None) is is_copied
    folders = {str(store): NONCE for store in machine.stores}
    why = storage_program.judge_grant({"grant": GRANT, "host_id": HOST_ID, "folders": folders})[1]
    assert ("this host's file there is a copy" in why) is is_copied


def test_shared_storage_that_is_mounted_late_is_awaited(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.unmount(machine.stores[0])
    machine.boot()
    machine.guard.hold_boot()
    mounting = threading.Timer(2, machine.mount, [machine.stores[0]])
    mounting.start()
    released = Guard(str(machine.root), confirm_seconds=120).confirm_token()
    mounting.join()
    assert released is not None


def test_the_boot_is_held_if_shared_storage_does_not_answer(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _shut_down_cleanly(machine)
    machine.write(program.STORAGE_PROGRAM, "import time; time.sleep(600)")
    monkeypatch.setattr(program, "_LEAST_SECONDS", 1.0)
    machine.boot()
    assert machine.guard.confirm_token() is None
    assert "did not answer" in machine.guard.report_status()["held"]["why"]


@pytest.mark.parametrize("text", ["", "raise SystemExit(1)", "print('lost'); raise SystemExit(3)"])
def test_a_broken_storage_program_confirms_no_token(machine: Machine, text: str) -> None:
    _shut_down_cleanly(machine)
    if text:
        machine.write(program.STORAGE_PROGRAM, text)
    else:
        (machine.root / program.STORAGE_PROGRAM).unlink()
    machine.boot()
    assert machine.guard.confirm_token() is None
    assert not machine.starts_guests()


def test_the_storage_program_names_folders_in_utf8_in_every_locale(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are those of libvirt. systemd gives the guard the locale of the host, in which Python may encode them otherwise, and not find them."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    _shut_down_cleanly(machine)
    machine.write(program.STORAGE_PROGRAM, r"import sys; sys.stdout.buffer.write(b'/srv/gr\366\337e'); sys.exit(not sys.flags.utf8_mode)")
    machine.boot()
    assert machine.guard.confirm_token() is not None


@pytest.mark.parametrize("wrong", [{"folders": {}}, {"folders": None}, {"folders": ["/x"]}, {"folders": {"relative": NONCE}}, {"host_id": None}])
def test_a_grant_that_names_no_shared_storage_confirms_no_token(machine: Machine, wrong: t.Dict[str, t.Any]) -> None:
    machine.have_storage_program()
    machine.write("var/lib/kvmfleet/guard/grant.json", json.dumps({**encode(machine.grant()), **wrong}))
    machine.guard.release_boot(BY_INSTALL)
    assert machine.guard.leave_token()
    machine.boot()
    assert machine.guard.confirm_token() is None
    assert "storage" in machine.guard.report_status()["held"]["why"]


def test_a_grant_revoked_while_storage_is_checked_releases_nothing(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    machine.guard.hold_boot()
    install.revoke_grant(str(machine.root))
    assert machine.guard.confirm_token() is None
    assert not machine.starts_guests()


def test_a_release_by_the_control_node_wins_over_the_token(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    machine.guard.hold_boot()
    machine.guard.release_boot(BY_CONTROL)
    released = machine.guard.confirm_token()
    assert released is not None
    assert (released["by"], released["grant"]) == (BY_CONTROL, GRANT)
    assert not machine.starts_guests()


def test_a_release_names_the_grant_of_a_token_that_storage_did_not_confirm(machine: Machine) -> None:
    """The token is gone, but an earlier copy of the disk may still have it, and would be confirmed once storage is back."""
    _shut_down_cleanly(machine)
    machine.boot()
    for store in machine.stores:
        store.rename(store.with_name(f"{store.name}-away"))
    assert machine.guard.confirm_token() is None
    assert machine.guard.release_boot(BY_CONTROL)[0]["grant"] == GRANT


def test_a_release_names_the_grant_of_a_token_of_an_earlier_boot(machine: Machine) -> None:
    """The host has lost its power before protect could replace the grant."""
    _shut_down_cleanly(machine)
    for dummy in range(2):
        machine.boot()
        machine.guard.confirm_token()
    assert machine.guard.read_release() is None
    assert machine.guard.release_boot(BY_CONTROL)[0]["grant"] == GRANT


@pytest.mark.parametrize("call", ["unlink", "replace", "fsync"])
def test_a_host_that_loses_its_power_at_any_step_remembers_the_grant_of_its_token(machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """An earlier copy of its disk may have the token, too: the next run of protect has to replace the grant."""
    for number in range(9):
        _shut_down_cleanly(machine)
        (machine.token.parent / "spent.json").unlink(missing_ok=True)
        machine.boot()
        with monkeypatch.context() as patch, contextlib.suppress(_Killed):
            patch.setattr(program.os, call, _dying_at(number, getattr(os, call)))
            machine.guard.hold_boot()
        machine.boot()
        machine.guard.confirm_token()
        assert machine.guard.release_boot(BY_CONTROL)[0].get("grant") == GRANT


def test_a_release_of_a_boot_without_a_token_names_no_grant(machine: Machine) -> None:
    machine.boot()
    machine.guard.hold_boot()
    assert "grant" not in machine.guard.release_boot(BY_CONTROL)[0]


def test_a_revocation_invalidates_only_its_own_grant(machine: Machine) -> None:
    machine.revoke_elsewhere(machine.stores[0], DB)
    _shut_down_cleanly(machine)
    machine.boot()
    assert machine.guard.confirm_token() is not None


def test_a_restart_after_a_release_by_token_keeps_the_mark_of_libvirt(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    machine.guard.confirm_token()
    machine.mark.touch()
    machine.guard.confirm_token()
    assert machine.mark.exists()


def test_a_held_host_leaves_no_token(machine: Machine) -> None:
    _grant(machine)
    machine.guard.hold_boot()
    assert machine.guard.leave_token() is None
    assert not machine.token.exists()


def test_a_host_without_a_grant_leaves_no_token(machine: Machine) -> None:
    machine.guard.release_boot(BY_INSTALL)
    assert machine.guard.leave_token() is None


@pytest.mark.parametrize("text", [*GARBAGE, json.dumps({"token": "x", "grant": GRANT}), json.dumps({"token": WEB}), json.dumps({"token": WEB, "grant": DB})])
def test_a_damaged_token_or_one_of_another_grant_is_deleted_and_the_host_held(machine: Machine, text: str) -> None:
    _grant(machine)
    machine.write("var/lib/kvmfleet/guard/token.json", text)
    assert machine.guard.confirm_token() is None
    assert not machine.token.exists()


@pytest.mark.parametrize(("before", "now", "is_released"), [("A", "A", True), ("A", "B", False), ("A", None, False), (None, "B", True), (None, None, True)])
def test_a_token_on_a_copy_of_the_disk_releases_no_other_machine(machine: Machine, before: str | None, now: str | None, is_released: bool) -> None:
    """The host from which the disk was copied may run the guests."""
    machine.identify(before)
    _shut_down_cleanly(machine)
    machine.boot()
    machine.identify(now)
    assert (machine.guard.confirm_token() is not None, machine.starts_guests()) == (is_released, is_released)
    held = machine.guard.report_status()["held"]
    assert is_released or "left by another machine: this one has its disk, or a copy of it" in held["why"]


def test_a_token_that_cannot_be_deleted_never_releases_this_boot(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _shut_down_cleanly(machine)
    machine.boot()
    with monkeypatch.context() as patch:
        patch.setattr(program.os, "unlink", _keeping(machine.token))
        assert machine.guard.confirm_token() is None
    assert "cannot be deleted" in machine.guard.report_status()["held"]["why"]
    assert machine.guard.confirm_token() is None
    assert not machine.token.exists()


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_token_whose_use_cannot_be_noted_never_releases_a_boot(machine: Machine, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool) -> None:
    """The disk is full. A grant that the host has lost is replaced by the next run of protect: an earlier copy of the disk may have the token."""
    _shut_down_cleanly(machine)
    machine.boot()
    grant = machine.token.with_name("grant.json")
    with monkeypatch.context() as patch:
        patch.setattr(program, "write_json", _full_disk(machine.guard.kept_folder))
        if not is_forgotten:
            patch.setattr(program.os, "unlink", _keeping(grant))
        assert machine.guard.confirm_token() is None
    assert "(No space left on device), so it does not count" in machine.guard.report_status()["held"]["why"]
    assert (machine.token.exists(), grant.exists()) == (False, not is_forgotten)
    assert machine.guard.confirm_token() is None


def test_a_file_that_cannot_be_written_leaves_no_temporary_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spent.json"
    path.write_text("before")
    with monkeypatch.context() as patch:
        patch.setattr(program.os, "fsync", _no_space)
        with pytest.raises(OSError, match="No space left on device"):
            program.write_json(str(path), {})
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("spent.json", "before")]


def test_a_token_found_after_the_release_is_deleted(machine: Machine) -> None:
    _shut_down_cleanly(machine)
    machine.guard.hold_boot()
    assert not machine.token.exists()


@pytest.mark.parametrize("call", ["unlink", "replace", "fsync"])
def test_a_guard_that_dies_at_any_step_starts_nothing_and_the_next_run_continues(machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    for number in range(9):
        _shut_down_cleanly(machine)
        machine.boot()
        with monkeypatch.context() as patch:
            patch.setattr(program.os, call, _dying_at(number, getattr(os, call)))
            try:
                machine.guard.confirm_token()
            except _Killed:
                assert not machine.starts_guests() or machine.guard.read_release()
        released = machine.guard.confirm_token()
        assert machine.starts_guests() == (released is not None)
        assert machine.runs_libvirt_guests() == (released is not None)


def test_the_guard_fails_if_it_cannot_write_the_mark_of_libvirt(machine: Machine) -> None:
    machine.write("run/libvirt", "a file in the place of a folder")
    assert _run(machine, "hold").returncode == 1
    machine.boot()
    (machine.root / "run/libvirt/qemu").mkdir(parents=True)
    machine.mark.symlink_to("/nowhere/at/all")
    with pytest.raises(GuardError, match="link to nothing"):
        machine.guard.hold_boot()


def test_the_guard_fails_without_a_boot_id(machine: Machine) -> None:
    machine.write("proc/sys/kernel/random/boot_id", "garbage")
    machine.write("run/kvmfleet/guard/released.json", json.dumps({"boot_id": "garbage", "by": BY_CONTROL}))
    done = _run(machine, "hold")
    assert done.returncode == 1
    assert "daemon is not started" in done.stderr


def test_the_program_runs_standalone_and_reports_each_command(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.define("web1", WEB)
    assert "Held: no guest starts automatically" in _run(machine, "hold").stdout
    assert json.loads(_run(machine, "status").stdout)["held"]["why"]
    assert "No token is left" in _run(machine, "shutdown").stdout
    assert f"{WEB} web1 (autostart)" in _run(machine, "release").stdout
    assert "This boot was released" in _run(machine, "hold").stdout
    assert _run(machine, "start").returncode == 2


def test_a_release_without_libvirt_guests_is_reported_as_a_release_with_its_list(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list is all that a person without a control node has: the guests in it are off, and no later release names them as new."""
    machine.define("web1", WEB)
    machine.guard.hold_boot()

    def fail() -> t.NoReturn:
        raise subprocess.CalledProcessError(1, "systemctl")

    monkeypatch.setattr(program, "start_libvirt_guests", fail)
    assert program.main(["--root", str(machine.root), "release"]) == 1
    shown = capsys.readouterr()
    assert f"{WEB} web1 (autostart)" in shown.out
    assert "The host is released" in shown.err
    assert "still held" not in shown.err


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


def _no_space(*_arguments: t.Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _full_disk(folder: str) -> t.Callable[..., None]:
    real = program.write_json

    def write_json(path: str, document: t.Any) -> None:
        if path.startswith(folder):
            _no_space()
        real(path, document)

    return write_json


def _keeping(kept: pathlib.Path) -> t.Callable[..., None]:
    real = os.unlink

    def unlink(path: str) -> None:
        if path == str(kept):
            _read_only()
        real(path)

    return unlink
