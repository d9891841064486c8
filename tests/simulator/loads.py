# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets whose hosts are unevenly busy, made by chance from a seed, with the signals of load in their facts."""

from __future__ import annotations

import random

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

CPUS = 32
INTERVAL_SECONDS = 300
# How uneven the hosts are: each gets guests with a chance between these.
_UNEVEN = (0.5, 1.5)
_SIZES_MIB = (1024, 2048, 4096, 8192)
_VCPUS = (1, 2, 4)


def uneven(hosts: int, guests: int, filled: float, seed: int) -> dict[str, f.Document]:
    """Return the facts of hosts of one size, over which so many guests are dealt out unevenly.

    :arg filled: how much of the memory of the fleet is taken.
    """
    chance = random.Random(seed)
    drawn = [(chance.choice(_SIZES_MIB), chance.choice(_VCPUS), min(1.0, chance.expovariate(2.5))) for _number in range(guests)]
    room = int(sum(memory_mib for memory_mib, _vcpus, _busy in drawn) / filled / hosts)
    chances = [chance.uniform(*_UNEVEN) for _host in range(hosts)]
    taken = [0] * hosts
    shares: list[list[f.Document]] = [[] for _host in range(hosts)]
    # The largest first, so that all of them find room.
    for number, (memory_mib, vcpus, busy) in sorted(enumerate(drawn), key=lambda one: (-one[1][0], one[0])):
        host = _draw_host(chance, chances, taken, room - memory_mib)
        taken[host] += memory_mib
        shares[host].append(busy_domain(f"g{number}", memory_mib, vcpus, busy * vcpus))
    return {f"kvm{number + 1:04d}": busy_host(f"kvm{number + 1:04d}", room, share) for number, share in enumerate(shares)}


def _draw_host(chance: random.Random, chances: list[float], taken: list[int], most: int) -> int:
    """Return a host by chance, or else the emptiest."""
    for _try in range(20):
        host = chance.choices(range(len(chances)), chances)[0]
        if taken[host] <= most:
            return host
    return min(range(len(taken)), key=lambda one: taken[one])


def busy_domain(name: str, memory_mib: int, vcpus: int, cores: float, dirty_rate_mib: float | None = 5.0) -> f.Document:
    """Return a domain that keeps so many CPUs busy, has an image of its own, and holds all of its memory."""
    disks = [f.disk("vda", source=f"/srv/images/{name}.qcow2", store=f"nfs4:nas:/images/{name}.qcow2")]
    domain = f.domain(name, memory_mib, vcpus, disks=disks, dirty_rate_mib=dirty_rate_mib)
    return {**domain, "load": {"cpu_cores_used": round(cores, 4), "memory_used_mib": memory_mib}}


def busy_host(name: str, memory_mib: int, domains: list[f.Document], pressure: float | None = None, cpus: int = CPUS) -> f.Document:
    """Return a host whose load is the sum of its guests'.

    :arg pressure: of the CPU; None on a host without pressure stall information.
    """
    cores = sum(domain["load"]["cpu_cores_used"] for domain in domains)
    used_mib = sum(domain["load"]["memory_used_mib"] for domain in domains)
    load = {"cpu_pressure": pressure, "cpu_used_share": round(min(1.0, cores / cpus), 4), "memory_used_mib": used_mib, "interval_seconds": INTERVAL_SECONDS}
    return {**f.host(name, memory_mib, cpus, domains), "load": load}
