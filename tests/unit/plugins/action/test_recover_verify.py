# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module recover_verify: puts the results of a recovery together, shows and publishes them."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import recover_verify
from ansible_collections.kvmfleet.migration.plugins.action.recover_verify import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, host, record, uid

Body = dict[str, t.Any]
WEB = {"uuid": uid("web1"), "name": "web1"}
ENTRY = {"host": host("kvm1", "maintenance")}
RELEASED = {"guard": {"installed": True}, "open_records": [], "to_start": []}
ENABLED = {"host": host("kvm1")}


class Node:
    """A control node after the recovery of kvm1."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.check_mode = False
        self.no_log = False

    def task(self, hosts: t.Sequence[str] = ("kvm1",), present: t.Sequence[str] = ("kvm1",), **tasks: t.Any) -> Body:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=self.no_log)
        work = {"present": list(present), "tasks": {name: {"kvm1": result} for name, result in tasks.items()}}
        action._task.args = {"hosts": list(hosts), "publish_as": "recover_host_result", "_work": work}
        done: Body = action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": self.ledger.name}))
        check_document("recovery-result.json", done["result"])
        return done

    def own(self, **tasks: t.Any) -> Body:
        """Return the result of kvm1."""
        return t.cast(Body, self.task(**tasks)["result"]["kvm1"])


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(recover_verify, "Display", lambda: types.SimpleNamespace(display=print))
    return Node(tmp_path)


def test_the_result_of_a_recovery_is_shown_and_published_for_all_batches(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = {"cleaned": [{**WEB, "record": "r"}], "superseded": [], "deleted": [], "kept": [], "refused": []}
    started = {"results": [{"changed": True, "domain": WEB}, {"changed": False, "domain": {"uuid": "x", "name": "was on"}}]}
    done = node.task(entry=ENTRY, cleaned=cleaned, released=RELEASED, started=started, enabled=ENABLED)
    own = done["result"]["kvm1"]
    assert (own["cleaned"], own["started"], own["released"], own["enabled"]) == (cleaned["cleaned"], [WEB], True, True)
    assert (own["failed"], own["skipped"], own["notes"], own["error"], done["problems"]) == ([], [], [], "", {})
    assert done["ansible_stats"] == {"data": {"recover_host_result": done["result"]}, "per_host": False, "aggregate": True}
    assert "kvm1: 1 cleaned, 1 started, 0 brought home, 0 failed. Its boot is released, and it accepts domains again." in capsys.readouterr().out
    node.no_log = True
    node.task(entry=ENTRY)
    assert capsys.readouterr().out == ""


def test_a_host_on_which_no_step_ran_has_an_empty_result(node: Node) -> None:
    lists = ("cleaned", "superseded", "deleted", "kept", "refused", "started", "stayed_off", "brought_home", "skipped", "failed", "notes")
    assert node.own() == {**{key: [] for key in lists}, "released": False, "enabled": False, "error": ""}


def test_a_guest_that_stayed_off_is_shown_and_is_no_problem(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {**WEB, "reason": "It was running before the host went down, and is off."}
    done = node.task(entry=ENTRY, released=RELEASED, enabled=ENABLED, starts={"start": [], "forget": [], "refuse": [], "stayed_off": [entry]})
    own = done["result"]["kvm1"]
    assert (own["stayed_off"], own["failed"], own["started"], done["problems"]) == ([entry], [], [], {})
    assert "OFF     web1 on kvm1: It was running before the host went down, and is off." in capsys.readouterr().out


def test_a_host_that_stopped_answering_is_a_problem(node: Node) -> None:
    done = node.task(hosts=["kvm2", "kvm1"], present=["kvm1"], released=RELEASED)
    assert list(done["result"]) == ["kvm1", "kvm2"]
    assert done["problems"] == {"kvm2": "It stopped answering during recovery. Run recover again."}


def test_a_host_that_does_not_return_in_time_is_reported_with_the_limit(node: Node) -> None:
    # Ansible ends the message of a failed connection without a full stop.
    ended = {"msg": "timed out: Permission denied (publickey)", "waited_seconds": 5}
    words = (
        "kvm1 did not return within 5 s: timed out: Permission denied (publickey). Nothing was changed: its state in the ledger stays. "
        "Check its console and the login of Ansible, then run recover again."
    )
    assert node.own(ended=ended, reached={"failed": True})["error"] == words
    assert node.own(ended=ended, reached={}, answered={"failed": True})["error"] == words
    assert "no answer. Nothing" in node.own(ended={"waited_seconds": 5}, reached={"failed": True})["error"]


def test_the_error_of_a_recovery_is_reported_with_the_steps_before_it(node: Node) -> None:
    cleaned = {"cleaned": [{**WEB, "record": "r"}], "refused": [{**WEB, "record": "q", "reason": "It is active here."}], "failed": True, "msg": "Broken."}
    done = node.task(ended={"msg": "Broken."}, entry=ENTRY, cleaned=cleaned)
    own = done["result"]["kvm1"]
    assert (len(own["cleaned"]), own["released"], own["enabled"], own["error"]) == (1, False, False, "Broken.")
    assert done["problems"] == {"kvm1": "Broken. web1 was not cleaned up: It is active here."}
    assert node.own(ended={"msg": ""})["error"] == "It failed without a message."


def test_a_failed_release_does_not_count_and_a_missing_boot_guard_is_noted(node: Node) -> None:
    assert not node.own(released={"failed": True, "msg": "withheld"})["released"]
    own = node.own(released={**RELEASED, "guard": {"installed": False}})
    assert own["released"]
    assert "No boot guard is installed" in own["notes"][0]


def test_a_boot_guard_that_held_the_boot_although_files_are_missing_is_noted(node: Node) -> None:
    released = {"at": "2026-11-21T01:00:00Z", "by": "control"}
    assert "files of its boot guard are missing" in node.own(released={**RELEASED, "guard": {"installed": False, "released": released}})["notes"][0]


def test_open_records_keep_the_host_in_maintenance(node: Node) -> None:
    released = {**RELEASED, "open_records": [{"id": "r1", "domain": {"name": "web1"}}, {"id": "r2", "domain": {"name": "db1"}}]}
    own = node.own(entry=ENTRY, released=released, enabled={"skipped": True, "changed": False})
    assert not own["enabled"]
    assert [(entry["what"], entry["uuid"], entry["name"]) for entry in own["failed"]] == [("enable", None, "kvm1")]
    assert "records are open: r1, r2 (of web1, db1). Run live_migrate or evacuate again" in own["failed"][0]["reason"]
    assert node.own(entry=ENTRY, released=released)["failed"] == []


def test_a_host_keeps_its_state_if_its_maintenance_does_not_end(node: Node) -> None:
    skipped = {"skipped": True, "changed": False}
    assert not node.own(entry=ENTRY, released=RELEASED, enabled=skipped)["enabled"]
    assert node.own(entry=ENABLED, released=RELEASED, enabled=skipped)["enabled"]
    assert not node.own(entry=ENABLED, released=RELEASED, enabled={"failed": True, "msg": "no"})["enabled"]


def test_domains_that_are_not_started_are_reported_with_the_reason(node: Node) -> None:
    gone, unclear = {**WEB, "reason": "It is active on kvm2."}, {"uuid": "u2", "name": "db1", "reason": "It may run on kvm9."}
    starts = {"start": [{"uuid": "u3", "name": "bad"}], "forget": [gone], "refuse": [unclear]}
    started = {"results": [{"failed": True, "msg": "no memory", "item": starts["start"][0], "changed": False}]}
    own = node.own(starts=starts, started=started)
    assert own["skipped"] == [gone]
    assert [(entry["what"], entry["name"], entry["reason"]) for entry in own["failed"]] == [
        ("start", "db1", "It may run on kvm9."),
        ("start", "bad", "no memory"),
    ]


def test_domains_that_moved_back_or_failed_to_are_reported(node: Node) -> None:
    moves = [{**WEB, "source": "kvm2"}, {"uuid": "u2", "name": "large", "source": "kvm2"}]
    fits = {"results": [{"item": moves[0]}, {"item": moves[1], "failed": True, "msg": "no memory"}]}
    moved = {"results": [{"item": "kvm2", "migrations": [encode(record("web1", "kvm2", "kvm1", s.COMPLETED))]}]}
    skipped = [{"uuid": "u4", "name": "off", "reason": "It is off."}]
    own = node.own(entry=ENTRY, returning={"moves": moves, "shares": {}, "skipped": skipped}, fits=fits, moved=moved)
    assert (own["brought_home"], own["skipped"]) == ([moves[0]], skipped)
    assert [(entry["what"], entry["name"], entry["reason"]) for entry in own["failed"]] == [("bring home", "large", "no memory")]


def test_check_mode_counts_planned_moves_as_brought_home(node: Node) -> None:
    node.check_mode = True
    returning = {"moves": [{**WEB, "source": "kvm2"}], "shares": {}, "skipped": []}
    assert [entry["name"] for entry in node.own(entry=ENTRY, returning=returning, fits={"results": []}, moved={"results": []})["brought_home"]] == ["web1"]


def test_domains_that_protect_has_skipped_are_no_skipped_task(node: Node) -> None:
    protected = {"changed": False, "conflicts": [{**WEB, "msg": "twice"}], "skipped": [{"uuid": "u4", "name": "off", "reason": "It is off."}]}
    assert [entry["what"] for entry in node.own(protected=protected)["failed"]] == ["protect"]
    assert node.own(protected={"changed": False, "conflicts": [], "skipped": []})["failed"] == []
    assert node.own(protected={"changed": False, "skipped": True, "skip_reason": "Conditional result was False"})["failed"] == []


def test_conflicts_of_protect_are_reported_as_failed(node: Node) -> None:
    assert node.own(protected={"conflicts": [{**WEB, "msg": "twice"}]})["failed"] == [{**WEB, "msg": "twice", "what": "protect"}]
    assert node.own(protected={"failed": True, "conflicts": [{**WEB, "msg": "twice"}]})["failed"] == []


def test_the_origin_of_a_domain_that_is_back_is_removed_from_the_ledger(node: Node) -> None:
    node.ledger.put_host(host_entry({**host("kvm1"), "machine_id": None, "reason": None, "by": "test"}), None)
    node.ledger.put_domain(domain_entry(document("web1", "kvm1", origin="kvm1")), None)
    returning = {"moves": [{**WEB, "source": "kvm2"}], "shares": {}, "skipped": []}

    def origin() -> t.Any:
        found = node.ledger.read_domain(uid("web1"))
        assert found
        return found.body["protected"]["origin"]

    node.task(entry=ENTRY)
    assert origin() == "kvm1"
    node.check_mode = True
    node.task(entry=ENTRY, returning=returning)
    assert origin() == "kvm1"
    node.check_mode = False
    node.task(entry=ENTRY, returning=returning)
    assert origin() is None


def test_a_failed_write_of_the_ledger_is_the_error_of_the_host(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*dummy: t.Any) -> t.NoReturn:
        raise InvalidArgument("Somebody else always writes.")

    node.ledger.put_host(host_entry({**host("kvm1"), "machine_id": None, "reason": None, "by": "test"}), None)
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result.keep_origins", fail)
    done = node.task(entry=ENTRY, returning={"moves": [{**WEB, "source": "kvm2"}]}, moved={"results": [{"item": "kvm2", "msg": "x", "failed": True}]})
    assert done["result"]["kvm1"]["error"] == "Somebody else always writes."


@pytest.mark.parametrize("tasks", [{"started": {"results": [5]}}, {"released": {"x": 1}}, {"fits": {"results": [{"failed": True}]}}])
def test_an_invalid_task_result_is_refused(node: Node, tasks: Body) -> None:
    with pytest.raises(InvalidArgument, match="expected form"):
        node.task(**tasks)
