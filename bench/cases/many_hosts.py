# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger with very many hosts that see each other's storage: reading the hosts, booking moves, and a protect that changes nothing."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

from ansible_collections.kvmfleet.migration.bench import wide_fleet
from ansible_collections.kvmfleet.migration.bench.figures import Effort, Figure, Section
from ansible_collections.kvmfleet.migration.bench.timing import Series, in_turn, seconds_of

_PEAK = """
import re, sys, time
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
def peak():
    return int(re.search(r"VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1])
ledger, before, begin = FileLedger(sys.argv[1]), peak(), time.monotonic()
entries = list_entries(ledger)
print(time.monotonic() - begin, (peak() - before) / 1024, len(entries))
"""
_FORM = (
    "Each host has tokens in {folders} folders, and sees all tokens of all others. Version 0.1.0 kept in the document of each host what it sees of the "
    "others; now there are documents for this beside it, which only `protect` and moves with block devices read. All files are in the cache of the disk."
)
_BOOKING = (
    "Booked are {moves} moves away from one host, one after the other, as a task does: each destination is judged twice by the ledger, the second time "
    "under its lock, and the record is opened and changed twice, with fsync. The survey of the hosts is not included: it is simulated."
)
_PROTECT = "Of the steps of `protect` on one host, only what the ledger writes is counted. The answers of the host are simulated."


def run(effort: Effort) -> Section:
    """Measure a ledger with 300 hosts."""
    section = Section("A ledger with many hosts")
    size = wide_fleet.Width(effort.size(300, 12), effort.size(20, 3), effort.size(60, 4))
    with tempfile.TemporaryDirectory() as folder:
        fleet = wide_fleet.WideFleet(size, pathlib.Path(folder, "now"), inside=False)
        old = wide_fleet.WideFleet(size, pathlib.Path(folder, "old"), inside=True)
        os.sync()
        section.figures += [*_reading(fleet, old, effort), _booking(fleet, old, effort), _proving(fleet, effort), *_protecting(fleet)]
    section.notes += [_FORM.format(folders=size.folders), _BOOKING.format(moves=size.moves), _PROTECT]
    return section


def _reading(fleet: wide_fleet.WideFleet, old: wide_fleet.WideFleet, effort: Effort) -> list[Figure]:
    found: dict[str, list[tuple[float, float]]] = {"now": [], "old": []}
    for _round in range(effort.rounds):
        for name, one in (("now", fleet), ("old", old)):
            found[name].append(_read_in_process(one))
    seconds = {name: Series(tuple(one[0] for one in values)) for name, values in found.items()}
    mib = {name: Series(tuple(one[1] for one in values)) for name, values in found.items()}
    what = f"{fleet.size.hosts} hosts with {fleet.size.folders} folders each: reading all hosts"
    return [
        Figure(f"{what} (s)", seconds["now"].told(digits=3), f"{seconds['old'].told()} as version 0.1.0 kept them", seconds["now"].median, 0.1),
        Figure(f"{what}, memory (MiB)", mib["now"].told("MiB", 1), f"{mib['old'].told('MiB', 0)} as version 0.1.0 kept them", mib["now"].median, 20),
    ]


def _read_in_process(fleet: wide_fleet.WideFleet) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _PEAK, str(fleet.path)], check=True, capture_output=True, text=True, timeout=600)
    seconds, mib, count = done.stdout.split()
    if int(count) != fleet.size.hosts:
        raise RuntimeError(f"{count} hosts were read, not {fleet.size.hosts}.")
    return float(seconds), float(mib)


def _booking(fleet: wide_fleet.WideFleet, old: wide_fleet.WideFleet, effort: Effort) -> Figure:
    found = in_turn({"now": lambda: fleet.seconds_to_book(fleet.size.moves), "old": lambda: old.seconds_to_book(fleet.size.moves)}, effort.rounds)
    beside = f"{found['old'].told()} with what version 0.1.0 left"
    return Figure(f"Booking of {fleet.size.moves} moves beside {fleet.size.hosts} hosts (s)", found["now"].told(), beside, found["now"].median, 2)


def _proving(fleet: wide_fleet.WideFleet, effort: Effort) -> Figure:
    found = in_turn({"sights": lambda: seconds_of(fleet.list_sights)}, effort.rounds)
    return Figure("Reading who sees the storage of one host (s)", found["sights"].told(digits=3))


def _protecting(fleet: wide_fleet.WideFleet) -> list[Figure]:
    fleet.protect()
    before = fleet.stored_files()
    fleet.protect()
    written = {path: data for path, data in fleet.stored_files().items() if before.get(path) != data}
    largest = max(map(len, written.values()), default=0)
    what = "A protect of one host that changes nothing"
    return [
        Figure(f"{what}: documents that it writes", ", ".join(sorted(path.split("/")[0] for path in written)), "", float(len(written)), 1),
        Figure(f"{what}: size of the largest one (bytes)", str(largest), "", float(largest), 1024),
    ]
