# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""For every Python that goes by a wrong clock: libfaketime 0.9.10 refuses the sleep of Python 3.11 (until a moment of a clock that it leaves alone)."""

from __future__ import annotations

import select
import time


def _sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


time.sleep = _sleep
