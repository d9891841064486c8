# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Labs of one suite's own, which are gone afterwards whatever happened in it."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import places

COMMAND = places.COPY / "tests" / "lab" / "lab"
ROOT = Path("/run/kvmfleet-tests")
DOWN_SECONDS = 600
# What follows the prefix of a lab in the name of its etcd's folder.
ETCD = "-etcd"


@contextmanager
def labs(prefix: str, venv: Path = places.VENV) -> Iterator[dict[str, str]]:
    """Give an environment in which labs are this suite's, and take every one of them down at the end.

    Host names follow from the prefix, so a second run on this machine waits for the first.
    Raises CalledProcessError where a lab cannot be taken down.
    """
    state = ROOT / prefix
    state.mkdir(parents=True, exist_ok=True)
    with open(ROOT / f"{prefix}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        env = places.environment(venv, KVMFLEET_LAB_STATE=str(state), KVMFLEET_LAB_PREFIX=prefix)
        _take_down(state, env)
        try:
            yield env
        finally:
            _take_down(state, env)
            shutil.rmtree(state, ignore_errors=True)


def _take_down(state: Path, env: dict[str, str]) -> None:
    for folder in sorted(path for path in state.glob("*") if path.is_dir()):
        prefix, is_etcd = folder.name.removesuffix(ETCD), folder.name.endswith(ETCD)
        argv = [str(COMMAND), "--prefix", prefix, *(["etcd"] if is_etcd else []), "down"]
        subprocess.run(argv, env=env, check=True, timeout=DOWN_SECONDS, stdin=subprocess.DEVNULL)
