# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.verdict import error_of


def ended(status: str, reason: t.Optional[str] = None) -> schema.Record:
    record = schema.new_record("live-migration", {"uuid": "u", "name": "web1"}, schema.place("kvm1"), schema.place("kvm2"), {}, "x")
    record.update(status=status, reason=reason)
    record["history"].append({"at": "", "status": status, "by": "x", "detail": "The guest is running on the source."})
    return record


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
def test_each_end_has_its_code_and_says_what_where_and_why(status: str, reason: t.Optional[str], error_code: str) -> None:
    error = error_of(ended(status, reason))
    assert error is not None
    assert error.error_code == error_code
    for word in ("web1", "kvm1", "kvm2", reason or status, "The guest is running on the source."):
        assert word in str(error)
    assert error.as_result()["migrations"][0]["status"] == status


def test_a_failure_of_which_libvirt_may_not_tell_the_cause_says_where_to_look() -> None:
    assert str(error_of(ended("failed"))).endswith("then run the task again.")


def test_an_arrival_is_no_error() -> None:
    assert error_of(ended("completed")) is None
    assert error_of(ended("completed", "definition_left")) is None
