# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""N+1: whether the hosts that remain after a drain could lose any one of them and still place its active domains."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError

from .._scheduler.filters import DEFAULT
from .._scheduler.fleet import Fleet
from .._scheduler.repair import Board, Way, repaired
from .._scheduler.request import Request
from .._scheduler.units import Unit, units_of
from .known import Known

# What hinders a live migration hinders no start elsewhere.
FILTERS = tuple(rule for rule in DEFAULT if rule.name not in ("max_moves", "migratable"))

# What may be tried for the loss of one host before its domains count as not placed.
NODES = 3000

Document = dict[str, t.Any]


class Survivors:
    """Answers for one fleet, whatever is placed there in addition.

    :arg hosts: the candidates of the drain. One that did not answer can neither be lost nor take anything.
    :arg leavers: what the plan places.
    """

    def __init__(self, known: Known, hosts: Sequence[str], leavers: Iterable[Request]) -> None:
        self.hosts = [host for host in hosts if known.facts.get(host) and host not in known.unreachable]
        self.places = {host: known.place(host) for host in self.hosts}
        self.leavers = {request.uuid: request for request in leavers}
        self.there = {host: self._requests(known, host) for host in self.hosts}
        self._answers: dict[frozenset[tuple[str, str]], dict[str, list[Request]]] = {}

    def losses(self, fleet: Fleet, way: Mapping[str, str]) -> dict[str, list[Request]]:
        """Return the domains that would find no place, by the host that is lost.

        :arg fleet: with the plan carried out.
        :arg way: each domain of the plan to its host.
        """
        key = frozenset(way.items())
        if key not in self._answers:
            others = sorted(self.hosts, key=lambda host: (-fleet.states[host].free_mib(), host))
            self._answers[key] = {host: self._lost(host, fleet, way, others) for host in self.hosts}
        return self._answers[key]

    def _lost(self, lost: str, fleet: Fleet, way: Mapping[str, str], hosts: Sequence[str]) -> list[Request]:
        source_id, source_uuid = (str(self.places[lost][key] or "") for key in ("host_id", "host_uuid"))
        gone = [self.leavers[uuid] for uuid, host in way.items() if host == lost]
        arrived = [replace(leaver, source=lost, source_id=source_id, source_uuid=source_uuid) for leaver in gone]
        units = units_of([*self.there[lost], *arrived])
        for request in (request for unit in units for request in unit.requests):
            fleet = fleet.without(request.uuid, lost)
        board = Board(fleet, {unit.uuid: unit for unit in units}, [host for host in hosts if host != lost], FILTERS, NODES)
        placed = _dealt(board, units)
        placed = placed if len(placed) == len(units) else repaired(board, placed)
        return [request for unit in units if unit.uuid not in placed for request in unit.requests]

    def cost(self, fleet: Fleet, way: Mapping[str, str]) -> float:
        """Return the MiB of memory that would find no place, for the losses of all hosts added up."""
        return float(sum(request.memory_mib for requests in self.losses(fleet, way).values() for request in requests))

    def judge(self, fleet: Fleet, way: Mapping[str, str]) -> Document:
        """Return C({holds, host, missing_mib, domains, hosts}): the loss that is the worst, and all hosts whose loss is not absorbed."""
        lost = self.losses(fleet, way)
        missing = {host: sum(request.memory_mib for request in requests) for host, requests in lost.items() if requests}
        if not missing:
            return {"holds": True, "host": None, "missing_mib": 0, "domains": [], "hosts": []}
        worst = min(missing, key=lambda host: (-missing[host], host))
        return {
            "holds": False,
            "host": worst,
            "missing_mib": missing[worst],
            "domains": sorted(request.name for request in lost[worst]),
            "hosts": sorted(missing),
        }

    def _requests(self, known: Known, host: str) -> list[Request]:
        """Return what is active there; what says nothing usable of itself counts with its memory alone."""
        active = [domain for domain in known.domains(host) if domain["active"] and domain["uuid"] not in self.leavers]
        return [_request(domain, self.places[host]) for domain in active]


def _request(domain: Mapping[str, t.Any], here: Mapping[str, t.Any]) -> Request:
    try:
        return Request.of(domain["request"], domain["uuid"], domain["name"], here["host"], here["host_uuid"], source_id=here["host_id"])
    except KvmfleetError:
        needs = {"memory_mib": max(1, int(domain["memory_mib"])), "vcpus": max(1, int(domain["vcpus"]))}
        return Request.of(needs, domain["uuid"], domain["name"], here["host"], here["host_uuid"], source_id=here["host_id"])


def _dealt(board: Board, units: Sequence[Unit]) -> Way:
    """Return a host for each unit that fits somewhere, the first that takes it."""
    way: Way = {}
    fleet = board.base
    for unit in units:
        for host in board.hosts:
            taken = unit.placed(fleet, host, board.filters)
            if taken:
                way[unit.uuid], fleet = host, taken
                break
    return way
