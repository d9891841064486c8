# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(ansible-doc) knows of the collection, asked once."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

BUILD = pathlib.Path(__file__).resolve().parents[6]

Body = dict[str, t.Any]
Documents = dict[str, Body]
Found = t.Iterator[tuple[str, Body]]


def run_ansible(program: str, *arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a program of this Python's Ansible; the collection is the one of this tree."""
    argv = [str(pathlib.Path(sys.executable).with_name(program)), *arguments]
    own = {"ANSIBLE_COLLECTIONS_PATH": str(BUILD), "ANSIBLE_HOME": str(cwd / "ansible"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(cwd / "ansible.cfg")}
    (cwd / "ansible.cfg").touch()
    return subprocess.run(argv, cwd=cwd, env={**os.environ, **own}, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False)


def ask_ansible_doc(cwd: pathlib.Path) -> dict[str, Documents]:
    """Return, by kind of plugin and by name, what is documented."""
    done = run_ansible("ansible-doc", "--metadata-dump", "kvmfleet.migration", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return t.cast("dict[str, Documents]", json.loads(done.stdout)["all"])


def nested(options: dict[str, Body], inner: str, where: str = "") -> Found:
    """Return all options or values with their paths, those within others too."""
    for name, option in options.items():
        path = f"{where}.{name}" if where else name
        yield path, option
        yield from nested(option.get(inner) or {}, inner, path)


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Documents]:
    """Return what is documented, asked once."""
    return ask_ansible_doc(tmp_path_factory.mktemp("doc"))
