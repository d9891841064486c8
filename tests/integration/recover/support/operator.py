# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An operator with the collection's playbooks, a ledger, and hosts that go off and come back."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import subprocess
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, Lab
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

LIMIT_SECONDS = 540
BY = "operator"


class Run:
    """A playbook that was run: its exit code, what it printed, and the statistics that it published."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = " ".join(text.split())
        self.stats = self._stats(text)
        self.changed = sum(int(number) for number in re.findall(r"\bchanged=(\d+)", text))

    @staticmethod
    def _stats(text: str) -> dict[str, t.Any]:
        begin = text.find("RUN: ")
        return t.cast("dict[str, t.Any]", json.loads(text[begin + len("RUN: ") :].strip().splitlines()[0])) if begin >= 0 else {}


class Operator(Control):
    """Root on the control node, who runs playbooks of the collection."""

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        super().__init__(lab, folder)
        self.environment["ANSIBLE_SHOW_CUSTOM_STATS"] = "true"

    def begin_playbook(self, name: str, *options: str, **variables: t.Any) -> Running:
        """Start a playbook, and do not wait for its end."""
        return Running(self.popen([*self.playbook_command(name, variables), *options]))

    def playbook(self, name: str, *options: str, **variables: t.Any) -> Run:
        process = self.begin_playbook(name, *options, **variables).process
        try:
            text, dummy = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Run(process.returncode, text)

    def recover(self, number: int, *options: str, **variables: t.Any) -> tuple[Run, dict[str, t.Any]]:
        """Run recover for a host; return the run and the host's own result."""
        name = self.lab.host(number)
        run = self.playbook("recover", *options, target=name, recover_host_timeout_seconds=variables.pop("timeout", 120), **variables)
        assert "recover_host_result" in run.stats, run.text
        check_document("recovery-result.json", run.stats["recover_host_result"], is_strict=False)
        return run, run.stats["recover_host_result"][name]

    def stop_on_drain(self, number: int, name: str) -> None:
        """Give a domain a policy by which a drain shuts it down."""
        done = Running(self.popen(self.ad_hoc_command(number, "domain_policy", {"name": name, "drain": "shutdown"}, ledger=False))).wait()
        assert done.code == 0, done.text

    def drain(self, number: int) -> None:
        run = self.playbook("drain", target=self.lab.host(number))
        assert run.code == 0, run.text

    def protect(self) -> None:
        run = self.playbook("protect", target="kvmfleet_hosts")
        assert run.code == 0, run.text

    def entry(self, number: int) -> dict[str, t.Any]:
        """Return a host's entry in the ledger."""
        found = self.ledger.find_host(name=self.lab.host(number))
        assert found, f"the ledger has no host {number}"
        return found.body

    def origin(self, uuid: str) -> str | None:
        """Return the host that the ledger says a domain was displaced from; none while it is at home."""
        document = self.ledger.read_domain(uuid)
        assert document, f"the ledger has no domain {uuid}"
        protected = document.body["protected"]
        assert isinstance(protected, dict), f"domain {uuid} was never protected"
        return t.cast("str | None", protected["origin"])

    def power_cycle(self, number: int) -> None:
        self.lab("poweroff", self.lab.host(number))
        self.lab("poweron", self.lab.host(number))

    def evacuated(self, name: str, uuid: str, source: int, destination: int) -> str:
        """Write that a domain was evacuated, as C(evacuate) does; return the record's ID."""
        ends = [self.entry(number) for number in (source, destination)]
        places = [HostRef(end["name"], end["host_id"], end["host_uuid"]) for end in ends]
        record = new_record(s.EVACUATION, DomainRef(uuid, name), places[0], places[1], {}, BY)
        stored = self.ledger.open_record(dataclasses.replace(record, wanted_state="running"))
        for status in (s.PRE_MIGRATING, s.DONE):
            stored = self.ledger.update_record(stored, stored.record.advance(status, BY))
        return stored.record.record_id


def lab_task(lab: Lab, verb: str) -> str:
    """Return a task, for a tasks file, that gives the host which the play is about to a verb of the lab."""
    task = {
        "name": f"Give the host to {verb}",
        "ansible.builtin.command": {"argv": [str(COMMAND), "--prefix", lab.prefix, verb, "{{ inventory_hostname }}"]},
        "changed_when": True,
        "delegate_to": "localhost",
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    }
    return f"- {json.dumps(task)}\n"
