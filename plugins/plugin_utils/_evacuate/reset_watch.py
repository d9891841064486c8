# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Waits until the leases in the ledger's etcd prove that a silent host was reset by its watchdog, and asks them again later. Nothing is changed."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import CANCELLED, CONFLICT, FAILED

from .._ledger.documents import HostEntry
from .._ledger.ledger import Ledger
from .fence_config import VARIABLE, FencingConfig
from .lease_evidence import Proven, TimedReading, Void, Waiting, WatchdogCase, judge_reset, known_until

if t.TYPE_CHECKING:
    from .._ledger.etcd.leases import LeaseReader, SeenLease  # pragma: no cover

_POLL_SECONDS = 1.0
_LINE_SECONDS = 10.0
# How long the wait may last beyond the time that was expected at first, e.g. because other hosts have lost their leases meanwhile.
_GRACE_SECONDS = 60.0
# With these, a move or an evacuation did not bring the domain to its destination.
_NEVER_ARRIVED = frozenset({CONFLICT, FAILED, CANCELLED})
NO_ETCD = "the ledger is a folder, and only a ledger on etcd has leases"


class ResetWatch:
    """The wait for one host, in a thread of its own.

    :arg reader: None for a ledger without leases.
    :arg show: receives a line for people.
    """

    def __init__(
        self,
        config: FencingConfig,
        entry: HostEntry,
        reader: LeaseReader | None,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        poll_seconds: float | None = None,
    ) -> None:
        seen = entry.protected.watchdog or None if entry.protected else None
        self._case = WatchdogCase(config.host, str(entry.host_id), config.watchdog_seconds or 0, seen, 0)
        self._reader = reader
        self._show = show
        self._clock = clock
        self._poll_seconds = poll_seconds or _POLL_SECONDS
        self._readings: list[TimedReading] = []
        self._problem = ""
        self._is_shown = False
        self._over = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "reset-watch")
        self._following: concurrent.futures.Future[Proven | Void] | None = None

    def start(self) -> ResetWatch:
        """Begin to read the leases: other devices of the host may be tried meanwhile."""
        self._following = self._pool.submit(self._follow)
        self._pool.shutdown(wait=False)
        return self

    def wait(self) -> Proven | Void:
        """Return what the leases have shown. From here on, lines say who waits for what."""
        self._is_shown = True
        return t.cast("concurrent.futures.Future[Proven | Void]", self._following).result()

    def cancel(self) -> None:
        """Read no more."""
        self._over.set()

    def _follow(self) -> Proven | Void:
        if self._reader is None:
            return Void(NO_ETCD)
        begun, expected, line_at = self._clock(), 0.0, float("-inf")
        while True:
            verdict = self._read_and_judge(self._reader)
            if not isinstance(verdict, Waiting):
                return verdict
            elapsed = self._clock() - begun
            expected = expected or verdict.seconds
            if elapsed > expected + _GRACE_SECONDS:
                return Void(verdict.why or "the wait has taken too long")
            if self._is_shown and self._clock() - line_at >= _LINE_SECONDS:
                line_at = self._clock()
                self._show(_describe_wait(self._case.host, verdict))
            if self._over.wait(self._poll_seconds):
                return Void("nobody waits for it any more")

    def _read_and_judge(self, reader: LeaseReader) -> Proven | Waiting | Void:
        """Read once. As long as etcd does not answer, the wait goes on: what matters is what its leases show before and after."""
        try:
            if not self._case.members:
                self._case = dataclasses.replace(self._case, members=reader.count_members())
            begun = self._clock()
            reading = reader.read_leases()
            self._readings.append(TimedReading(begun, self._clock(), reading))
        except Unreachable as error:
            return Waiting(0.0, f"etcd does not answer: {error.message}")
        except KvmfleetError as error:
            return Void(f"the leases cannot be read: {error.message}")
        return judge_reset(self._case, self._readings)


def _describe_wait(host: str, verdict: Waiting) -> str:
    """Return who waits for what, and how long at least."""
    why = f" ({verdict.why})" if verdict.why else ""
    return f"Waiting until the watchdog of {host} must have reset it: {verdict.seconds:.0f} s left{why}."


def check_watchdog(config: FencingConfig, entry: HostEntry, has_leases: bool) -> None:
    """Raise L(InvalidArgument) if the watchdog that the inventory names can never be evidence. That the host has none yet is no error.

    :arg has_leases: whether the ledger can have leases.
    """
    where, seconds = f"{VARIABLE} of {config.host}", config.watchdog_seconds or 0
    if not has_leases:
        raise InvalidArgument(f"{where} has watchdog_seconds, but {NO_ETCD}.", "Move the ledger to etcd, or remove watchdog_seconds.")
    seen = entry.protected.watchdog if entry.protected else None
    if seen and seconds < seen.reset_seconds:
        raise InvalidArgument(
            f"{where}: watchdog_seconds is {seconds}, and a watchdog shorter than its reset is no evidence: {seen.device} needs {seen.reset_seconds} s.",
            f"Set watchdog_seconds to {seen.reset_seconds} or more, or shorten the timeout of the device.",
        )


def confirm_reset(evidence: Evidence, config: FencingConfig | None, reader: LeaseReader | None) -> Evidence:
    """Return evidence of a watchdog with a new date, if its host has not renewed its lease since: in no boot.

    Raises L(Unsafe) if it has, or if the inventory no longer names the watchdog; L(Unreachable) if etcd does not answer.
    """
    host = evidence.host
    if config is None or config.host != host or config.watchdog_seconds is None:
        raise Unsafe(f"{host} was reset by its watchdog, but it has no watchdog_seconds in {VARIABLE}.", "Nothing was started.")
    if reader is None:
        raise Unsafe(f"{host} was reset by its watchdog, but its lease cannot be read again: {NO_ETCD}.", "Nothing was started.")
    at = utc_now()
    _read_last_lease(evidence, reader)
    return dataclasses.replace(evidence, at=at)


def _read_last_lease(evidence: Evidence, reader: LeaseReader) -> SeenLease:
    """Return the last lease of the host. Raises L(Unsafe) if it is another one than that of the evidence."""
    host, found = evidence.host, reader.read_leases().leases.get(str(evidence.host_id))
    if found is None:
        raise Unsafe(f"The lease of {host} was removed from etcd, so it is not known whether it is on again.", "Nothing more is started. Run the task again.")
    if found.revision != evidence.lease_revision:
        since = f"its lease of boot {found.lease.boot_id} was renewed since"
        raise Unsafe(f"{host} was reset by its watchdog at {evidence.at}, and is on again: {since}.", f"Nothing more is started. Drain {host}, or fence it.")
    return found


def find_late_arrivals(evidence: Evidence, ledger: Ledger) -> frozenset[str]:
    """Return the UUIDs of the domains that may have come to the host after its last renewal, and therefore after the reset.

    A boot that never has its lease is not reset and renews nothing. The reset proves the end of what ran before it, and of nothing else.

    :arg evidence: of the watchdog of the host.
    :raises Unsafe: the host has renewed its lease since, or what the evidence was based on was withdrawn.
    """
    last, host = check_not_withdrawn(evidence, ledger), HostRef(evidence.host, evidence.host_id, None)
    written = ledger.list_records_written_after(known_until(last))
    return frozenset(record.domain.uuid.lower() for record in written if record.status not in _NEVER_ARRIVED and record.destination.may_be(host))


def check_not_withdrawn(evidence: Evidence, ledger: Ledger) -> SeenLease:
    """Return the last lease of a host that its watchdog has reset.

    Raises L(Unsafe) if it was renewed since, or if the ledger no longer has what C(protect) saw of the watchdog in the boot of that lease.
    """
    reader = ledger.open_leases()
    if reader is None:
        raise Unsafe(f"{evidence.host} was reset by its watchdog, but its lease cannot be read again: {NO_ETCD}.", "Nothing was started.")
    last, found = _read_last_lease(evidence, reader), ledger.read_host(str(evidence.host_id))
    seen = found.host.protected.watchdog if found and found.host.protected else None
    if not seen or seen.boot_id != last.lease.boot_id:
        raise Unsafe(
            f"{evidence.host} was reset by its watchdog, but what the ledger had of that watchdog was withdrawn since: {evidence.host} was released, or its"
            " watchdog unbound.",
            f"Nothing more is started. Find out whether {evidence.host} is on, and run the task again.",
        )
    return last
