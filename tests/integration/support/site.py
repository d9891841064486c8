# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet with its control node: what operators do when a host is lost, and what the whole fleet looks like afterwards."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import Hooks, disk_of

HOSTS = (1, 2, 3)
IDENTITY = "var-lib-kvmfleet/host-id"
# What the collection leaves on a host's disk; with it gone the host was never protected.
OURS = ("etc-kvmfleet", "etc-systemd-system", "usr-local-lib-kvmfleet", "var-lib-kvmfleet")
PLAY_SECONDS = 540

Fleet = dict[int, set[str]]
# Domain, status, reason, source, destination.
Summary = tuple[str, str, str | None, str, str]


class Site(Control):
    """A fleet of three hosts that are fenced by the lab's agent, unless said otherwise."""

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(lab, folder)
        self.hooks = {number: Hooks(lab, number) for number in HOSTS}
        self._lines = pathlib.Path(self.inventory).read_text()
        self._names = {number: lab.host(number) for number in HOSTS}
        self._variables: dict[int, dict[str, t.Any]] = {number: {} for number in HOSTS}
        self.inventory = str(folder / "inventory")
        self.lab_agent = agents.of_the_lab(folder)
        self._write_inventory()

    def twin(self, folder: pathlib.Path) -> Site:
        """Return the same fleet with a copy of the ledger, for a scenario after which nothing has changed but that copy."""
        other = Site(self.lab, folder)
        other._names, other._variables = dict(self._names), {number: dict(values) for number, values in self._variables.items()}
        other._write_inventory()
        shutil.copytree(self.path, other.path)
        return other

    # The inventory

    def name(self, number: int) -> str:
        return self._names[number]

    def rename(self, number: int, name: str) -> None:
        """Give a host another name, in the inventory and on the host."""
        self.rename_in_inventory(number, name)
        self.lab.on(number, "hostname", name)

    def rename_in_inventory(self, number: int, name: str) -> None:
        self._names[number] = name
        self._write_inventory()

    def swap(self, one: int, other: int) -> None:
        """Give each of two hosts the other's name in the inventory, as when their addresses were confused."""
        self._names[one], self._names[other] = self._names[other], self._names[one]
        self._write_inventory()

    def fencing(self, number: int, config: t.Any) -> None:
        """Say how a host is fenced from now on; None is a host without agent."""
        self.variable(number, "kvmfleet_fencing", config)

    def variable(self, number: int, name: str, value: t.Any) -> None:
        """Give a host a variable of the inventory."""
        self._variables[number][name] = value
        self._write_inventory()

    def variables_of(self, number: int) -> dict[str, t.Any]:
        """Return the variables that were given to a host."""
        return dict(self._variables[number])

    def agent(self, number: int, agent: str, **more: t.Any) -> dict[str, t.Any]:
        """Return a configuration of this agent for a host."""
        options = {"plug": self.lab.host(number), **more.pop("options", {})}
        return {"agent": agent, "options": options, **more}

    def _write_inventory(self) -> None:
        folder = pathlib.Path(self.inventory)
        (folder / "host_vars").mkdir(parents=True, exist_ok=True)
        pieces = {f" {self.lab.host(number)}:\n": f" {name}:\n" for number, name in self._names.items()}
        for number, name in self._names.items():
            variables = {"kvmfleet_fencing": self.agent(number, self.lab_agent), **self._variables[number]}
            (folder / "host_vars" / f"{name}.json").write_text(json.dumps(variables))
        (folder / "hosts.yml").write_text(re.sub("|".join(pieces), lambda found: pieces[found[0]], self._lines))

    # What an operator does

    def playbook(self, name: str, *options: str, **variables: t.Any) -> tuple[int, str]:
        """Run one of the collection's playbooks; return its exit code and all that it printed."""
        process = self.popen([*self.playbook_command(name, variables), *options])
        text, dummy = process.communicate(timeout=PLAY_SECONDS)
        return process.returncode, text

    def protect(self, guard: bool = False) -> None:
        """Protect all hosts."""
        code, text = self.playbook("protect", target="kvmfleet_hosts", protect_host_guard=guard)
        assert code == 0, text

    def changes_by_protecting(self) -> bool:
        """Protect all hosts again; whether that changed anything."""
        dummy, text = self.playbook("protect", target="kvmfleet_hosts", protect_host_guard=False)
        recap = text.partition("PLAY RECAP")[2]
        assert recap, text
        return recap.count("changed=0") != recap.count("changed=")

    def begin_evacuation(self, on: int, source: int = 1, **arguments: t.Any) -> Running:
        return self.begin(on, "evacuate", {"source": self.name(source), **arguments})

    def evacuate(self, on: int, source: int = 1, *options: str, **arguments: t.Any) -> Outcome:
        return self.task(on, "evacuate", {"source": self.name(source), **arguments}, *options)

    def clean(self, host: int = 1, *options: str, **arguments: t.Any) -> Outcome:
        return self.task(host, "evacuation_cleanup", arguments, *options)

    def lose(self, number: int) -> None:
        """Cut a host's power."""
        self.lab("poweroff", self.lab.host(number))

    def bring_back(self, number: int) -> None:
        self.lab("poweron", self.lab.host(number))
        if self.name(number) != self.lab.host(number):
            self.lab.on(number, "hostname", self.name(number))

    # What there is

    def on_disk(self, number: int, path: str) -> pathlib.Path:
        """Return a file of a host's disk as the lab keeps it, whether the host is on or off."""
        return disk_of(self.lab, number) / path

    def identity(self, number: int) -> str:
        return self.on_disk(number, IDENTITY).read_text().strip()

    def evacuation_note(self, uuid: str, number: int) -> Record | None:
        """Return the record by which a host took a domain over last, as it remembers it; none where it did not."""
        note = self.on_disk(number, f"var-lib-kvmfleet/evacuations/{uuid}.json")
        return t.cast("Record", json.loads(note.read_text())) if note.exists() else None

    def fleet(self) -> Fleet:
        """Return the domains that are active, by host that is on and answers; those that are not simply running with their state."""
        rows = self.lab.rows()
        return {number: self._active(rows[self.lab.host(number)]["guests"]) for number in HOSTS if rows[self.lab.host(number)]["libvirtd"]}

    def _active(self, guests: list[dict[str, t.Any]]) -> set[str]:
        active = [guest for guest in guests if guest["state"] != "shut off"]
        return {guest["name"] if guest["state"] == "running" else f"{guest['name']} ({guest['state']})" for guest in active}

    def record_summaries(self) -> list[Summary]:
        """Return the summaries of all records of the ledger, oldest first."""
        return [self._summary(record) for record in self.records()]

    def _summary(self, record: Record) -> Summary:
        return (record["domain"]["name"], record["status"], record["reason"], record["source"]["host"], record["destination"]["host"])

    def line(self, guest: str, status: str, source: int, destination: int, reason: str | None = None) -> Summary:
        """Return a record in the form of L(record_summaries)."""
        return (guest, status, reason, self.name(source), self.name(destination))

    def check_end_state(self, fleet: t.Mapping[int, t.Iterable[str]], *records: Summary) -> None:
        """Assert that the whole fleet runs exactly this, that the ledger has exactly these records, and that its audit chain is valid."""
        active, told = self.fleet(), self.record_summaries()
        assert active == {number: set(names) for number, names in fleet.items()}, active
        assert told == list(records), told
        self.verify_audit()

    def has_definition(self, guest: str, number: int) -> bool:
        """Whether a host has a definition of a domain."""
        return number in self.lab.places(guest)

    def document(self, guest: str) -> dict[str, t.Any]:
        """Return a domain's document in the ledger."""
        found = self.ledger.find_domains(guest)
        assert len(found) == 1, found
        return found[0].body

    def possible_hosts(self, guest: str) -> list[str]:
        return [place["host"] for place in self.document(guest)["possible_hosts"]]

    # The end of a scenario

    def close(self, guests: t.Iterable[str]) -> None:
        """Give every host its power, its cable and its name, and take away guests and all that the collection left."""
        for number in HOSTS:
            self.hooks[number].clear()
            self.lab("heal", self.lab.host(number))
        self.lab("up", "--hosts", str(len(HOSTS)))
        for guest in guests:
            self.lab("rmguest", guest)
        for number in HOSTS:
            self.lab.on(number, "hostname", self.lab.host(number))
            for folder in OURS:
                self._empty(self.on_disk(number, folder))

    @staticmethod
    def _empty(folder: pathlib.Path) -> None:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def evacuations(done: Outcome) -> list[Record]:
    """Return the records that a task of C(evacuate) returned."""
    return t.cast("list[Record]", done.result["evacuations"])
