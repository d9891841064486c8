# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two stages for the same cases: fake hosts, and libvirt hosts of a lab."""

from __future__ import annotations

import abc
import contextlib
import functools
import json
import os
import pathlib
import subprocess
import threading
import time
import typing as t
import uuid as uuid_module

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Host
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB, FakeDomain
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import FakeFleet

LAB = pathlib.Path(__file__).resolve().parents[2] / "lab/lab"
PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'contract')}c"[-9:]
SLOWLY = {"bandwidth": 8}
GUEST_MIB = 64
BUSY_MIB = 32


class Call(threading.Thread):
    """A migrate call in the background; C(error) is what it raised."""

    def __init__(self, work: t.Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.error: t.Optional[KvmfleetError] = None

    def run(self) -> None:
        try:
            self._work()
        except KvmfleetError as error:
            self.error = error

    def ends(self) -> t.Optional[KvmfleetError]:
        """Wait for the end and return its error."""
        self.join(40)
        assert not self.is_alive(), "the migrate call has not ended"
        return self.error


class Stage(abc.ABC):
    """Host 1 and host 2, and guests on them."""

    def __init__(self) -> None:
        self._open: t.List[Host] = []

    @abc.abstractmethod
    def connect(self, number: int) -> Host:
        """Open a connection to that host."""

    @abc.abstractmethod
    def uri(self, number: int) -> str:
        """That host's URI, as the other host reaches it."""

    @abc.abstractmethod
    def guest(
        self, state: str = domain_states.RUNNING, on: int = 1, persistent: bool = True, autostart: bool = False, busy: bool = False, unsafe: bool = False
    ) -> str:
        """Put a guest there, and return its name."""

    @abc.abstractmethod
    def restart_daemon(self, number: int) -> None:
        """End that host's libvirt daemon; it is started anew."""

    def host(self, number: int = 1) -> Host:
        """Return a connection to that host that the stage closes."""
        host = self.connect(number)
        self._open.append(host)
        return host

    def uuid(self, name: str, on: int = 1) -> str:
        return self.host(on).find_domain(name=name).uuid

    def migrate(self, uuid: str, persistent: bool = True, to: t.Optional[str] = None, **options: t.Any) -> None:
        """Move that domain from host 1, and wait."""
        parameters = options.pop("parameters", {})
        flags = migration_flags(MoveOptions(**options), persistent, False)
        self.host(1).migrate_domain(uuid, to or self.uri(2), flags, parameters)

    def begin(self, uuid: str) -> Call:
        """Begin a slow migration, and return when memory is on its way."""
        call = Call(functools.partial(self.migrate, uuid, parameters=SLOWLY))
        call.start()
        watched = self.host(1)
        until(lambda: (watched.read_job(uuid) or domain_states.JobStats()).data_processed_bytes > 0 or not call.is_alive())
        assert call.is_alive(), call.error
        return call

    def close(self) -> None:
        for host in self._open:
            host.close()


def until(condition: t.Callable[[], object], seconds: float = 300) -> None:
    """Wait until that holds."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.02)


class FakeStage(Stage):
    """A fake fleet whose clock runs on by itself, faster than ours."""

    def __init__(self) -> None:
        super().__init__()
        self._fleet = FakeFleet("kvm1", "kvm2")
        self._over = threading.Event()
        self._pacer = threading.Thread(target=self._pace, daemon=True)
        self._pacer.start()

    def connect(self, number: int) -> Host:
        return self._fleet.open(self.uri(number))

    def uri(self, number: int) -> str:
        return f"qemu+tcp://kvm{number}/system"

    def guest(
        self, state: str = domain_states.RUNNING, on: int = 1, persistent: bool = True, autostart: bool = False, busy: bool = False, unsafe: bool = False
    ) -> str:
        name = f"g{uuid_module.uuid4().hex[:8]}"
        reason = {domain_states.RUNNING: "booted", domain_states.PAUSED: "user", domain_states.SHUTOFF: "shutdown"}[state]
        domain = FakeDomain(str(uuid_module.uuid4()), name, state, reason, persistent, autostart, GUEST_MIB * MIB, 1, unsafe=unsafe)
        domain.dirty_bytes, domain.dirty_rate_bytes = (BUSY_MIB * MIB, 64 * MIB) if busy else (0, 0)
        self._fleet.machines[f"kvm{on}"].put(domain)
        return name

    def restart_daemon(self, number: int) -> None:
        self._fleet.machines[f"kvm{number}"].go_dark()
        self._fleet.machines[f"kvm{number}"].come_back()

    def close(self) -> None:
        super().close()
        self._over.set()
        self._pacer.join(20)

    def _pace(self) -> None:
        while not self._over.wait(0.005):
            self._fleet.clock.sleep(0.05)


class LabStage(Stage):
    """Two hosts of a lab that is up."""

    def __init__(self, addresses: t.Sequence[str]) -> None:
        super().__init__()
        self._addresses = addresses
        self._guests: t.List[str] = []

    def connect(self, number: int) -> Host:
        return open_host(f"qemu+tcp://{self._addresses[number - 1]}/system", 20)

    def uri(self, number: int) -> str:
        return f"qemu+tcp://{PREFIX}{number}/system"

    def guest(
        self, state: str = domain_states.RUNNING, on: int = 1, persistent: bool = True, autostart: bool = False, busy: bool = False, unsafe: bool = False
    ) -> str:
        name = f"g{uuid_module.uuid4().hex[:8]}"
        switches = {"--paused": state == domain_states.PAUSED, "--off": state == domain_states.SHUTOFF, "--transient": not persistent, "--autostart": autostart}
        options = [switch for switch, is_set in switches.items() if is_set]
        options += ["--dirty-mib", str(BUSY_MIB), "--rate", "8000"] if busy else []
        options += ["--storage", "shared"] if unsafe else []
        self._guests.append(name)
        lab("guest", name, "--host", f"{PREFIX}{on}", "--mib", str(GUEST_MIB), *options)
        return name

    def restart_daemon(self, number: int) -> None:
        lab("libvirtd", f"{PREFIX}{number}", "kill")
        until(lambda: self._answers(number))

    def close(self) -> None:
        super().close()
        for name in self._guests:
            lab("rmguest", name)

    def _answers(self, number: int) -> bool:
        with contextlib.suppress(Unreachable):
            self.connect(number).close()
            return True
        return False


def run_lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(LAB), "--prefix", PREFIX, *arguments], capture_output=True, text=True, timeout=90, check=False)


def lab(*arguments: str) -> str:
    done = run_lab(*arguments)
    assert done.returncode == 0, f"lab {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def lab_addresses() -> t.List[str]:
    return [row["address"] for row in json.loads(lab("status", "--json"))]
