# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An older tree of the collection, unpacked from the repository's history so that it can be run beside the present one."""

from __future__ import annotations

import subprocess
from pathlib import Path

# The tree of version 0.1.0.
VERSION_0_1_0 = "e2bd77c"
COPY = Path("ansible_collections", "kvmfleet", "migration")
# The checkout: the package stands in .build/ansible_collections/kvmfleet/migration.
CHECKOUT = Path(__file__).resolve().parents[6]


class NoHistory(Exception):
    """The repository does not have that revision; the text says what to do."""


def unpack(revision: str, build: Path) -> Path:
    """Unpack a revision of the collection below a folder, and return that folder: it serves as C(ANSIBLE_COLLECTIONS_PATH) and C(PYTHONPATH).

    Raises L(NoHistory) where the checkout is no repository, or a shallow clone without that revision.
    """
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(CHECKOUT), "archive", "--format=tar", revision], capture_output=True, check=False)
    if done.returncode != 0:
        raise NoHistory(
            f"{CHECKOUT} has no revision {revision}: {done.stderr.decode(errors='replace').strip()} "
            "This needs a clone with the whole history: 'git fetch --unshallow', or 'fetch-depth: 0' in a CI job."
        )
    target = build / COPY
    target.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=done.stdout, check=True)
    return build
