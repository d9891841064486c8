# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody on the control node who asks before moving, and what the answers say."""

from __future__ import annotations

import json
import pathlib
import shutil
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS, Control, Outcome, Record, Result, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Settings = dict[str, t.Any]
MIB = 1024**2


class Desk(Control):
    """A control node that keeps variables of hosts beside the inventory."""

    def __init__(self, lab: Lab, folder: pathlib.Path, *inventory: str) -> None:
        super().__init__(lab, folder, *inventory)
        # Ad hoc tasks read the variables of the working directory, too, but the playbooks of a collection only those beside the inventory.
        self.inventory = str(shutil.copy(self.inventory, folder))

    def variables(self, number: int, **variables: t.Any) -> None:
        """Set the variables of a host from now on."""
        folder = self.folder / "host_vars"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.lab.host(number)}.json").write_text(json.dumps(variables), encoding="utf-8")

    def scheduler(self, number: int, **settings: t.Any) -> None:
        """Set C(kvmfleet_scheduler) of a host from now on."""
        self.variables(number, kvmfleet_scheduler=settings)

    def leave_room(self, number: int, mib: int, **settings: t.Any) -> None:
        """Let a host keep so much memory for itself that this much is left."""
        total = self.facts(number)["memory"]["total_bytes"] // MIB
        self.scheduler(number, reserved_memory_mib=total - mib, **settings)

    def check(self, *candidates: int, on: int = 1, options: t.Sequence[str] = (), **arguments: t.Any) -> Outcome:
        """Run C(scheduler_check); without candidates those are the fleet."""
        asked = {"candidates": [self.lab.host(number) for number in candidates]} if candidates else {}
        return self.task(on, "scheduler_check", {**asked, **arguments}, *options)

    def set_policy(self, name: str, on: int = 1, **fields: t.Any) -> Outcome:
        """Run C(domain_policy), which knows no ledger."""
        given = json.dumps({"name": name, **fields})
        done = Running(self.popen(["ansible", "-i", self.inventory, self.lab.host(on), "-m", "kvmfleet.migration.domain_policy", "-a", given])).wait()
        assert done.code == 0, done.text
        return done

    def close(self, number: int, state: str, reason: str) -> None:
        done = self.task(number, "host", {"state": state, "reason": reason})
        assert done.code == 0, done.text

    def drain(self, number: int, **variables: t.Any) -> tuple[int, str]:
        """Run the playbook C(drain) for a host; return its exit code and all that it printed."""
        given = json.dumps({"target": self.lab.host(number), "kvmfleet_ledger": str(self.path), **variables})
        process = self.popen(["ansible-playbook", "-i", self.inventory, "kvmfleet.migration.drain", "-e", given])
        text, dummy = process.communicate(timeout=LIMIT_SECONDS)
        return process.returncode, text

    def forced_moves(self) -> list[Record]:
        """Return what the lookup C(ledger) lists as forced."""
        query = f"{{{{ lookup('kvmfleet.migration.ledger', 'migrations', forced=true, ledger='{self.path}') }}}}"
        done = Running(self.popen(["ansible", "-i", self.inventory, "localhost", "-c", "local", "-m", "ansible.builtin.debug", "-a", f"msg={query}"])).wait()
        return t.cast("list[Record]", done.result["msg"])


def verdict(result: Result, host: str) -> dict[str, t.Any]:
    """Return the one verdict over a host."""
    found = [one for one in result["verdicts"] if one["host"] == host]
    assert len(found) == 1, result
    return t.cast("dict[str, t.Any]", found[0])


def reasons(result: Result, host: str) -> dict[str, str]:
    """Return the reasons for which a host was refused, by filter; several of one filter in one text."""
    texts: dict[str, str] = {}
    for failure in verdict(result, host)["failures"]:
        texts[failure["filter"]] = " ".join(filter(None, [texts.get(failure["filter"]), failure["reason"]]))
    return texts


def check_refused(lab: Lab, control: Desk, done: Outcome, name: str, *told: str) -> None:
    """The move was refused for these reasons, its record says so, and the guest is where it was, untouched."""
    assert done.refused() == "conflict", done.text
    assert done.ended()[0] == "conflict", done.text
    for text in told:
        assert text in done.msg, done.msg
    assert control.records()[-1] == done.record
    check_untouched(lab, name)


def check_untouched(lab: Lab, name: str) -> None:
    """A guest runs on the first host alone, nobody ever began to move it, and its memory lost nothing."""
    assert lab.places(name) == {1: "running"}
    assert lab.state_file(lab.uuid(name)) is None
    assert lab.check(name)["intact"]


def check_moved(lab: Lab, done: Outcome, name: str, to: int) -> None:
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert lab.places(name) == {to: "running"}
    assert lab.check(name)["intact"]
