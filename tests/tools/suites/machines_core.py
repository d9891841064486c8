# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios on whole machines that every change should pass: whole story, power cut, NFS lease, KillUserProcesses."""

from __future__ import annotations

from . import machines
from .results import Results


def run(results: Results) -> None:
    """Run those that have not passed on this tree yet."""
    machines.run_some(results, list(machines.CORE))
