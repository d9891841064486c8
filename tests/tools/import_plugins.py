# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports all Python files below some folders of the collection, with the ansible-core that the Python that runs this finds. Prints what fails, and ends
with 1 then.

ansible-test imports each file in a process of its own, which takes minutes. What a release of ansible-core has renamed or removed shows here too.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

COLLECTION = ("ansible_collections", "kvmfleet", "migration")


def list_names(folder: Path) -> list[str]:
    """Return the dotted name of each file in a folder, which is a path below that of the collection."""
    files = sorted(folder.rglob("*.py"))
    return [".".join((*COLLECTION, *path.with_suffix("").parts)).removesuffix(".__init__") for path in files]


def import_all(names: list[str]) -> list[str]:
    """Import these modules, and return those that cannot be imported."""
    failed = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            failed.append(name)
    return failed


def main() -> int:
    names = [name for folder in sys.argv[1:] or ["plugins"] for name in list_names(Path(folder))]
    failed = import_all(names)
    print(f"{len(names)} files, {len(failed)} cannot be imported {failed}")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
