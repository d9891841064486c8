# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The program that the timer runs on a host: it stores one reading of the counters of the load."""

from __future__ import annotations

import os
import sys

from .._facts.load import LoadMeasurement
from .._libvirt.connection import libvirt_binding
from .._libvirt.host import open_reader
from .._model.errors import KvmfleetError

_URI = "qemu:///system"


# The exit code of a program that runs, and could not store a reading.
NOT_STORED = 3


def store_reading() -> None:
    """Store a reading. Ends the process with L(NOT_STORED) and the reason if that is not possible now, with another code if this Python cannot do it."""
    os.umask(0o077)
    try:
        libvirt_binding()
    except KvmfleetError as error:
        raise SystemExit(str(error)) from None
    problems = LoadMeasurement(_URI, open_reader, 0).finish(()).warnings
    if problems:
        sys.stderr.write(f"{' '.join(problems)}\n")
        raise SystemExit(NOT_STORED)
