# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The archive that a host runs without the collection."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
import typing as t
import zipfile

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _archive as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._load_timer import install
from ansible_collections.kvmfleet.migration.plugins.module_utils._load_timer.store import store_reading
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal


def test_the_archive_has_what_the_program_imports_and_nothing_of_moves() -> None:
    names = set(zipfile.ZipFile(io.BytesIO(m.build_archive(store_reading))).namelist())
    assert {"__main__.py", "module_utils/__init__.py", "module_utils/_facts/load.py", "module_utils/_libvirt/host.py", "module_utils/_files.py"} <= names
    assert not [name for name in names if "_watcher" in name or "_evacuation" in name]


def test_the_same_sources_are_the_same_bytes() -> None:
    assert m.build_archive(store_reading) == m.build_archive(store_reading)


def test_python_runs_the_archive_without_the_collection(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "moment.pyz"
    program.write_bytes(m.build_archive(boot_moment))
    done = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_that_the_program_imports_is_in_the_archive(tmp_path: pathlib.Path) -> None:
    """Python finds every module; what fails is libvirt, which may be missing here, or its daemon."""
    program = tmp_path / "load.pyz"
    program.write_bytes(m.build_archive(store_reading))
    code = "import sys; sys.path.insert(0, sys.argv[1]); import module_utils._load_timer.store as store; print(store.__file__)"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(program)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (f"{program}/module_utils/_load_timer/store.py", "")


def test_a_source_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Internal, match=r"_load_timer\.store"):
        m.build_archive(store_reading)


def test_what_ansible_sends_to_a_host_has_all_that_the_archive_needs() -> None:
    """Ansible sends what a module imports; a source that only the archive names would be missing there."""
    names = set(zipfile.ZipFile(io.BytesIO(m.build_archive(t.cast("t.Callable[[], object]", install.install_timer)))).namelist())
    assert set(zipfile.ZipFile(io.BytesIO(m.build_archive(store_reading))).namelist()) <= names
