# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What shows that a host whose libvirt is silent is not dead: its lease in etcd, and ports that are probed. A refused connection is an answer."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import is_rejected_by, keep_errors
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.election import Election
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReader, SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import Overtaken, Refused

from .event_options import EtcdLedgerOptions

_LOG = logging.getLogger("kvmfleet.migration.libvirt")
_READ_SECONDS = 1.0
PROBE_SECONDS = 2.0
_PROBE_TIMEOUT_SECONDS = 3.0
_NO_ANSWER = "no answer within {:g} s"

LeasesByName = Mapping[str, SeenLease]


def leases_by_name(leases: Mapping[str, SeenLease]) -> dict[str, SeenLease]:
    """Return the leases by the name of the host. A host that was installed anew has left an old one: the one that was renewed last counts."""
    by_age = sorted(leases.values(), key=lambda seen: seen.revision)
    return {seen.lease.name: seen for seen in by_age}


class LeaseWatch(threading.Thread):
    """Reads all leases again and again until it is stopped.

    :arg report: receives the leases by name of the host; it is called from this thread.
    :arg fail: receives the sentence about an error, or about keys that hold no lease, once for each.
    """

    def __init__(self, reader: LeaseReader, report: Callable[[LeasesByName], None], fail: Callable[[str], None]) -> None:
        super().__init__(name="leases", daemon=True)
        self._reader = reader
        self._report = report
        self._fail = fail
        self._over = threading.Event()
        self._said: set[str] = set()

    def run(self) -> None:
        """Read until stopped."""
        while not self._over.is_set():
            try:
                reading = self._reader.read_leases()
            except (KvmfleetError, Refused, Overtaken) as error:
                self._say({str(error)})
            else:
                self._report(leases_by_name(reading.leases))
                self._say(set(reading.damaged.values()))
            self._over.wait(_READ_SECONDS)

    def stop(self) -> None:
        """Stop soon. Returns at once."""
        self._over.set()

    def _say(self, problems: set[str]) -> None:
        for problem in sorted(problems - self._said):
            self._fail(problem)
        self._said = problems


class LedgerServices:
    """What a ledger in etcd adds: leases of hosts, and an election. Both are threads.

    :arg report: receives the leases; it is called from a thread.
    """

    def __init__(self, ledger: EtcdLedgerOptions, election: t.Optional[str], report: Callable[[LeasesByName], None]) -> None:
        client = Client(ledger.address, ledger.options)
        self._watch = LeaseWatch(LeaseReader(client), report, _LOG.warning)
        self._election = Election(client.make_twin(), f"events-{election}", _LOG.warning) if election else None

    def start(self) -> None:
        """Begin."""
        self._watch.start()
        if self._election:
            self._election.start()

    def stop(self) -> None:
        """End soon. Returns at once."""
        self._watch.stop()
        if self._election:
            self._election.stop()

    @property
    def is_leader(self) -> bool:
        """Whether this source reports hosts: it leads, or takes part in no election."""
        return self._election is None or self._election.is_leader

    def is_alive(self) -> bool:
        """Whether the election has not ended yet."""
        return self._election is not None and self._election.is_alive()


class ProbeAnswer(t.NamedTuple):
    """:arg answers: whether something answered, also with a refusal.

    :arg says: why nothing did.
    """

    answers: bool
    says: str = ""


async def probe_port(address: str, port: int) -> ProbeAnswer:
    """Try to connect to a port. Of a name with several addresses, all are tried at the same time, and one that answers suffices."""
    try:
        found = await _resolve(address, port)
    except TimeoutError:
        return ProbeAnswer(False, _NO_ANSWER.format(_PROBE_TIMEOUT_SECONDS))
    except OSError as error:
        return ProbeAnswer(False, error.strerror or str(error))
    answers = await asyncio.gather(*(_probe_address(family, where) for family, _type, _protocol, _name, where in found))
    return next((answer for answer in answers if answer.answers), answers[0])


async def _resolve(address: str, port: int) -> list[t.Any]:
    """Return the addresses of a name. An IP address does not wait for a thread: names that DNS does not answer may have taken all of them."""
    try:
        return socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        asked = asyncio.get_running_loop().getaddrinfo(address, port, type=socket.SOCK_STREAM)
        return await asyncio.wait_for(asked, _PROBE_TIMEOUT_SECONDS)


async def _probe_address(family: int, where: t.Any) -> ProbeAnswer:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as attempt:
            attempt.setblocking(False)
            await _connect(attempt, where)
    except (ConnectionRefusedError, ConnectionResetError):
        return ProbeAnswer(True)
    except TimeoutError:
        return ProbeAnswer(False, _NO_ANSWER.format(_PROBE_TIMEOUT_SECONDS))
    except OSError as error:
        return ProbeAnswer(False, error.strerror or str(error))
    return ProbeAnswer(True)


async def _connect(attempt: socket.socket, where: t.Any) -> None:
    """Raises C(OSError), which is C(ConnectionRefusedError) also if a firewall of that machine has rejected the attempt in another way."""
    keep_errors(attempt)
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(attempt, where), _PROBE_TIMEOUT_SECONDS)
    except OSError as error:
        if is_rejected_by(attempt, where[0]):
            raise ConnectionRefusedError(error.errno, error.strerror) from error
        raise
