# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of modules and of the ledger cannot be written by other users, nor read where they are secret, whatever the umask."""

from __future__ import annotations

import os
import stat
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _host_identity, _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import program
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import starting
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import create_host_id
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import prepare_run_folder, state_path, write_json
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
SECRET = {"definition.xml", f"{UUID}.json"}


class Module:
    """An AnsibleModule that ends here."""

    def exit_json(self, **result: t.Any) -> None:
        assert result == {"changed": True}


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> t.Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def test_files_of_a_module_on_a_host_are_not_writable_by_others(tmp_path: Path, umask: int) -> None:
    kept, run = tmp_path / "lib/kvmfleet", tmp_path / "run/kvmfleet"

    def work(_module: t.Any) -> dict[str, t.Any]:
        restart.write_note(UUID, {"id": "r1"}, str(kept / "evacuations"))
        starting.note_start(UUID, "web1", ["drain"], str(kept / "start-again"))
        create_host_id(str(kept / "host-id"))
        _host_identity.remember_ledger_id(UUID, str(kept / "ledger-id"))
        program.write_json(str(kept / "guard/token.json"), {})
        Quarantine(UUID, str(kept / "quarantine")).record_files(DomainRef(UUID, "web1"), UUID, "<domain/>", [])
        write_json(state_path(UUID, prepare_run_folder(str(run))), {})
        return {"changed": True}

    _module.run_module(t.cast(t.Any, Module()), work)
    found = modes(tmp_path)
    assert {"lib", "lib/kvmfleet", "lib/kvmfleet/quarantine", "run/kvmfleet"} < set(found)
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o022} == {}
    assert {name: oct(mode) for name, mode in found.items() if Path(name).name in SECRET and mode != 0o600} == {}
    assert {oct(found[name]) for name in ("run/kvmfleet", "lib/kvmfleet/quarantine", "lib/kvmfleet/evacuations")} == {"0o700"}


def test_files_of_the_boot_guard_are_not_writable_by_others(tmp_path: Path, umask: int) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True, mode=0o755)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(f"{UUID}\n")
    before = set(modes(tmp_path))
    assert program.main(["--root", str(tmp_path), "hold"]) == 0
    made = {name: mode for name, mode in modes(tmp_path).items() if name not in before}
    assert "run/kvmfleet/guard/held.json" in made
    assert {name: oct(mode) for name, mode in made.items() if mode & 0o022} == {}


def test_folders_of_a_ledger_are_private_to_the_user(tmp_path: Path, umask: int) -> None:
    open_ledger(str(tmp_path / "state/kvmfleet/ledger"))
    assert {oct(mode) for name, mode in modes(tmp_path).items() if (tmp_path / name).is_dir()} == {"0o700"}
    assert {oct(mode) for name, mode in modes(tmp_path).items() if (tmp_path / name).is_file()} == {"0o600"}


def test_a_ledger_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, me = tmp_path / "ledger", os.geteuid()
    open_ledger(str(path))
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    for create in (True, False):
        with pytest.raises(Forbidden, match=f"belongs to the user ID {me}, but this process runs as {me + 1}"):
            open_ledger(str(path), create=create)
