# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Further cases on real hosts, of what the suite C(integration) shows once: all ways in which hosts die and return, and others."""

from __future__ import annotations

from .integration import run_long
from .results import Results


def run(results: Results) -> None:
    """Run all lanes of them."""
    run_long(results)
