# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ganeti's hbal on a simulated fleet in its text format: which domains it leaves on an offline host, and how well it balances busy hosts."""

from __future__ import annotations

import math
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.simulator.fleets import Drain

_GROUP = "fleet|fleet-uuid|preferred||"
_RESERVED_MIB = 512
_DISK_MIB = 2**40
# Instances that carry the same tag with this prefix do not share a node.
_APART = "apart"
_SCORE = re.compile(r"overall\s+([0-9.]+)")
# A move that hbal has chosen: its number, and the score after it.
_STEP = re.compile(r"^ *([0-9]+)\. .* => .* ([0-9.]+) a=", re.MULTILINE)
# Of CPU, for one score, which takes a moment.
_SCORE_SECONDS = 300


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


@dataclass(frozen=True)
class Balanced:
    """What hbal made of busy hosts: its CPU seconds, its own score before and after, and its number of moves.

    :arg is_finished: whether it ended by itself, and was not stopped.
    """

    seconds: float
    before: float
    after: float
    moves: int
    is_finished: bool


def balanced(facts: Mapping[str, f.Document], most_seconds: float) -> Balanced:
    """Let hbal balance a fleet by its defaults, with the load of the domains (C(-U)). It writes each move as soon as it has chosen it.

    :arg most_seconds: of CPU, after which it is stopped. On a hundred hosts it takes the better part of an hour.
    """
    begin = _child_seconds()
    done = _ask(facts, {domain["uuid"]: name for name, one in facts.items() for domain in one["domains"]}, most_seconds=most_seconds)
    return _read_balance(done.stdout, _child_seconds() - begin, is_finished=done.returncode == 0)


def _read_balance(answer: str, seconds: float, is_finished: bool) -> Balanced:
    """Return what hbal made of a fleet, from its output up to any line."""
    scores, steps = [float(score) for score in _SCORE.findall(answer)], _STEP.findall(answer)
    after = scores[-1] if is_finished or not steps else float(steps[-1][1])
    return Balanced(seconds, scores[0], after, int(steps[-1][0]) if steps else 0, is_finished)


def score_of(facts: Mapping[str, f.Document], where: Mapping[str, str]) -> float:
    """Return the score that hbal gives a fleet.

    :arg where: the host of each domain, by UUID.
    """
    return float(_SCORE.findall(_ask(facts, where, "-l", "0").stdout)[0])


def _ask(facts: Mapping[str, f.Document], where: Mapping[str, str], *options: str, most_seconds: float = _SCORE_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run hbal, which has failed if it was not stopped for its use of CPU and does not end with 0."""
    domains = {domain["uuid"]: domain for one in facts.values() for domain in one["domains"]}
    shares: dict[str, list[f.Document]] = {name: [] for name in facts}
    for uuid, name in where.items():
        shares[name].append(domains[uuid])
    with tempfile.TemporaryDirectory() as folder:
        cluster, load = pathlib.Path(folder, "cluster"), pathlib.Path(folder, "load")
        cluster.write_text(_cluster({name: {**one, "domains": shares[name]} for name, one in facts.items()}), encoding="utf-8")
        load.write_text("".join(_load(domain, one) for one in facts.values() for domain in one["domains"]), encoding="utf-8")
        command = ["prlimit", f"--cpu={math.ceil(most_seconds)}:unlimited", "hbal", "-t", str(cluster), "-U", str(load), "-v", "-v", *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != -signal.SIGXCPU:
            done.check_returncode()
        return done


def _load(domain: f.Document, host: f.Document) -> str:
    """Return the line of a domain in the file of C(-U): the shares of a host's CPUs and memory that it uses, no disk and no network."""
    room = host["memory"]["total_bytes"] // f.MIB - _RESERVED_MIB
    return f"{domain['name']} {domain['load']['cpu_cores_used'] / host['cpus']:.6f} {domain['load']['memory_used_mib'] / room:.6f} 0 0\n"


def _text(drain: Drain) -> str:
    """Return the fleet as memory, CPUs and groups that keep apart; shared storage; no CPU model, network or machine type, which hbal does not know."""
    return _cluster(drain.facts)


def _cluster(hosts: Mapping[str, f.Document]) -> str:
    nodes = [_node(name, facts) for name, facts in hosts.items()]
    instances = [_instance(domain, name) for name, facts in hosts.items() for domain in facts["domains"]]
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
