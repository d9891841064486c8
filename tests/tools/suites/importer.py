# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate of Ansible Galaxy: the collection is built and imported as Galaxy would."""

from __future__ import annotations

import shutil

from . import places
from .results import Results

SETTINGS = {
    "GALAXY_IMPORTER_CHECK_REQUIRED_TAGS": "true",
    "GALAXY_IMPORTER_RUN_ANSIBLE_TEST": "false",
}


def run(results: Results) -> None:
    """Build the tarball, then import it."""
    folder = places.BUILD / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = places.environment(**{"HOME": str(places.HOME), **SETTINGS})
    places.HOME.mkdir(exist_ok=True)
    built = results.check("build", [places.tool("ansible-galaxy"), "collection", "build", "--output-path", str(folder)], env=env)
    if not built:
        return
    tarball = next(folder.glob("*.tar.gz"))
    env.pop("PYTHONPATH")
    results.check("import", [places.tool("python"), "-m", "galaxy_importer.main", str(tarball)], cwd=folder, env=env)
