# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger of its own in each of the stores, moves to put into it, and child processes that end where a test says."""

from __future__ import annotations

import os
import time
import typing as t
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, FileStore, Store

KVM1 = HostRef("kvm1", "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-0000000000a1")
KVM2 = HostRef("kvm2", "22222222-0000-4000-8000-000000000002", "22222222-0000-4000-8000-0000000000a2")
CHILD_SECONDS = 60


@pytest.fixture
def etcd(member: Cluster) -> EtcdStore:
    """An unused prefix of etcd."""
    return EtcdStore(parse_address(member.location(f"/tests/{uuid.uuid4()}")), EtcdOptions())


@pytest.fixture(params=["file", "etcd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each of the stores, without a ledger."""
    return FileStore(tmp_path / "ledger") if request.param == "file" else request.getfixturevalue("etcd")


@pytest.fixture(params=["to-file", "to-etcd"])
def other_store(request: pytest.FixtureRequest, tmp_path: Path, member: Cluster) -> Store:
    """Each of the stores, at another location, without a ledger."""
    return (
        FileStore(tmp_path / "elsewhere" / "ledger")
        if request.param == "to-file"
        else EtcdStore(parse_address(member.location(f"/tests/{uuid.uuid4()}")), EtcdOptions())
    )


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return store.open()


@pytest.fixture
def new_move() -> Callable[..., MoveRecord]:
    """Make a record: of a domain by name, from kvm1 to kvm2 unless said otherwise."""

    def make(name: str = "web1", domain_uuid: t.Optional[str] = None, record_type: str = s.LIVE_MIGRATION, **ends: HostRef) -> MoveRecord:
        domain = DomainRef(domain_uuid or str(uuid.uuid4()), name)
        return new_record(record_type, domain, ends.get("source", KVM1), ends.get("destination", KVM2), {}, by="root@control pid 1")

    return make


@pytest.fixture
def advance_record() -> Callable[..., Stored]:
    """Return a function that takes a stored record through statuses."""

    def lead(ledger: Ledger, stored: Stored, *statuses: str, by: str = "root@control pid 1") -> Stored:
        for status in statuses:
            record = stored.record.advance(status, by)
            stored = ledger.update_record(stored, record)
        return stored

    return lead


@pytest.fixture
def in_child() -> t.Iterator[Callable[[Callable[[], None]], int]]:
    """Start a function in a child process and return its process id; C(exit_of) waits for it."""
    pids: list[int] = []

    def start(function: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                function()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        _reap(pid)


def _reap(pid: int) -> t.Optional[int]:
    deadline = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < deadline:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


@pytest.fixture
def exit_of() -> Callable[[int], t.Optional[int]]:
    """Wait for a child and return its exit code."""
    return _reap
