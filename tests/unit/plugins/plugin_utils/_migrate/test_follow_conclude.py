# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import final_error


def ended(status: str, reason: t.Optional[str] = None) -> MoveRecord:
    record = new_record("live-migration", DomainRef("u", "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "x")
    line = HistoryLine("", status, "x", "The guest is running on the source.")
    return dataclasses.replace(record, status=status, reason=reason, history=(*record.history, line))


@pytest.mark.parametrize(
    ("status", "reason", "error_code"),
    [
        ("conflict", None, "conflict"),
        ("cancelled", "timeout", "timeout"),
        ("cancelled", "stalled", "timeout"),
        ("cancelled", "pause_overrun", "timeout"),
        ("cancelled", "operator", "aborted"),
        ("cancelled", "controller_lost", "aborted"),
        ("failed", None, "migration_failed"),
        ("error", "running_twice", "internal"),
        ("running", None, "internal"),
    ],
)
def test_each_outcome_has_its_error_code_and_message(status: str, reason: t.Optional[str], error_code: str) -> None:
    error = final_error(ended(status, reason))
    assert error is not None
    assert error.error_code == error_code
    for word in ("web1", "kvm1", "kvm2", reason or status, "The guest is running on the source."):
        assert word in str(error)
    assert error.as_result()["migrations"][0]["status"] == status


def test_the_error_of_a_failed_move_names_the_next_step() -> None:
    told = str(final_error(ended("failed")))
    assert told.endswith("then run the task again.")
    assert "journalctl -u libvirtd -u virtqemud" in told, "a host has either daemon"


@pytest.mark.parametrize(("port", "is_named"), [(49152, True), (16509, False)])
def test_a_failed_move_that_found_no_connection_names_the_ports_of_memory(port: int, is_named: bool) -> None:
    record = ended("failed")
    words = f"Failed to move domain x to qemu+tcp://kvm2/system: unable to connect to server at 'kvm2:{port}': Connection timed out (libvirt error 38)."
    record = dataclasses.replace(record, history=(*record.history, HistoryLine("", "failed", "x", f"{words} The guest is running on the source.")))
    told = str(final_error(record))
    assert ("firewalls between the two hosts: memory is sent to TCP ports 49152 to 49215" in told, "full disk" in told) == (is_named, not is_named)


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("unreachable", "When they answer, run the same task again"),
        ("guest_died", "start it where it belongs, and run the same task again"),
        ("memory_lost", "settle the record with kvmfleet.migration.host, and start the guest from its disks"),
        ("running_twice", "stop the other one by hand. Then run the same task again"),
    ],
)
def test_the_error_of_a_move_without_a_result_names_what_settles_its_record(reason: str, step: str) -> None:
    assert step in str(final_error(ended("error", reason)))


def test_a_completed_move_has_no_error() -> None:
    assert final_error(ended("completed")) is None
    assert final_error(ended("completed", "definition_left")) is None
