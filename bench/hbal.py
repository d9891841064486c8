# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ganeti's hbal on a simulated fleet: the fleet in its text format, with one host offline, and which domains it leaves there."""

from __future__ import annotations

import pathlib
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator.fleets import Drain

_GROUP = "fleet|fleet-uuid|preferred||"
_RESERVED_MIB = 512
_DISK_MIB = 2**40
# Instances that carry the same tag with this prefix do not share a node.
_APART = "apart"


@dataclass(frozen=True)
class Emptied:
    """What hbal made of a fleet with an offline host: its CPU seconds, and how many domains stayed there."""

    seconds: float
    left: int


def is_installed() -> bool:
    """Whether there is an hbal to compare with."""
    return shutil.which("hbal") is not None


def emptied(drain: Drain) -> Emptied:
    """Let hbal empty the host that is drained, moving nothing else, as its mode for evacuations does."""
    with tempfile.TemporaryDirectory() as folder:
        cluster, after = pathlib.Path(folder, "cluster"), pathlib.Path(folder, "after")
        cluster.write_text(_text(drain), encoding="utf-8")
        begin = _child_seconds()
        subprocess.run(["hbal", "-t", cluster, "-O", drain.source, "-E", "-S", after], check=True, capture_output=True, timeout=600)
        seconds = _child_seconds() - begin
        return Emptied(seconds, _count(after.with_name("after.balanced").read_text(encoding="utf-8"), drain.source))


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _text(drain: Drain) -> str:
    """Return the fleet as memory, CPUs and groups that keep apart; shared storage; no CPU model, network or machine type, which hbal does not know."""
    nodes = [_node(name, facts) for name, facts in drain.facts.items()]
    instances = [_instance(domain, name) for name, facts in drain.facts.items() for domain in facts["domains"]]
    return "\n".join([_GROUP, "", *nodes, "", *instances, "", f"htools:iextags:{_APART}", ""])


def _node(name: str, facts: f.Document) -> str:
    total = facts["memory"]["total_bytes"] // f.MIB
    free = total - _RESERVED_MIB - sum(domain["memory_mib"] for domain in facts["domains"])
    return f"{name}|{total}|{_RESERVED_MIB}|{free}|{_DISK_MIB}|{_DISK_MIB}|{facts['cpus']}|N|fleet-uuid|1||N|0|0|1.0"


def _instance(domain: f.Document, node: str) -> str:
    group = domain["request"]["group"]
    tags = f"{_APART}:{group['name']}" if group else ""
    return f"{domain['name']}|{domain['memory_mib']}|0|{domain['vcpus']}|running|Y|{node}||ext|{tags}|1|-"


def _count(cluster: str, node: str) -> int:
    instances = cluster.split("\n\n")[2].splitlines()
    return sum(1 for line in instances if line.split("|")[6] == node)
