# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every sanity test with every other supported release of ansible-core, on every Python that hosts may have; and how each reads variables."""

from __future__ import annotations

from . import releases, sanity, sanity_releases
from .results import Results


def run(results: Results) -> None:
    """Run the sanity tests and the plays once for each release."""
    for release in releases.others(results):
        sanity.run_with(results, release.venv, release.prefix, "--venv")
        sanity_releases.run_plays(results, release)
