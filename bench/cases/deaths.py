# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of deaths, and simulated waits for a watchdog: how often a guest ran twice, or a host was fenced that should not have been."""

from __future__ import annotations

import collections

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.lease_evidence import Proven
from ansible_collections.kvmfleet.migration.tests.simulator.death_nights import STATES, DeathNight
from ansible_collections.kvmfleet.migration.tests.simulator.lease_world import judge_world

from ..figures import Effort, Figure, Section

NIGHTS, WAITS = 1000, 5000
_NOTE = """One seed for each night of four minutes, with times that are shorter than real ones: a lease of 6 s, gone after 7 or 10 s. In it, one to three
things happen to a fleet of 3 to 6 hosts: power cuts, cut or flapping networks, a switch that takes several hosts, an etcd without a majority, services that
hang, a storage network that is cut. Fence devices are honest, slow, dead, dead with their host, report "off" and do nothing, or always report "on". The
controller that acts is killed at random steps; another takes over. Detection, brake, fence levels, the judgement of leases and its confirmation are those of
the collection; hosts decide by the rule of their own service, and have watchdogs. In the morning a person evacuates what is still gone. Beside that, each
wait for a watchdog is one controller and one host, with messages that are lost, late and doubled; the host runs on as long as its rule allows."""


def run(effort: Effort) -> Section:
    """Simulate the nights and the waits, and count what must never be."""
    counts: collections.Counter[str] = collections.Counter()
    nights, waits = effort.size(NIGHTS, 10), effort.size(WAITS, 20)
    for seed in range(nights):
        counts.update(_judge_night(DeathNight(seed)))
    for seed in range(waits):
        counts.update(_judge_wait(seed))
    ends = ", ".join(f"{counts[state]} × {state}" for state in STATES if counts[state])
    what = f"{nights} nights, {counts['kills']} controllers killed, {counts['fences']} fences, {counts['starts']} guests started; hosts: {ends}"
    proofs = f"{waits} waits, {counts['proven']} hosts proved reset"
    return Section(
        "Nights of deaths",
        figures=[
            Figure("Guests that were started while they ran elsewhere", str(counts["double"]), what, counts["double"], 0),
            Figure("Hosts fenced that ran guests and were reached by their storage network", str(counts["needless"]), what, counts["needless"], 0),
            Figure("Nights that ended in a state without a name", str(counts["unnamed"]), what, counts["unnamed"], 0),
            Figure("Hosts that were proved reset by their watchdog, and still ran their guests", str(counts["wrong"]), proofs, counts["wrong"], 0),
        ],
        notes=[_NOTE],
    )


def _judge_night(night: DeathNight) -> collections.Counter[str]:
    """Carry out the night, and return how often each rule was broken, its figures, and how many hosts ended in each state."""
    counts = collections.Counter(night.carry_out().values())
    counts.update({"double": len(night.double_starts), "needless": len(night.needless_fences), "unnamed": int(bool(night.list_unnamed()))})
    counts.update({"kills": night.kills, "fences": night.fences, "starts": night.starts})
    return counts


def _judge_wait(seed: int) -> dict[str, int]:
    world, verdict = judge_world(seed)
    is_proven = isinstance(verdict, Proven)
    return {"proven": int(is_proven), "wrong": int(is_proven and world.hosts[0].runs_guests)}
