# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated fleet of many hosts that all see each other's storage, its ledger as C(protect) leaves it, and bookings in it."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import live_migrate_spec, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import list_sights_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import Reservations
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_steps import ProtectSteps
from ansible_collections.kvmfleet.migration.tests.simulator import facts
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.control import settings_of
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.source import SimulatedSource
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size, World

Body = dict[str, t.Any]
BY = "root@control pid 4711"
_AT = "2026-11-20T10:00:00.000Z"
_GUARD = {"installed": True, "systemd": True, "held_at_boot": True}


@dataclasses.dataclass(frozen=True)
class Width:
    """How many hosts there are, in how many folders each has its token, and how many guests leave the first host."""

    hosts: int
    folders: int
    moves: int


class _ProtectedWorld(World):
    """A world whose hosts have their own IDs, as those that were protected."""

    def facts(self, host: int) -> Body:
        return {**super().facts(host), "host_id": _host_id(self.size.host(host))}


def _host_id(name: str) -> str:
    return facts.uuid_of(f"{name}.id")


class WideFleet:
    """:arg path: of its ledger, a new folder.

    :arg inside: whether the ledger is one of version 0.1.0, with what a host sees inside the document of the host.
    """

    def __init__(self, size: Width, path: pathlib.Path, inside: bool) -> None:
        self.size = size
        self.path = path
        rooms = size.moves * 4
        # One guest of the first host is followed by one of each other host.
        self._world = _ProtectedWorld(Size(1, size.hosts, size.hosts * size.moves, rooms, size.hosts, 1, size.moves, {}))
        self._ledger = FileLedger(str(path))
        self._ids = [_host_id(self.name(number)) for number in range(size.hosts)]
        for number in range(size.hosts):
            self._write_host(number, inside)

    def name(self, number: int) -> str:
        return self._world.size.host(number)

    def seconds_to_book(self, moves: int) -> float:
        """Book moves of the first host, each to another host; cancel them afterwards. Return how long the bookings took."""
        ledger = FileLedger(str(self.path))
        source = t.cast("t.Any", SimulatedSource(self._world, 0))
        settings = settings_of(self._world)
        context = RunContext(ledger, settings, source, "qemu:///system", BY)
        guests = self._world.guests_on(0)[:moves]
        requests = read_requests(move_arguments([self._move(guest, index) for index, guest in enumerate(guests)], 1), settings, source.name)
        view, jobs = MoveRun(context, moves, lambda record, waits_for: None).survey_moves(requests, will_move=False)
        reservations = Reservations(context, view)
        begin = time.monotonic()
        booked = [reservations.reserve_destination(job, job.decision) for job in jobs if isinstance(job.decision, decide.Start)]
        seconds = time.monotonic() - begin
        if len(booked) != moves:
            raise RuntimeError(f"{len(booked)} moves were booked, not {moves}: {[job.error for job in jobs if job.error][:1]}")
        for stored in booked:
            ledger.update_record(stored, stored.record.advance(s.CANCELLED, BY))
        return seconds

    def list_sights(self) -> None:
        """Read who sees the storage of the first host."""
        ledger = FileLedger(str(self.path))
        seen = list_sights_of(ledger, list_entries(ledger), self._ids[0])
        if sum(map(bool, seen.values())) != self.size.hosts - 1:
            raise RuntimeError("Not every host sees the storage of the first one.")

    def protect(self) -> None:
        """Protect the first host, which has no domains in this simulation, and sees what it saw before."""
        answers: Body = {
            "identify": {"identity": {"host_id": self._ids[0], "host_uuid": facts.uuid_of(self.name(0)), "machine_id": None}, "libvirt_error": None},
            "leave": {"changed": False, "host_id": self._ids[0], "folders": self._folders(0), "unwritable": {}, "devices": {}},
            "see": {"sees": self._seen_by(0)},
            "save": {"domains": [], "arriving": [], "unreadable": [], "remembered": []},
            "guard": {"changed": False, "guard": {**_GUARD, "held": False, "note": ""}},
        }
        steps = ProtectSteps(self.name(0), FileLedger(str(self.path)), lambda phase, _work: answers[phase], BY, False)
        steps.leave_tokens({})
        steps.read_tokens()
        steps.save_domains()
        steps.set_up_guard(install=True, with_token=True)

    def stored_files(self) -> dict[str, bytes]:
        """Return the documents of the ledger."""
        return {str(file.relative_to(self.path)): file.read_bytes() for file in self.path.rglob("*.json")}

    def _move(self, guest: int, index: int) -> Body:
        return {"uuid": facts.uuid_of(self._world.size.guest(guest)), "destination": self.name(1 + index % (self.size.hosts - 1))}

    def _folders(self, number: int) -> dict[str, str]:
        return {f"/srv/images/pool-{folder:02d}": facts.uuid_of(f"token {number} {folder}") for folder in range(self.size.folders)}

    def _seen_by(self, number: int) -> Body:
        return {self._ids[other]: self._folders(other) for other in range(self.size.hosts) if other != number}

    def _write_host(self, number: int, inside: bool) -> None:
        """Write the documents of a host as the ledger does, but without waiting for the disk."""
        host_id, folders, name = self._ids[number], self._folders(number), self.name(number)
        protected = {"at": _AT, "by": BY, "guard": _GUARD, "token_id": facts.uuid_of(f"grant {number}"), "token_folders": folders}
        identity = {"schema": 1, "host_key": host_id, "host_id": host_id, "host_uuid": facts.uuid_of(name), "machine_id": None, "name": name}
        entry = {**identity, "ledger_id": self._ledger.ledger_id, "state": "enabled", "reason": None, "since": _AT, "by": BY, "fencing": {}, "adopted": []}
        sees = self._seen_by(number)
        entry |= {"addresses": {}, "devices": {}, "unwritable": {}, "folders": folders, "protected": protected, **({"sees": sees} if inside else {})}
        self._write(f"hosts/{host_id}.json", entry)
        if not inside:
            self._write(f"protected/{host_id}.json", {"schema": 1, "host_key": host_id, "at": _AT, "by": BY})
            for digit in sorted({other[0] for other in sees}):
                seen = {other: tokens for other, tokens in sees.items() if other[0] == digit}
                self._write(f"sights/{digit}/{host_id}.json", {"schema": 1, "host_id": host_id, "sees": seen})

    def _write(self, path: str, document: Body) -> None:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode_document(document, 1))


def move_arguments(moves: list[Body], parallel: int) -> t.Any:
    """Return the options of a task that moves these domains."""
    defaults = {option: spec.get("default") for option, spec in live_migrate_spec().items()}
    return {**defaults, "parallel": parallel, "moves": [{**dict.fromkeys(move_spec()), **move} for move in moves]}
