# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold once everything was settled, asked of every host and of every file."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_for_reading

from . import looks
from .actions import HOSTS
from .model import Violation
from .stage import Stage

# Libvirt clears away what is left of a move that failed.
QUIET_SECONDS = 60
FILLED_SECONDS = 30
_STATES = 'for one in /run/kvmfleet/*.json; do [ -e "$one" ] && cat "$one"; done; true'
# What is written for a moment alone: the last word of a move, and what a run has heard and said, stay for a day.
_LEFT = "find /run/kvmfleet -name '*.new' -o -name '*.intent' 2>/dev/null; true"
_AUTOSTARTED = "virsh -q -c qemu:///system list --all --autostart --name"
_QUARANTINED = 'for one in /var/lib/kvmfleet/quarantine/*.json; do [ -e "$one" ] && cat "$one" && echo; done; true'


class Aftermath:
    """Each check raises L(Violation)."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def check(self) -> int:
        """Check everything; return how many memories were read."""
        self._check_watchers()
        self._check_places()
        self._check_autostart()
        self._check_files()
        self._check_ledger()
        return self._check_memories()

    def defined_on(self, name: str) -> int:
        """Return the one host that has a guest's definition."""
        look = self._stage.watch.look_now()
        found = [number for number, host in look.items() if name in (host.guests or ())]
        if len(found) != 1:
            raise Violation(f"{name} is defined on {found or 'no host'}, and a person cannot tell where to start it", name, found)
        return found[0]

    def _check_watchers(self) -> None:
        watchers: dict[int, list[int]] = {}

        def none_left() -> bool:
            watchers.clear()
            watchers.update({number: pids for number, pids in self._stage.eyes.watchers().items() if pids})
            return not watchers

        if not self._stage.watch.until(none_left, QUIET_SECONDS):
            raise Violation(f"watchers are left: {watchers}", hosts=watchers)

    def _check_places(self) -> None:
        """Each guest runs on one host, has one process in all, and is defined there and nowhere else."""
        wrong: dict[str, str] = {}

        def all_in_place() -> bool:
            look = self._stage.watch.last
            wrong.clear()
            wrong.update({name: found for name in self._stage.model.guests if (found := _misplaced(look, name))})
            return not wrong

        if not self._stage.watch.until(all_in_place, QUIET_SECONDS):
            raise Violation(f"after a settling run: {'; '.join(wrong.values())}", next(iter(wrong)))

    def _check_autostart(self) -> None:
        """A guest that starts with its host goes on doing so, wherever it has gone."""
        kept = {name for number in HOSTS for name in self._stage.sh(number, _AUTOSTARTED).split()}
        lost = sorted(set(self._stage.model.guests) - kept)
        if lost:
            raise Violation(f"{', '.join(lost)} would not start with the host any more", lost[0])

    def _check_files(self) -> None:
        for number in HOSTS:
            left = self._stage.sh(number, _LEFT).split()
            if left:
                raise Violation(f"on host {number} is left: {left}", hosts=[number])
            states = documents(self._stage.sh(number, _STATES))
            open_ones = [f"{state['domain']['name']} is '{state['status']}'" for state in states if state["status"] not in s.FINAL]
            if open_ones:
                raise Violation(f"state files on host {number}: {'; '.join(open_ones)}", hosts=[number])

    # The ledger

    def _check_ledger(self) -> None:
        site = self._stage.site
        broken = site.ledger.verify_audit()
        if broken:
            raise Violation(f"the audit chain does not hold: {broken}")
        ledger = site.ledger
        records = {record.record_id: record for record in ledger.list_records()}
        if ledger.problems:
            raise Violation(f"the ledger has damaged documents: {ledger.problems}")
        self._check_archive(records)
        self._check_hosts()
        self._check_possible_hosts()
        self._check_quarantine(records)

    def _check_archive(self, records: t.Mapping[str, MoveRecord]) -> None:
        """Each record that was ever opened is in the ledger, or in the archive; the audit of a ledger in a folder has all of them."""
        archived = {record.record_id for record in self._stage.read_archive()}
        problems = open_for_reading(str(self._stage.archive)).examine_contents(find_problems).all_problems if archived else []
        if problems:
            raise Violation(f"the archive does not verify: {problems}")
        lines = (json.loads(line) for line in (self._stage.site.path / "audit.jsonl").read_text(encoding="utf-8").splitlines())
        lost = {str(line["id"]) for line in lines if line["id"]} - records.keys() - archived
        if lost:
            raise Violation(f"records are neither in the ledger nor in the archive: {sorted(lost)}")

    def _check_hosts(self) -> None:
        """Every host takes domains again: nothing is open that would keep one out."""
        out = {document.body["name"]: document.body["state"] for document in self._stage.site.ledger.list_hosts() if document.body["state"] != "enabled"}
        if out:
            raise Violation(f"hosts are not enabled after they were recovered: {out}")

    def _check_possible_hosts(self) -> None:
        """Where a guest is, there it may be by the ledger: an evacuation would miss it otherwise."""
        look = self._stage.watch.last
        for name in self._stage.model.guests:
            here = self._stage.lab.host(looks.executing(look, name)[0])
            possible = self._stage.site.possible_hosts(name)
            if here not in possible:
                raise Violation(f"{name} runs on {here}, and by the ledger it may be on {possible} alone", name)

    def _check_quarantine(self, records: t.Mapping[str, MoveRecord]) -> None:
        for number in HOSTS:
            for manifest in documents(self._stage.sh(number, _QUARANTINED)):
                record = records.get(manifest["record"])
                if record is None or record.type != s.EVACUATION or manifest["state"] == "working":
                    raise Violation(f"in quarantine on host {number} without a reason: {manifest}", hosts=[number])

    # Memory

    def _check_memories(self) -> int:
        with_counters = [name for name, guest in self._stage.model.guests.items() if guest.has_counters]
        for name in with_counters:
            self._check_memory(name)
        return len(with_counters)

    def _check_memory(self, name: str) -> None:
        """A guest that was started a moment ago has not filled its memory yet."""
        verdict: dict[str, t.Any] = {}

        def filled() -> bool:
            done = self._stage.lab.try_("check", name)
            if not done.stdout:
                raise Violation(f"the memory of {name} cannot be read: {done.stderr.strip()}", name)
            verdict.update(json.loads(done.stdout))
            return bool(verdict["intact"] or "never filled" not in verdict["problem"])

        self._stage.watch.until(filled, FILLED_SECONDS)
        self._stage.model.judge_memory(name, verdict)


def documents(text: str) -> list[dict[str, t.Any]]:
    """Return the JSON documents that stand one after the other in a text. Raises L(ValueError) where one is torn."""
    found, rest = [], text.strip()
    while rest:
        document, end = json.JSONDecoder().raw_decode(rest)
        found.append(document)
        rest = rest[end:].strip()
    return found


def _misplaced(look: looks.Look, name: str) -> str:
    """Return what is wrong with the places of a guest; empty where nothing is."""
    running, processes = looks.executing(look, name), looks.with_process(look, name)
    defined = [number for number, host in look.items() if name in (host.guests or ())]
    if len(running) == 1 and processes == running and defined == running:
        return ""
    states = {number: host.guests[name].state for number, host in look.items() if host.guests and name in host.guests}
    return f"{name} runs on {running or 'no host'}, has processes on {processes} and is known as {states}"
