# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unit tests: all on the control node's Python, those of code for hosts on the oldest Python that hosts may have."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import interpreters, places, pytest
from .results import Results
from .sanity import OLDEST

# Ledgers and state files wait for the disk at each write, which nothing here is about. A run leaves less than a GiB.
MEMORY = Path("/dev/shm")
LEAST_BYTES = 3 * 2**30
# A file's cases stay together, for they share what they have set up. Many of them wait more than they work, so there are more at once than processors.
AT_ONCE = ["-n", str((os.cpu_count() or 1) + 2), "--dist", "loadfile"]
FOR_HOSTS = ("tests/unit/plugins/module_utils", "tests/unit/plugins/modules")


def run(results: Results) -> None:
    """Run tests/unit here, and the part for hosts on the oldest Python where this machine has one: all but what is marked as long."""
    _run_marked(results, "not long")


def run_long(results: Results) -> None:
    """Run what is marked as long: further cases of what L(run) shows once."""
    _run_marked(results, "long")


def _run_marked(results: Results, marked: str) -> None:
    with temporary_files() as folder:
        pytest.run(results, "control", places.tool("python"), [*AT_ONCE, "-m", marked, "tests/unit"], places.environment(**folder))
        _run_oldest(results, folder, marked)


@contextlib.contextmanager
def temporary_files(memory: Path = MEMORY, least_bytes: int = LEAST_BYTES) -> Iterator[dict[str, str]]:
    """Give the variable by which tests keep their temporary files in memory, where it has room for them; they are gone afterwards."""
    if not memory.is_dir() or shutil.disk_usage(memory).free < least_bytes:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="kvmfleet-", dir=memory, ignore_cleanup_errors=True) as folder:
        yield {"TMPDIR": folder}


def _run_oldest(results: Results, folder: dict[str, str], marked: str) -> None:
    name = f"hosts on Python {OLDEST}"
    python = interpreters.find(OLDEST)
    venv = places.BUILD / f"venv-py{OLDEST}"
    paths = [path for path in FOR_HOSTS if (places.COPY / path).is_dir()]
    if python is None:
        results.skip(name, f"no Python {OLDEST} with venv on this machine")
    elif not paths:
        results.add(f"{name}: none of {', '.join(FOR_HOSTS)} is there", passed=False)
    elif not interpreters.make_venv(python, venv, ["pytest", "pytest-xdist", "hypothesis"]):
        results.add(f"{name}: no virtual environment", passed=False)
    else:
        packages = places.link_ansible(venv / "only-ansible")
        env = places.environment(venv, PYTHONPATH=f"{places.BUILD}:{packages}", **folder)
        pytest.run(results, f"python{OLDEST}", places.tool("python", venv), [*AT_ONCE, "-m", marked, *paths], env)
