# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate of Ansible Galaxy: the collection is built and imported as Galaxy would; and its bill of materials."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import places, processes, sbom
from .results import Results

# Its ansible-lint is left out: the suite lint has the same profile with more rules, and the importer gives it 180 s only, whatever runs beside.
SETTINGS = {
    "GALAXY_IMPORTER_CHECK_REQUIRED_TAGS": "true",
    "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "false",
    "GALAXY_IMPORTER_RUN_ANSIBLE_TEST": "false",
}


def run(results: Results) -> None:
    """Build the tarball, write its bill of materials beside it, and import it."""
    folder = places.BUILD / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = places.environment(**{"HOME": str(places.HOME), **SETTINGS})
    places.HOME.mkdir(exist_ok=True)
    built = results.check("build", [places.tool("ansible-galaxy"), "collection", "build", "--output-path", str(folder)], env=env)
    if not built:
        return
    tarball = next(folder.glob("*.tar.gz"))
    sbom.check(results, tarball)
    env.pop("PYTHONPATH")
    _import(results, tarball, env)


def _import(results: Results, tarball: Path, env: dict[str, str]) -> None:
    """Import it. The importer itself fails only on what it cannot read; what ansible-doc and its rules find are lines of its log, and a failure here."""
    argv = [places.tool("python"), "-m", "galaxy_importer.main", str(tarball)]
    ended = processes.run(argv, tarball.parent, env)
    results.add(f"import {ended.hang}".rstrip(), passed=ended.code == 0)
    results.add("import without a warning", passed=not findings(ended.output))


def findings(log: str) -> list[str]:
    """Return the importer's lines that are more than news."""
    return [line for line in log.splitlines() if line.startswith(("WARNING", "ERROR", "CRITICAL"))]
