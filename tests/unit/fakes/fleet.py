# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fake hosts under one fake clock, and the migrations between them."""

from __future__ import annotations

import threading
import time
import typing as t
import urllib.parse

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    InvalidState,
    KvmfleetError,
    MigrationFailed,
    NotSupported,
    Unreachable,
    Unsafe,
)

from .clock import FakeClock
from .domain import MIB, FakeDomain
from .host import FakeHost
from .machine import FakeMachine
from .migration import FakeMigration

LOCAL_URI = "qemu:///system"
UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"
CALL_THREAD = "migrate-"
_REAL_SECONDS = 120.0

Hook = t.Callable[[FakeMachine, str], None]


class FakeFleet:
    """Hosts C(kvm1), C(kvm2) … by name; C(qemu:///system) is the first of them.

    :arg link_mib: what a migration may carry a second.
    """

    def __init__(self, *names: str, link_mib: int = 1024) -> None:
        self.clock = FakeClock()
        self.machines = {name: FakeMachine(name) for name in names or ("kvm1", "kvm2")}
        self.link_mib = link_mib
        self.migrations: t.List[FakeMigration] = []
        self.given_parameters: t.List[t.Dict[str, t.Any]] = []
        self.connections: t.List[FakeHost] = []
        self.before_call: Hook = lambda machine, call: None
        self.on_begin: t.Callable[[FakeMigration], None] = lambda migration: None
        self.refuse_to_migrate: t.Optional[KvmfleetError] = None
        self.clock.every_step(self._step)
        self.clock.settle = self._settle

    @property
    def source(self) -> FakeMachine:
        return next(iter(self.machines.values()))

    @property
    def destination(self) -> FakeMachine:
        return list(self.machines.values())[1]

    def guest(self, name: str = "web1", uuid: str = UUID, on: t.Optional[str] = None, **how: t.Any) -> FakeDomain:
        """Put a domain on a host, the first one unless named."""
        return (self.machines[on] if on else self.source).put(FakeDomain(uuid, name, **how))

    def open(self, uri: str, timeout_seconds: t.Optional[float] = None) -> FakeHost:
        """Connect to a host. Raises L(Unreachable)."""
        machine = self.machine_of(uri)
        if not machine.answers:
            raise Unreachable(f"libvirt at {uri} did not answer.")
        host = FakeHost(self, machine, uri)
        self.connections.append(host)
        return host

    def machine_of(self, uri: str) -> FakeMachine:
        name = urllib.parse.urlsplit(uri).hostname
        if name is None:
            return self.source
        if name not in self.machines:
            raise Unreachable(f"libvirt at {uri} did not answer: no such host.")
        return self.machines[name]

    def migration_from(self, machine: FakeMachine, uuid: str) -> t.Optional[FakeMigration]:
        """Return the outgoing migration of that domain that is under way."""
        return next((one for one in self.migrations if one.uuid == uuid and one.source is machine and not one.is_over), None)

    def begin(
        self, source: FakeMachine, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: t.Optional[t.Mapping[str, t.Any]] = None
    ) -> FakeMigration:
        """Start a migration as libvirt would, or refuse it as libvirt would."""
        with self.clock.lock:
            domain = source.domain(uuid)
            if self.refuse_to_migrate is not None:
                raise self.refuse_to_migrate
            if not domain.active:
                raise InvalidState(f"Failed to move domain {uuid}: it is not running.")
            if "POSTCOPY_RESUME" in flags:
                return self._resume(source, uuid, destination_uri, flags)
            if domain.job != domain_states.JOB_NONE:
                raise InvalidState(f"Failed to move domain {uuid}: another migration job is already running.")
            destination = self._receiving(destination_uri, uuid)
            if destination is source:
                raise MigrationFailed(f"Failed to move domain {uuid}: attempt to migrate guest to the same host.")
            if domain.unsafe and "UNSAFE" not in flags:
                raise Unsafe(f"Failed to move domain {uuid}: migration without shared storage is unsafe.")
            migration = FakeMigration(source, destination, domain, flags, self.link_mib * MIB, (parameters or {}).get("bandwidth", 0) * MIB)
            migration.definition_there = (parameters or {}).get("destination_xml", migration.definition_there)
            self.migrations.append(migration)
            self.given_parameters.append(dict(parameters or {}))
            self.on_begin(migration)
            return migration

    def begin_elsewhere(self, uuid: str = UUID, *flags: str, bandwidth_mib: int = 0) -> FakeMigration:
        """Start a migration that nobody of ours asked for."""
        given = ["LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE", *flags]
        return self.begin(self.source, uuid, f"qemu+tcp://{self.destination.name}/system", given, {"bandwidth": bandwidth_mib})

    def wait(self, migration: FakeMigration) -> None:
        """Wait for a migration's end. The clock is somebody else's to move; whoever waits in vain has hung the test."""
        if not migration.ended.wait(_REAL_SECONDS):
            raise AssertionError(f"the migration of domain {migration.uuid} never ended")

    def _resume(self, source: FakeMachine, uuid: str, destination_uri: str, flags: t.Sequence[str]) -> FakeMigration:
        if "PEER2PEER" not in flags:
            raise NotSupported(f"Failed to move domain {uuid}: direct migration is not supported by the connection driver.")
        if "POSTCOPY" not in flags:
            raise NotSupported(f"Failed to move domain {uuid}: POSTCOPY_RESUME needs POSTCOPY.")
        migration = self.migration_from(source, uuid)
        if migration is None:
            raise InvalidState(f"Failed to move domain {uuid}: it is not being migrated.")
        try:
            self.open(destination_uri).close()
        except Unreachable as error:
            raise MigrationFailed(error.message) from error
        migration.resume_post_copy(self.link_mib * MIB)
        return migration

    def _receiving(self, uri: str, uuid: str) -> FakeMachine:
        try:
            machine = self.machine_of(uri)
            self.open(uri).close()
        except Unreachable as error:
            raise MigrationFailed(error.message) from error
        there = machine.domains.get(uuid)
        if there is not None and there.active:
            raise MigrationFailed(f"Failed to move domain {uuid}: it already exists at the destination.")
        return machine

    def _step(self, seconds: float) -> None:
        for migration in self.migrations:
            migration.step(seconds)

    def _settle(self) -> None:
        """Let each thread with a migrate call come to where it waits, or to its end: the same steps in every run."""
        limit = time.monotonic() + _REAL_SECONDS
        while any(self._is_busy(thread) for thread in threading.enumerate()):
            if time.monotonic() > limit:
                raise AssertionError("a migrate call neither waits nor ends")
            time.sleep(0.0002)

    def _is_busy(self, thread: threading.Thread) -> bool:
        if not thread.name.startswith(CALL_THREAD) or thread is threading.current_thread():
            return False
        return not any(one.caller is thread and not one.ended.is_set() for one in self.migrations)
