# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(host_lease)'s control half with a fake host: what the host gets, and what a task returns."""

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import host_lease as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig, LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, NotFound, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostProtection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.unreadable_hosts import LedgerHosts, UnreadableHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.lease_config import LeasePlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.lease import WatchdogSettings
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

FLEET = tuple(LeasePeer(f"id{number}", f"kvm{number}", (f"192.0.2.{number}",), 16516, False) for number in (1, 2, 3))
ID = str(uuid.UUID(int=1))
# With a pause of 3 s between two renewals and a device that takes 10 s, the host is reset within 44 s.
SEEN = {"boot_id": "boot 1", "held_at_boot": True, "armed": True, "device": "/dev/watchdog0", "identity": "iTCO_wdt", "timeout_seconds": 10, "nowayout": True}
WATCHDOG = {**SEEN, "bound": True, "reset_seconds": 44}
CONFIG = LeaseConfig("id1", "kvm1", "12", ("etcd1:2379",), "/fleet/", True, "lease-kvm1", "s3cret-word", 15, 3, 16516, False, FLEET)


class Node:
    """A control node, and the host that its tasks run on."""

    def __init__(self, ledger: FileLedger) -> None:
        self.ledger = ledger
        self.check_mode = False
        self.works: list[dict[str, t.Any]] = []
        self.answer: dict[str, t.Any] = {"changed": True, "files": ["/etc/kvmfleet/lease.json"], "systemd": True}
        self.hidden: list[tuple[bool, ...]] = []
        self.forgotten: list[str] = []
        # What the ledger has as evidence when the host is asked.
        self.evidence: list[t.Any] = []

    def read_evidence(self) -> t.Any:
        found = self.ledger.find_host(name="kvm1")
        assert found is not None
        return (found.host.protected or HostProtection()).watchdog or None

    def task(self, **args: t.Any) -> t.Any:
        action = m.ActionModule.__new__(m.ActionModule)
        contexts = [types.SimpleNamespace(no_log=False) for _number in range(2)]
        task = types.SimpleNamespace(args=args, async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=False)
        action._loader, action._task, action._play_context = None, task, contexts[0]
        action._connection = types.SimpleNamespace(_play_context=contexts[1])

        def run(module_name: str, module_args: dict[str, t.Any], task_vars: object) -> dict[str, t.Any]:
            assert module_name == "kvmfleet.migration.host_lease"
            self.works.append(module_args["_work"])
            self.evidence.append(self.read_evidence())
            self.hidden.append(tuple(one.no_log for one in (*contexts, task)))
            return self.answer

        action._execute_module = run
        return action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": "etcd://etcd1:2379/fleet"}))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(FileLedger(str(tmp_path / "ledger")))
    entry = {"name": "kvm1", "host_id": ID, "state": "enabled", "since": "then", "protected": {"at": "then", "watchdog": WATCHDOG}}
    node.ledger.put_host(host_entry(entry), None)
    plan = LeasePlan(config=CONFIG, tls={"ca_file": "ca"}, least_count=777, warnings=("One member is missing.",))
    monkeypatch.setattr(m, "connect", lambda location: (None, None))
    monkeypatch.setattr(m, "open_ledger", lambda *location, create: node.ledger)
    monkeypatch.setattr(m, "open_if_any", lambda *location: node.ledger, raising=False)
    monkeypatch.setattr(m, "plan_lease", lambda host, settings, ledger, client, options: plan)
    monkeypatch.setattr(m, "_forget_lease", lambda location, host: node.forgotten.append(host))
    return node


def test_the_host_gets_its_configuration_and_nothing_of_it_is_logged(node: Node) -> None:
    result = node.task()
    tried, work = node.works
    assert tried == {**work, "check": True}
    assert (work["phase"], decode(LeaseConfig, work["config"]), work["tls"], work["least_count"], work["check"]) == (
        "install",
        CONFIG,
        {"ca_file": "ca"},
        777,
        False,
    )
    assert work["watchdog"] is None
    assert node.hidden == [(True, True, True)] * 2
    assert result == {
        "changed": True,
        "files": ["/etc/kvmfleet/lease.json"],
        "systemd": True,
        "fleet": ["kvm1", "kvm2", "kvm3"],
        "warnings": ["One member is missing."],
    }


def test_the_host_gets_the_watchdog_of_its_lease(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = LeasePlan(config=CONFIG, tls={}, least_count=0, warnings=(), watchdog=WatchdogSettings(None, 30))
    monkeypatch.setattr(m, "plan_lease", lambda host, settings, ledger, client, options: plan)
    assert "warnings" not in node.task()
    assert node.works[0]["watchdog"] == {"device": None, "seconds": 30}


@pytest.mark.parametrize(
    ("watchdog", "renew_seconds", "counts"),
    [
        (WatchdogSettings(None, 10), 3, True),
        (WatchdogSettings("/dev/watchdog0", 5), 3, True),
        # Unbound, or reset later or by another device than the ledger has it: the host may never say so in etcd.
        (None, 3, False),
        (WatchdogSettings(None, 11), 3, False),
        (WatchdogSettings(None, 10), 4, False),
        (WatchdogSettings("/dev/watchdog1", 10), 3, False),
    ],
)
def test_what_the_watchdog_was_seen_to_do_is_withdrawn_before_the_host_does_less(
    node: Node, monkeypatch: pytest.MonkeyPatch, watchdog: WatchdogSettings | None, renew_seconds: int, counts: bool
) -> None:
    plan = LeasePlan(config=dataclasses.replace(CONFIG, renew_seconds=renew_seconds), tls={}, least_count=0, warnings=(), watchdog=watchdog)
    monkeypatch.setattr(m, "plan_lease", lambda host, settings, ledger, client, options: plan)
    node.task()
    assert [(work["check"], bool(seen)) for work, seen in zip(node.works, node.evidence)] == [*([] if counts else [(True, True)]), (False, counts)]
    assert bool(node.read_evidence()) == counts


@pytest.mark.parametrize("answer", [{"unreachable": True, "msg": "timed out"}, {"failed": True, "msg": "timed out", "error_code": "unsafe"}])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_host_that_does_not_change_keeps_what_its_watchdog_was_seen_to_do(node: Node, answer: dict[str, t.Any], state: str) -> None:
    """It may just have been reset, and no run of protect can bring back what shows that."""
    node.answer = answer
    with pytest.raises((Unreachable, Unsafe), match="timed out") as caught:
        node.task(state=state)
    assert "ledger" not in str(caught.value)
    assert node.read_evidence()


def test_what_the_watchdog_was_seen_to_do_is_withdrawn_before_the_service_is_removed(node: Node) -> None:
    node.check_mode = True
    node.task(state="absent")
    node.check_mode = False
    node.task(state="absent")
    assert [(work["check"], bool(seen)) for work, seen in zip(node.works, node.evidence)] == [(True, True), (True, True), (False, False)]


def test_nothing_is_unbound_while_the_ledger_does_not_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words would be those of a bound watchdog: an evacuation would take the silence of the host for a reset."""

    def refuse(*_location: object) -> None:
        raise Unreachable("No member answers.")

    monkeypatch.setattr(m, "open_if_any", refuse, raising=False)
    with pytest.raises(Unreachable, match="No member answers"):
        node.task(state="absent")
    assert node.works == []


@pytest.mark.parametrize("newer", [{"name": "kvm1"}, None])
def test_nothing_is_unbound_while_the_entry_of_the_host_cannot_be_read(node: Node, monkeypatch: pytest.MonkeyPatch, newer: dict[str, t.Any] | None) -> None:
    hosts = LedgerHosts((), [UnreadableHost(ID, newer)])
    monkeypatch.setattr(type(node.ledger), "read_hosts", lambda _ledger: hosts)
    with pytest.raises(Conflict, match="what it has of the watchdog of kvm1 cannot be withdrawn"):
        node.task(state="absent")
    assert node.works == []


def test_the_document_of_another_host_of_a_later_version_prevents_no_removal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = LedgerHosts(tuple(node.ledger.list_hosts()), [UnreadableHost(str(uuid.UUID(int=2)), {"name": "kvm2"}), UnreadableHost(str(uuid.UUID(int=3)))])
    monkeypatch.setattr(type(node.ledger), "read_hosts", lambda _ledger: hosts)
    assert node.task(state="absent")["changed"]


def test_a_service_is_removed_without_any_ledger(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "open_if_any", lambda *location: None, raising=False)
    assert node.task(state="absent")["changed"]


def test_the_host_learns_the_ledger_of_the_task(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.task()
    node.task(state="absent")
    monkeypatch.setattr(m, "open_if_any", lambda *location: None, raising=False)
    node.task(state="absent")
    assert [work["ledger_id"] for work in node.works if not work["check"]] == [node.ledger.ledger_id, node.ledger.ledger_id, None]


def test_a_watchdog_that_stays_armed_is_a_warning(node: Node) -> None:
    node.answer = {**node.answer, "warnings": ["It cannot be disarmed."]}
    assert node.task(state="absent")["warnings"] == ["It cannot be disarmed."]


def test_check_mode_is_passed_to_the_host_and_removes_no_lease(node: Node) -> None:
    node.check_mode = True
    node.task()
    node.task(state="absent")
    assert [(work["phase"], work["check"]) for work in node.works] == [("install", True), ("remove", True)]
    assert node.forgotten == []


def test_a_lease_that_is_renewed_no_more_is_removed_from_etcd(node: Node) -> None:
    assert node.task(state="absent") == {"changed": True, "files": ["/etc/kvmfleet/lease.json"], "systemd": True}
    assert node.forgotten == ["kvm1"]


@pytest.mark.parametrize(
    ("error", "warns"), [(InvalidArgument("A ledger in a folder."), False), (Unreachable("No member answers."), True), (NotFound("No ledger."), True)]
)
def test_a_service_is_removed_although_its_lease_stays_in_etcd(node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception, warns: bool) -> None:
    def refuse(_location: object, _host: str) -> None:
        raise error

    monkeypatch.setattr(m, "_forget_lease", refuse)
    result = node.task(state="absent")
    assert result["changed"]
    assert ("warnings" in result) == warns


def test_what_the_host_refuses_leaves_its_lease_in_etcd(node: Node) -> None:
    node.answer = {"failed": True, "msg": "bound", "error_code": "unsafe"}
    with pytest.raises(Exception, match="bound"):
        node.task(state="absent")
    assert node.forgotten == []
    node.answer = {"failed": True, "msg": "another host", "error_code": "conflict"}
    with pytest.raises(Conflict, match="another host"):
        node.task()


def test_a_state_that_does_not_exist_is_refused(node: Node) -> None:
    with pytest.raises(InvalidArgument):
        node.task(state="released")
    assert node.works == []
