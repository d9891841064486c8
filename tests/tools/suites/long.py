# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Further cases of what the suites C(units), C(integration) and C(molecule) show once: all ways in which hosts die and return, and others."""

from __future__ import annotations

from . import integration, molecule, units
from .results import Results


def run(results: Results) -> None:
    """Run the unit tests, then all lanes on real hosts, and the rest of Molecule's scenarios."""
    units.run_long(results)
    integration.run_long(results)
    molecule.run_long(results)
