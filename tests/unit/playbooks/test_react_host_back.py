# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook react_host_back refuses before it acts, and the variable that says which domains a recovery starts, in real runs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

STATES = {"kvm1": "fenced", "kvm2": "maintenance", "kvm4": "enabled"}
# Ends the role with its first task, which is after the brake.
BAD_START = ("-e", "recover_host_start=some")
NOT_ARMED = "Reactions to events are disarmed"


class Control:
    """A control node whose inventory has kvm1 to kvm4; its ledger does not know kvm3. No host can be reached."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger, self.events = folder, folder / "ledger", folder / "events"
        for number, (name, state) in enumerate(STATES.items()):
            host_id = f"55555555-0000-4000-8000-00000000000{number}"
            entry = {"name": name, "host_id": host_id, "host_uuid": host_id, "state": state, "reason": None}
            open_ledger(str(self.ledger)).put_host(host_entry(entry), None)
        shared = {"kvmfleet_ledger": str(self.ledger), "kvmfleet_events_folder": str(self.events), "ansible_host": "192.0.2.1"}
        hosts: dict[str, t.Any] = {f"kvm{number}": {} for number in range(1, 5)}
        (folder / "inventory.json").write_text(json.dumps({"all": {"children": {"kvmfleet_hosts": {"hosts": hosts, "vars": shared}}}}))
        self.before = self.stored()
        self.more_environment: dict[str, str] = {}

    def stored(self) -> dict[str, bytes]:
        """Return the documents of the ledger but the brake."""
        return {str(path): path.read_bytes() for path in sorted(self.ledger.rglob("*.json")) if path.parent.name != "brake"}

    def slots(self) -> list[tuple[str, str]]:
        """Return the slots of the brake that are taken: the reaction and the host of each."""
        found = open_ledger(str(self.ledger)).read_brake()
        return [(slot.reaction, slot.host) for slot in found.brake.slots] if found else []

    def run(self, playbook: str, *arguments: str) -> tuple[int, str]:
        """Run the playbook; return its exit code, and what it wrote as one line."""
        here = Path(__file__).resolve()
        collections = next(parent.parent for parent in here.parents if parent.name == "ansible_collections")
        env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collections), "HOME": str(self.folder), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000"}
        env.update(self.more_environment)
        argv = [sys.executable, "-m", "ansible", "playbook", "-i", "inventory.json", f"kvmfleet.migration.{playbook}", *arguments]
        done = subprocess.run(argv, env=env, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-e", "source="), "invalid_argument", "The source that was not given is not a host of the inventory. Nothing was done."),
        (("-e", "source=kvm9"), "invalid_argument", "The source kvm9 is not a host of the inventory. Nothing was done."),
        (("-e", "source=kvm1:kvm4"), "invalid_argument", "The source kvm1:kvm4 is not a host of the inventory. Nothing was done."),
        (("--limit", "kvm1"), "invalid_argument", "Set the host that is back, for example -e source=kvm1. Nothing was done."),
        (("-e", "source=kvm3"), "not_found", "kvm3 is not in the ledger."),
        (("-e", "source=kvm1", "-e", "kvmfleet_events_brake_return_hosts=many"), "invalid_argument", "'hosts' must be a whole number, not text."),
        (("-e", "source=kvm1", "-e", "kvmfleet_events_brake_return_hosts=0"), "invalid_argument", "hosts is 0"),
    ],
)
def test_a_reaction_without_one_known_host_does_nothing(control: Control, arguments: tuple[str, ...], code: str, words: str) -> None:
    ended, text = control.run("react_host_back", *arguments)
    assert (ended != 0, f'"error_code": "{code}"' in text, words in text) == (True, True, True), text
    assert (control.slots(), control.stored()) == ([], control.before)


def test_a_host_in_maintenance_is_left_alone_without_a_failure(control: Control) -> None:
    code, text = control.run("react_host_back", "-e", "source=kvm2", *BAD_START)
    assert (code, "kvm2 is in maintenance, so someone is working on it. Nothing was done." in text) == (0, True), text
    assert (control.slots(), control.stored()) == ([], control.before)


@pytest.mark.parametrize("is_private", ["0", "1"])
def test_a_recovery_that_failed_after_it_ended_the_fencing_is_repeated(control: Control, is_private: str) -> None:
    """With recover_host_enable=false the host is in maintenance by then; its guests may still be off. Plays may have no access to the variables of roles."""
    control.more_environment["ANSIBLE_PRIVATE_ROLE_VARS"] = is_private
    reason = yaml.safe_load((COLLECTION / "roles/recover_host/vars/main.yml").read_text())["__recover_host_unfenced_reason"]
    ledger = open_ledger(str(control.ledger))
    found = ledger.find_host(name="kvm2")
    assert found is not None
    ledger.put_host(dataclasses.replace(found.host, reason=reason), found.version)
    code, text = control.run("react_host_back", "-e", "source=kvm2", *BAD_START)
    assert (code != 0, "'some' does not say which domains to start." in text) == (True, True), text
    assert control.slots() == [("return", "kvm2")]


def test_a_returned_host_takes_a_slot_of_the_brake_before_it_is_recovered(control: Control) -> None:
    limit = ("-e", "kvmfleet_events_brake_return_hosts=1", *BAD_START)
    code, text = control.run("react_host_back", "-e", "source=kvm1", *limit)
    assert (code != 0, "'some' does not say which domains to start." in text) == (True, True), text
    assert control.slots() == [("return", "kvm1")]
    code, text = control.run("react_host_back", "-e", "source=kvm4", *limit)
    assert (code != 0, "Nothing was done for kvm4" in text, "does not say" in text) == (True, True, False), text
    # A run that is repeated keeps its slot.
    code, text = control.run("react_host_back", "-e", "source=kvm1", *limit)
    assert ("does not say" in text, control.slots(), control.stored()) == (True, [("return", "kvm1")], control.before), text


def test_disarmed_reactions_recover_no_host(control: Control) -> None:
    control.events.mkdir()
    (control.events / "disarmed").touch()
    code, text = control.run("react_host_back", "-e", "source=kvm1", *BAD_START)
    assert (code != 0, NOT_ARMED in text, "does not say" in text) == (True, True, False), text
    assert (control.slots(), control.stored()) == ([], control.before)


@pytest.mark.parametrize("start", ["as-recorded", ""])
def test_a_recovery_with_an_unknown_value_asks_no_host(control: Control, start: str) -> None:
    code, text = control.run("recover", "-e", "target=kvm1", "-e", f"recover_host_start={start}")
    assert (code != 0, "invalid_argument" in text, "Nothing was changed." in text) == (True, True, True), text
    # Its first task that needs a connection waits for it.
    assert ("Wait until the host can be reached" in text, control.stored()) == (False, control.before)
