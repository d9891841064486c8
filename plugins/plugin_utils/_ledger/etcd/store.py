# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The ledger under a prefix of an etcd cluster, which any number of control nodes share.

Processes get its locks in the order of their requests.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError, TimedOut, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .. import domain_index
from ..contents import LedgerContents
from ..documents import Document
from ..identity import LedgerIdentity, refuse_moved
from ..ledger import Ledger, describe_process
from ..rules import CLOSED, OPEN, DocumentPath, check_lock_key, document_path, refuse_unsettled
from ..selection import PreFilter, Selection, make_selection
from . import transaction
from .chains import chain_names
from .client import Client
from .connection import EtcdAddress, EtcdOptions
from .copying import EtcdContents
from .leases import LeaseReader
from .messages import KeyValue, Message, Overtaken, Refused, TransactionResult, encode_bytes, is_created_at, key_read, nested_read, put_key, range_end
from .quota import describe_shortage
from .reader import DocumentReader, Snapshot, join_path
from .threats import find_file_threats, find_member_threats
from .transaction import BEGIN_KEY, CLOSED_AT, MONTHS, EtcdTransaction, Fence, Writer

# The time after its last renewal when a lock of a dead control node expires.
LOCK_SECONDS = 15
# A wait for a watchdog goes on while members of etcd do not answer, and says so.
LEASE_PATIENCE_SECONDS = 10.0


class Lease:
    """Granted on creation, and kept alive until it is ended. Keys that were written with it end with it.

    Raises L(Unreachable) if this machine has no process left to keep it alive.

    :arg seconds: the time without renewal after which it ends.
    """

    def __init__(self, client: Client, seconds: int) -> None:
        self._client = client
        self._seconds = seconds
        self.id = client.grant_lease(seconds)
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep_alive, args=(client.make_twin(),), name="ledger-lease", daemon=True)
        try:
            self._keeper.start()
        except RuntimeError as error:
            self.end_lease()
            raise Unreachable(f"No lock of the ledger can be kept: {error}.", "Check the number of processes and the free memory of this machine.") from error

    def end_lease(self) -> None:
        """Revoke it. If no member answers, it expires."""
        self._over.set()
        with contextlib.suppress(KvmfleetError, Refused):
            self._client.revoke_lease(self.id)

    def _keep_alive(self, client: Client) -> None:
        client.patience_seconds = self._seconds
        while not self._over.wait(self._seconds / 3):
            # The next write detects a lost lease, because it compares the keys that were written with it.
            with contextlib.suppress(KvmfleetError, Refused, Overtaken):
                client.keep_alive(self.id)


_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.2

QueueState = tuple[t.Optional[KeyValue], t.Optional[KeyValue]]


@contextlib.contextmanager
def hold_lock(client: Client, name: str, timeout_seconds: float) -> Iterator[Fence]:
    """Hold the lock of that name. Raises L(TimedOut), which names its holder, if it is not obtained in time."""
    queue = f"{client.address.prefix}locks/{name}/"
    lease = Lease(client, LOCK_SECONDS)
    try:
        own = _wait_in_queue(client, queue, f"{queue}{lease.id:016x}", lease.id, name, timeout_seconds)
        yield Fence(name, own.key, own.create_revision)
    finally:
        lease.end_lease()


def enter_queue(client: Client, queue: str, key: str, lease: int) -> QueueState:
    """Enter the queue; return the own entry and the first one. The key belongs to this process alone, so this can be sent any number of times."""
    reads = _queue_reads(queue, key)
    try:
        return _queue_state(client.run_transaction([is_created_at(key, 0)], [put_key(key, describe_process(), lease), *reads], reads))
    except Refused:
        # The lease has ended already, and the entry with it.
        return None, None


def read_queue(client: Client, queue: str, key: str) -> QueueState:
    """Return the own entry and the first one."""
    return _queue_state(client.run_transaction([], _queue_reads(queue, key), []))


def _queue_state(done: TransactionResult) -> QueueState:
    own, first = done.found
    return own[0] if own else None, first[0] if first else None


def _wait_in_queue(client: Client, queue: str, key: str, lease: int, name: str, timeout_seconds: float) -> KeyValue:
    """Return the own entry in the queue once it is the first."""
    own, first = enter_queue(client, queue, key, lease)
    deadline, wait = time.monotonic() + timeout_seconds, _FIRST_WAIT_SECONDS
    while own is not None and first is not None and first.key != key:
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"The lock {name} of the ledger {client.address} was held by {first.value.decode('utf-8', 'replace')} for more than {timeout_seconds:g} s; "
                "nothing was changed.",
                f"Wait for the run that holds it and try again; the lock of a control node that died expires within {LOCK_SECONDS} s.",
            )
        time.sleep(wait * random.uniform(0.5, 1))  # noqa: S311  spreads those that wait
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        own, first = read_queue(client, queue, key)
    if own is None or first is None:
        raise Conflict(
            f"The place in the queue for the lock {name} of the ledger {client.address} was lost: this process was suspended for too long.",
            "Run the task again.",
        )
    return own


def _queue_reads(queue: str, key: str) -> list[Message]:
    """Read the own entry, and the first one in the queue."""
    first = {"key": encode_bytes(queue), "range_end": encode_bytes(range_end(queue)), "limit": "1", "sort_order": "ASCEND", "sort_target": "CREATE"}
    return [nested_read(key_read(key)), nested_read(first)]


_T = t.TypeVar("_T")
# How long other processes may repeatedly come first.
CHANGE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1


def _find_paths(snapshot: Snapshot, selection: Selection, begin: str) -> list[DocumentPath]:
    """Return the locations that the index by domain has for the selection, from its first month on."""
    keys = snapshot.each_key(f"{domain_index.FOLDER}/{domain_index.index_key(str(selection.domain))}/", counts=False)
    named = (f"{found.value.decode('utf-8', 'replace')}/{key.rpartition('/')[2]}" for key, found in keys)
    paths = [path for path in map(domain_index.read_entry, named) if path]
    return [path for path in paths if domain_index.month_of(path) >= begin and selection.includes_month(*path[2:4])]


def _closed_path(key: str) -> DocumentPath:
    """Return the location of the closed record that a key names by the time at which it was closed."""
    _folder, closed_at, record_id = key.split("/")
    return document_path((*CLOSED, closed_at[:4], closed_at[5:7]), record_id)


class EtcdLedger(Ledger):
    """:arg create: whether to create a missing ledger; otherwise L(NotFound) is raised.

    :arg moved: whether to open also one that was moved elsewhere; it is read only.
    """

    def __init__(self, address: EtcdAddress, options: EtcdOptions, create: bool = True, moved: bool = False) -> None:
        super().__init__(str(address))
        self._client = Client(address, options)
        self._identity = transaction.ensure_ledger(self._client, create)
        if not moved:
            refuse_moved(self._identity.known, self.name)
        self._writer = Writer(self._client, self._identity)
        self._own = threading.local()

    @property
    def identity(self) -> LedgerIdentity:
        return self._identity.known

    @property
    def _fences(self) -> tuple[Fence, ...]:
        """The locks that this thread holds."""
        return getattr(self._own, "fences", ())

    def open_leases(self) -> LeaseReader:
        """Return a new reader, which other threads do not have to wait for."""
        client = self._client.make_twin()
        client.patience_seconds = LEASE_PATIENCE_SECONDS
        return LeaseReader(client)

    def find_threats(self) -> list[str]:
        found = [*find_member_threats(self._client), *find_file_threats(self._client.options)]
        # A proxy of etcd, or a user with few rights, may get no answer; the ledger itself can be used.
        with contextlib.suppress(KvmfleetError):
            shortage = describe_shortage(self._client.read_size(), self.name)
            found += [shortage] if shortage else []
        return found

    def check_writable(self) -> None:
        # The number of the writer is written.
        self._run_change(lambda _transaction: self._writer.write_unit([], [], self._fences))

    def _open_transaction(self) -> EtcdTransaction:
        return EtcdTransaction(self._client, self._writer, self._fences, self._identity, self.report_problem, self.parsed)

    def _run_reading(self, act: Callable[[EtcdTransaction], _T]) -> _T:
        return self._run_change(act)

    def _run_change(self, act: Callable[[EtcdTransaction], _T]) -> _T:
        deadline, pause = time.monotonic() + CHANGE_SECONDS, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return act(self._open_transaction())
            except Overtaken as error:
                if time.monotonic() >= deadline:
                    raise TimedOut(
                        f"The ledger {self.name} was changed by other processes for {CHANGE_SECONDS:g} s: {error}.", "Run the task again."
                    ) from error
            time.sleep(pause * random.random())  # noqa: S311  spreads those that write
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _select_records(self, selection: Selection) -> Iterator[Document]:
        found = self._run_reading(lambda transaction: list(transaction.read_all(OPEN)))
        yield from (document for document in found if selection.matches(document.record))
        if selection.reads_closed:
            seen = {document.record.id for document in found}
            yield from (document for document in self._read_closed(selection) if document.record.id not in seen and selection.matches(document.record))

    def _read_closed(self, selection: Selection) -> Iterator[Document]:
        """Yield the closed records of the selected months. They never change, so that they need not be read at one revision."""
        folder, snapshot = join_path((*CLOSED, "")), Snapshot(self._client, at_one_revision=False)
        start, end = (f"{folder}{at[:7].replace('-', '/')}/" if at else folder for at in (selection.since, selection.until))
        reader, last = DocumentReader(self._client, snapshot, self.report_problem), range_end(end)
        if selection.domain is not None and (begin := self._read_begin(snapshot)):
            yield from reader.read_paths(_find_paths(snapshot, selection, begin), selection.prefilter)
            last = min(last, f"{folder}{begin}/")
        if start < last:
            yield from reader.read_between(start, last, selection.prefilter)

    def _read_begin(self, snapshot: Snapshot) -> t.Optional[str]:
        found = snapshot.get_key(BEGIN_KEY)
        return domain_index.read_begin(found.value if found else None)

    def list_records_written_after(self, revision: int) -> list[MoveRecord]:
        snapshot, since = Snapshot(self._client, at_one_revision=False), revision + 1
        reader = DocumentReader(self._client, snapshot, self.report_problem)
        # The open records first: one that is closed between the two reads is found by the second.
        found = [document.record for document in reader.read_written(OPEN, since)]
        closed = [_closed_path(key) for key, _found in snapshot.each_key(f"{CLOSED_AT}/", keys_only=True, counts=False, written_since=since)]
        return [*found, *(document.record for document in reader.read_paths(closed, PreFilter()))]

    def list_closed_ids(self) -> set[str]:
        snapshot = Snapshot(self._client, at_one_revision=False)
        return {key.rpartition("/")[2] for key, _found in snapshot.each_key(f"{MONTHS}/", keys_only=True, counts=False)}

    def list_closed_since(self, since: str) -> set[str]:
        start = f"{CLOSED_AT}/{make_selection(since=since).since}"
        snapshot = Snapshot(self._client, at_one_revision=False)
        return {key.rpartition("/")[2] for key, _found in snapshot.each_key(start, range_end(f"{CLOSED_AT}/"), keys_only=True, counts=False)}

    @contextlib.contextmanager
    def hold_lock(self, key: str, timeout_seconds: float = 30) -> Iterator[None]:
        with hold_lock(self._client, check_lock_key(key), timeout_seconds) as fence:
            before = self._fences
            self._own.fences = (*before, fence)
            try:
                yield
            finally:
                self._own.fences = before

    @contextlib.contextmanager
    def open_contents(self) -> Iterator[LedgerContents]:
        yield EtcdContents(self._client, Snapshot(self._client, at_one_revision=False), self._identity)

    def examine_contents(self, act: Callable[[LedgerContents], _T]) -> _T:
        return self._run_reading(lambda _current: act(EtcdContents(self._client, Snapshot(self._client), self._identity)))

    @property
    def chains(self) -> Sequence[str]:
        return list(chain_names())

    def begin_move(self, to: str, by: str) -> None:
        self._run_change(lambda transaction: self._begin_move_in(transaction, self.identity.begin_move(to, by)))

    def _begin_move_in(self, transaction: EtcdTransaction, after: LedgerIdentity) -> None:
        refuse_moved(self.identity, self.name)
        refuse_unsettled(self.name, (document.record for document in transaction.read_all(OPEN)))
        self._write_identity(transaction, after)

    def _replace_identity(self, after: LedgerIdentity) -> None:
        self._run_change(lambda transaction: self._write_identity(transaction, after))

    def _write_identity(self, transaction: EtcdTransaction, after: LedgerIdentity) -> None:
        self._writer.write_unit(transaction.snapshot.unchanged_comparisons(), [put_key(self._identity.key, after.data)], self._fences)
        self._identity = self._identity._replace(known=after)
        self._writer = Writer(self._client, self._identity)
