# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of one suite's own, which is gone afterwards whatever happened in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from . import places

COMMAND = places.COPY / "tests" / "lab" / "lab"
DOWN_SECONDS = 120


@contextmanager
def torn_down(*prefixes: str) -> Iterator[None]:
    """Take the labs with these prefixes down at the end; raises CalledProcessError where one cannot be."""
    try:
        yield
    finally:
        for prefix in prefixes:
            subprocess.run([COMMAND, "--prefix", prefix, "down"], check=True, timeout=DOWN_SECONDS, stdin=subprocess.DEVNULL)
