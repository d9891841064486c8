# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module ledger_copy as a task has it: where it takes places from, and what it says."""

from __future__ import annotations

import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.ledger_copy import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry


class Node:
    """A control node whose inventory names a ledger with one host in it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.old, self.new = folder / "old", folder / "new"
        self.check_mode = False
        self.ledger = FileLedger(str(self.old))
        self.ledger.put_host(host_entry({"name": "kvm1", "host_id": str(uuid.UUID(int=1)), "host_uuid": None, "state": "maintenance"}), None)

    def task(self, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None)
        return action.run_with_options(task_vars("localhost", {"kvmfleet_ledger": str(self.old)}))


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_the_ledger_of_the_inventory_is_moved_once(node: Node) -> None:
    first = node.task(to=str(node.new))
    assert (first["changed"], first["from"], first["to"], first["ledger_id"]) == (True, str(node.old), str(node.new), node.ledger.ledger_id)
    assert first["counts"]["hosts"] == 1
    assert f"was moved to {node.new}: " in first["msg"]
    assert f"Set 'ledger' or 'kvmfleet_ledger' to {node.new}" in first["msg"]
    second = node.task(to=str(node.new))
    assert (second["changed"], second["msg"].endswith(f"was moved to {node.new} earlier.")) == (False, True)
    assert [document.body["state"] for document in FileLedger(str(node.new)).list_hosts()] == ["maintenance"]
    with pytest.raises(InvalidState, match=f"was moved to {node.new} "):
        node.ledger.put_host(host_entry({"name": "kvm2", "host_id": str(uuid.UUID(int=2)), "host_uuid": None, "state": "enabled"}), None)


def test_check_mode_predicts(node: Node) -> None:
    node.check_mode = True
    result = node.task(to=str(node.new))
    assert result["changed"]
    assert "would be moved" in result["msg"]
    assert not node.new.exists()


def test_unsettled_records_are_returned_with_the_refusal(node: Node) -> None:
    record = node.ledger.open_record(
        new_record(s.LIVE_MIGRATION, DomainRef(str(uuid.uuid4()), "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "me")
    ).record
    with pytest.raises(Conflict, match="1 unsettled record: the live-migration record") as refused:
        node.task(to=str(node.new))
    assert refused.value.as_result()["records"] == [encode(record)]


@pytest.mark.parametrize("to", ["", "sqlite://x", "etcd://h:2379", "etcd://u:p@h:2379/x", "a\x00b"])
def test_an_invalid_location_is_refused(node: Node, to: str) -> None:
    with pytest.raises(InvalidArgument):
        node.task(to=to)


def test_a_missing_ledger_is_not_created_to_be_moved(node: Node, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound):
        node.task(ledger=str(tmp_path / "none"), to=str(node.new))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
