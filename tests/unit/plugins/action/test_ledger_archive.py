# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module ledger_archive as a task has it: which records are old enough, and what it says."""

from __future__ import annotations

import datetime
import json
import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import ledger_info, report
from ansible_collections.kvmfleet.migration.plugins.action.ledger_archive import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import CheckedFleet, keep_check
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import FileStore

WEB = DomainRef(str(uuid.UUID(int=1, version=4)), "web1")


def days_ago(days: float) -> str:
    return format_time(datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days))


class Node:
    """A control node whose inventory names a ledger with a move for each given age."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.to = str(folder / "archive")
        self.check_mode = False
        self.store = FileStore(folder / "ledger")
        self.ledger = self.store.open()

    def put_moves(self, *ages: float) -> None:
        for generation, days in enumerate(ages, 1):
            record = new_record(s.LIVE_MIGRATION, WEB, HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "me")
            self.store.put_closed(record.raise_generation(generation), days_ago(days))

    def task(self, kind: type[FleetAction] = ActionModule, **args: t.Any) -> dict[str, t.Any]:
        action = kind.__new__(kind)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None)
        return action.run_with_options(task_vars("localhost", {"kvmfleet_ledger": str(self.store.folder)}))


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_what_is_older_than_ninety_days_is_moved_once(node: Node) -> None:
    node.put_moves(200, 91, 89, 1)
    first = node.task(to=node.to)
    assert (first["changed"], first["records"], first["lines"], first["kept"]["newest_of_domain"]) == (True, 1, 0, 1)
    assert first["bytes"] > 100
    assert first["msg"] == (
        f"1 record from before {first['until']} (0.0 MiB) was moved from the ledger {node.store.folder} to the archive {node.to}. 1 older record stays."
    )
    second = node.task(to=node.to)
    assert (second["changed"], second["records"]) == (False, 0)
    assert second["msg"].startswith(f"Nothing from before {second['until']} had to be moved from the ledger {node.store.folder}")


def test_an_archive_is_begun_when_there_is_something_to_move(node: Node) -> None:
    node.put_moves(1)
    assert not node.task(to=node.to)["changed"]
    assert not pathlib.Path(node.to).exists()
    assert node.task(ledger_info.ActionModule)["archives"] == []


def test_the_age_can_be_set(node: Node) -> None:
    node.put_moves(200, 91, 60, 31, 29)
    assert node.task(to=node.to, older_than_days=30)["records"] == 3


def test_check_mode_says_what_would_be_moved(node: Node) -> None:
    node.put_moves(200, 91)
    node.check_mode = True
    result = node.task(to=node.to)
    assert (result["changed"], result["records"]) == (True, 1)
    assert "would be moved" in result["msg"]
    assert not pathlib.Path(node.to).exists()
    assert len(node.ledger.list_closed_ids()) == 2


@pytest.mark.parametrize("days", [29, 0, -1, 36_501, 10**12])
def test_an_age_out_of_range_is_refused(node: Node, days: int) -> None:
    node.put_moves(200, 91)
    with pytest.raises(InvalidArgument, match=f"older_than_days must be 30 to 36500, not {days}"):
        node.task(to=node.to, older_than_days=days)
    assert len(node.ledger.list_closed_ids()) == 2


@pytest.mark.parametrize("to", ["", "sqlite://x", "etcd://h:2379/x", "a\x00b"])
def test_an_archive_is_a_folder(node: Node, to: str) -> None:
    with pytest.raises(InvalidArgument):
        node.task(to=to)


def test_a_missing_ledger_is_not_created(node: Node, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound):
        node.task(ledger=str(tmp_path / "none"), to=node.to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger"]


def test_the_archive_is_read_as_a_ledger_is(node: Node) -> None:
    node.put_moves(200, 150, 91)
    node.task(to=node.to)
    info = node.task(ledger_info.ActionModule, ledger=node.to, verify=True, list=["migrations"], domain="web1")
    assert (info["intact"], len(info["migrations"]), info["archive_of"], info["moved_to"], info["copied_from"]) == (True, 2, node.ledger.name, None, None)
    assert info["msg"].startswith(f"The archive {node.to} of the ledger {node.ledger.name} ({node.ledger.ledger_id}): 2 closed records.")
    written = node.task(report.ActionModule, ledger=node.to, dest=str(node.folder / "report"), formats=["json"])
    assert written["counts"]["completed"] == 2
    with pytest.raises(InvalidState, match="can only be read"):
        node.task(ledger=node.to, to=str(node.folder / "other"))


def test_the_ledger_lists_its_archives(node: Node) -> None:
    node.put_moves(200, 150, 91)
    assert node.task(ledger_info.ActionModule)["archives"] == []
    node.task(to=node.to)
    (archive,) = node.task(ledger_info.ActionModule)["archives"]
    assert archive["to"] == node.to


def test_a_list_that_may_be_incomplete_says_so(node: Node) -> None:
    node.put_moves(200, 150, 120, 1)
    node.task(to=node.to)
    until = node.task(ledger_info.ActionModule)["archives"][0]["until"]
    for options in ({}, {"since": "2020-01-01"}, {"domain": "web1", "status": ["completed"]}):
        (warning,) = node.task(ledger_info.ActionModule, list=["migrations"], **options)["warnings"]
        assert warning == f"Records from before {until} may be in an archive, which is not read here: {node.to}. Set 'ledger' to an archive to read it."
    complete: tuple[dict[str, t.Any], ...] = (
        {"since": until},
        {"since": days_ago(10)},
        {"status": ["running"]},
        {"list": ["evacuations"]},
        {"ledger": node.to},
    )
    for options in complete:
        assert "warnings" not in node.task(ledger_info.ActionModule, **{"list": ["migrations"], **options}), options


def test_a_report_that_may_be_incomplete_says_so(node: Node) -> None:
    node.put_moves(200, 150, 120, 1)
    options = {"dest": str(node.folder / "report"), "formats": ["json", "markdown", "html"]}
    assert "warnings" not in node.task(report.ActionModule, **options)
    node.task(to=node.to)
    (warning,) = node.task(report.ActionModule, **options)["warnings"]
    assert "may be in an archive" in warning
    written = {path.suffix: path.read_text() for path in (node.folder / "report").iterdir()}
    assert json.loads(written[".json"])["coverage"] == warning
    assert "may be in an archive" in written[".md"]
    assert "may be in an archive" in written[".html"]
    assert "warnings" not in node.task(report.ActionModule, since=days_ago(10), **options)
    known = node.ledger.list_closed_ids()
    assert "warnings" not in node.task(report.ActionModule, ids=sorted(known), **options)


def test_a_report_of_an_archive_has_no_verdicts(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.put_moves(200, 150, 1)
    node.task(to=node.to)
    monkeypatch.setenv("XDG_STATE_HOME", str(node.folder / "state"))
    keep_check(CheckedFleet(1, node.ledger.ledger_id, "2026-11-21T00:59:00.000Z", False, 1, {}, {}, {}, (), ()))
    result = node.task(report.ActionModule, ledger=node.to, dest=str(node.folder / "report"), formats=["json"])
    assert (result["safe_to_reboot"], "warnings" in result) == ({}, False)
    written = json.loads((node.folder / "report" / "report.json").read_text())
    assert (written["hosts"], "fleet_check" in written, len(written["moves"])) == ([], False, 1)
    assert written["coverage"] == "This is a report of an archive: it has live migrations only, and no verdicts about hosts."


def test_a_ledger_that_was_moved_is_still_not_reported(node: Node) -> None:
    node.ledger.begin_move("/srv/new", "me")
    with pytest.raises(InvalidState, match="is being moved to /srv/new"):
        node.task(report.ActionModule, dest=str(node.folder / "report"))


def test_an_archive_cannot_be_verified_as_another_ledger(node: Node) -> None:
    node.put_moves(200, 150)
    node.task(to=node.to)
    other = FileLedger(str(node.folder / "other"))
    with pytest.raises(InvalidArgument, match="is an archive of another ledger"):
        node.task(ledger=other.name, to=node.to)
