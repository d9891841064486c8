# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The monitor of the fuzzer: each kind of damage is a finding, and a finding can be reproduced."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t
from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.tests.fuzz import by_structure, findings, sandbox, watch
from ansible_collections.kvmfleet.migration.tests.fuzz.mutation import damaged, mutated
from ansible_collections.kvmfleet.migration.tests.fuzz.target import Target
from ansible_collections.kvmfleet.migration.tests.fuzz.watch import Finding, limited_memory, observe


def target(check: Callable[[t.Any], None], cases: st.SearchStrategy[t.Any] | None = None) -> Target:
    return Target("one", check, st.integers(0, 1000) if cases is None else cases)


def raising(error: Exception) -> Callable[[t.Any], None]:
    def check(_case: t.Any) -> None:
        raise error

    return check


def run_forever(_case: t.Any) -> None:
    try:
        while True:
            sum(range(1000))
    except Exception:  # noqa: BLE001 a parser that catches too much is stopped all the same
        pass


def write_outside(path: pathlib.Path) -> Callable[[t.Any], None]:
    return lambda _case: path.write_text("x")  # type: ignore[return-value]


def leave_sandbox(_case: t.Any) -> None:
    folder = os.open(sandbox.FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder))
    finally:
        os.close(folder)


def write_inside(_case: t.Any) -> None:
    sandbox.laid_out("own", {"a/b": b"1"})


def test_errors_of_the_collection_are_not_findings() -> None:
    observe(target(raising(InvalidArgument("No."))), 1)
    observe(target(write_inside), 1)


@pytest.mark.parametrize(
    "error", [KeyError("x"), AssertionError("x"), RecursionError(), MemoryError(), UnicodeDecodeError("ascii", b"", 0, 1, "x"), InvalidArgument("")]
)
def test_other_errors_are_findings(error: Exception) -> None:
    with pytest.raises(Finding, match=type(error).__name__):
        observe(target(raising(error)), 1)


def test_too_much_processor_time_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CPU_SECONDS", 0.1)
    with pytest.raises(Finding, match="processor time"):
        observe(target(run_forever), 1)


def test_too_much_memory_is_a_finding() -> None:
    with limited_memory(), pytest.raises(Finding, match="MemoryError"):
        observe(target(lambda _case: bytearray(2 * watch.MEMORY_BYTES)), 1)  # type: ignore[arg-type]


def test_access_outside_of_the_sandbox_is_a_finding(tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "x"
    for check in (write_outside(outside), leave_sandbox, lambda _case: os.mkdir(outside), lambda _case: subprocess.run(["true"], check=False)):
        with pytest.raises(Finding):
            observe(target(check), 1)  # type: ignore[arg-type]
    assert not outside.exists()
    outside.write_text("the watch is over")


def test_a_finding_can_be_reproduced_from_its_file(tmp_path: pathlib.Path) -> None:
    def check(case: t.Any) -> None:
        assert not (isinstance(case, dict) and case.get("a") is None)

    one = target(check, mutated({"a": 1, "b": {"c": [2]}}))
    ran, case, finding = by_structure.run(one, 500, 1)
    assert ran < 500
    assert finding is not None
    path = findings.write(tmp_path, "one", case)
    with pytest.raises(Finding):
        observe(one, findings.read(path))


def test_the_same_seed_generates_the_same_cases() -> None:
    def seen(number: int) -> list[str]:
        cases: list[str] = []
        by_structure.run(target(lambda case: cases.append(repr(case)), mutated({"a": [1, {"b": "c"}]})), 50, number)
        return cases

    assert seen(3) == seen(3)
    assert seen(3) != seen(4)


def test_any_case_survives_its_file(tmp_path: pathlib.Path) -> None:
    for case in (b"\xff\x00", {"a": ["\ud800", 1e400, 10**400]}, None):
        assert repr(findings.read(findings.write(tmp_path, "one", case))) == repr(case)


def test_bytes_are_damaged_and_sometimes_left_whole() -> None:
    seed = json.dumps({"a": [1, 2, 3]}).encode()
    cases: list[bytes] = []
    by_structure.run(target(cases.append, damaged((seed,))), 200, 1)
    assert seed in cases
    assert len(set(cases)) > 100
