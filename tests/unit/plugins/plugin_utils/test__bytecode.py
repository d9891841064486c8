# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible loads the plugins of the collection from bytecode, where it can be written, and otherwise from the sources."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils import _bytecode as b

PLUGINS = pathlib.Path(b.__file__).parents[1]
ROOT = PLUGINS.parents[3]
# Ansible loads a plugin of each kind. What it loads before it uses the finder is compiled each time.
LOAD = """
import sys
from ansible.plugins import loader
loader.init_plugin_loader()
compiled = []
sys.addaudithook(lambda event, given: compiled.append(str(given[1])) if event == "compile" and given[0] is not None else None)
for kind, name in (("action", "host"), ("filter", "plan_drain"), ("lookup", "ledger")):
    assert getattr(loader, kind + "_loader").get("kvmfleet.migration." + name, class_only=True)
ours = [name for name, module in sys.modules.items() if name.startswith("ansible_collections.kvmfleet.") and getattr(module, "__file__", None)]
print(len(ours), sum(file.startswith(sys.argv[1]) and not file.endswith(("__init__.py", "_bytecode.py")) for file in compiled))
"""


def load_plugins(root: pathlib.Path, home: pathlib.Path, **more: str) -> list[int]:
    """Return how many files of the collection below that folder Ansible has imported, and how many of them were compiled."""
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONPYCACHEPREFIX")}
    env = {**given, "ANSIBLE_HOME": str(home), "ANSIBLE_COLLECTIONS_PATH": str(root), **more}
    done = subprocess.run([sys.executable, "-c", LOAD, str(root)], env=env, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


@pytest.fixture
def installed(tmp_path: pathlib.Path) -> pathlib.Path:
    """The collection in a folder of its own, without bytecode."""
    root = tmp_path / "collections"
    shutil.copytree(PLUGINS, root / PLUGINS.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_plugins_are_compiled_once(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    imported, compiled = load_plugins(installed, tmp_path)
    assert imported > 100
    assert compiled > 100
    assert load_plugins(installed, tmp_path) == [imported, 0]


def test_a_file_that_has_changed_is_compiled_again(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    load_plugins(installed, tmp_path)
    changed = next(installed.rglob("_action.py"))
    changed.write_text(f"{changed.read_text(encoding='utf-8')}# changed\n", encoding="utf-8")
    assert load_plugins(installed, tmp_path)[1] == 1


def test_what_was_compiled_when_an_image_was_built_is_used(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(installed)], env=env, check=True)
    assert load_plugins(installed, tmp_path, PYTHONDONTWRITEBYTECODE="1")[1] == 0


def test_plugins_are_loaded_where_nothing_can_be_written(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    before = sorted(installed.rglob("*"))
    imported, _compiled = load_plugins(installed, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert imported > 100
    assert sorted(installed.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("ansible_collections.kvmfleet.migration.plugins.plugin_utils", PLUGINS),
        ("ansible_collections.kvmfleet.migration.plugins.module_utils._model", PLUGINS / "module_utils"),
        ("ansible_collections.kvmfleet.migration.plugins.plugin_utils._missing", PLUGINS / "plugin_utils"),
        ("ansible_collections.community.general.plugins.plugin_utils._bytecode", PLUGINS / "plugin_utils"),
        ("_bytecode", PLUGINS / "plugin_utils"),
    ],
)
def test_packages_and_code_of_others_are_left_to_ansible(name: str, folder: pathlib.Path) -> None:
    assert b.BytecodeFinder.find_spec(name, [str(folder)]) is None


class _AnsibleCollectionFinder:
    pass


@pytest.mark.parametrize(("others", "expected"), [([object(), _AnsibleCollectionFinder()], 1), ([_AnsibleCollectionFinder(), object()], 0)])
def test_the_finder_is_asked_once_and_directly_before_that_of_ansible(others: list[t.Any], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path: list[t.Any] = list(others)
    monkeypatch.setattr(sys, "meta_path", path)
    b.use_bytecode()
    b.use_bytecode()
    assert path == [*others[:expected], b.BytecodeFinder, *others[expected:]]


def test_without_the_finder_of_ansible_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    path: list[t.Any] = [object()]
    monkeypatch.setattr(sys, "meta_path", path)
    b.use_bytecode()
    assert len(path) == 1
