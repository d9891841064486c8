# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks for a host that is gone or isolated refuse before they act, in real runs."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.test_react_host_back import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

UUID = "77777777-0000-4000-8000-000000000001"
SILENT = ("-e", json.dumps({"silent": ["kvm1", "kvm4"]}))


@pytest.fixture
def control(tmp_path: Path) -> Control:
    """A control node in whose ledger a domain may be on kvm4."""
    control = Control(tmp_path)
    host: dict[str, t.Any] = {"host": "kvm4", "host_id": "55555555-0000-4000-8000-000000000002", "host_uuid": None}
    open_ledger(str(control.ledger)).put_domain(domain_entry({"uuid": UUID, "name": "web", "possible_hosts": [host]}), None)
    return control


def incidents(control: Control) -> list[tuple[str, tuple[str, ...]]]:
    found = open_ledger(str(control.ledger)).read_brake()
    return [(incident.kind, incident.hosts) for incident in found.brake.incidents] if found else []


def test_a_host_without_any_evidence_source_is_refused_before_consent_and_brake(control: Control) -> None:
    code, text = control.run(
        "react_host_gone", "-e", "source=kvm4", *SILENT, "-e", json.dumps({"kvmfleet_events_consent": ["touch", str(control.folder / "asked")]})
    )
    assert (code != 0, "armed without any evidence source for kvm4" in text) == (True, True), text
    assert (control.slots(), incidents(control), (control.folder / "asked").exists()) == ([], [], False)


@pytest.mark.parametrize("is_settled", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_domain_that_is_on_its_way_to_the_host_may_be_there(control: Control, is_settled: bool) -> None:
    """The guest has arrived, or nobody knows: the control node of its move may have died."""
    ledger = open_ledger(str(control.ledger))
    (web,) = ledger.list_domains()
    (kvm4,) = web.domain.possible_hosts
    kvm1 = HostRef("kvm1", "55555555-0000-4000-8000-000000000000", None)
    ledger.put_domain(dataclasses.replace(web.domain, possible_hosts=(kvm1,)), web.version)
    stored = ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web"), kvm1, kvm4, {}, "a test"))
    if is_settled:
        ledger.update_record(stored, stored.record.advance(s.FAILED, "a test"))
    code, text = control.run("react_host_gone", "-e", "source=kvm4", *SILENT)
    assert (code == 0, "no domain may be on kvm4" in text) == (is_settled, is_settled), text
    assert ("armed without any evidence source for kvm4" in text) is not is_settled, text


@pytest.mark.parametrize("check", [False, True])
def test_people_are_notified_if_nobody_knows_which_domains_are_on_the_host(control: Control, check: bool) -> None:
    (control.ledger / "domains" / f"{UUID}.json").write_text("torn")
    code, text = control.run("react_host_gone", "-e", "source=kvm4", *SILENT, *(["--check"] if check else []))
    assert (code != 0, "no domain may be on kvm4" in text) == (True, False), text
    assert f"cannot be read ({UUID}), so that it is not known whether they are on kvm4, which is gone. Nothing was done for kvm4." in text, text
    assert (control.slots(), incidents(control)) == ([], [] if check else [("unreadable", ("kvm4",))])


def test_what_would_refuse_an_evacuation_is_said_when_it_is_armed(control: Control) -> None:
    """The ledger does not know kvm3, and kvm2 has no evidence; of kvm9 the inventory knows nothing."""
    inventory = json.loads((control.folder / "inventory.json").read_text(encoding="utf-8"))
    hosts = inventory["all"]["children"]["kvmfleet_hosts"]["hosts"]
    for name in ("kvm1", "kvm3", "kvm4"):
        hosts[name] = {"kvmfleet_fencing": {"agent": "fence_ipmilan"}}
    (control.folder / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    before = control.stored()
    code, text = control.run("react_armed", "-e", json.dumps({"followed": ["kvm1", "kvm2", "kvm3"]}))
    said = {
        "kvm4 would not be evacuated: it is in the group kvmfleet_hosts, but not in kvmfleet_events_hosts",
        f"kvm3 could not be evacuated: it is not in the ledger {control.ledger}",
        "armed without any evidence source for kvm2",
        "Evacuation on events is armed for kvm1.",
    }
    assert (code != 0, {words for words in said if words in text}) == (True, said), text
    code, text = control.run("react_armed", "-e", json.dumps({"followed": ["kvm1", "kvm9"]}))
    assert (code != 0, "kvm9 of kvmfleet_events_hosts cannot be evacuated" in text, "is armed for" in text) == (True, True, False), text
    assert (control.slots(), incidents(control), control.stored()) == ([], [], before)


def test_a_rulebook_that_begins_while_reactions_are_disarmed_says_so(control: Control) -> None:
    fencing = ("-e", json.dumps({"kvmfleet_fencing": {"agent": "fence_ipmilan"}, "followed": ["kvm1", "kvm2", "kvm4"]}))
    before = control.stored()
    code, text = control.run("react_armed", *fencing)
    assert "Evacuation on events is armed for kvm1, kvm2, kvm4." in text
    control.events.mkdir()
    (control.events / "disarmed").touch()
    code, text = control.run("react_armed", *fencing)
    assert (code != 0, "Reactions to events are disarmed" in text, "is armed for" in text) == (True, True, False), text
    assert (control.slots(), control.stored()) == ([], before)


def test_too_many_silent_hosts_are_an_incident_and_nobody_is_asked(control: Control) -> None:
    asked = ("-e", json.dumps({"kvmfleet_events_consent": ["touch", str(control.folder / "asked")], "evacuate_host_fence_tasks": "fence.yml"}))
    code, text = control.run("react_host_gone", "-e", "source=kvm4", "-e", json.dumps({"silent": ["kvm3", "kvm4"]}), *asked)
    assert (code != 0, "2 hosts are silent at once (kvm3, kvm4)" in text) == (True, True), text
    assert (control.slots(), incidents(control)) == ([], [("silent_together", ("kvm3", "kvm4"))])
    assert not (control.folder / "asked").exists()


def test_a_host_that_comes_back_while_a_person_is_asked_is_not_evacuated(control: Control) -> None:
    back, ssh = control.folder / "back", control.folder / "ssh"
    ssh.write_text(f'#!/bin/sh\ntest -e {back} && exit 0\necho "ssh: connect to host: No route to host" >&2\nexit 255\n')
    ssh.chmod(0o755)
    options = {"ansible_ssh_executable": str(ssh), "kvmfleet_events_consent": ["touch", str(back)], "evacuate_host_fence_tasks": "fence.yml"}
    code, text = control.run("react_host_gone", "-e", "source=kvm4", "-e", json.dumps(options))
    assert (code != 0, back.exists(), "kvm4 answers Ansible" in text) == (True, True, True), text
    assert control.slots() == []


def test_consent_needs_no_rights_that_hosts_need(control: Control) -> None:
    """The user of the control node may not become root there."""
    (control.folder / "group_vars").mkdir()
    (control.folder / "group_vars/all.yml").write_text("ansible_become: true\nansible_become_user: nobody\nansible_become_exe: /bin/false\n")
    code, text = react_to_silence(control, ["touch", str(control.folder / "asked")])
    assert ((control.folder / "asked").exists(), code != 0) == (True, True), text


def react_to_silence(control: Control, consent: t.Sequence[str] = (), **changes: t.Any) -> tuple[int, str]:
    """Run the playbook for kvm4, whose entry gets these changes, and which SSH does not reach. A new leader reports each host that is gone once more."""
    ledger, ssh = open_ledger(str(control.ledger)), control.folder / "ssh"
    found = next(document for document in ledger.list_hosts() if document.host.name == "kvm4")
    ledger.put_host(host_entry({**found.body, **changes}), found.version)
    ssh.write_text('#!/bin/sh\necho "ssh: connect to host: No route to host" >&2\nexit 255\n')
    ssh.chmod(0o755)
    options = {"ansible_ssh_executable": str(ssh), "evacuate_host_fence_tasks": "fence.yml", "kvmfleet_events_consent": list(consent)}
    return control.run("react_host_gone", "-e", "source=kvm4", "-e", json.dumps(options))


@pytest.mark.parametrize(("state", "slots"), [("enabled", [("evacuate", "kvm4")]), ("fenced", [])])
def test_a_host_that_was_fenced_before_is_evacuated_without_a_slot(control: Control, state: str, slots: list[tuple[str, str]]) -> None:
    """Its guests that no other host can start would take the slot of a host that dies after each start of the event source."""
    code, text = react_to_silence(control, state=state)
    assert (code != 0, "answers. Check the connection of the control node" in text, control.slots()) == (True, True, slots), text[-1500:]


@pytest.mark.parametrize("state", ["enabled", "fenced"])
def test_reactions_that_are_disarmed_while_a_person_is_asked_do_nothing(control: Control, state: str) -> None:
    control.events.mkdir()
    code, text = react_to_silence(control, ["touch", str(control.events / "disarmed")], state=state)
    assert (code != 0, "Reactions to events are disarmed" in text, control.slots()) == (True, True, []), text


def test_a_discarded_host_takes_no_slot_from_one_that_dies(control: Control) -> None:
    discarded = {"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "reason": "Burnt out"}
    code, text = react_to_silence(control, state="fenced", discarded=discarded)
    assert (code, "kvm4 was discarded: it will not return. Nothing was done." in text) == (0, True), text
    assert control.slots() == []


def test_an_isolated_host_is_noted_and_takes_no_slot(control: Control) -> None:
    code, text = control.run("react_host_isolated", "-e", "source=kvm4", "-e", json.dumps({"signals": "it stopped answering; but lease: renewed 1 s ago"}))
    assert code == 0, text
    assert (control.slots(), incidents(control)) == ([], [("isolated", ("kvm4",))])
    code, text = control.run("react_host_isolated", "-e", "source=kvm9")
    assert (code != 0, "The source kvm9 is not a host of the inventory" in text) == (True, True), text
