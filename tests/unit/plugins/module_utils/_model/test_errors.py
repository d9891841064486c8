# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e

CODES = {
    "internal",
    "invalid_argument",
    "not_found",
    "forbidden",
    "invalid_state",
    "conflict",
    "not_supported",
    "unreachable",
    "unsafe",
    "timeout",
    "aborted",
    "migration_failed",
}


def test_every_documented_error_code_has_its_class() -> None:
    classes = e.KvmfleetError.__subclasses__()
    assert {cls.error_code for cls in classes} >= CODES
    for cls in classes:
        assert e.error_for_code(cls.error_code).error_code == cls.error_code


@pytest.mark.parametrize("code", ["", "nonsense", "INTERNAL"])
def test_an_unknown_error_code_is_internal(code: str) -> None:
    assert e.error_for_code(code) is e.Internal


@pytest.mark.parametrize(("next_step", "text"), [(None, "It failed."), ("Run again.", "It failed. Run again.")])
def test_the_message_has_the_next_step(next_step: t.Optional[str], text: str) -> None:
    error = e.Conflict("It failed.", next_step, migrations=[1])
    assert str(error) == text
    assert error.as_result() == {"msg": text, "error_code": "conflict", "migrations": [1]}


def test_further_keys_do_not_override_message_and_code() -> None:
    assert e.NotFound("Gone.", msg="x", error_code="y").as_result() == {"msg": "Gone.", "error_code": "not_found"}
