# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The moments that a fault scenario can name: which function of the product each is before or after, and of which guest.

Moments C(on the control node) and C(on a host) are functions of ours; those C(of libvirt) are operations of its own hook, each with the guest's name; those
C(of the guest) are states that its source's libvirt tells of, at which nobody is held.
This file is read by the Python of hosts too, so it needs nothing but the standard library.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import typing as t

PACKAGE = "ansible_collections.kvmfleet.migration.plugins"
BEFORE, AFTER = "before", "after"
ITERATIONS = range(1, 7)
FINAL = ("completed", "conflict", "failed", "cancelled", "error")

Arguments = t.Sequence[t.Any]


@dataclasses.dataclass(frozen=True)
class Moment:
    """One point in a function: C(module) below the package, C(function) as C(Class.method) or C(function), C(when) before or after it.

    :arg guest: gives the name of the guest that the call is about, from its arguments.
    :arg happens: says whether this call is the moment.
    """

    name: str
    module: str
    function: str
    when: str
    guest: t.Callable[[Arguments], str]
    happens: t.Callable[[Arguments], bool] = lambda dummy: True

    @property
    def full_module(self) -> str:
        """The module's name as Python imports it."""
        return f"{PACKAGE}.{self.module}"


def slug(moment: str, guest: str) -> str:
    """Return the name of the files that stand for this moment of this guest."""
    return "".join(character if character.isalnum() else "-" for character in moment) + f"@{guest}"


def _of_journal(arguments: Arguments) -> str:
    return str(arguments[0].record.domain.name)


def _of_record(arguments: Arguments) -> str:
    return str(arguments[1].domain.name)


def _of_stored(arguments: Arguments) -> str:
    return str(arguments[1].record.domain.name)


def _of_job(arguments: Arguments) -> str:
    return str(arguments[1].name)


def _of_its_journal(arguments: Arguments) -> str:
    return str(arguments[0]._journal.record.domain.name)


def _of_order(arguments: Arguments) -> str:
    return str(arguments[0].order.name)


def _of_orders(arguments: Arguments) -> str:
    return str(arguments[0][0].record.domain.name)


def _of_plan(arguments: Arguments) -> str:
    return str(arguments[1].name)


def _of_intent(arguments: Arguments) -> str:
    """An intent names a record; the state file of that record names the guest."""
    for path in glob.glob("/run/kvmfleet/*.json"):
        with open(path, encoding="utf-8") as stream:
            state = json.load(stream)
        if state["id"] == arguments[0]["record"]:
            return str(state["domain"]["name"])
    return ""


def _iteration(number: int) -> Moment:
    return Moment(
        f"iteration {number}",
        "module_utils._watcher.journal",
        "Journal.write_figures",
        AFTER,
        _of_journal,
        lambda arguments: arguments[0].record.progress.iteration >= number,
    )


def _act(act: str) -> Moment:
    """An act on the running job: it is in the state file, and libvirt was not asked yet."""
    return Moment(act, "module_utils._watcher.journal", "Journal.intend_act", AFTER, _of_journal, lambda arguments: arguments[1] == act)


_LEDGER = "plugin_utils._ledger.ledger"
_JOURNAL = "module_utils._watcher.journal"

ON_THE_CONTROL_NODE = (
    Moment("before the record", _LEDGER, "Ledger.open_record", BEFORE, _of_record),
    Moment("after the record", _LEDGER, "Ledger.open_record", AFTER, _of_record),
    Moment("while it holds the destination", "plugin_utils._migrate.reserve", "Reservations._write_scheduled", BEFORE, _of_stored),
    Moment("after the booking", "plugin_utils._migrate.reserve", "Reservations._reserve_host", AFTER, _of_stored),
    Moment(
        "before the record is closed",
        "plugin_utils._migrate.job",
        "RecordMirror.write_record",
        BEFORE,
        _of_record,
        lambda arguments: arguments[1].status in FINAL,
    ),
    Moment("after the intent", "plugin_utils._evacuate.reservation", "EvacuationReservation.reserve_host", AFTER, _of_job),
    Moment("before done is written", "plugin_utils._evacuate.starts", "DomainStarter._write_record", BEFORE, _of_job, lambda arguments: arguments[2] == "done"),
)

ON_A_HOST = (
    Moment("orders taken", "module_utils._watcher.run", "watch_moves", BEFORE, _of_orders),
    Moment("watcher started", "module_utils._watcher.mover", "Mover.run", BEFORE, lambda arguments: str(arguments[0].order.name)),
    Moment("before the job", "module_utils._watcher.calls", "MigrateCall.run", BEFORE, lambda arguments: str(arguments[0]._order.name)),
    Moment("job started", _JOURNAL, "Journal.enter_status", AFTER, _of_journal, lambda arguments: arguments[1] == "running"),
    Moment("memory moves", _JOURNAL, "Journal.write_figures", AFTER, _of_journal, lambda arguments: bool(arguments[0].record.progress.memory_processed_bytes)),
    *(_iteration(number) for number in ITERATIONS),
    Moment("post-copy begun", _JOURNAL, "Journal.enter_status", AFTER, _of_journal, lambda arguments: arguments[1] == "running (post-copy)"),
    *(_act(f"force: {rung}") for rung in ("post_copy", "bandwidth", "downtime", "suspend")),
    *(_act(f"abort: {reason}") for reason in ("operator", "timeout", "stalled")),
    *(_act(f"recover: {part}") for part in ("pause", "resume")),
    Moment("intent read", "module_utils._watcher.control_files", "_parse_intent", AFTER, _of_intent),
    Moment("job ended", "module_utils._watcher.settle", "Settlement.settle_move", BEFORE, _of_its_journal),
    Moment(
        "destination connected",
        "module_utils._watcher.settle",
        "Settlement._connect_host",
        AFTER,
        _of_its_journal,
        lambda arguments: arguments[1] == "destination",
    ),
    Moment("before the last word", _JOURNAL, "Journal.advance_status", BEFORE, _of_journal, lambda arguments: arguments[1] in FINAL),
    Moment("after the last word", _JOURNAL, "Journal.advance_status", AFTER, _of_journal, lambda arguments: arguments[1] in FINAL),
    Moment("before it is defined and started", "module_utils._evacuation.restart", "Restart._put_domain", BEFORE, _of_order),
    Moment("after it was defined and started", "module_utils._evacuation.restart", "Restart._put_domain", AFTER, _of_order),
    Moment("before the definition is removed", "module_utils._evacuation.cleanup", "CopyCleaner._undefine_domain", BEFORE, _of_plan),
    Moment("after the definition is removed", "module_utils._evacuation.cleanup", "CopyCleaner._undefine_domain", AFTER, _of_plan),
)

# The operation as libvirt's hook is called with it. While it is held, the daemon holds the guest.
OF_LIBVIRT = {"before QEMU starts": "prepare", "after QEMU has started": "started", "after QEMU has ended": "stopped"}

# The state and its reason. QEMU's monitor is silent until the last pages are sent, so no watcher of ours could be held here.
OF_THE_GUEST = {"switch-over": "paused (migrating)"}

NAMES = frozenset({moment.name for moment in (*ON_THE_CONTROL_NODE, *ON_A_HOST)} | set(OF_LIBVIRT) | set(OF_THE_GUEST))
