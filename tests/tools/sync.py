# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies the checkout's tracked and new files to where Ansible finds the collection: .build/ansible_collections/…

Only what changed is written; what is gone from the checkout goes from the copy. tests/output stays, it is ansible-test's,
which also wants the copy to be a repository of its own: it would else ask the checkout's, where .build is ignored.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = Path("ansible_collections", "kvmfleet", "migration")
KEPT = (Path(".git"), Path("tests", "output"))


def checkout_files() -> set[Path]:
    """Return the checkout's files, relative to it, without what .gitignore names."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    names = {Path(os.fsdecode(name)) for name in listed.split(b"\0") if name}
    return {name for name in names if (ROOT / name).is_file()}


def copy_changed(files: set[Path], copy: Path) -> None:
    """Write those files that differ, with their modes."""
    for name in files:
        source, target = ROOT / name, copy / name
        if target.is_file() and filecmp.cmp(source, target, shallow=False) and source.stat().st_mode == target.stat().st_mode:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def remove_others(files: set[Path], copy: Path) -> None:
    """Remove from the copy what the checkout does not have."""
    for path in sorted(copy.rglob("*"), reverse=True):
        name = path.relative_to(copy)
        if any(kept == name or kept in name.parents for kept in KEPT):
            continue
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif name not in files:
            path.unlink()


def main() -> None:
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".build"
    copy = build / COPY
    copy.mkdir(parents=True, exist_ok=True)
    files = checkout_files()
    remove_others(files, copy)
    copy_changed(files, copy)
    if not (copy / ".git").exists():
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=copy, check=True)


if __name__ == "__main__":
    main()
