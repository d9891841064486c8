# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody on the control node who also aborts, forces and lists moves; and what records say of it."""

from __future__ import annotations

import getpass
import json
import socket
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

# What a busy machine adds to a pause: it has less time for the last pages than it had when the pause was predicted.
BUSY_MS = 5000
# How long an abort or a force is waited for.
WAIT_SECONDS = 300


class Session(Control):
    """A control node whose tasks act on the first host, where all guests of these scenarios begin."""

    @property
    def person(self) -> str:
        """User and host of this control node, as records name them."""
        return f"{getpass.getuser()}@{socket.gethostname()}"

    def begin_act(self, module: str, name: str, *options: str, **arguments: t.Any) -> Running:
        """Begin C(migration_abort), C(migration_force_complete) or C(migration_info), which knows no ledger."""
        ledger = {} if module == "migration_info" else {"ledger": self.where}
        given = json.dumps({**ledger, **({"name": name} if name else {}), **arguments})
        command = ["ansible", "-i", self.inventory, self.lab.host(1), "-m", f"kvmfleet.migration.{module}", "-a", given, *options]
        return Running(self.popen(command))

    def abort(self, name: str, *options: str, **arguments: t.Any) -> Outcome:
        return self.begin_act("migration_abort", name, *options, **{"wait_seconds": WAIT_SECONDS, **arguments}).wait()

    def force(self, name: str, *options: str, **arguments: t.Any) -> Outcome:
        return self.begin_act("migration_force_complete", name, *options, **{"wait_seconds": WAIT_SECONDS, **arguments}).wait()

    def settle(self, record_id: str, status: str, *options: str) -> Outcome:
        """Settle a record on the first host, as a person does."""
        return self.task(1, "host", {"settle": {"id": record_id, "status": status}, "reason": "seen on its console"}, *options)

    def in_progress(self, name: str) -> list[Record]:
        return self.begin_act("migration_info", name).wait().records


def acts(record: Record) -> list[str]:
    return [entry["act"] for entry in record["acts"]]


def writers(record: Record, event: str) -> list[str]:
    """Return who wrote the lines of that event or status."""
    return [line["by"] for line in record["history"] if line["status"] == event]


def course(record: Record) -> list[str]:
    """Return statuses and events of the history, in their order."""
    return [line["status"] for line in record["history"]]


def check_completed(lab: Lab, control: Session, done: Outcome, name: str, to: int = 2) -> None:
    """The guest runs at its destination alone, and result and ledger say so."""
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert done.record["progress"]["percent"] == 100
    assert lab.places(name) == {to: "running"}
    assert control.only_record() == done.record


def check_stayed(lab: Lab, control: Session, done: Outcome, name: str, ended: tuple[str, str | None], error_code: str) -> None:
    """The guest runs on its source alone, without a job, and result and ledger say so."""
    assert (done.refused(), done.ended()) == (error_code, ended), done.text
    assert lab.places(name) == {1: "running"}
    assert not lab.has_job(name)
    assert control.only_record() == done.record


def check_pause(record: Record, limit_ms: int, factor: int = 2) -> None:
    """The pause was short, and as predicted within that factor; a busy machine adds its own to short ones."""
    result = record["result"]
    predicted, lived = result["predicted_downtime_ms"], result["downtime_ms"]
    print(f"pause: predicted {predicted} ms, was {lived} ms, by {result['rung']}")
    assert 0 < lived < limit_ms
    assert lived <= factor * predicted + BUSY_MS
    assert predicted <= factor * lived + BUSY_MS
