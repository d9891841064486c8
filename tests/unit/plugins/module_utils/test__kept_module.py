# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that runs a module which the host keeps: what it trusts, and what it leaves behind."""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import time
import zipfile

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _kept_module as program

LOADER = "ansible/module_utils/_internal/_ansiballz/_loader.py"
SAYS = "import sys\ndef run_module(**given):\n    print(sorted(given), given['json_params'].decode(), __file__, __cached__)\n"


def payload(loader: str = SAYS) -> str:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as archive:
        parts = LOADER.split("/")[:-1]
        for depth in range(len(parts)):
            archive.writestr("/".join([*parts[: depth + 1], "__init__.py"]), "")
        archive.writestr(LOADER, loader)
    return base64.b64encode(output.getvalue()).decode()


class Host:
    """A host with its folder; C(run) is one call."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def run(self, given: str | None = None, name: str = "facts-1") -> str:
        source = pathlib.Path(program.__file__).read_text(encoding="utf-8")
        call = f"run_kept_module({str(self.folder)!r}, {name!r}, 'a.b', 'options', 'legacy', 0, {given!r})"
        command = [sys.executable, "-S", "-"]
        done = subprocess.run(command, input=f"{source}\n{call}\n", capture_output=True, text=True, cwd=self.folder.parent, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, given: str | None = None) -> str:
        return str(json.loads(self.run(given))[program.ANSWER])

    @property
    def archive(self) -> pathlib.Path:
        return self.folder / f"module-facts-1.{sys.implementation.cache_tag}.zip"

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path / "run")


def test_users_other_than_root_keep_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(program.NotRun, match=program.UNUSABLE):
        program.find_archive(str(tmp_path / "run"), str(tmp_path / "run/module"), payload())
    assert list(tmp_path.iterdir()) == []


def test_a_module_is_kept_once_and_then_run_from_its_compiled_files(host: Host) -> None:
    assert host.refused() == program.MISSING
    first = host.run(payload())
    assert "['extensions', 'json_params', 'modlib_path', 'module_fqn', 'profile'] options" in first
    assert f"{host.archive}/{LOADER}c" in first
    assert (stat.S_IMODE(host.folder.stat().st_mode), stat.S_IMODE(host.archive.stat().st_mode)) == (0o700, 0o600)
    kept = host.archive.read_bytes()
    assert host.run() == first
    assert host.archive.read_bytes() == kept
    assert host.names() == [host.archive.name]


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o700])
def test_an_archive_that_others_could_have_written_is_not_run(host: Host, mode: int) -> None:
    host.run(payload())
    host.archive.chmod(mode)
    assert host.refused() == program.UNUSABLE


def test_an_archive_of_another_user_a_link_or_a_folder_is_not_run(host: Host) -> None:
    host.run(payload())
    os.chown(host.archive, 4711, 0)
    assert host.refused() == program.UNUSABLE
    os.chown(host.archive, 0, 0)
    other = host.archive.rename(host.folder / "other")
    host.archive.symlink_to(other)
    assert host.refused() == program.UNUSABLE
    host.archive.unlink()
    os.link(other, host.archive)
    assert host.refused() == program.UNUSABLE
    host.archive.unlink()
    host.archive.mkdir()
    assert host.refused() == program.UNUSABLE
    assert host.refused(payload()) == program.UNUSABLE


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o730])
def test_a_folder_that_others_can_enter_is_not_used(host: Host, mode: int) -> None:
    host.run(payload())
    host.folder.chmod(mode)
    assert host.refused() == program.UNUSABLE
    assert host.refused(payload()) == program.UNUSABLE


def test_a_folder_of_another_user_is_not_used(host: Host) -> None:
    host.run(payload())
    os.chown(host.folder, 4711, 0)
    assert host.refused(payload()) == program.UNUSABLE


def test_a_damaged_archive_is_not_run_and_is_replaced(host: Host) -> None:
    host.run(payload())
    content = bytearray(host.archive.read_bytes())
    content[100] ^= 1
    host.archive.write_bytes(content)
    assert host.refused() == program.MISSING
    host.archive.write_bytes(content[:50])
    assert host.refused() == program.MISSING
    assert "options" in host.run(payload())


def test_a_payload_that_this_python_cannot_compile_is_not_kept(host: Host) -> None:
    assert host.refused(payload("def (")) == program.UNUSABLE
    assert host.names() == []


def test_archives_of_other_versions_are_removed_when_no_call_used_them_for_an_hour(host: Host) -> None:
    host.run(payload(), name="facts-0")
    host.run(payload(), name="start-0")
    (host.folder / ".module-abc").write_text("in part")
    (host.folder / "web1.json").write_text("{}")
    host.run(payload())
    assert len(host.names()) == 5
    for path in host.folder.iterdir():
        os.utime(path, (time.time() - 4000,) * 2)
    host.run()
    assert host.names() == [host.archive.name, "web1.json"]
    assert time.time() - host.archive.stat().st_mtime < 600
