# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many control processes at once over one ledger, and what has to hold afterwards."""

from __future__ import annotations

import multiprocessing
import pathlib
import pickle
import time

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.control import Control, Log
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.figures import Figures
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.findings import findings
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.stores import Store, audit_lines, store
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size, World


def simulate(size: Size, kind: str, folder: pathlib.Path, members: int) -> Figures:
    """Run it in one kind of store. A process that ends by an error is a finding, too."""
    with store(kind, folder, members) as there:
        world = World(size)
        begin = time.monotonic()
        logs, wrong = _run(world, there, folder)
        seconds = time.monotonic() - begin
        lines = audit_lines(there.location, there.etcd)
        ledger = open_ledger(there.location, there.etcd, create=False)
        return Figures(there.name, seconds, logs, len(lines), [*wrong, *findings(world, ledger, lines, logs)])


def _run(world: World, there: Store, folder: pathlib.Path) -> tuple[list[Log], list[str]]:
    forked = multiprocessing.get_context("fork")
    files = {number: folder / f"log{number}" for number in range(world.size.processes)}
    processes = {number: forked.Process(target=_control, args=(world, number, there, file)) for number, file in files.items()}
    for process in processes.values():
        process.start()
    for process in processes.values():
        process.join()
    wrong = [f"control process {number} ended with {process.exitcode}" for number, process in processes.items() if process.exitcode]
    logs = [pickle.loads(file.read_bytes()) for number, file in files.items() if not processes[number].exitcode]
    return logs, wrong


def _control(world: World, number: int, there: Store, file: pathlib.Path) -> None:
    file.write_bytes(pickle.dumps(Control(world, number, there.location, there.etcd).run()))
