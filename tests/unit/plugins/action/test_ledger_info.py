# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module ledger_info: counts, lists, one record, verification; and it changes nothing."""

from __future__ import annotations

import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.ledger_info import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger as copied
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.copying import FileTarget
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars


class Node:
    """A control node with two moves in its ledger, the first one in error."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "ledger"
        ledger = FileLedger(str(self.path))
        stored = [
            ledger.open_record(
                new_record(s.LIVE_MIGRATION, DomainRef(str(uuid.uuid4()), name), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "me")
            )
            for name in ("web1", "web2")
        ]
        record = stored[0].record.advance(s.ERROR, "me")
        self.records = [ledger.update_record(stored[0], record).record, stored[1].record]

    def task(self, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=True, diff=False, delegate_to=None)
        return action.run_with_options(task_vars("localhost", {"kvmfleet_ledger": str(self.path)}))

    def files(self) -> dict[str, bytes]:
        return {str(file): file.read_bytes() for file in self.path.rglob("*") if file.is_file()}


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_ledger_info_without_options_counts_records(node: Node) -> None:
    result = node.task()
    assert not result["changed"]
    assert (result["counts"]["unsettled"], result["counts"]["open_by_status"]) == (2, {"accepted": 1, "error": 1})
    assert str(node.path) in result["msg"]
    assert "2 unsettled, 0 done and 0 closed records" in result["msg"]
    assert (result["moved_to"], result["copied_from"]) == (None, None)


def test_ledger_info_lists_by_conditions_and_returns_one_record(node: Node) -> None:
    result = node.task(list=["migrations", "evacuations"], status=["error"], id=node.records[1].id)
    assert result["migrations"] == [encode(node.records[0])]
    assert result["evacuations"] == []
    assert result["record"] == encode(node.records[1])
    assert "hosts" not in result
    assert node.task(list=["domains"], query="[].name")["domains"] == ["web1", "web2"]


def test_an_undamaged_ledger_is_intact_and_not_written(node: Node) -> None:
    before = node.files()
    result = node.task(verify=True)
    assert result["intact"]
    assert result["problems"] == []
    assert "the audit holds" in result["msg"]
    assert not result.get("failed")
    assert node.files() == before


def test_damage_of_the_ledger_fails_the_task_and_is_named(node: Node) -> None:
    (node.path / "domains" / f"{node.records[0].domain.uuid}.json").write_text("torn")
    audit = node.path / "audit.jsonl"
    audit.write_text(audit.read_text().replace("web1", "web9", 1))
    before = node.files()
    result = node.task(verify=True)
    assert (result["failed"], result["error_code"], result["intact"]) == (True, "invalid_state", False)
    assert len(result["problems"]) == 2
    assert node.records[0].domain.uuid in result["problems"][0]
    assert "audit.jsonl: Line 1 was changed" in result["problems"][1]
    assert "compared with a backup" in result["msg"]
    assert node.files() == before


def test_a_missing_ledger_is_not_created(node: Node, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound, match="There is no ledger at"):
        node.task(ledger=str(tmp_path / "none"), verify=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "args",
    [
        {"status": ["error"]},
        {"list": ["hosts"], "status": ["error"]},
        {"list": ["migrations"], "status": ["lost"]},
        {"list": ["migrations"], "since": "yesterday"},
        {"list": ["migrations"], "query": "[?"},
        {"list": ["records"]},
        {"id": "x"},
    ],
)
def test_invalid_conditions_are_refused(node: Node, args: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument):
        node.task(**args)


@pytest.mark.parametrize("data", [b"torn", encode_document({"ledger_id": "later", "schema": 99}, 1)])
def test_settings_that_cannot_be_read_are_reported_and_stay(node: Node, data: bytes) -> None:
    settings = node.path / "settings" / f"{FileLedger(str(node.path)).ledger_id}.json"
    settings.parent.mkdir()
    settings.write_bytes(data)
    before = node.files()
    assert node.task()["archives"] == []
    result = node.task(verify=True)
    assert (result["intact"], result["archives"], len(result["problems"])) == (False, [], 1)
    assert node.files() == before


def test_a_moved_ledger_is_read_and_names_its_new_location(tmp_path: pathlib.Path, node: Node) -> None:
    settled = tmp_path / "settled"
    made = FileLedger(str(settled))
    copied(made, FileTarget(str(tmp_path / "new")), "me")
    result = node.task(ledger=str(settled), verify=True)
    assert (result["intact"], result["moved_to"]) == (True, str(tmp_path / "new"))
    assert str(tmp_path / "new") in result["msg"]
    assert node.task(ledger=str(tmp_path / "new"))["copied_from"] == str(settled)
    with pytest.raises(InvalidState, match="was moved to"):
        FileLedger(str(settled))
