# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every benchmark, once and small: that it runs. Its figures are not looked at, for a busy machine says nothing about speed."""

from __future__ import annotations

import json

from . import places
from .lab import labs
from .results import Results


def run(results: Results) -> None:
    """Run each by itself; one that leaves no figures has failed."""
    with labs("kvb", places.INTEGRATION_VENV) as env:
        for name in sorted(path.stem for path in (places.COPY / "bench" / "cases").glob("[!_]*.py")):
            _run(results, name, env)


def _run(results: Results, name: str, env: dict[str, str]) -> None:
    folder = places.RESULTS / "bench-quick"
    (folder / f"{name}.json").unlink(missing_ok=True)
    argv = [places.tool("python", places.INTEGRATION_VENV), "-m", "ansible_collections.kvmfleet.migration.bench", "--quick", "--results", str(folder), name]
    if results.check(name, argv, env=env):
        figures = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["figures"]
        results.add(f"{name} has figures", passed=bool(figures))
