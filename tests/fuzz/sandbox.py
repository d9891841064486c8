# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one folder that cases may write into: in memory where this machine has such a file system, for most parsers of files sync what they write."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .watch import may_write

_IN_MEMORY = "/dev/shm"


def _made() -> Path:
    made = tempfile.mkdtemp(prefix="kvmfleet-fuzz-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    may_write(made)
    return Path(made)


FOLDER = _made()


def laid_out(name: str, files: Mapping[str, bytes]) -> Path:
    """Return a folder of that name with these files (path to content) and nothing else."""
    root = FOLDER / name
    shutil.rmtree(root, ignore_errors=True)
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.write_bytes(content)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Return all files below a folder, by path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
