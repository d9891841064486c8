# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the benchmarks, in an environment in which their labs are theirs: all of C(bench), or those that are named."""

from __future__ import annotations

import subprocess
import sys

from suites import places
from suites.lab import labs

PREFIX = "kvb"
MODULE = "ansible_collections.kvmfleet.migration.bench"


def main() -> int:
    with labs(PREFIX, places.INTEGRATION_VENV) as env:
        python = places.tool("python", places.INTEGRATION_VENV)
        given = ["--results", str(places.RESULTS / "bench"), "--page", str(places.ROOT / "docs" / "benchmarks.md"), *sys.argv[1:]]
        return subprocess.run([python, "-m", MODULE, *given], env=env, cwd=places.COPY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
