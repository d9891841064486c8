# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file ledger with very many closed records: what is asked and written while moves go on, what is asked of the past, and memory."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.bench import etcd_drain, ledgers
from ansible_collections.kvmfleet.migration.bench.figures import Effort, Figure, Section
from ansible_collections.kvmfleet.migration.bench.timing import Series, in_turn, seconds_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, read_term

OPEN = 20
CALLS = 20
LOOKUP = "kvmfleet.migration.ledger"
_PEAK = """
import re, sys
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
path, domain = sys.argv[1:]
for record in FileLedger(path).list_records(**({"unsettled_only": True} if domain == "-" else {"domain": domain})):
    pass
print(re.search(r"VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1])
"""


_TRANSITION = (
    "A transition is the mean of the six writes of one move, from opening its record to closing it, each with audit and journal. The bare cost is that "
    "of replacing one file durably (write, fsync, rename, fsync of the folder)."
)
_LOOKUP = (
    "The lookup is measured as whole processes: an ad-hoc `ansible` command that counts the records of the month, minus the same command for a month "
    "without records. Nearly all of this time is spent on the checksums and the JSON of the records."
)
_MEMORY = "Memory is the peak of a separate process that imports the ledger, queries it once and keeps nothing. Ansible keeps the result of a lookup."

_ETCD = (
    "A change of etcd is one transaction that its members commit to their disks. The seven of a move: its record is opened, the lock of the destination is "
    "taken and given back, and the record becomes scheduled, queued, running and completed; preparing is an eighth if a poll sees it. Under limits, preparing "
    "is always written, because it is the admission, and the lock of the turns is taken and given back for each round of admissions: half a change here, where "
    "four moves are admitted at once. The index, the audit and the document of the domain are part of the transactions of the record. Moves are simulated."
)


def run(effort: Effort) -> Section:
    """Measure a ledger with 100,000 closed records beside one with 1,000."""
    section = Section("The file ledger")
    with tempfile.TemporaryDirectory() as folder:
        many = ledgers.Filled(pathlib.Path(folder, "many"), effort.size(100_000, 500), OPEN)
        few = ledgers.Filled(pathlib.Path(folder, "few"), effort.size(1_000, 50), OPEN)
        # What is still to be written to the disk would be waited for by the first fsync that is measured.
        os.sync()
        section.figures += [_open_query(many, few, effort), _transition(many, effort), _month(many, effort)]
        section.figures += [*_past(many, effort), *_memory(many, few, effort), *_etcd(pathlib.Path(folder), effort)]
    section.notes += [
        f"Records have {many.record_bytes} bytes, like those of real moves; {many.months} months, {OPEN} unsettled ones. The disk's cache holds them.",
        _TRANSITION,
        _LOOKUP,
        _MEMORY,
        _ETCD,
    ]
    return section


def _open_query(many: ledgers.Filled, few: ledgers.Filled, effort: Effort) -> Figure:
    found = in_turn({"many": lambda: _each(many.unsettled), "few": lambda: _each(few.unsettled)}, effort.rounds)
    what = f"Query of {OPEN} unsettled records beside {many.closed:,} closed ones (ms)"
    return Figure(what, _ms(found["many"]), f"{_ms(found['few'])} beside {few.closed:,}", 1000 * found["many"].median, 5)


def _each(act: t.Callable[[], t.Any]) -> float:
    return statistics.median(seconds_of(act) for _call in range(CALLS))


def _ms(series: Series) -> str:
    return Series(tuple(1000 * value for value in series.values)).told("ms")


def _transition(many: ledgers.Filled, effort: Effort) -> Figure:
    found = in_turn({"ledger": many.seconds_of_a_transition, "bare": lambda: _each(many.replace_durably)}, effort.rounds)
    over = 1000 * (found["ledger"].median - found["bare"].median)
    return Figure("Transition of a record, fsync included (ms over the bare cost)", _ms(found["ledger"]), f"{_ms(found['bare'])} bare", over, 10)


def _month(many: ledgers.Filled, effort: Effort) -> Figure:
    ledger = FileLedger(str(many.path), create=False)
    since, until = many.month(1)
    asked = {
        "lookup": lambda: _seconds_of_lookup(many, since, until, many.in_month),
        "nothing": lambda: _seconds_of_lookup(many, "2001-01-01", "2001-02-01", 0),
        "store": lambda: seconds_of(lambda: read_term(ledger, "migrations", Conditions(since=since, until=until))),
    }
    found = in_turn(asked, effort.rounds)
    seconds = found["lookup"].median - found["nothing"].median
    what = f"Lookup ledger over a month of {many.in_month:,} records, all of them returned (s)"
    return Figure(what, found["lookup"].told(), f"{found['nothing'].told()} for none, {found['store'].told()} in a process that runs already", seconds, 1)


def _seconds_of_lookup(many: ledgers.Filled, since: str, until: str, expected: int) -> float:
    expression = f"lookup('{LOOKUP}', 'migrations', ledger='{many.path}', since='{since}', until='{until}') | length"
    command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "ansible.builtin.debug", "-a", f"msg='found {{{{ {expression} }}}}'"]
    said: list[str] = []
    seconds = seconds_of(lambda: said.append(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout))
    if not re.search(rf"found {expected}\b", said[0]):
        raise RuntimeError(f"The lookup has not found {expected} records: {said[0]}")
    return seconds


def _past(many: ledgers.Filled, effort: Effort) -> list[Figure]:
    minutes = "What was closed in the last ten minutes, as each booking asks it"
    domain = f"All {many.moves_of_domain} moves of one domain, in {many.closed:,} records (ms)"
    asked: dict[str, dict[str, t.Any]] = {minutes: {"since": many.last_minutes(10), "statuses": ["completed"]}, domain: {"domain": many.domain}}
    found = in_turn({what: functools.partial(many.seconds_of, conditions) for what, conditions in asked.items()}, effort.rounds)
    return [Figure(minutes, _ms(found[minutes])), Figure(domain, _ms(found[domain]), "", 1000 * found[domain].median, 100)]


def _memory(many: ledgers.Filled, few: ledgers.Filled, effort: Effort) -> list[Figure]:
    figures = []
    for what, domain in (("Query of unsettled records", "-"), ("All moves of one domain", many.domain)):
        found = in_turn({name: functools.partial(_peak_mib, ledger.path, domain) for name, ledger in (("many", many), ("few", few))}, effort.rounds)
        ratio = found["many"].median / found["few"].median
        beside = f"{found['few'].told('MiB', 1)} with {few.closed:,}"
        figures.append(Figure(f"{what}: peak memory with {many.closed:,} closed records", found["many"].told("MiB", 1), beside, ratio, 1.1))
    return figures


def _etcd(folder: pathlib.Path, effort: Effort) -> list[Figure]:
    guests = effort.size(24, 4)
    without, under = (etcd_drain.count_changes(folder / name, guests, limits) for name, limits in (("free", False), ("limited", True)))
    what = f"Drain of {guests} guests with the ledger in etcd, window {etcd_drain.WINDOW}: changes of etcd for each move"
    return [Figure(what, f"{without:.1f}", f"{under:.1f} under `limits`")]


def _peak_mib(path: pathlib.Path, domain: str) -> float:
    done = subprocess.run([sys.executable, "-c", _PEAK, str(path), domain], check=True, capture_output=True, text=True, timeout=600)
    return int(done.stdout) / 1024
