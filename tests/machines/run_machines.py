# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the command C(machines) from a checkout, an installed collection, or a copy of one."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.machines.kvmmachines import cli

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
