# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a task of live_migrate returns fulfills its schema, however the moves end."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import RememberedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import final_error, make_result
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document, find_errors
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control

SCHEMA = "migrate-result.json"
MOVE = {"name": "web1", "destination": "kvm2"}
MISSING = RememberedMove(
    id=UUID,
    generation=3,
    type="live-migration",
    status="completed",
    domain=DomainRef(UUID, "web1"),
    source=HostRef("kvm1", None, None),
    destination=HostRef("kvm2", None, None),
    ledger_id=None,
    remembered_by="kvm1",
    ledger_status=None,
    extra={"updated_at": "2026-11-21T03:00:00.000Z"},
)


def result_of(control: Control, *warnings: str, check: bool = False, missing: t.Sequence[RememberedMove] = (), **given: t.Any) -> dict[str, t.Any]:
    """Run a task, and return its result after it was checked."""
    result = t.cast("dict[str, t.Any]", make_result(control.run(check=check, **given), list(warnings), missing, diff=True))
    check_document(SCHEMA, result)
    return result


def test_a_move_that_completes_and_the_same_task_again(control: Control) -> None:
    control.fleet.guest()
    done = result_of(control, "Something is unverified.", missing=[MISSING], **MOVE)
    assert (done["changed"], done["migrations"][0]["status"], done["diff"]["after"]) == (True, "completed", "web1: kvm2\n")
    assert "failures" not in done
    assert result_of(control, **MOVE)["changed"] is False


def test_a_move_that_waited_too_long_for_another_job_is_an_invalid_state() -> None:
    record = new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "test")
    record = dataclasses.replace(record, status=s.QUEUED).advance(s.CANCELLED, "test", "Domain web1 still has a backup after 60 s.", s.REASON_BUSY)
    error = final_error(record)
    assert isinstance(error, InvalidState)
    assert "cancelled (busy). Domain web1 still has a backup after 60 s. Run the task again when that job has ended" in str(error)


def test_a_prediction(control: Control) -> None:
    control.fleet.guest()
    assert result_of(control, check=True, **MOVE)["migrations"][0]["id"] is None


def test_a_move_that_is_refused_and_one_of_an_unknown_domain(control: Control) -> None:
    control.fleet.guest()
    control.fleet.machines["kvm2"].total_bytes = 1024**2
    refused = result_of(control, moves=[MOVE])
    assert (refused["failed"], refused["error_code"], refused["migrations"][0]["status"]) == (True, "conflict", "conflict")
    unknown = result_of(control, moves=[{"name": "nobody", "destination": "kvm2"}])
    assert (unknown["error_code"], unknown["migrations"], unknown["failures"][0]["uuid"]) == ("not_found", [], None)


def test_a_task_that_is_refused_before_any_host_is_asked() -> None:
    check_document(SCHEMA, {"failed": True, "changed": False, **InvalidArgument("parallel is 0.").as_result()})


def test_what_no_task_returns_is_refused() -> None:
    assert find_errors(SCHEMA, {"migrations": []})
    assert find_errors(SCHEMA, {"changed": True, "failed": True, "error_code": "broken"})
    assert find_errors(SCHEMA, {"changed": True, "migrations": [{"id": None}]})
