# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A randomised soak of so many minutes (MINUTES) and a seed (SEED), or one played again from its journal (REPLAY)."""

from __future__ import annotations

import os
from pathlib import Path

from . import places
from .lab import labs
from .results import Results

MINUTES = "10"
FOLDER = places.BUILD / "soak"
# Its last settling run, and what it keeps of a lab in which something was found.
AFTERWARDS_SECONDS = 1800
LONGEST_REPLAY_SECONDS = 24 * 3600
_PROGRAM = "ansible_collections.kvmfleet.migration.tests.soak"


def run(results: Results) -> None:
    """Count one check: that the soak is clean, and that enough has happened in it."""
    minutes, seed, replay = (os.environ.get(name) or "" for name in ("MINUTES", "SEED", "REPLAY"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    argv = [places.tool("python", places.INTEGRATION_VENV), "-m", _PROGRAM, "--folder", str(FOLDER)]
    argv += ["--replay", str(Path(replay).resolve())] if replay else ["--minutes", minutes or MINUTES]
    argv += ["--seed", seed] if seed else []
    limit = LONGEST_REPLAY_SECONDS if replay else float(minutes or MINUTES) * 60 + AFTERWARDS_SECONDS
    with labs("kvs", places.INTEGRATION_VENV) as env:
        results.check(f"a replay of {replay}" if replay else f"{minutes or MINUTES} minutes", argv, env=env, hang_seconds=limit)
