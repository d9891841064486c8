# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the umask of whoever connects: what a module or the ledger makes is not others' to write or, where it is secret, to read."""

from __future__ import annotations

import os
import stat
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module, _start_notes
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import belonging, notes
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.identity import create_host_id
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard import program
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import run_folder, state_path, write_json
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


def test_nothing_that_a_module_makes_on_a_host_can_be_written_by_others(tmp_path: Path, umask: int) -> None:
    kept, run = tmp_path / "lib/kvmfleet", tmp_path / "run/kvmfleet"

    def work(_module: t.Any) -> dict[str, t.Any]:
        notes.write(UUID, {"id": "r1"}, str(kept / "evacuations"))
        _start_notes.note(UUID, "web1", ["drain"], str(kept / "start-again"))
        create_host_id(str(kept / "host-id"))
        belonging.belong(UUID, str(kept / "ledger-id"))
        program.write_json(str(kept / "guard/token.json"), {})
        Quarantine(UUID, str(kept / "quarantine")).begin({"uuid": UUID, "name": "web1"}, UUID, "<domain/>", [])
        write_json(state_path(UUID, run_folder(str(run))), {})
        return {"changed": True}

    _module.run(t.cast(t.Any, Module()), work)
    found = modes(tmp_path)
    assert {"lib", "lib/kvmfleet", "lib/kvmfleet/quarantine", "run/kvmfleet"} < set(found)
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o022} == {}
    assert {name: oct(mode) for name, mode in found.items() if Path(name).name in SECRET and mode != 0o600} == {}
    assert {oct(found[name]) for name in ("run/kvmfleet", "lib/kvmfleet/quarantine", "lib/kvmfleet/evacuations")} == {"0o700"}


def test_nor_what_the_guard_makes(tmp_path: Path, umask: int) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True, mode=0o755)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(f"{UUID}\n")
    before = set(modes(tmp_path))
    assert program.main(["--root", str(tmp_path), "hold"]) == 0
    made = {name: mode for name, mode in modes(tmp_path).items() if name not in before}
    assert "run/kvmfleet/guard/held.json" in made
    assert {name: oct(mode) for name, mode in made.items() if mode & 0o022} == {}


def test_the_folders_that_lead_to_a_ledger_are_the_user_s(tmp_path: Path, umask: int) -> None:
    open_ledger(str(tmp_path / "state/kvmfleet/ledger"))
    assert {oct(mode) for name, mode in modes(tmp_path).items() if (tmp_path / name).is_dir()} == {"0o700"}
    assert {oct(mode) for name, mode in modes(tmp_path).items() if (tmp_path / name).is_file()} == {"0o600"}


def test_somebody_else_s_ledger_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, me = tmp_path / "ledger", os.geteuid()
    open_ledger(str(path))
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    for create in (True, False):
        with pytest.raises(Forbidden, match=f"belongs to the user ID {me}, and this runs as {me + 1}"):
            open_ledger(str(path), create=create)
