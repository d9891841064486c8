# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control node that moves domains cold: a real ledger, the module's own code, fake hosts."""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import cold_migrate_spec, cold_move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import mover as mover_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.run import carry_out_order
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.survey import read_traits
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import ColdOrder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain, SurveyQuestion
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.request import ColdTaskOptions, read_cold_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.run import ColdRun, ColdSettlement
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RunContext
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._cold.pair import Killed
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control, FakeSource


class ColdSource(FakeSource):
    """The source of cold moves. C(die_at) is the call to a host before which the module is killed; calls are counted from each phase C(move) on."""

    die_at: int | None = None

    def run_phase(self, phase: str, work: dict[str, t.Any]) -> dict[str, t.Any]:
        self.phases.append(phase)
        work = json.loads(json.dumps(work))
        if phase == "move" and self.repeats_start:
            self._move(work["orders"])
        result = self._prepare_cold(work["wanted"]) if phase == "prepare" else self._move(work["orders"])
        return t.cast("dict[str, t.Any]", json.loads(json.dumps(result)))

    def _prepare_cold(self, asked: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        found = self._prepare(asked)["survey"]
        host = self.fleet.open(LOCAL_URI)
        questions = [decode(SurveyQuestion, one) for one in asked]
        domains = [decode(SurveyedDomain, one) for one in found["domains"]]
        traits = [read_traits(host, domain, question, self.fleet.open) for domain, question in zip(domains, questions, strict=True)]
        return {"survey": {"survey": found, "traits": encode(traits), "at": encode(boot_moment())}}

    def _move(self, orders: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        calls = iter(range(1, 10_000))

        def count(_machine: t.Any, _call: str) -> None:
            if next(calls) == self.die_at:
                raise Killed

        self.fleet.before_call = count
        try:
            answers = [carry_out_order(LOCAL_URI, decode(ColdOrder, order), self.fleet.open, str(self._folder)) for order in orders]
        except Killed:
            raise Unreachable(f"{self.name} cannot be reached: the connection was closed.") from None
        finally:
            self.fleet.before_call = lambda machine, call: None
        return {"answers": encode(answers)}


class ColdControl(Control):
    """Tasks of C(cold_migrate) against the first of three hosts, which share the folder C(shared)."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        run_folder = folder / "run-kvm1"
        self.source: ColdSource = ColdSource(self.fleet, run_folder, "kvm1")
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.fleet.machines["kvm2"].folders[str(self.shared)] = DirectoryFolder(self.shared)
        apart = folder / "apart"
        apart.mkdir()
        self.fleet.machines["kvm3"].folders[str(self.shared)] = DirectoryFolder(apart)
        monkeypatch.setattr(mover_module, "Quarantine", functools.partial(Quarantine, root=str(folder / "quarantine")))
        monkeypatch.setattr(mover_module, "read_mounts", lambda: [Mount(str(folder), "ext4", "/dev/vda")])
        monkeypatch.setattr(mover_module, "read_host_id", lambda: None)

    def move(self, check: bool = False, **given: t.Any) -> MoveJob:
        """Run a task with one move of web1 to kvm2, unless something else is given."""
        (job,) = self.moves([{"name": "web1", "destination": "kvm2", **given}], check)
        return job

    def moves(self, moves: list[dict[str, t.Any]], check: bool = False) -> list[MoveJob]:
        defaults = {option: spec.get("default") for option, spec in cold_migrate_spec().items()}
        full = [{**dict.fromkeys(cold_move_spec()), **move} for move in moves]
        requests = read_cold_requests(t.cast(ColdTaskOptions, {**defaults, "moves": full}), self.settings, "kvm1")
        context = self._context()
        run = ColdRun(context, self.show)
        try:
            return run.predict_moves(requests) if check else run.run_moves(requests)
        finally:
            self.warnings = context.warnings

    def settlement(self, stored: Stored) -> ColdSettlement:
        return ColdSettlement(self._context(), stored)

    def places(self) -> dict[str, str]:
        return {name: machine.domains[UUID].state for name, machine in self.fleet.machines.items() if UUID in machine.domains}

    def _context(self) -> RunContext:
        return RunContext(self.ledger, self.settings, t.cast(t.Any, self.source), LOCAL_URI, "root@control pid 1")
