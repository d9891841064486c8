# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The directions of imports between the packages: the check that lint runs reports each import that they forbid."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COLLECTION = Path("ansible_collections/kvmfleet/migration")
PLUGINS = "ansible_collections.kvmfleet.migration.plugins"
# For each contract a file, and an import that the contract forbids there.
FORBIDDEN = {
    "host": ("module_utils/_model/errors.py", f"from {PLUGINS}.module_utils._facts import gather"),
    "control": ("plugin_utils/_ledger/identity.py", f"from {PLUGINS}.plugin_utils._scheduler import planner"),
    "cycles": ("module_utils/_libvirt/host.py", f"from {PLUGINS}.module_utils._watcher import run"),
    "halves": ("module_utils/_files.py", f"from {PLUGINS}.plugin_utils._settings import options"),
    "control_libvirt": ("plugin_utils/_drain/plan.py", f"from {PLUGINS}.module_utils._libvirt import connection"),
    "libvirt": ("module_utils/_watcher/run.py", "import libvirt"),
    "ansible": ("module_utils/_model/codec.py", "import ansible.errors"),
}


def test_every_contract_has_a_forbidden_import() -> None:
    assert _contract_names().keys() == FORBIDDEN.keys()


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_a_forbidden_import_is_reported(contract: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "plugins", tmp_path / COLLECTION / "plugins", ignore=shutil.ignore_patterns("__pycache__", "page"))
    path, statement = FORBIDDEN[contract]
    with (tmp_path / COLLECTION / "plugins" / path).open("a", encoding="utf-8") as file:
        file.write(f"\n{statement}\n")

    done = _check_imports(tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{_contract_names()[contract]} BROKEN" in done.stdout


def _contract_names() -> dict[str, str]:
    """Return the name of each contract by its key."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter", encoding="utf-8")
    prefix = "importlinter:contract:"
    return {section.removeprefix(prefix): config[section]["name"] for section in config.sections() if section.startswith(prefix)}


def _check_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the check on the copy of the collection in a folder."""
    argv = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", str(ROOT / ".importlinter")]
    env = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
