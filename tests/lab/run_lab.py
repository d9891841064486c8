# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts the command C(lab)."""

from __future__ import annotations

import sys

from kvmlab.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
