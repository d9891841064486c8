# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""When a host that asks many others logs in to each of them.

In an evacuation, each survivor asks all others at the same moment, so that each host receives as many logins as there are hosts; in a drain of many hosts,
each of them asks the same destinations.
OpenSSH drops logins at random above 10 that are not authenticated yet (MaxStartups). Each login therefore begins at a random moment of a period that grows with
the number of hosts. A login that is dropped nevertheless is repeated (L(open_connection)).
"""

from __future__ import annotations

import random
import threading
import time
import typing as t

# OpenSSH accepts so many unauthenticated logins before it drops some; two are left for people and for Ansible.
FREE_LOGINS = 8
# What OpenSSH's client prints for a login that was dropped, for which it has no separate exit code.
DROPPED_LOGIN = r"kex_exchange_identification|banner exchange|Connection (closed|reset) by \S+ port"
# A server authenticates about so many in a second on a slow or busy host.
LOGINS_PER_SECOND = 30.0
_RANDOM = random.SystemRandom()

H = t.TypeVar("H")
Open = t.Callable[[str], H]


def spread_logins(
    open_host: Open[H],
    uris: t.Collection[str],
    longest_seconds: float = 60.0,
    sleep: t.Callable[[float], None] = time.sleep,
    clock: t.Callable[[], float] = time.monotonic,
) -> Open[H]:
    """Return a function that opens one of these hosts as C(open_host) does, the first time not before the slot of the host.

    :arg uris: of all hosts that are asked at once; without SSH, and for few hosts, nothing waits.
    :arg longest_seconds: at most so long after this call the last slot begins, where fewer hosts ask than are asked.
    """
    begun, slots = clock(), draw_slots(uris, longest_seconds)
    if not slots:
        return open_host
    taking = threading.Lock()

    def open_in_slot(uri: str) -> H:
        with taking:
            slot = slots.pop(uri, 0.0)
        wait = slot - (clock() - begun)
        if wait > 0:
            sleep(wait)
        return open_host(uri)

    return open_in_slot


def draw_slots(uris: t.Collection[str], longest_seconds: float = 60.0) -> t.Dict[str, float]:
    """Return after how many seconds the first login at each of these hosts begins; empty for few hosts, and without SSH.

    The arguments are those of L(spread_logins).
    """
    remote = [uri for uri in sorted(set(uris)) if is_over_ssh(uri)]
    seconds = min(spread_seconds(len(remote)), longest_seconds)
    return {uri: _RANDOM.uniform(0, seconds) for uri in remote} if seconds else {}


def spread_seconds(hosts: int) -> float:
    """Return the length of the period in which the logins at so many hosts begin, if all of them ask each other."""
    return max(0, hosts - FREE_LOGINS) / LOGINS_PER_SECOND


def is_over_ssh(uri: str) -> bool:
    """Whether libvirt logs in over SSH for this URI."""
    return uri.partition(":")[0].endswith("+ssh")
