# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulates many control processes over one ledger: in a folder, and in etcd. Prints rates and latencies; fails where anything was lost or given twice."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

from ansible_collections.kvmfleet.migration.tests.simulator.crowd.page import written
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.run import simulate
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import Size

KINDS = ("file", "etcd", "etcd-users")
SHOWN = 20


def main() -> int:
    given = _arguments()
    size = Size(given.processes, given.hosts, given.hosts * 4, 8, max(4, given.hosts // 10), given.tasks, given.moves, _limits(given.processes), given.seconds)
    runs = []
    for kind in given.ledger:
        with tempfile.TemporaryDirectory(prefix="kvmfleet-crowd-") as folder:
            runs.append(simulate(size, kind, pathlib.Path(folder), given.members))
        print(runs[-1].summary(), flush=True)
        for row in runs[-1].rows():
            print("  {:<20} {:>7} times  median {:>6} ms  p99 {:>6} ms  longest {:>6} ms".format(*row))
        for what, count in runs[-1].errors().most_common():
            print(f"  {count} moves ended with {what}")
        for sentence in runs[-1].wrong[:SHOWN]:
            print(f"  WRONG: {sentence}")
    if given.page:
        given.page.write_text(written(given.page.read_text(encoding="utf-8"), size, runs), encoding="utf-8")
    return 1 if any(run.wrong for run in runs) else 0


def _limits(processes: int) -> dict[str, int]:
    """Return limits that are reached all the time."""
    return {"moves_in": 2, "moves_out": 2, "moves_total": max(2, 2 * processes)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="crowd", description=__doc__)
    parser.add_argument("--ledger", choices=KINDS, action="append", help="one of several; by default all")
    parser.add_argument("--processes", type=int, default=50, help="control processes (50)")
    parser.add_argument("--hosts", type=int, default=1000, help="simulated hosts, with four guests each (1000)")
    parser.add_argument("--tasks", type=int, default=5, help="tasks of each process (5)")
    parser.add_argument("--moves", type=int, default=4, help="moves of a task at most (4)")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a move lasts (0.5)")
    parser.add_argument("--members", type=int, default=3, help="of etcd (3)")
    parser.add_argument("--page", type=pathlib.Path, help="the page whose table is written anew")
    given = parser.parse_args()
    given.ledger = given.ledger or list(KINDS)
    return given


if __name__ == "__main__":
    sys.exit(main())
