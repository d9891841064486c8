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

from ansible_collections.kvmfleet.migration.plugins.module_utils import _systemd
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, program, status
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.status import read_guard_state, release_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import AutomaticStart
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, Internal, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._systemd import UNIT_FOLDER

from .boots import DB, GRANT, HOST_ID, WEB, Machine


def _files(machine: Machine) -> t.Dict[str, str]:
    return {
        str(path.relative_to(machine.root)): path.read_text() for path in machine.root.rglob("*") if path.is_file() and not {"proc", "images"} & set(path.parts)
    }


def test_the_guard_is_installed_completely_and_idempotently(machine: Machine) -> None:
    root = str(machine.root)
    first = install.install_guard(root)
    assert first.changed
    assert first.warnings == [install.NOT_HELD]
    assert not first.systemd
    assert read_guard_state(root).installed
    assert (machine.root / status.PROGRAM_FILE).stat().st_mode & 0o777 == 0o755
    assert os.readlink(machine.root / status.WANTS_LINK) == "/etc/systemd/system/kvmfleet-guard.service"
    before = _files(machine)
    again = install.install_guard(root)
    assert (again.changed, again.files) == (False, [])
    assert _files(machine) == before


def test_check_mode_predicts_the_files_and_writes_none(machine: Machine) -> None:
    before = _files(machine)
    predicted = install.install_guard(str(machine.root), grant=machine.grant(), check_mode=True)
    assert _files(machine) == before
    done = install.install_guard(str(machine.root), grant=machine.grant())
    assert predicted.files == done.files


def test_the_installing_boot_stays_released_and_the_next_one_is_held(machine: Machine) -> None:
    install.install_guard(str(machine.root))
    assert read_guard_state(str(machine.root)).boot.released is not None
    assert machine.starts_guests()
    assert machine.runs_libvirt_guests()
    machine.boot()
    machine.guard.hold_boot()
    install.install_guard(str(machine.root))
    assert read_guard_state(str(machine.root)).boot.held is not None


def test_a_program_that_needs_a_virtual_environment_is_a_warning(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removes it after an upgrade of Ansible, for example, and the next boot has no libvirt."""
    monkeypatch.setattr(_systemd, "INTERPRETERS", ("/usr/bin/python3",))
    assert install.install_guard(str(machine.root)).warnings == [install.NOT_HELD]
    monkeypatch.setattr(_systemd, "INTERPRETERS", ())
    monkeypatch.setattr(sys, "prefix", "/opt/venv")
    _not_held, warning = install.install_guard(str(machine.root)).warnings
    assert (sys.executable in warning, warning.endswith("without it, libvirt does not start on this host.")) == (True, True)


def test_a_held_host_stays_held_when_the_guard_is_repaired_or_updated(machine: Machine) -> None:
    root = str(machine.root)
    install.install_guard(root)
    machine.boot()
    machine.guard.hold_boot()
    (machine.root / UNIT_FOLDER / status.UNIT).unlink()
    machine.write(status.PROGRAM_FILE, "an older one")
    assert not read_guard_state(root).installed
    assert install.install_guard(root).files == [f"/{status.PROGRAM_FILE}", f"/{UNIT_FOLDER}/{status.UNIT}"]
    assert read_guard_state(root).boot.held is not None
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()


@pytest.mark.parametrize("lost", [status.PROGRAM_FILE, f"{UNIT_FOLDER}/{status.UNIT}", status.WANTS_LINK])
def test_the_repair_of_a_guard_that_did_not_run_holds_the_host(machine: Machine, lost: str) -> None:
    install.install_guard(str(machine.root))
    (machine.root / lost).unlink()
    machine.boot()
    assert install.install_guard(str(machine.root)).changed
    assert read_guard_state(str(machine.root)).boot.held is not None
    assert not machine.starts_guests()
    assert not machine.runs_libvirt_guests()


def test_changed_modes_and_links_are_repaired(machine: Machine) -> None:
    root = str(machine.root)
    install.install_guard(root)
    (machine.root / status.PROGRAM_FILE).chmod(0o600)
    link = machine.root / status.WANTS_LINK
    link.unlink()
    link.symlink_to("/dev/null")
    assert install.install_guard(root).files == [f"/{status.PROGRAM_FILE}", f"/{status.WANTS_LINK}"]
    assert stat.S_IMODE((machine.root / status.PROGRAM_FILE).stat().st_mode) == 0o755


def test_no_unit_is_installed_if_the_program_does_not_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "read_program", lambda *_given: "raise SystemExit('no such module')\n")
    for _try in range(2):
        with pytest.raises(Internal, match="does not run on this host"):
            install.install_guard(str(machine.root))
        assert not (machine.root / UNIT_FOLDER).exists()


def test_a_program_that_does_not_run_replaces_no_installed_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemons of an installed guard start only if its program runs."""
    root = str(machine.root)
    install.install_guard(root)
    before = _files(machine)
    with monkeypatch.context() as patch:
        patch.setattr(status, "read_program", lambda *_given: "raise SystemExit('no such module')\n")
        for _try in range(2):
            with pytest.raises(Internal, match=r"no such module\. The guard was not changed"):
                install.install_guard(root)
    assert _files(machine) == before


def test_an_interrupted_installation_is_completed_by_the_next_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(install, "link_unit", lambda path, unit: (never for never in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(Internal, match="No space left"):
            install.install_guard(str(machine.root))
    assert not read_guard_state(str(machine.root)).installed
    assert machine.runs_libvirt_guests()
    assert install.install_guard(str(machine.root)).files == [f"/{status.WANTS_LINK}"]


def test_a_grant_is_kept_changed_and_revoked_with_its_token(machine: Machine) -> None:
    root = str(machine.root)
    install.install_guard(root, grant=machine.grant())
    assert read_guard_state(root).boot.grant == GRANT
    assert not install.install_guard(root, grant=machine.grant()).changed
    assert install.install_guard(root, grant=machine.grant(DB)).files == [machine.guard.grant_file]
    machine.guard.leave_token()
    assert read_guard_state(root).boot.token is not None
    assert install.revoke_grant(root, check_mode=True)[0]
    assert read_guard_state(root).boot.token is not None
    assert install.revoke_grant(root)[0]
    assert (read_guard_state(root).boot.grant, read_guard_state(root).boot.token) == (None, None)
    assert not install.revoke_grant(root)[0]
    machine.boot()
    assert machine.guard.hold_boot() is None


def test_installing_without_a_grant_revokes_the_grant(machine: Machine) -> None:
    install.install_guard(str(machine.root), grant=machine.grant())
    machine.guard.leave_token()
    assert install.install_guard(str(machine.root)).changed
    assert not machine.token.exists()
    assert read_guard_state(str(machine.root)).boot.grant is None


@pytest.mark.parametrize(
    "wrong", [{"grant": ""}, {"grant": "../../etc/passwd"}, {"grant": 5}, {"host_id": True}, {"host_id": "x"}, {"folders": {}}, {"folders": {"images": "x"}}]
)
def test_a_grant_without_uuids_and_folders_is_refused(machine: Machine, wrong: t.Dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument, match="Nothing was changed"):
        install.read_grant({**encode(machine.grant()), **wrong})


def test_unknown_keys_of_a_grant_are_kept(machine: Machine) -> None:
    document = {**encode(machine.grant()), "of_a_later_version": [1]}
    install.install_guard(str(machine.root), grant=install.read_grant(document))
    assert machine.guard.read_grant_document() == document


def test_a_delayed_request_does_not_restore_a_revoked_grant(machine: Machine) -> None:
    root = str(machine.root)
    install.install_guard(root, grant=machine.grant())
    install.install_guard(root, grant=machine.grant(DB))
    with pytest.raises(Conflict, match="withdrawn"):
        install.install_guard(root, grant=machine.grant())
    assert read_guard_state(root).boot.grant == DB
    install.install_guard(root, taken_back=[WEB])
    install.revoke_grant(root, grant=HOST_ID)
    for taken_back in (GRANT, DB, WEB, HOST_ID):
        with pytest.raises(Conflict, match="withdrawn"):
            install.install_guard(root, grant=machine.grant(taken_back))
    assert not install.install_guard(root, taken_back=[WEB]).changed


def test_a_revocation_is_written_once_and_only_to_proved_storage(machine: Machine) -> None:
    one, two = machine.stores
    machine.mount(two, nonce=WEB)
    grant = machine.grant()
    assert install.leave_tombstones(grant, check_mode=True)[0] == [str(one)]
    assert install.list_revoking_folders(grant) == []
    for dummy in range(2):
        done, problems = install.leave_tombstones(grant)
        assert (done, list(problems)) == ([str(one)], [str(two)])
        assert sorted(os.listdir(one)) == [f".kvmfleet-host-{HOST_ID}", f".kvmfleet-revoked-{GRANT}"]
    assert install.list_revoking_folders(grant) == [str(one)]
    assert os.listdir(two) == [f".kvmfleet-host-{HOST_ID}"]


def test_a_revocation_that_cannot_be_written_is_a_problem(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "rename", lambda *_paths: (never for never in ()).throw(OSError(28, "No space left on device")))
    done, problems = install.leave_tombstones(machine.grant())
    assert (done, set(problems.values())) == ([], {"No space left on device"})
    assert os.listdir(machine.stores[0]) == [f".kvmfleet-host-{HOST_ID}"]


def test_an_existing_revocation_is_flushed_before_it_counts(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that died before it had flushed the name of its tombstone is run again: a power cut must not take the name away afterwards."""
    install.leave_tombstones(machine.grant())
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.readlink(f"/proc/self/fd/{handle}")))
    assert install.leave_tombstones(machine.grant(), check_mode=True)[0] == install.list_revoking_folders(machine.grant())
    assert flushed == []
    done, _problems = install.leave_tombstones(machine.grant())
    assert sorted(flushed) == done == sorted(str(store) for store in machine.stores)


def test_a_release_is_predicted_by_check_mode_and_idempotent(machine: Machine) -> None:
    root = str(machine.root)
    install.install_guard(root)
    machine.boot()
    machine.define("web1", WEB)
    machine.guard.hold_boot()
    started = (AutomaticStart(WEB, "web1", ("autostart",)),)
    predicted = release_host(root, check_mode=True)
    assert (predicted.changed, predicted.was_held, predicted.would_start) == (True, True, started)
    assert read_guard_state(root).boot.held is not None
    done = release_host(root)
    assert (done.changed, done.was_held, done.would_start) == (True, True, started)
    for check_mode in (True, False):
        again = release_host(root, check_mode)
        assert (again.changed, again.was_held, again.would_start) == (False, False, started)
    assert not machine.starts_guests()


@pytest.mark.parametrize("lost", [status.WANTS_LINK, f"{UNIT_FOLDER}/{status.TOKEN_UNIT}"])
def test_a_host_that_is_held_by_a_guard_with_missing_files_is_released(machine: Machine, lost: str) -> None:
    root = str(machine.root)
    install.install_guard(root)
    (machine.root / lost).unlink()
    machine.boot()
    machine.guard.hold_boot()
    assert release_host(root, check_mode=True).changed
    assert (release_host(root).changed, read_guard_state(root).boot.held) == (True, None)
    # A recovery that died after the release runs again, and starts libvirt-guests.
    assert [release_host(root, check_mode).changed for check_mode in (True, False)] == [False, False]


def test_a_host_without_a_boot_guard_cannot_be_released(machine: Machine) -> None:
    with pytest.raises(InvalidState, match="nothing is held"):
        release_host(str(machine.root))


def test_every_operation_of_the_guard_without_root_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4777)
    calls: t.List[t.Callable[[], t.Any]] = [install.install_guard, install.revoke_grant, read_guard_state, release_host]
    for call in calls:
        with pytest.raises(Forbidden):
            call()


def test_the_guard_program_can_be_read_from_an_archive(tmp_path: pathlib.Path) -> None:
    """Ansible brings module_utils to a host in an archive."""
    package = pathlib.PurePath("ansible_collections/kvmfleet/migration/plugins/module_utils")
    folder = pathlib.Path(status.__file__).parent
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as payload:
        alone = [folder.parent / f"{name}.py" for name in ("_dataclass", "_files", "_systemd")]
        for path in [*folder.glob("*.py"), *alone, *(folder.parent / "_model" / f"{name}.py" for name in ("boot_guard", "codec", "errors"))]:
            payload.write(path, str(package / path.relative_to(folder.parent)))
        for parent in [package / "_boot_guard", package / "_model", package, *package.parents]:
            payload.writestr(str(parent / "__init__.py"), "")
    code = f"from {'.'.join(package.parts)}._boot_guard import program, status; assert '.zip' in program.__file__; print(status.read_program('/x'), end='')"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == status.read_program("/x"), done.stderr
    assert done.stdout.startswith("#!/x -I\n")
    assert pathlib.Path(program.__file__).read_text() in done.stdout
