# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to hold of a ledger after many processes have written to it at once, replayed from its own audit lines."""

from __future__ import annotations

import collections
import typing as t
from collections.abc import Iterable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.guests import STARTED_STATUSES
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.control import Log
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size, World

Line = dict[str, t.Any]
Record = dict[str, t.Any]


def findings(world: World, ledger: Ledger, lines: Sequence[Line], logs: Sequence[Log]) -> list[str]:
    """Return what is wrong; empty where no update was lost, nothing was booked twice and every limit was held.

    :arg world: as it is at the end.
    :arg lines: of the audit, in the order in which they were written.
    """
    records: dict[str, Record] = {record.record_id: encode(record) for record in ledger.list_records()}
    replay = Replay(world.size, records)
    found = [*ledger.verify_audit(), *(f"damaged: {problem}" for problem in ledger.problems)]
    for line in lines:
        found += replay.see(line)
    found += replay.at_the_end()
    found += [f"{log} of {key}, and the ledger says {_status(records, key)}" for one in logs for key, log in one.ended.items() if log != _status(records, key)]
    found += _places(world, replay)
    found += [f"guests arrived {world.overfull} times where there was no room"] if world.overfull else []
    return [*found, *_generations(ledger, records)]


def _status(records: dict[str, Record], key: str) -> str:
    return str(records[key]["status"]) if key in records else "nothing"


def _places(world: World, replay: Replay) -> Iterator[str]:
    """What the ledger's moves come to is where the guests are."""
    for guest in range(world.size.guests):
        name, there = world.size.guest(guest), world.size.host(world.place(guest))
        if replay.place(name) != there:
            yield f"{name} runs on {there}, and the ledger took it to {replay.place(name)}"


def _generations(ledger: Ledger, records: dict[str, Record]) -> Iterator[str]:
    """Each record of a domain has taken the next generation: none of two has overwritten the other's."""
    taken = collections.defaultdict(list)
    for record in records.values():
        taken[record["domain"]["uuid"]].append(record["generation"])
    for document in ledger.list_domains():
        uuid, generation = document.body["uuid"], document.body["generation"]
        if sorted(taken[uuid]) != list(range(1, generation + 1)):
            yield f"domain {document.body['name']} is at generation {generation}, and its records have {sorted(taken[uuid])}"


class Replay:
    """The fleet as the audit lines tell it, from its beginning."""

    def __init__(self, size: Size, records: dict[str, Record]) -> None:
        self._size = size
        self._records = records
        self._last: dict[str, str] = {}
        self._place = {size.guest(guest): size.host(guest % size.hosts) for guest in range(size.guests)}
        self._on: dict[str, set[str]] = collections.defaultdict(set)
        for name, host in self._place.items():
            self._on[host].add(name)
        self._booked: dict[str, set[str]] = collections.defaultdict(set)
        self._moving: dict[str, tuple[str, str]] = {}

    def place(self, name: str) -> str:
        return self._place[name]

    def see(self, line: Line) -> Iterator[str]:
        """Carry out one line, and yield what may not be."""
        key, status = line["id"], line["to"]
        if line["from"] != self._last.get(key):
            yield f"{key} went from {line['from']} to {status} after {self._last.get(key)}"
        self._last[key] = status
        if key not in self._records:
            yield f"{key} has a line and no record"
            return
        record = self._records[key]
        yield from self._carry_out(line["domain"]["name"], record["source"]["host"], record["destination"]["host"], status)

    def _carry_out(self, name: str, source: str, destination: str, status: str) -> Iterator[str]:
        if status == s.SCHEDULED:
            self._booked[destination].add(name)
            yield from self._room(destination)
        elif status in STARTED_STATUSES:
            self._moving[name] = (source, destination)
            yield from self._limits(source, destination)
        elif status in s.CLOSED:
            self._booked[destination].discard(name)
            self._moving.pop(name, None)
            if status == s.COMPLETED:
                self._on[self._place[name]].discard(name)
                self._on[destination].add(name)
                self._place[name] = destination

    def _room(self, host: str) -> Iterator[str]:
        """A guest on its way out may have left: the ledger hears of that last."""
        there = {name for name in self._on[host] if name not in self._moving} | self._booked[host]
        if len(there) > self._size.rooms:
            yield f"{host} has room for {self._size.rooms} and was given to {len(there)}: {sorted(there)}"

    def _limits(self, source: str, destination: str) -> Iterator[str]:
        counts = counted(self._moving.values())
        for name, place in (("moves_out", source), ("moves_in", destination), ("moves_total", "")):
            if counts[name, place] > self._size.limits[name]:
                yield f"{counts[name, place]} moves at once, {source} to {destination} among them: {name} is {self._size.limits[name]}"

    def at_the_end(self) -> Iterable[str]:
        """Nothing is open, and each record is at the status of its last line."""
        for key, record in self._records.items():
            if record["status"] != self._last.get(key) or record["status"] not in s.CLOSED:
                yield f"{key} ended as {record['status']}, and its last line says {self._last.get(key)}"


def counted(moving: Iterable[tuple[str, str]]) -> collections.Counter[tuple[str, str]]:
    """Return how many of these moves, each a source and a destination, a host and the fleet take part in: by the limit's name and the host."""
    return collections.Counter(place for source, destination in moving for place in (("moves_out", source), ("moves_in", destination), ("moves_total", "")))


def most_at_once(lines: Iterable[Line], records: Iterable[Record]) -> collections.Counter[tuple[str, str]]:
    """Return the highest of these counts that there ever was, by the audit lines of a ledger and its records."""
    ends = {record["id"]: (record["source"]["host"], record["destination"]["host"]) for record in records}
    moving: dict[str, tuple[str, str]] = {}
    most: collections.Counter[tuple[str, str]] = collections.Counter()
    for line in lines:
        if line["to"] in STARTED_STATUSES:
            moving[line["id"]] = ends[line["id"]]
        else:
            moving.pop(line["id"], None)
        most |= counted(moving.values())
    return most
