# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks of migration_abort, migration_force_complete and host, over a real ledger, both halves' own code and fake hosts."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import host, migration_abort, migration_force_complete
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Aborted, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.follow import Follower
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.foreign import ForcingOrder
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import MIGRATE_ACT, Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import limits_of, terms_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.settle import Settlement
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import admission, follow, interventions, job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import ForcingInStep, journal_of, order_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import HOSTS, Control

ACTIONS: t.Any = {"migration_abort": migration_abort, "migration_force_complete": migration_force_complete, "host": host}
RUNNING = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING)
TO_2 = "qemu+tcp://kvm2/system"

# A ledger that does not answer.
LOST = "etcd://lost:2379/kvmfleet"

Result = t.Dict[str, t.Any]


def _lose() -> t.NoReturn:
    raise Unreachable("etcd at lost:2379 did not answer.")


class WatcherInStep:
    """A watcher that acts at each step of the fake clock, with the watcher's own code: it follows one job and settles it."""

    def __init__(self, desk: Desk, journal: Journal) -> None:
        self.desk, self.journal = desk, journal
        order = order_of(journal.record)
        clock = desk.fleet.clock
        self.follower = Follower(lambda: desk.fleet.open(LOCAL_URI), UUID, journal, limits_of(order), terms_of(order), clock)
        self.is_acting = False
        clock.every_step(lambda seconds: self.act())

    def act(self) -> None:
        if self.is_acting or self.journal.record.status in s.FINAL:
            return
        self.is_acting = True
        try:
            if not self.follower.poll_job():
                opened = [lambda seconds, uri=uri: self.desk.fleet.open(uri) for uri in (LOCAL_URI, TO_2)]
                error = Aborted("the job was aborted") if self.journal.record.is_aborting else None
                Settlement(opened[0], opened[1], self.journal, lambda: None, self.desk.fleet.clock, lambda seconds: None).settle_move(error, 1)
                self.follower.close()
        finally:
            self.is_acting = False


class EarlyProcessInStep(intervene.EarlyProcess):
    """Starts watchers for real; what forces a foreign job acts at each step of the fake clock."""

    def __init__(self, desk: Desk, *given: t.Any) -> None:
        super().__init__(*given)
        self._desk = desk

    def start_forcing(self, order: ForcingOrder) -> Result:
        ForcingInStep(order, self._desk.fleet, self._desk.folder)
        return {}


class Desk:
    """A control node whose tasks run on kvm1, where the guest is."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.control = Control(folder)
        self.control.fleet.link_mib = 100
        self.fleet = self.control.fleet
        self.folder = folder / "run-kvm1"
        self.folder.chmod(0o700)
        self.where = str(folder / "ledger")
        self.variables: Result = {}
        self.ledger_id: t.Optional[str] = None
        self.phases: t.List[str] = []
        self.works: t.List[Result] = []
        self.before_phase: t.Callable[[str], None] = lambda phase: None
        self.guest = self.fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)
        monkeypatch.setattr(intervene, "open_host", self.fleet.open)
        monkeypatch.setattr(intervene, "EarlyProcess", lambda *given: EarlyProcessInStep(self, *given))
        monkeypatch.setattr(intervene, "require_root", lambda: None)
        monkeypatch.setattr(intervene, "read_host_id", lambda: None)
        monkeypatch.setattr(intervene, "time", types.SimpleNamespace(monotonic=self.fleet.clock, sleep=self.fleet.clock.sleep))
        monkeypatch.setattr(SourceHost, "poll_states", lambda source, *given: self.control.source.poll_states(*given))
        monkeypatch.setattr(follow, "POLL_SECONDS", 0)
        monkeypatch.setattr(admission, "ASK_SECONDS", 0)
        monkeypatch.setattr(interventions, "POLL_SECONDS", 0)
        monkeypatch.setattr(job, "OWNER_LAG_SECONDS", 0.0)
        open_ledger = interventions.open_ledger
        monkeypatch.setattr(interventions, "open_ledger", lambda *given, **named: _lose() if given[0] == LOST else open_ledger(*given, **named))

    # -- tasks -----------------------------------------------------------------------------------------------------

    def task(self, module: str = "migration_abort", check: bool = False, on: str = "kvm1", **args: t.Any) -> Result:
        """Run a task to its result."""
        plugin = ACTIONS[module].ActionModule
        action = plugin.__new__(plugin)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=check, diff=True, delegate_to=None, no_log=False)
        action._execute_module = self._execute
        self.action = action
        others = {host: {"kvmfleet_transport": "tcp"} for host in HOSTS if host != on}
        variables = task_vars(on, {"kvmfleet_ledger": self.where, "kvmfleet_transport": "tcp", **self.variables}, others)
        variables["groups"]["kvmfleet_hosts"] = list(HOSTS)
        return t.cast(Result, action.run_with_options(variables))

    def abort(self, **args: t.Any) -> Result:
        return self.task("migration_abort", **{"name": "web1", **args})

    def force(self, **args: t.Any) -> Result:
        return self.task("migration_force_complete", **{"name": "web1", **args})

    def _execute(self, module_name: str, module_args: Result, task_vars: Result) -> Result:
        work = json.loads(json.dumps(module_args["_work"]))
        phase = work.pop("phase")
        self.phases.append(phase)
        self.works.append(work)
        self.before_phase(phase)
        try:
            result = self._run(module_name.rpartition(".")[2], phase, module_args["uri"], work)
        except KvmfleetError as error:
            result = {"failed": True, **error.as_result()}
        return t.cast(Result, json.loads(json.dumps(result)))

    def _run(self, module: str, phase: str, uri: str, work: Result) -> t.Any:
        if module == "live_migrate":
            return self.control.source.run_phase(phase, work)
        if module == "host" and phase == "read":
            return {"identity": {"host_id": None, "machine_id": "m1", "host_uuid": None, "ledger_id": self.ledger_id}, "libvirt_error": None}
        if module == "host":
            return {"told": None}
        return intervene.PHASES[phase](uri, work, str(self.folder))

    # -- what is in progress -----------------------------------------------------------------------------------------

    def open_record(self, *steps: str, to: str = "kvm2", source: t.Optional[HostRef] = None, kind: str = s.LIVE_MIGRATION, **policy: t.Any) -> MoveRecord:
        """Write the record of an earlier task, brought on by these steps."""
        machines = self.fleet.machines
        fields = {name: {"value": value, "source": "task"} for name, value in policy.items()}
        ends = (source or HostRef("kvm1", None, machines["kvm1"].host_uuid), HostRef(to, None, machines[to].host_uuid))
        record = new_record(kind, DomainRef(UUID, "web1"), *ends, fields, "bob@control pid 1", {"memory_mib": 1024})
        stored = self.control.ledger.open_record(dataclasses.replace(record, ledger_id=self.control.ledger.ledger_id))
        for step in steps:
            if step == s.RUNNING:
                stored = self.control.ledger.update_record(stored, stored.record.intend(MIGRATE_ACT))
            stored = self.control.ledger.update_record(stored, stored.record.advance(step, "bob@control pid 1"))
        return stored.record

    def move(self, *flags: str, **policy: t.Any) -> MoveRecord:
        """Bring a move of ours to where it is running, with a watcher and nobody who follows it."""
        record = self.open_record(*RUNNING, **policy)
        self.watch(record)
        self.begin(*flags)
        return record

    def watch(self, record: MoveRecord) -> Journal:
        """Let this process be the watcher of a move; it follows the job of one that is running."""
        journal = journal_of(record, self.folder)
        journal.write_state()
        if record.status == s.RUNNING:
            WatcherInStep(self, journal)
        return journal

    def leave_state(self, record: MoveRecord) -> None:
        """Leave the state file of a watcher that has ended."""
        Journal(record, None, str(self.folder)).write_state()

    def begin(self, *flags: str) -> t.Any:
        """Begin a job; without a watcher it is that of another tool."""
        migration = self.fleet.begin_elsewhere(UUID, *flags)
        self.fleet.clock.sleep(1)
        return migration

    @property
    def acts(self) -> t.List[str]:
        """What was done to the guest and its job on the source, apart from the steps of the downtime."""
        return [call for call in self.fleet.source.calls if not call.startswith("set_max_downtime_ms")]

    # -- what is left ------------------------------------------------------------------------------------------------

    def record(self) -> MoveRecord:
        """The only record of the ledger."""
        (record,) = self.control.records()
        return record

    def ended(self, record_id: t.Optional[str] = None) -> t.Tuple[str, t.Optional[str]]:
        record = self.control.ledger.read_record(record_id).record if record_id else self.record()
        return record.status, record.reason

    def writers(self, event: str) -> t.List[t.Optional[str]]:
        """Who wrote these lines of the only record."""
        return [line.writer for line in self.record().history if line.status == event]

    def audit(self) -> t.List[Result]:
        """The lines of the audit, oldest first."""
        texts = [path.read_text() for path in sorted(pathlib.Path(self.where).rglob("audit*")) if path.is_file()]
        lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if "to" in line]
