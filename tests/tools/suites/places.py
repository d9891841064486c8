# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where things are, and the environment in which tools run."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / ".build"
COPY = BUILD / "ansible_collections" / "kvmfleet" / "migration"
RESULTS = BUILD / "results"
VENV = BUILD / "venv"
INTEGRATION_VENV = BUILD / "venv-integration"
HOME = BUILD / "home"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def tool(name: str, venv: Path = VENV) -> str:
    """Return the path of a tool in a virtual environment."""
    return str(venv / "bin" / name)


def environment(venv: Path = VENV, /, **extra: str) -> dict[str, str]:
    """Return the caller's environment with that virtual environment first and the collection importable.

    What Python compiles is kept: scenarios start it some ten thousand times.
    """
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PATH": f"{venv / 'bin'}:{SYSTEM_PATH}",
        "VIRTUAL_ENV": str(venv),
        "PYTHONPATH": str(BUILD),
        "PYTHONPYCACHEPREFIX": str(BUILD / "pycache"),
        "ANSIBLE_COLLECTIONS_PATH": str(BUILD),
        "ANSIBLE_HOME": str(BUILD / "ansible"),
        "ANSIBLE_NOCOLOR": "1",
        "NO_COLOR": "1",
        **extra,
    }


def link_ansible(folder: Path) -> Path:
    """Return that folder, through which a Python sees C(ansible.module_utils), as that of a host does, and no other package."""
    folder.mkdir(exist_ok=True)
    link = folder / "ansible"
    if not link.is_symlink():
        link.symlink_to(next(VENV.glob("lib/python*/site-packages/ansible")))
    return folder
