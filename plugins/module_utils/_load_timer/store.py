# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The program that the timer runs on a host: it stores one reading of the counters of the load."""

from __future__ import annotations

import os

from .._facts.load import LoadMeasurement
from .._libvirt.host import open_reader

_URI = "qemu:///system"


def store_reading() -> None:
    """Store a reading. Ends the process with the reason if that is not possible; the next one may be."""
    os.umask(0o077)
    problems = LoadMeasurement(_URI, open_reader, 0).finish(()).warnings
    if problems:
        raise SystemExit(" ".join(problems))
