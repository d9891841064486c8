# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task fleet_status: one screen from the ledger and the answers of the hosts, whatever of them is missing."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import pathlib
import types
import typing as t
import uuid

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.action import fleet_status
from ansible_collections.kvmfleet.migration.plugins.action.fleet_status import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import new_brake
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_parts import ProtectTime
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import close_run, fail_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake import SlotRequest, disarm_reactions, note_unreadable, request_slot
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import CheckedFleet, keep_check
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document, read_schema
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, night, passed

Result = dict[str, t.Any]
FLEET = ["kvm1", "kvm2", "kvm3"]
HOST_IDS = {name: str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in FLEET}
EMPTY: Result = {"changed": False, "failed": False, "migrations": []}
MIB = 1024**2


@functools.cache
def published_keys() -> tuple[str, ...]:
    """Return the keys of the result that the playbook publishes."""
    (play,) = yaml.safe_load((pathlib.Path(__file__).parents[4] / "playbooks" / "status.yml").read_text(encoding="utf-8"))
    (published,) = [task["ansible.builtin.set_stats"]["data"]["status_result"] for task in find_tasks(play) if "ansible.builtin.set_stats" in task]
    return tuple(sorted(published))


def find_tasks(play: Result) -> t.Iterator[Result]:
    """Yield the tasks of a play, and those in its blocks."""
    for task in [*play.get("tasks", ()), *play.get("block", ())]:
        yield task
        yield from find_tasks(task)


class Desk:
    """A control node with a ledger, and hosts that answer as a test says."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.where = str(folder / "ledger")
        self.ledger = FileLedger(self.where)
        self.answers: dict[str, Result] = dict.fromkeys(FLEET, EMPTY)
        self.looks: dict[str, Result] = {}
        self.inventory = FLEET
        self.variables: Result = {"kvmfleet_ledger": self.where}

    def note(self) -> dict[str, int]:
        return t.cast("dict[str, int]", self.show(_work={"step": "note"})["versions"])

    def look(self, host: str, *domains: Result, **answer: t.Any) -> None:
        """Let a host report its domains."""
        seen = {"host_id": HOST_IDS[host], "host_uuid": None, "domains": list(domains), "remembered": [], **answer}
        self.looks[host] = {"changed": False, "seen": {"changed": False, **seen}}

    def show_all(self, check_mode: bool = False) -> Result:
        """Do what the playbook does."""
        return self.show(check_mode, _work={"answers": self.answers, "looks": self.looks, "versions": self.note()})

    def show(self, check_mode: bool = False, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        given = {"fleet": FLEET, "_work": {"answers": self.answers}, **args}
        action._task = types.SimpleNamespace(args=given, async_val=0, check_mode=check_mode, diff=False, delegate_to=None)
        variables = task_vars("kvm1", self.variables)
        variables["hostvars"] = {**{name: {} for name in self.inventory}, **variables["hostvars"]}
        seen = t.cast(Result, action.run_with_options(variables))
        if "moves" in seen:
            check_document("status-result.json", {key: seen[key] for key in published_keys()})
        return seen

    def host(self, name: str, state: str = "enabled", hours: float | None = 1, **keys: t.Any) -> None:
        at = None if hours is None else (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)).isoformat()
        body = {"name": name, "host_id": HOST_IDS[name], "host_key": HOST_IDS[name], "state": state, **keys}
        self.ledger.put_host(host_entry({**body, "protected": {"at": at}} if at else body), None)

    def domain(self, name: str, host: str, state: str = "running") -> None:
        place = {"host": host, "host_id": HOST_IDS[host], "host_uuid": None}
        entry = {"uuid": str(uuid.uuid4()), "name": name, "possible_hosts": [place], "protected": {"host": place, "state": state}}
        self.ledger.put_domain(domain_entry(entry), None)

    def lose(self, name: str, host: str) -> None:
        """Let the host not have had the domain any more when it was protected last."""
        (found,) = self.ledger.find_domains(name)
        note = {"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "host": {"host": host, "host_id": HOST_IDS[host], "host_uuid": None}}
        self.ledger.put_domain(domain_entry({**found.body, "missing": note}), found.version)

    def record(
        self, *steps: str, kind: str = s.LIVE_MIGRATION, name: str = "web1", reason: str | None = None, minutes_ago: int = 0, uuid_text: str = ""
    ) -> MoveRecord:
        """Write a record from kvm1 to kvm2, brought on by these steps so long ago.

        :arg uuid_text: the UUID of the domain; a new one by default.
        """
        ends = (HostRef("kvm1", HOST_IDS["kvm1"], None), HostRef("kvm2", HOST_IDS["kvm2"], None))
        stored = self.ledger.open_record(new_record(kind, DomainRef(uuid_text or str(uuid.uuid4()), name), *ends, {}, "ann@control pid 1"))
        for step in steps:
            then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes_ago)
            record = stored.record.advance(step, "ann@control pid 1", "as a test says.", reason)
            stored = self.ledger.update_record(stored, dataclasses.replace(record, updated_at=then.strftime("%Y-%m-%dT%H:%M:%S.000Z")))
        return stored.record

    def report(self, host: str, record: MoveRecord, watched: bool | None = True) -> None:
        """Let a host report a move with figures."""
        progress = dataclasses.replace(
            record.progress, memory_total_bytes=1024 * MIB, memory_remaining_bytes=312 * MIB, percent=62, bandwidth_bytes=940 * MIB, dirty_rate_bytes=210 * MIB
        )
        document = {**encode(dataclasses.replace(record, status=s.RUNNING, progress=progress)), "watched": watched}
        self.answers[host] = {**EMPTY, "migrations": [document]}


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    desk = Desk(tmp_path)
    for name in FLEET:
        desk.host(name)
    return desk


def test_the_playbook_publishes_what_the_schema_describes() -> None:
    assert published_keys() == tuple(sorted(read_schema("status-result.json")["$defs"]["FleetStatus"]["properties"]))


def test_a_quiet_fleet_is_a_screen_of_a_few_lines(desk: Desk) -> None:
    desk.domain("web1", "kvm1")
    seen = desk.show()
    assert seen["lines"] == [
        "3 hosts, 0 silent. 0 moves in flight. Nothing needs a person.",
        "HOSTS",
        "  enabled: kvm1, kvm2, kvm3",
        "PROTECTION",
        "  1 domain saved from 3 hosts. The oldest: kvm1, 1 h ago",
    ]
    assert (seen["changed"], seen["attention"], seen["moves"], seen["ledger"]) == (False, [], [], desk.where)
    assert (seen["protected_domains"], seen["protected_hours"]) == (1, dict.fromkeys(FLEET, 1))


def test_a_move_in_flight_has_the_figures_of_its_host(desk: Desk) -> None:
    record = desk.record(s.RUNNING)
    desk.report("kvm1", record)
    seen = desk.show()
    line = "kvm1 -> kvm2  web1  running  62 %  312 MiB left  940 MiB/s  dirty 210 MiB/s  eta 0 s"
    assert (seen["lines"][0], f"  {line}" in seen["lines"]) == ("3 hosts, 0 silent. 1 move in flight. Nothing needs a person.", True), seen["lines"]
    assert [(move["id"], move["host"], move["watched"], move["line"]) for move in seen["moves"]] == [(record.id, "kvm1", True, line)]
    assert "history" not in seen["moves"][0]


def test_a_move_whose_host_is_silent_has_no_rate_and_no_eta(desk: Desk) -> None:
    stored = desk.ledger.read_record(desk.record(s.RUNNING).record_id)
    progress = dataclasses.replace(
        stored.record.progress, memory_total_bytes=1024 * MIB, memory_remaining_bytes=312 * MIB, percent=62, bandwidth_bytes=940 * MIB
    )
    desk.ledger.update_record(stored, dataclasses.replace(stored.record, progress=progress))
    desk.answers["kvm1"] = {"unreachable": True, "msg": "no route to host"}
    assert "  kvm1 -> kvm2  web1  running  62 % when its host last answered; not known now" in desk.show()["lines"]


def test_a_queued_move_that_its_task_has_just_written_is_no_finding(desk: Desk) -> None:
    desk.record(s.SCHEDULED, s.QUEUED)
    seen = desk.show()
    assert seen["attention"] == []
    assert "  kvm1 -> kvm2  web1  queued" in seen["lines"]


def test_a_move_that_nobody_follows_any_more_is_a_finding_with_its_remedy(desk: Desk) -> None:
    record = desk.record(s.RUNNING, minutes_ago=5)
    (finding,) = desk.show()["attention"]
    assert finding.startswith(f"web1: record {record.id} is 'running' since ")
    assert finding.endswith(f"kvm1 does not report the move. To close the record: kvmfleet.migration.abort -e id={record.id}")


@pytest.mark.parametrize("asked", [["kvm2"], []])
def test_a_move_whose_source_was_not_asked_is_no_finding(desk: Desk, asked: list[str]) -> None:
    desk.record(s.RUNNING, minutes_ago=5)
    desk.answers = dict.fromkeys(asked, EMPTY)
    seen = desk.show(fleet=asked)
    assert seen["attention"] == []
    assert "  kvm1: whether its moves are still in progress is not known, because this host was not asked" in seen["lines"]
    assert ("kvm1 -> kvm2  web1  running" in "\n".join(seen["lines"]), seen["moves"][0]["host"]) == (True, None)


def test_hosts_that_were_not_asked_do_not_count_as_hosts_that_answer(desk: Desk) -> None:
    desk.answers = {"kvm2": EMPTY}
    assert desk.show()["lines"][0] == "3 hosts, 0 silent, 2 not asked. 0 moves in flight. Nothing needs a person."


@pytest.mark.parametrize("answers", [{}, {"kvm2": EMPTY}, {"kvm1": {**EMPTY, "unverified_reasons": {"watched": "only root can read it"}}}])
def test_an_unfinished_evacuation_is_a_finding_whatever_its_source_was_asked(desk: Desk, answers: dict[str, Result]) -> None:
    desk.record(s.PRE_MIGRATING, kind=s.EVACUATION, minutes_ago=5)
    desk.answers = answers
    (finding,) = desk.show()["attention"]
    assert "and the evacuation is not finished. To close the record: " in finding
    assert "report" not in finding


def test_a_move_without_watcher_and_one_of_another_tool_are_findings(desk: Desk) -> None:
    record = desk.record(s.RUNNING)
    desk.report("kvm1", record, watched=False)
    foreign = dataclasses.replace(record, id=None, source=HostRef("node-17", None, None), destination=HostRef(None, None, None))
    desk.report("kvm3", foreign, watched=False)
    seen = desk.show()
    assert [finding.partition(".")[0] for finding in seen["attention"]] == [
        "web1: nothing watches the move, so no limit holds",
        "web1: the migration away from kvm3 was started by another tool, and no limit of this collection holds",
    ]
    assert any(line.startswith("  kvm3 -> an unknown host  web1  running") and line.endswith("not started by this collection") for line in seen["lines"])


def test_what_a_user_without_root_sees_is_joined_with_the_ledger_and_the_rest_is_not_guessed(desk: Desk) -> None:
    record = desk.record(s.RUNNING, minutes_ago=5)
    other = dataclasses.replace(record, domain=DomainRef(str(uuid.uuid4()), "web2"))
    unnamed = [dataclasses.replace(one, id=None, destination=HostRef(None, None, None)) for one in (record, other)]
    desk.record(s.SCHEDULED, s.QUEUED, name="web3", minutes_ago=5)
    found = []
    for one in unnamed:
        desk.report("kvm1", one, watched=None)
        found += desk.answers["kvm1"]["migrations"]
    desk.answers["kvm1"] = {**EMPTY, "migrations": found, "unverified_reasons": {"watched": "only root can read it on the host (/run/kvmfleet)"}}
    seen = desk.show()
    assert seen["attention"] == []
    assert [(move["id"], move["watched"], move["domain"]["name"]) for move in seen["moves"][:2]] == [(record.id, None, "web1"), (None, None, "web2")]
    assert not any("not started by this collection" in line for line in seen["lines"])
    assert "  kvm1 -> kvm2  web1  running  62 %" in "\n".join(seen["lines"])
    assert "  kvm1: whether moves are watched is not known, because the user is not root there" in seen["lines"]


def test_a_result_that_is_not_proved_comes_first_and_names_its_record(desk: Desk) -> None:
    record = desk.record(s.RUNNING, s.ERROR, reason="unreachable")
    seen = desk.show()
    assert seen["lines"][:2] == ["3 hosts, 0 silent. 0 moves in flight. 1 finding for a person.", "NEEDS A PERSON"]
    assert "web1: its result is not proved since" in seen["lines"][2]
    assert f"(kvm1 -> kvm2, unreachable, as a test says). Run its task again, or settle record {record.id}" in seen["lines"][2]


def test_a_silent_host_is_named_with_the_reason_and_the_domains_that_may_be_on_it(desk: Desk) -> None:
    desk.domain("web1", "kvm1")
    desk.record(s.RUNNING, minutes_ago=5, name="web2")
    desk.answers["kvm1"] = {"changed": False, "unreachable": True, "msg": "Task failed: Failed to connect: \x1b[31mNo route to host"}
    seen = desk.show()
    (finding,) = seen["attention"]
    assert finding == (
        "kvm1 does not answer: Failed to connect: \\x1b[31mNo route to host. It is 'enabled' in the ledger. 2 domains may be on it."
        " If it is dead: kvmfleet.migration.evacuate -e source=kvm1 --check"
    )
    assert "  silent: kvm1" in seen["lines"]
    # The move is shown as the ledger has it; why its host does not report it is known.
    assert any("web2  running" in line for line in seen["lines"])


def test_a_host_that_was_reached_and_did_not_report_is_not_called_dead(desk: Desk) -> None:
    """A host that answers Ansible is never evacuated, and its guests run on without libvirt."""
    desk.domain("web1", "kvm1")
    desk.answers["kvm1"] = {"changed": False, "failed": False, "error_code": "unreachable", "msg": "libvirt did not answer within 10 s."}
    seen = desk.show()
    (finding,) = seen["attention"]
    assert finding == (
        "kvm1 was reached, but did not report its domains: libvirt did not answer within 10 s. It is 'enabled' in the ledger. 1 domain may be on it."
        " Its guests may be running: repair this first, and do not switch it off."
    )
    assert "  silent: kvm1" in seen["lines"]


def test_a_module_that_crashed_is_a_silent_host(desk: Desk) -> None:
    desk.answers["kvm2"] = {"changed": False, "failed": False, "rc": 1, "msg": "MODULE FAILURE"}
    desk.answers["kvm3"] = {"changed": False, "failed": False, "error_code": "unreachable", "msg": "libvirt did not answer within 10 s."}
    assert desk.show()["silent"] == {"kvm2": "MODULE FAILURE", "kvm3": "libvirt did not answer within 10 s."}


def test_a_host_whose_answer_cannot_be_read_does_not_hide_the_others(desk: Desk) -> None:
    desk.report("kvm1", desk.record(s.RUNNING))
    desk.answers["kvm2"] = {**EMPTY, "migrations": [{"id": None}]}
    seen = desk.show()
    assert (list(seen["silent"]), len(seen["moves"])) == (["kvm2"], 1)
    assert seen["silent"]["kvm2"].startswith("its answer cannot be read: ")


def test_a_ledger_that_does_not_answer_leaves_what_hosts_report(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*location: t.Any, **named: t.Any) -> t.NoReturn:
        raise Unreachable("etcd at lost:2379 did not answer.", "Start it.")

    desk.report("kvm1", desk.record(s.RUNNING))
    monkeypatch.setattr(fleet_status, "open_ledger", lose)
    seen = desk.show()
    assert seen["attention"] == ["The ledger cannot be read: etcd at lost:2379 did not answer. Start it. Only what hosts report is shown."]
    assert (len(seen["moves"]), seen["ledger"], seen["hosts"]["not in the ledger"]) == (1, None, [])
    assert seen["lines"][-2:] == ["PROTECTION", "  not known, because the ledger cannot be read"]


def test_a_ledger_that_does_not_exist_is_named_and_not_created(desk: Desk, tmp_path: pathlib.Path) -> None:
    seen = desk.show(ledger=str(tmp_path / "none"))
    assert str(tmp_path / "none") in seen["attention"][0]
    assert not (tmp_path / "none").exists()


def test_hosts_that_all_are_silent_are_shown(desk: Desk) -> None:
    desk.answers = {name: {"unreachable": True, "msg": "timed out"} for name in FLEET}
    assert desk.show()["lines"][0] == "3 hosts, 3 silent. 0 moves in flight. 3 findings for a person."


def test_hosts_by_state_with_reasons_and_what_is_to_be_cleaned_up(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", "fenced", hours=2)
    desk.host("kvm2", "maintenance", reason="New disks", since="2026-11-23T18:00:00.000Z", hours=1)
    desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION)
    desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION, name="web2")
    seen = desk.show()
    assert seen["lines"][seen["lines"].index("HOSTS") :] == [
        "HOSTS",
        "  maintenance: kvm2 (New disks, since 2026-11-23 18:00 UTC)",
        "  fenced: kvm1",
        "  not in the ledger: kvm3",
        "PROTECTION",
        "  0 domains saved from 2 hosts. The oldest: kvm1, 2 h ago",
        "  never: kvm3",
    ]
    assert seen["attention"] == [
        "kvm1 is fenced, and 2 evacuated domains must be cleaned up on it. When it is repaired: kvmfleet.migration.recover -e target=kvm1",
        "kvm3: not in the ledger, so its domains cannot be evacuated.",
    ]


def test_a_host_that_will_not_return_is_not_to_be_repaired_and_ends_as_a_finding(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", "fenced", discarded={"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "reason": "Burnt out"})
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    for name in ("kvm2", "kvm3"):
        desk.host(name)
    assert desk.show()["attention"] == ["kvm1 will not return (Burnt out), and nothing is on it. Remove it from the inventory."]
    done = desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION)
    left = "1 evacuated domain was on it. To close the records: kvmfleet.migration.host with name=kvm1, source_discarded and a reason"
    assert desk.show()["attention"] == [f"kvm1 will not return (Burnt out). {left}"]
    stored = desk.ledger.read_record(done.record_id)
    desk.ledger.update_record(stored, stored.record.advance(s.COMPLETED, "ann@control pid 1"))
    desk.domain("web1", "kvm1")
    silent, unstarted = desk.show()["attention"]
    assert silent == (
        "kvm1 does not answer: No route to host. It is 'fenced' in the ledger. 1 domain may be on it."
        " To start what can run elsewhere: kvmfleet.migration.evacuate -e source=kvm1. To give up the rest: kvmfleet.migration.host with name=kvm1,"
        " domains_lost and a reason"
    )
    assert unstarted.startswith("kvm1 will not return, and web1 runs on no host according to the ledger.")
    del desk.answers["kvm1"]
    assert desk.show()["attention"] == [unstarted]
    desk.answers["kvm1"] = EMPTY
    assert desk.show()["attention"][1] == (
        "kvm1 was discarded (Burnt out), but answers. Undefine the domains there that now run elsewhere (virsh undefine --keep-nvram, with "
        "--keep-tpm too for those with a TPM)."
        " To return it to the fleet: kvmfleet.migration.host on kvm1, with adopt_identity and a reason"
    )


def test_a_move_whose_source_will_not_return_is_a_finding(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", "fenced", discarded={"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "reason": "Burnt out"})
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    record = desk.record(s.SCHEDULED, s.QUEUED, s.RUNNING, minutes_ago=5)
    (finding,) = [line for line in desk.show()["attention"] if record.record_id in line]
    assert finding.endswith(
        f"and kvm1 will not return. If the domain runs nowhere: kvmfleet.migration.evacuate -e source=kvm1. If it runs on kvm2, settle record {record.id} as"
        " completed (docs/ledger.md)"
    )


def test_a_guest_that_was_off_on_a_host_that_will_not_return_is_given_up_or_defined_elsewhere(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", "fenced", discarded={"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "reason": "Burnt out"})
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    desk.domain("web1", "kvm1", "shut off")
    (finding,) = [line for line in desk.show()["attention"] if line.startswith("kvm1")]
    assert finding.endswith("To give up the rest: kvmfleet.migration.host with name=kvm1, domains_lost and a reason")
    desk.lose("web1", "kvm1")
    (finding,) = [line for line in desk.show()["attention"] if line.startswith("kvm1")]
    assert finding == "kvm1 will not return (Burnt out), and nothing is on it. Remove it from the inventory."


def test_a_host_that_is_only_in_the_ledger_is_a_finding_until_it_is_discarded(desk: Desk) -> None:
    entry = {"name": "kvm9", "host_id": str(uuid.uuid4()), "state": "maintenance"}
    written = desk.ledger.put_host(host_entry(entry), None)
    (finding,) = desk.show()["attention"]
    assert finding == (
        "kvm9 is in the ledger, but not in the inventory: no guest of another host is started elsewhere before it has answered at its last known address."
        " If it will not return: kvmfleet.migration.host with name=kvm9, source_discarded and a reason"
    )
    desk.ledger.put_host(host_entry({**written.body, "discarded": {"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "reason": "Sold"}}), written.version)
    assert desk.show()["attention"] == []


def test_a_status_without_an_inventory_calls_no_host_unlisted(desk: Desk) -> None:
    """It shows the hosts of the ledger. To discard them would be the worst advice."""
    desk.inventory = ["localhost"]
    assert desk.show(fleet=[])["attention"] == []


def test_a_silent_host_that_could_not_be_fenced_is_a_finding_until_it_answers(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", fencing={"state": "fencing_impossible", "since": "2026-11-23T18:00:00.000Z"})
    finding = (
        "kvm1: fencing_impossible since 2026-11-23 18:00 UTC: no device could switch it off. Repair a device, or confirm that it is off"
        " (evacuate_host_force_down and evacuate_host_reason), and run again: kvmfleet.migration.evacuate -e source=kvm1"
    )
    assert finding not in desk.show()["attention"]
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    assert finding in desk.show()["attention"]


def test_the_domains_that_wait_for_the_proof_that_a_host_is_off_are_named(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", fencing={"state": "fencing_impossible"})
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    desk.domain("web1", "kvm1")
    assert "no device could switch it off. Until that is proved, web1 waits for a start elsewhere. Repair a device" in " ".join(desk.show()["attention"])
    desk.domain("db1", "kvm1")
    assert "Until that is proved, db1, web1 wait for a start elsewhere." in " ".join(desk.show()["attention"])


def wait_for_person(desk: Desk, reason: str | None = s.REASON_RESTART_LIMIT) -> str:
    """Let the death of kvm1 be the second one of a domain, and return its finding."""
    dead = {"host": "kvm3", "host_id": HOST_IDS["kvm3"], "host_uuid": None}
    record = desk.record(kind=s.EVACUATION, name="killer")
    stored = desk.ledger.read_record(str(record.id))
    why = "Domain killer waits for a person: it was on kvm3 when that host was evacuated at 03:00, and on kvm1 now. It was not started."
    desk.ledger.update_record(stored, stored.record.advance(s.CONFLICT, "ann@control pid 1", why, reason))
    document = desk.ledger.find_domains("killer")[0]
    restarts = [{"at": "2026-11-24T03:00:00.000Z", "source": dead}]
    desk.ledger.put_domain(domain_entry({**document.body, "restarts": restarts}), document.version)
    way_out = """Find out whether it kills its hosts. To start it: kvmfleet.migration.evacuate -e source=kvm1 -e '{"evacuate_host_domains": ["killer"]}'"""
    return f"{why} {way_out}"


def test_a_domain_that_may_kill_its_hosts_is_a_finding_while_its_host_is_out_of_service(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", state="fenced")
    desk.host("kvm3")
    finding = wait_for_person(desk)
    assert finding in desk.show()["attention"]
    host = desk.ledger.read_host(HOST_IDS["kvm1"])
    assert host
    desk.ledger.put_host(dataclasses.replace(host.host, state="enabled"), host.version)
    assert finding not in desk.show()["attention"]
    # Nothing was fenced, because nothing else was on the host.
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    assert finding in desk.show()["attention"]


def test_a_domain_that_was_started_elsewhere_does_not_wait_for_a_person_any_more(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", state="fenced")
    finding = wait_for_person(desk)
    assert finding in desk.show()["attention"]
    # It is on kvm2. The record stays open until kvm1 is cleaned up.
    domain = desk.ledger.find_domains("killer")[0].domain
    desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION, name="killer", uuid_text=domain.uuid)
    assert finding not in desk.show()["attention"]


def test_a_domain_whose_evacuation_was_refused_for_another_reason_does_not_wait_for_a_person(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", state="fenced")
    finding = wait_for_person(desk, reason=None)
    assert finding not in desk.show()["attention"]


def test_a_host_in_service_whose_boot_is_held_is_a_finding(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    for name in FLEET:
        desk.host(name)
    desk.domain("web1", "kvm1")
    desk.domain("template", "kvm1", state="shut off")
    desk.look("kvm1", held=True)
    assert desk.show_all()["attention"] == [
        "kvm1 was booted, and its boot guard holds its guests. web1 is not active. To start them again: kvmfleet.migration.recover -e target=kvm1"
    ]
    for released in (False, None):
        desk.look("kvm1", held=released)
        assert not [finding for finding in desk.show_all()["attention"] if "boot guard" in finding]


@pytest.mark.parametrize("state", ["maintenance", "fenced"])
def test_a_held_boot_of_a_host_out_of_service_is_no_further_finding(tmp_path: pathlib.Path, state: str) -> None:
    desk = Desk(tmp_path)
    for name in FLEET:
        desk.host(name, state=state if name == "kvm1" else "enabled")
    desk.look("kvm1", held=True)
    assert not [finding for finding in desk.show_all()["attention"] if "boot guard" in finding]


def test_domains_that_were_not_started_elsewhere_are_a_finding(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", "fenced")
    desk.host("kvm2")
    desk.domain("web1", "kvm1")
    desk.domain("app1", "kvm1")
    desk.domain("db1", "kvm2")
    record = desk.record(s.CONFLICT, kind=s.EVACUATION, name="web1", uuid_text=desk.ledger.find_domains("web1")[0].domain.uuid)
    done = "To start what can run elsewhere: kvmfleet.migration.evacuate -e source=kvm1. The rest waits for the return of the host:"
    back = "kvmfleet.migration.recover -e target=kvm1"
    why = f"web1 was not started elsewhere: {record.last_detail.rstrip('.')}."
    assert f"kvm1 is fenced, and app1, web1 run on no host according to the ledger. {why} {done} {back}" in desk.show()["attention"]
    # Somebody has started it by hand.
    web1 = {"uuid": record.domain.uuid, "name": "web1", "active": True, "state": "running", "reason": "booted", "boot_id": None, "autostart": False}
    desk.look("kvm2", {**web1, "own_act": None})
    assert f"kvm1 is fenced, and app1 runs on no host according to the ledger. {done} {back}" in desk.show_all()["attention"]


def test_a_domain_that_does_not_have_to_run_or_is_being_started_is_not_called_unstarted(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", "fenced")
    desk.domain("off1", "kvm1")
    document = desk.ledger.find_domains("off1")[0]
    desk.ledger.put_domain(domain_entry({**document.body, "protected": {**document.body["protected"], "state": "shut off"}}), document.version)
    desk.domain("busy1", "kvm1")
    desk.record(s.PRE_MIGRATING, kind=s.EVACUATION, name="busy1", uuid_text=desk.ledger.find_domains("busy1")[0].domain.uuid)
    wait_for_person(desk)
    desk.domain("deleted1", "kvm1")
    desk.lose("deleted1", "kvm1")
    assert "on no host" not in " ".join(desk.show()["attention"])


def test_a_domain_that_its_host_did_not_have_any_more_is_not_counted_as_one_that_may_be_on_it(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", fencing={"state": "fencing_impossible"})
    desk.answers["kvm1"] = {"unreachable": True, "msg": "No route to host"}
    desk.domain("web1", "kvm1")
    assert desk.show()["protected_domains"] == 1
    assert "1 domain may be on it." in desk.show()["attention"][0]
    desk.lose("web1", "kvm1")
    seen = desk.show()
    assert (seen["protected_domains"], "web1" in " ".join(seen["attention"]), "may be on it" in " ".join(seen["attention"])) == (0, False, False)


def test_an_unfinished_evacuation_is_a_finding(desk: Desk) -> None:
    desk.record(s.PRE_MIGRATING, kind=s.EVACUATION, minutes_ago=5)
    (finding,) = desk.show()["attention"]
    assert finding.endswith("To close the record: kvmfleet.migration.evacuate again")


@pytest.mark.parametrize(("hours", "limit", "findings"), [(23.5, 24, 0), (24.5, 24, 1), (3.5, 2, 1), (100, 200, 0)])
def test_an_old_protection_is_a_finding(tmp_path: pathlib.Path, hours: float, limit: int, findings: int) -> None:
    desk = Desk(tmp_path)
    for name in FLEET:
        desk.host(name, hours=hours if name == "kvm2" else 0.5)
    seen = desk.show(protect_max_hours=limit)
    assert len(seen["attention"]) == findings
    assert all("kvmfleet.migration.protect -e target=kvm2" in finding for finding in seen["attention"])


def test_active_guests_that_no_protect_has_saved_are_named_without_being_a_finding(tmp_path: pathlib.Path) -> None:
    """They were created since: each fleet has such guests until the next protect, which is a finding itself once it is late."""
    desk = Desk(tmp_path)
    desk.host("kvm1")
    desk.host("kvm2")
    desk.host("kvm3", hours=None)
    desk.domain("web1", "kvm1")
    saved = desk.ledger.find_domains("web1")[0].domain.uuid
    moving = desk.record(s.RUNNING, name="web3")

    def seen(name: str, uuid_text: str = "", active: bool = True) -> Result:
        state = "running" if active else "shut off"
        return {"uuid": uuid_text or str(uuid.uuid4()), "name": name, "active": active, "state": state, "reason": "booted", "autostart": False}

    desk.report("kvm1", moving)
    desk.look("kvm1", seen("web5"), seen("web4\n"), seen("web1", saved), seen("web3", moving.domain.uuid), seen("off1", active=False))
    desk.look("kvm2", seen("db1"), host_id=HOST_IDS["kvm3"])
    desk.look("kvm3", seen("web9"))
    shown = desk.show_all()
    unsaved = "  kvm1: web4\\n, web5 are not saved yet, and could not be evacuated. Run kvmfleet.migration.protect -e target=kvm1"
    assert [line for line in shown["lines"] if "not saved" in line] == [unsaved]
    assert shown["attention"] == ["kvm3: never protected, so its domains cannot be evacuated."]


def test_a_protection_that_found_nothing_new_counts(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", hours=100)
    desk.ledger.put_protect_time(ProtectTime(HOST_IDS["kvm1"], datetime.datetime.now(datetime.UTC).isoformat(), "somebody"))
    assert desk.show()["protected_hours"] == {"kvm1": 0}


def test_a_protection_from_the_future_is_a_finding_until_the_host_is_protected_again(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", hours=-100)
    seen = desk.show(fleet=["kvm1"])
    (finding,) = seen["attention"]
    assert "which is in the future: a clock was wrong" in finding
    assert (seen["protected_hours"], "  not known, because a clock was wrong: kvm1" in seen["lines"]) == ({}, True), seen["lines"]
    desk.ledger.put_protect_time(ProtectTime(HOST_IDS["kvm1"], datetime.datetime.now(datetime.UTC).isoformat(), "somebody"))
    seen = desk.show(fleet=["kvm1"])
    assert (seen["protected_hours"], seen["attention"]) == ({"kvm1": 0}, [])


def test_hosts_that_were_never_protected_are_a_finding_only_where_others_were(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.host("kvm1", hours=None)
    assert desk.show()["attention"] == []
    desk.host("kvm2", hours=1)
    assert desk.show(fleet=["kvm1", "kvm2"])["attention"] == ["kvm1: never protected, so its domains cannot be evacuated."]


def test_a_record_that_a_host_remembers_and_the_ledger_has_lost_is_a_finding(desk: Desk) -> None:
    record = desk.record(s.RUNNING, s.COMPLETED)
    kept = {**encode(record), "ledger_id": desk.ledger.ledger_id}
    desk.look("kvm2", remembered=[kept])
    assert desk.show_all()["attention"] == []
    lost = {**kept, "id": str(uuid.uuid4()), "generation": record.generation + 3}
    desk.look("kvm2", remembered=[lost, {**lost, "ledger_id": str(uuid.uuid4()), "id": str(uuid.uuid4())}])
    (finding,) = desk.show_all()["attention"]
    assert lost["id"] in finding
    assert "kvm2" in finding


def test_damaged_documents_are_findings(desk: Desk) -> None:
    desk.domain("web1", "kvm1")
    (path,) = (pathlib.Path(desk.where) / "domains").rglob("*.json")
    path.write_text("torn")
    assert any(str(path.stem) in finding for finding in desk.show()["attention"])


def test_documents_that_another_task_has_set_aside_stay_findings(desk: Desk) -> None:
    record = desk.record(s.RUNNING)
    desk.domain("web2", "kvm1")
    (web2,) = desk.ledger.find_domains("web2")
    desk.ledger.put_brake(new_brake(desk.ledger.ledger_id), None)
    for name in (f"migrations/open/{record.id}", f"domains/{web2.domain.uuid}", f"brake/{desk.ledger.ledger_id}"):
        (path,) = pathlib.Path(desk.where, name).parent.rglob(f"{pathlib.Path(name).name}.json")
        path.write_text("torn")
    first = FileLedger(desk.where)
    assert (list(first.list_records()), first.find_domains("web2"), first.read_brake()) == ([], [], None)
    found = desk.show()["attention"]
    assert [line.split(" was ")[0].split(" is ")[0] for line in found] == [
        f"The record {record.id}",
        f"The document of domain {web2.domain.uuid}",
        "The state of the brake",
    ]
    assert f"remove domains-{web2.domain.uuid}-* from set_aside" in found[1]
    # A person has looked after them.
    for path in pathlib.Path(desk.where, "set_aside").iterdir():
        path.unlink()
    assert desk.show()["attention"] == []


def test_reactions_that_are_disarmed_are_a_finding(desk: Desk, tmp_path: pathlib.Path) -> None:
    brake = disarm_reactions(new_brake(desk.ledger.ledger_id), datetime.datetime(2026, 11, 21, 3, tzinfo=datetime.UTC), "ann@control pid 4711").after
    desk.ledger.put_brake(brake, None)
    said = "Reactions to events are disarmed: ann@control pid 4711 disarmed them at 2026-11-21T03:00:00.000Z."
    assert desk.show()["attention"] == [f"{said} The module event_brake with state: armed arms them again."]
    desk.ledger.put_brake(dataclasses.replace(brake, disarmed=ABSENT), desk.ledger.read_brake())
    assert desk.show()["attention"] == []
    desk.variables["kvmfleet_events_folder"] = str(tmp_path)
    (tmp_path / "disarmed").touch()
    assert desk.show()["attention"] == [f"Reactions to events are disarmed: there is {tmp_path}/disarmed. Remove the file to arm them again."]


def test_an_incident_of_the_brake_is_a_finding_while_its_hosts_are_silent(desk: Desk) -> None:
    request = SlotRequest("evacuate", "kvm2", 1, 60, ("kvm2", "kvm3"))
    desk.ledger.put_brake(request_slot(new_brake(desk.ledger.ledger_id), request, datetime.datetime.now(datetime.UTC), "ann@control").after, None)
    assert desk.show()["attention"] == []
    desk.answers["kvm3"] = {"unreachable": True, "msg": "Connection timed out"}
    incident, silence = desk.show()["attention"]
    assert ": The brake holds: 2 hosts are silent at once (kvm2, kvm3), and 'evacuate' may act on 1 host." in incident
    assert silence.startswith("kvm3 does not answer")
    (found,) = [document for document in desk.ledger.list_hosts() if document.host.name == "kvm3"]
    desk.ledger.put_host(dataclasses.replace(found.host, state="maintenance"), found.version)
    assert not any("The brake holds" in line for line in desk.show()["attention"])


def test_an_incident_is_over_for_a_host_that_was_protected_or_returned_to_service_since(tmp_path: pathlib.Path) -> None:
    """A reaction would act on it, although nothing has ended the incident: it is silent for another reason now."""
    desk, past = Desk(tmp_path), datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=300)
    desk.host("kvm2", hours=1)
    desk.host("kvm3", hours=400)
    request = SlotRequest("evacuate", "kvm2", 1, 60, ("kvm2", "kvm3"))
    desk.ledger.put_brake(request_slot(new_brake(desk.ledger.ledger_id), request, past, "ann@control").after, None)
    silence = {"unreachable": True, "msg": "Connection timed out"}
    desk.answers["kvm2"] = silence
    assert not any("The brake holds" in line for line in desk.show()["attention"])
    desk.answers["kvm3"] = silence
    assert any("The brake holds" in line for line in desk.show()["attention"])
    (found,) = [document for document in desk.ledger.list_hosts() if document.host.name == "kvm3"]
    desk.ledger.put_host(dataclasses.replace(found.host, since=datetime.datetime.now(datetime.UTC).isoformat()), found.version)
    assert not any("The brake holds" in line for line in desk.show()["attention"])


def test_an_incident_of_unreadable_documents_is_over_once_they_can_be_read(desk: Desk) -> None:
    desk.domain("web", "kvm1")
    request = SlotRequest("evacuate", "kvm3", 1, 60)
    noted = note_unreadable(new_brake(desk.ledger.ledger_id), request, datetime.datetime.now(datetime.UTC), "ann@control", ["web"]).after
    desk.ledger.put_brake(noted, None)
    desk.answers["kvm3"] = {"unreachable": True, "msg": "Connection timed out"}
    assert not any("not known whether they are on kvm3" in line for line in desk.show()["attention"])
    (path,) = pathlib.Path(desk.where, "domains").glob("*.json")
    path.write_text("torn")
    assert any("not known whether they are on kvm3" in line for line in desk.show()["attention"])


def test_a_brake_of_a_later_version_hides_nothing(desk: Desk) -> None:
    desk.ledger.put_brake(new_brake(desk.ledger.ledger_id), None)
    (path,) = pathlib.Path(desk.where, "brake").glob("*.json")
    envelope = json.loads(path.read_text())
    envelope["body"]["schema"] = 2
    path.write_text(json.dumps(envelope))
    (finding,) = desk.show()["attention"]
    assert finding.startswith(f"{path} was left as it is: ")


def test_a_host_whose_document_is_damaged_is_a_finding_each_time(desk: Desk) -> None:
    pathlib.Path(desk.where, "hosts", f"{HOST_IDS['kvm1']}.json").write_text("torn")
    for _time in range(2):
        assert any(finding.startswith(f"The state of the host {HOST_IDS['kvm1']} is not known") for finding in desk.show()["attention"])


def test_a_host_that_the_ledger_does_not_know_is_not_protected_either(desk: Desk) -> None:
    desk.answers["kvm4"] = EMPTY
    finding = "kvm4: not in the ledger, so its domains cannot be evacuated."
    seen = desk.show(fleet=[*FLEET, "kvm4"])
    assert (seen["attention"], seen["lines"][0]) == ([finding], "4 hosts, 0 silent. 0 moves in flight. 1 finding for a person.")


def test_many_hosts_stay_on_one_line(desk: Desk) -> None:
    fleet = [f"kvm{number}" for number in range(1, 101)]
    lines = desk.show(fleet=fleet)["lines"]
    assert any(line.endswith(" and 85 more") for line in lines)
    assert max(map(len, lines)) < 160


@pytest.mark.parametrize("args", [{"protect_max_hours": 0}, {"protect_max_hours": -1}, {"ledger": "ftp://kvm1/ledger"}, {"_work": {"answers": {"kvm1": 1}}}])
def test_bad_input_is_refused(desk: Desk, args: Result) -> None:
    with pytest.raises(InvalidArgument):
        desk.show(**args)


def test_the_last_fleet_check_is_shown_and_is_a_finding_if_it_is_not_met(desk: Desk, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "FLEET CHECK" not in desk.show()["lines"]
    hosts = {"kvm1": "cannot", "kvm2": "can"}
    sets, findings = {"can": 1, "unknown": 0, "cannot": 1}, ("1 of 2 hosts cannot be lost.",)
    check = CheckedFleet(1, desk.ledger.ledger_id, "2026-11-21T03:00:00.000Z", False, 1, sets, hosts, {"capacity": 1}, findings, ())
    keep_check(check)
    seen = desk.show()
    assert seen["lines"][-2:] == ["FLEET CHECK", "  2026-11-21 03:00 UTC: 1 can, 1 cannot (1 capacity)"]
    assert any(line.startswith("Fleet check of 2026-11-21 03:00 UTC: 1 of 2 hosts cannot be lost.") for line in seen["attention"])
    keep_check(dataclasses.replace(check, met=True))
    assert not any("Fleet check" in line for line in desk.show()["attention"])


def test_a_guest_that_was_started_elsewhere_has_its_timeline(desk: Desk) -> None:
    record = desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION)
    desk.record(s.CONFLICT, kind=s.EVACUATION, name="web2")
    desk.record(s.PRE_MIGRATING, kind=s.EVACUATION, name="web3")
    seen = desk.show()
    (line,) = seen["evacuated"]
    assert line.startswith(f"kvm1 -> kvm2  {record.domain.name}  verification 0.")
    assert seen["lines"][seen["lines"].index("EVACUATED") + 1] == f"  {line}"
    for number in range(20):
        desk.record(s.PRE_MIGRATING, s.DONE, kind=s.EVACUATION, name=f"app{number}")
    seen = desk.show()
    assert len(seen["evacuated"]) == 21
    assert "  and 9 more" in seen["lines"]


def test_a_ledger_without_room_is_a_finding(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.show()["attention"] == []
    monkeypatch.setattr(FileLedger, "find_threats", lambda _ledger: ["The file system has room for 9 MiB only."])
    assert desk.show()["attention"] == ["The file system has room for 9 MiB only."]


def test_a_run_that_stopped_on_a_failed_host_is_a_finding(desk: Desk) -> None:
    run = close_run(fail_host(passed(night("kvm1", "kvm2"), "kvm1", "drain"), "kvm1", "web1 was not moved.", at(60)), {}, at(60))
    desk.ledger.put_maintenance_run(run, None)
    (finding,) = desk.show()["attention"]
    assert finding == (
        f"The maintenance run {run.id} is stopped: kvm1 failed, and max_failures is 0. Failed: kvm1 (drain: web1 was not moved)."
        f" To continue where it stopped, run the same command with -e rolling_maintenance_run={run.id}."
        " To bring back kvm1 without it: kvmfleet.migration.recover -e target=kvm1"
    )


@pytest.mark.parametrize("is_passed", [True, False])
def test_the_last_drill_is_shown_and_is_a_finding_unless_it_was_passed(desk: Desk, is_passed: bool) -> None:
    reasons = () if is_passed else ("web: it was not started elsewhere",)
    drill = Drill(90, 300, "run", (), (), "2026-11-21T03:00:00.000Z", (), is_passed, None, None, reasons)
    run = night("kvm3")
    desk.ledger.put_maintenance_run(dataclasses.replace(run, state="finished", holder=None, drill=drill), None)
    seen = desk.show()
    line = seen["lines"][seen["lines"].index("DRILL") + 1]
    assert line.startswith(f"  kvm3 at 2026-11-21 03:00 UTC: {'passed' if is_passed else 'failed'}: 0 of 0 guests ran elsewhere")
    assert [finding.startswith("The last drill was not passed: kvm3 at ") for finding in seen["attention"]] == ([] if is_passed else [True])


def test_hosts_of_another_ledger_are_named_first(desk: Desk) -> None:
    """Under the wrong ledger, the fleet seems to have never been protected."""
    former = str(uuid.uuid4())
    for name in ("kvm1", "kvm3"):
        desk.look(name, ledger_id=former)
    desk.look("kvm2", ledger_id=desk.ledger.ledger_id)
    theirs = f"kvm1, kvm3: protected under the ledger {former}, and "
    assert desk.show_all()["attention"][0].startswith(f"{theirs}this task uses {desk.where} ({desk.ledger.ledger_id}). Use that ledger (kvmfleet_ledger)")
    desk.variables = {"kvmfleet_ledger": f"{desk.where}-elsewhere"}
    missing, named = desk.show_all()["attention"][:2]
    assert missing.startswith("The ledger cannot be read: ")
    assert named.startswith(f"{theirs}there is no ledger where this task looks for it.")


def test_hosts_are_not_told_to_use_another_ledger_while_theirs_cannot_be_reached(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.look("kvm1", ledger_id=desk.ledger.ledger_id)

    def fail(*_args: t.Any, **_options: t.Any) -> t.NoReturn:
        raise Unreachable("etcd does not answer.")

    monkeypatch.setattr(fleet_status, "open_ledger", fail)
    assert not [line for line in desk.show_all()["attention"] if "protected under" in line]
