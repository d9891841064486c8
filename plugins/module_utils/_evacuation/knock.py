# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether anything answers at a host's SSH port. Used from the control node and from the host that is to take the domains."""

from __future__ import annotations

import concurrent.futures
import socket
import typing as t

ANSWERS, REFUSED, SILENT, UNKNOWN = "answers", "refused", "silent", "unknown"
SECONDS = 5.0
# What comes from something that is on and has the address.
HEARD = (ANSWERS, REFUSED)

Door = t.Mapping[str, t.Any]


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


def knock_at_all(doors: t.Sequence[Door], ask: t.Callable[[str, int], str] = knock) -> t.List[t.Dict[str, t.Any]]:
    """Return the doors (C(address), C(port)), each with what it C(says). All are asked at once, so that the silence of one costs no other's time."""
    with concurrent.futures.ThreadPoolExecutor(max(1, len(doors))) as pool:
        answers = pool.map(lambda door: ask(door["address"], door["port"]), doors)
        return [{**door, "says": says} for door, says in zip(doors, answers)]
