# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether anything answers at a host's SSH port. Used from the control node and from the host that is to take the domains."""

from __future__ import annotations

import socket

ANSWERS, REFUSED, SILENT, UNKNOWN = "answers", "refused", "silent", "unknown"
SECONDS = 5.0


def knock(address: str, port: int, seconds: float = SECONDS) -> str:
    """Return L(ANSWERS) where a connection was accepted, L(REFUSED), L(SILENT) where nothing came back, L(UNKNOWN) for a name that leads nowhere."""
    try:
        with socket.create_connection((address, port), timeout=seconds):
            return ANSWERS
    except ConnectionRefusedError:
        return REFUSED
    except (socket.gaierror, UnicodeError):
        return UNKNOWN
    except OSError:
        return SILENT
