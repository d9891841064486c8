# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the golden corpus of a tree: C(python -m ansible_collections.kvmfleet.migration.tests.golden --out FOLDER [--tree REVISION]), as root.

The tree's own code writes every document, on hosts of the lab. Without C(--tree) that is the tree that this file is part of.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.kvmfleet.migration.tests.golden import unpacked

PACKAGE = "ansible_collections.kvmfleet.migration.tests.golden"
HERE = Path(__file__).resolve().parent
# Paths and names that stand in the documents.
CONTROL, USER, HOME = "control", "root", Path("/run/kvmfleet-golden")


def main(arguments: t.Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}", description="Makes the golden corpus of a tree of the collection.")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--tree", help="a revision whose documents are wanted; by default the tree that this program is part of")
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out} is there already: remove it first, or choose another folder.")
    if os.geteuid() != 0:
        parser.error("the lab needs root.")
    with tempfile.TemporaryDirectory(prefix="kvmfleet-golden-") as folder:
        build = _tree(options.tree, Path(folder)) if options.tree else HERE.parents[4]
        return _make(build, options.out.absolute())


def _tree(revision: str, folder: Path) -> Path:
    """Unpack a revision; one that is older than this program gets it."""
    build = unpacked.unpack(revision, folder)
    golden = build / unpacked.COPY / "tests" / "golden"
    if not golden.exists():
        shutil.copytree(HERE, golden, ignore=shutil.ignore_patterns("[0-9]*", "__pycache__"))
    return build


def _make(build: Path, out: Path) -> int:
    """Run the story under another host name, in an environment that says nothing of this machine."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    bin_folder = Path(sys.executable).parent
    env = {
        "PATH": f"{bin_folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LOGNAME": USER,
        "USER": USER,
        "PYTHONPATH": str(build),
        "PYTHONPYCACHEPREFIX": str(HOME / "pycache"),
        "KVMFLEET_LAB_STATE": str(HOME / "lab"),
        "ANSIBLE_COLLECTIONS_PATH": str(build),
    }
    command = f'hostname {CONTROL} && exec "$0" -m {PACKAGE}.story "$1" "$2"'
    try:
        return subprocess.run(["unshare", "--uts", "sh", "-c", command, sys.executable, str(HOME), str(out)], env=env, check=False, cwd=HOME).returncode
    finally:
        shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
