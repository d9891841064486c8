# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets of any size, made by chance from a seed: small tight ones that are hard to plan, and large ones that take time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

SOURCE = "kvm1"
_GROUPS = (
    {"name": "apart", "policy": "anti-affinity"},
    {"name": "two-by-two", "policy": "anti-affinity", "max_per_host": 2},
    {"name": "together", "policy": "affinity"},
)


@dataclass(frozen=True)
class Drain:
    """A fleet with one host to drain.

    :arg settings: C(kvmfleet_scheduler) by host.
    """

    facts: dict[str, f.Document]
    source: str
    candidates: list[str]
    settings: dict[str, f.Document] = field(default_factory=dict)


def tight(seed: int, mixed: bool = False) -> Drain:
    """Return up to 8 domains for up to 4 hosts that have hardly more room than is needed, by memory alone or by groups, labels and vCPUs too.

    The hosts are cut to fit some dealing out of the domains, so that mostly there is a place for each.
    """
    chance = random.Random(seed)
    names = [f"kvm{number + 2}" for number in range(chance.randint(2, 4))]
    guests = [_guest(chance, f"g{seed}-{number}", mixed) for number in range(chance.randint(3, 8))]
    dealt = _dealt(chance, guests, names)
    hosts = {name: _cut_to_fit(chance, name, share, mixed) for name, share in dealt.items()}
    settings = {name: {"labels": ["ssd"]} for name, share in dealt.items() if any(guest["request"]["labels"] for guest in share)}
    return Drain({SOURCE: f.host(SOURCE, 2**20, 256, guests), **hosts}, SOURCE, names, settings)


def loose(seed: int) -> Drain:
    """Return a fleet of which nobody knows whether all domains find a place: room for about as much as is needed, dealt out by chance."""
    chance = random.Random(seed)
    guests = [_guest(chance, f"g{seed}-{number}", mixed=True) for number in range(chance.randint(2, 7))]
    needed = sum(guest["memory_mib"] for guest in guests)
    names = [f"kvm{number + 2}" for number in range(chance.randint(2, 4))]
    shares = [chance.random() for _name in names]
    room = needed * chance.uniform(0.9, 1.3)
    hosts = {name: f.host(name, int(room * share / sum(shares)), chance.randint(1, 8)) for name, share in zip(names, shares)}
    settings = {name: {"labels": ["ssd"], "limits": {"domains": chance.randint(1, 6)}} for name in names if chance.random() < 0.5}
    return Drain({SOURCE: f.host(SOURCE, 2**20, 256, guests), **hosts}, SOURCE, names, settings)


@dataclass(frozen=True)
class Loss:
    """A fleet that has lost hosts.

    :arg facts: of the hosts that remain.
    :arg lost: of those that are gone, as they were.
    """

    facts: dict[str, f.Document]
    lost: dict[str, f.Document]


def bereft(hosts: int, domains: int, lost: int, filled: float = 0.5) -> Loss:
    """Return a fleet with its domains shared out evenly, of which the first C(lost) hosts are gone.

    :arg filled: how much of the memory of each host is taken.
    """
    drain = large(hosts, domains, domains // hosts, filled=filled)
    gone = list(drain.facts)[:lost]
    return Loss({name: facts for name, facts in drain.facts.items() if name not in gone}, {name: drain.facts[name] for name in gone})


@dataclass(frozen=True)
class Whole:
    """A fleet in which every host has guests.

    :arg settings: C(kvmfleet_scheduler) by host.
    """

    facts: dict[str, f.Document]
    settings: dict[str, f.Document]


def whole(seed: int) -> Whole:
    """Return a fleet of up to 6 hosts with guests on all of them, and about as much free as some of them use: which hosts it can lose depends on chance."""
    chance = random.Random(seed)
    names = [f"kvm{number + 1}" for number in range(chance.randint(2, 6))]
    spare = chance.choice([300, 1000, 2500, 5000])
    mixed = chance.random() < 0.7
    facts: dict[str, f.Document] = {}
    settings: dict[str, f.Document] = {}
    for name in names:
        guests = [_guest(chance, f"{name}-{number}", mixed) for number in range(chance.randint(0, 3))]
        if guests and chance.random() < 0.1:
            guests[0]["request"]["disks"] = [f.disk("vda", shared=False)]
        cpus = 64 if chance.random() < 0.7 else max(1, *(guest["vcpus"] for guest in guests), 1)
        facts[name] = f.host(name, sum(guest["memory_mib"] for guest in guests) + chance.randint(0, spare), cpus, guests)
        settings[name] = {"labels": ["ssd"] if chance.random() < 0.7 else [], "limits": {"domains": chance.randint(2, 6)} if chance.random() < 0.2 else {}}
    return Whole(facts, settings)


def with_huge_pages(whole: Whole, seed: int) -> Whole:
    """Return the fleet with some of its guests in huge pages, of which some hosts have more than these need."""
    chance = random.Random(seed)
    return Whole({name: _with_pool(chance, facts) for name, facts in whole.facts.items()}, whole.settings)


def _with_pool(chance: random.Random, facts: f.Document) -> f.Document:
    # An affinity group of both kinds would fit on several hosts where it does not fit on one.
    alone = [guest for guest in facts["domains"] if (guest["request"]["group"] or {}).get("policy") != "affinity"]
    in_pages = {guest["uuid"]: 2 * -(-guest["memory_mib"] // 2) for guest in alone if chance.random() < 0.5}
    guests = [_in_pages(guest, in_pages[guest["uuid"]]) if guest["uuid"] in in_pages else guest for guest in facts["domains"]]
    used_mib, spare_mib = sum(in_pages.values()), chance.choice([0, 0, 1024, 4096])
    total_mib = facts["memory"]["total_bytes"] // f.MIB + len(in_pages) + chance.choice([0, spare_mib])
    pool_mib = min(used_mib + spare_mib, total_mib)
    pages = [{"size_kib": 2048, "total": pool_mib // 2, "free": (pool_mib - used_mib) // 2}] if pool_mib else []
    cells = [{**facts["numa_cells"][0], "total_mib": total_mib, "pages": pages}]
    return {**facts, "memory": {"total_bytes": total_mib * f.MIB}, "numa_cells": cells, "domains": guests}


def _in_pages(guest: f.Document, mib: int) -> f.Document:
    return {**guest, "memory_mib": mib, "request": {**guest["request"], "memory_mib": mib, "hugepages": [{"size_kib": 2048, "mib": mib}]}}


def large(hosts: int, domains: int, leaving: int, seed: int = 1, filled: float = 0.5) -> Drain:
    """Return a fleet of so many hosts and domains, each with an image of its own; the host to drain has C(leaving) of the domains.

    :arg filled: how much of the memory of each host is taken.
    """
    chance = random.Random(seed)
    names = [f"kvm{number + 1}" for number in range(hosts)]
    shares: dict[str, list[f.Document]] = {name: [] for name in names}
    for number in range(domains):
        name = names[0] if number < leaving else names[1 + number % (hosts - 1)]
        group = {"name": f"set{number // 3}", "policy": "anti-affinity"} if number % 10 < 3 else None
        disks = [f.disk("vda", source=f"/srv/images/g{number}.qcow2", store=f"nfs4:nas:/images/g{number}.qcow2")]
        shares[name].append(f.domain(f"g{number}", chance.choice([1024, 2048, 4096, 8192]), chance.choice([1, 2, 4]), group=group, disks=disks))
    rooms = {name: int(max(8192, sum(guest["memory_mib"] for guest in share)) / filled) for name, share in shares.items()}
    facts = {name: f.host(name, rooms[name], 64, share) for name, share in shares.items()}
    return Drain(facts, names[0], names[1:])


def _guest(chance: random.Random, name: str, mixed: bool) -> f.Document:
    memory_mib = chance.choice([256, 512, 768, 1024, 1536, 2048, 3072, chance.randint(100, 4000)])
    if not mixed:
        return f.domain(name, memory_mib)
    group = chance.choice([None, None, *_GROUPS])
    labels = ["ssd"] if chance.random() < 0.2 else []
    return f.domain(name, memory_mib, chance.randint(1, 4), labels=labels, group=group, priority=chance.choice([0, 0, 10]))


def _dealt(chance: random.Random, guests: list[f.Document], names: list[str]) -> dict[str, list[f.Document]]:
    """Deal the domains out, those of one affinity group to one host and those of others in turn."""
    dealt: dict[str, list[f.Document]] = {name: [] for name in names}
    turn = chance.sample(names, len(names))
    for number, guest in enumerate(guests):
        group = guest["request"]["group"]
        if group is None:
            dealt[chance.choice(names)].append(guest)
        else:
            dealt[turn[0] if group["policy"] == "affinity" else turn[number % len(turn)]].append(guest)
    return dealt


def _cut_to_fit(chance: random.Random, name: str, share: list[f.Document], mixed: bool) -> f.Document:
    needed = sum(guest["memory_mib"] for guest in share)
    vcpus = sum(guest["vcpus"] for guest in share)
    cpus = max([-(-vcpus // 4), *(guest["vcpus"] for guest in share), 1]) if mixed else 64
    return f.host(name, needed + chance.choice([0, 0, 16, 128]), cpus)
