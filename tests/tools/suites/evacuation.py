# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that die and return, on real libvirt hosts: a suite of its own, for it takes as long as all others together."""

from __future__ import annotations

from .integration import EVACUATION_LANES, run_lanes
from .results import Results


def run(results: Results) -> None:
    """Run all lanes; labs that their tests leave up are taken down."""
    run_lanes(results, EVACUATION_LANES)
