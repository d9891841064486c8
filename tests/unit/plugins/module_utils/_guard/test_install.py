# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys
import typing as t
import zipfile

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Forbidden, Internal, InvalidArgument, InvalidState, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard import install, layout, program, tombstones, units
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard.release import release
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard.state import state

from .boots import DB, GRANT, HOST_ID, WEB, Machine


def _files(machine: Machine) -> t.Dict[str, str]:
    return {
        str(path.relative_to(machine.root)): path.read_text() for path in machine.root.rglob("*") if path.is_file() and not {"proc", "images"} & set(path.parts)
    }


def test_installed_it_is_complete_and_a_second_time_nothing_changes(machine: Machine) -> None:
    root = str(machine.root)
    first = install.install(root)
    assert first.changed
    assert first.warnings == [install.NOT_HELD]
    assert not first.systemd
    assert state(root).installed
    assert (machine.root / units.PROGRAM_FILE).stat().st_mode & 0o777 == 0o755
    assert os.readlink(machine.root / units.WANTS_LINK) == "/etc/systemd/system/kvmfleet-guard.service"
    before = _files(machine)
    again = install.install(root)
    assert (again.changed, again.files) == (False, [])
    assert _files(machine) == before


def test_check_mode_predicts_the_files_and_writes_none(machine: Machine) -> None:
    before = _files(machine)
    predicted = install.install(str(machine.root), grant=machine.grant(), check_mode=True)
    assert _files(machine) == before
    done = install.install(str(machine.root), grant=machine.grant())
    assert predicted.files == done.files
    assert install.remove(str(machine.root), check_mode=True).files == install.remove(str(machine.root)).files


def test_this_boot_goes_on_as_it_is_and_the_next_one_is_held(machine: Machine) -> None:
    install.install(str(machine.root))
    assert state(str(machine.root)).released is not None
    assert machine.starts_guests()
    assert machine.runs_libvirt_guests()
    machine.boot()
    machine.guard.hold()
    install.install(str(machine.root))
    assert state(str(machine.root)).held is not None


def test_a_held_host_stays_held_when_the_guard_is_repaired_or_brought_up_to_date(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root)
    machine.boot()
    machine.guard.hold()
    (machine.root / units.UNIT_FOLDER / units.UNIT).unlink()
    machine.write(units.PROGRAM_FILE, "an older one")
    assert not state(root).installed
    assert install.install(root).files == [f"/{units.PROGRAM_FILE}", f"/{units.UNIT_FOLDER}/{units.UNIT}"]
    assert state(root).held is not None
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()


@pytest.mark.parametrize("lost", [units.PROGRAM_FILE, f"{units.UNIT_FOLDER}/{units.UNIT}", units.WANTS_LINK])
def test_where_a_damaged_guard_did_not_run_its_repair_holds_the_host_and_releases_nothing(machine: Machine, lost: str) -> None:
    install.install(str(machine.root))
    (machine.root / lost).unlink()
    machine.boot()
    assert install.install(str(machine.root)).changed
    assert state(str(machine.root)).held is not None
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()


def test_what_somebody_changed_is_put_right(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root)
    (machine.root / units.PROGRAM_FILE).chmod(0o600)
    link = machine.root / units.WANTS_LINK
    link.unlink()
    link.symlink_to("/dev/null")
    assert install.install(root).files == [f"/{units.PROGRAM_FILE}", f"/{units.WANTS_LINK}"]
    assert stat.S_IMODE((machine.root / units.PROGRAM_FILE).stat().st_mode) == 0o755


def test_where_the_program_does_not_run_nothing_comes_to_depend_on_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "program_text", lambda *_given: "raise SystemExit('no such module')\n")
    with pytest.raises(Internal, match="does not run on this host"):
        install.install(str(machine.root))
    assert not (machine.root / units.UNIT_FOLDER).exists()


def test_an_installation_that_breaks_off_is_completed_by_the_next_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(install, "_link", lambda path: (never for never in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(Internal, match="No space left"):
            install.install(str(machine.root))
    assert not state(str(machine.root)).installed
    assert machine.runs_libvirt_guests()
    assert install.install(str(machine.root)).files == [f"/{units.WANTS_LINK}"]


def test_a_grant_is_kept_changed_and_revoked_with_the_token_under_it(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root, grant=machine.grant())
    assert state(root).grant == GRANT
    assert not install.install(root, grant=machine.grant()).changed
    assert install.install(root, grant=machine.grant(DB)).files == [machine.guard.grant_file]
    machine.guard.leave_token()
    assert state(root).token is not None
    assert install.revoke(root, check_mode=True)
    assert state(root).token is not None
    assert install.revoke(root)
    assert (state(root).grant, state(root).token) == (None, None)
    assert not install.revoke(root)
    machine.boot()
    assert machine.guard.hold() is None


def test_installing_without_grant_revokes_one(machine: Machine) -> None:
    install.install(str(machine.root), grant=machine.grant())
    machine.guard.leave_token()
    assert install.install(str(machine.root)).changed
    assert not machine.token.exists()
    assert state(str(machine.root)).grant is None


@pytest.mark.parametrize(
    "wrong", [{"grant": ""}, {"grant": "../../etc/passwd"}, {"grant": 5}, {"host_id": True}, {"host_id": "x"}, {"folders": {}}, {"folders": {"images": "x"}}]
)
def test_a_grant_has_uuids_and_folders(machine: Machine, wrong: t.Dict[str, t.Any]) -> None:
    before = _files(machine)
    with pytest.raises(InvalidArgument):
        install.install(str(machine.root), grant={**machine.grant(), **wrong})
    assert _files(machine) == before


def test_a_grant_that_was_taken_back_never_comes_back_by_a_request_that_was_delayed(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root, grant=machine.grant())
    install.install(root, grant=machine.grant(DB))
    with pytest.raises(Conflict, match="taken back"):
        install.install(root, grant=machine.grant())
    assert state(root).grant == DB
    install.install(root, taken_back=[WEB])
    install.revoke(root, grant=HOST_ID)
    for taken_back in (GRANT, DB, WEB, HOST_ID):
        with pytest.raises(Conflict, match="taken back"):
            install.install(root, grant=machine.grant(taken_back))
    assert not install.install(root, taken_back=[WEB]).changed


def test_a_tombstone_is_left_only_where_the_store_is_proved_and_a_second_time_nothing_changes(machine: Machine) -> None:
    one, two = machine.stores
    machine.mount(two, nonce=WEB)
    grant = machine.grant()
    assert tombstones.leave_tombstones(grant, check_mode=True)[0] == [str(one)]
    assert tombstones.revoked_in(grant) == []
    for dummy in range(2):
        done, problems = tombstones.leave_tombstones(grant)
        assert (done, list(problems)) == ([str(one)], [str(two)])
        assert sorted(os.listdir(one)) == [f".kvmfleet-host-{HOST_ID}", f".kvmfleet-revoked-{GRANT}"]
    assert tombstones.revoked_in(grant) == [str(one)]
    assert os.listdir(two) == [f".kvmfleet-host-{HOST_ID}"]


def test_a_tombstone_that_cannot_be_written_is_a_problem_and_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "rename", lambda *_paths: (never for never in ()).throw(OSError(28, "No space left on device")))
    done, problems = tombstones.leave_tombstones(machine.grant())
    assert (done, set(problems.values())) == ([], {"No space left on device"})
    assert os.listdir(machine.stores[0]) == [f".kvmfleet-host-{HOST_ID}"]


def test_a_tombstone_that_was_found_is_on_disk_before_it_counts(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that died before it had flushed the name of its tombstone is run again: a power cut must not take the name away afterwards."""
    tombstones.leave_tombstones(machine.grant())
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.readlink(f"/proc/self/fd/{handle}")))
    assert tombstones.leave_tombstones(machine.grant(), check_mode=True)[0] == tombstones.revoked_in(machine.grant())
    assert flushed == []
    done, _problems = tombstones.leave_tombstones(machine.grant())
    assert sorted(flushed) == done == sorted(str(store) for store in machine.stores)


def test_removed_nothing_is_left_but_what_this_boot_needs(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root, grant=machine.grant())
    assert install.remove(root).changed
    assert not state(root).installed
    assert [path for path in _files(machine) if not path.startswith("run/")] == []
    assert not install.remove(root).changed


def test_the_guard_of_a_held_host_is_not_removed(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root)
    machine.boot()
    machine.guard.hold()
    for check_mode in (True, False):
        with pytest.raises(Unsafe, match="held"):
            install.remove(root, check_mode)
    assert state(root).installed


def test_a_release_is_predicted_done_once_and_answered_the_same_again(machine: Machine) -> None:
    root = str(machine.root)
    install.install(root)
    machine.boot()
    machine.define("web1", WEB)
    machine.guard.hold()
    started = [{"uuid": WEB, "name": "web1", "why": ["autostart"]}]
    predicted = release(root, check_mode=True)
    assert (predicted.changed, predicted.was_held, predicted.would_start) == (True, True, started)
    assert state(root).held is not None
    done = release(root)
    assert (done.changed, done.was_held, done.would_start) == (True, True, started)
    for check_mode in (True, False):
        again = release(root, check_mode)
        assert (again.changed, again.was_held, again.would_start) == (False, False, started)
    assert not machine.starts_guests()


def test_a_host_without_guard_cannot_be_released(machine: Machine) -> None:
    with pytest.raises(InvalidState, match="nothing is held"):
        release(str(machine.root))


def test_without_root_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4777)
    calls: t.List[t.Callable[[], t.Any]] = [install.install, install.remove, install.revoke, state, release]
    for call in calls:
        with pytest.raises(Forbidden):
            call()


def test_the_program_is_read_from_an_archive_too(tmp_path: pathlib.Path) -> None:
    """Ansible brings module_utils to a host in an archive."""
    package = pathlib.PurePath("ansible_collections/kvmfleet/migration/plugins/module_utils")
    folder = pathlib.Path(layout.__file__).parent
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as payload:
        for path in [*folder.glob("*.py"), folder.parent / "_errors.py", folder.parent / "_printable.py"]:
            payload.write(path, str(package / path.relative_to(folder.parent)))
        for parent in [package / "_guard", package, *package.parents]:
            payload.writestr(str(parent / "__init__.py"), "")
    code = f"from {'.'.join(package.parts)}._guard import layout, program; assert '.zip' in program.__file__; print(layout.program_text('/x'), end='')"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == layout.program_text("/x"), done.stderr
    assert done.stdout.startswith("#!/x -I\n")
    assert pathlib.Path(program.__file__).read_text() in done.stdout
