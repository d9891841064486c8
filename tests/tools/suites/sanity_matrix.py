# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-test sanity with the other supported releases of ansible-core, where their Python is found."""

from __future__ import annotations

from . import interpreters, places, sanity
from .results import Results

PYTHON_OF = {"2.18": "3.11", "2.20": "3.12", "2.21": "3.12"}


def run(results: Results) -> None:
    """Run the sanity tests once for each release."""
    for release, version in PYTHON_OF.items():
        python = interpreters.find(version)
        venv = places.BUILD / f"venv-core{release}"
        minor = int(release.split(".")[1])
        if python is None:
            results.skip(f"ansible-core {release}", f"no Python {version} with venv on this machine")
        elif not interpreters.make_venv(python, venv, [f"ansible-core>={release},<2.{minor + 1}"]):
            results.add(f"ansible-core {release}: no virtual environment", passed=False)
        else:
            sanity.run_with(results, venv, f"ansible-core {release}: ")
