# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of Ansible's log is a warning, and which of them fails a suite."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from suites import warnings_gate
from suites.results import Results

HEAD = "2026-11-22 00:28:02,432 p=13566 u=root n=ansible"
LOG = f"""\
{HEAD} WARNING| [WARNING]: web1 keeps its memory in a file on kvm1, and a move copies
all of it.

{HEAD} INFO| kvm1 | SUCCESS => {{
    "msg": "[WARNING]: no warning, but a task's result"
}}
{HEAD} WARNING| [DEPRECATION WARNING]: Importing from there is deprecated.

{HEAD} INFO| ok: [kvm1]
"""
OURS = "web1 keeps its memory in a file on kvm1, and a move copies all of it."
DEPRECATION = "[DEPRECATION WARNING]: Importing from there is deprecated."


def failures(log: str, *expectations: str) -> list[str]:
    results = Results("integration")
    warnings_gate.check(results, "kvt", log, [re.compile(one) for one in expectations])
    assert results.passed + results.failed == 2
    return results.failures


def test_wrapped_warnings_are_found_as_one_line() -> None:
    assert list(warnings_gate.warnings_in(LOG)) == [OURS, DEPRECATION]


def test_expected_warnings_pass() -> None:
    assert failures(LOG, r"\S+ keeps its memory in a file", r"\[DEPRECATION WARNING\]: Importing") == []


def test_an_unexpected_warning_fails_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures(LOG, r"\S+ keeps its memory in a file") == [f"kvt: Ansible warned of nothing but what expected-warnings.txt names, but: {DEPRECATION}"]
    assert f"kvt: Ansible warned 1 times: {DEPRECATION}\n" in capsys.readouterr().out


def test_an_expectation_must_match_the_beginning_of_a_warning() -> None:
    assert len(failures(LOG, "keeps its memory", r"\[DEPRECATION")) == 1


@pytest.mark.parametrize("log", ["", "Traceback (most recent call last):\n"])
def test_an_empty_log_fails_the_gate(log: str) -> None:
    assert failures(log) == ["kvt: Ansible logged its runs"]


def test_scenarios_that_run_no_playbook_may_have_an_empty_log() -> None:
    results = Results("suite")
    warnings_gate.check(results, "some", "", [], runs_ansible=False)
    assert (results.passed, results.failures) == (1, [])


def test_the_file_of_expectations_may_have_comments(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "expected-warnings.txt"
    path.write_text("# of the lab\n\nThe lab: \\S+ is new\n")
    assert [one.pattern for one in warnings_gate.expected(path)] == [r"The lab: \S+ is new"]


def test_the_expectations_of_the_suites_can_be_read() -> None:
    assert all(one.pattern for one in warnings_gate.expected())


def test_ansible_writes_its_warnings_to_its_log(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "ansible.log"
    environment = {**os.environ, "ANSIBLE_LOG_PATH": str(log), "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_LOCALHOST_WARNING": "true"}
    argv = [pathlib.Path(sys.executable).with_name("ansible"), "-i", "one,", "nobody", "-m", "ansible.builtin.ping"]
    subprocess.run(argv, env=environment, check=True, capture_output=True, timeout=120)
    assert "No hosts matched, nothing to do" in list(warnings_gate.warnings_in(log.read_text()))


@pytest.mark.parametrize(("log", "code"), [(f"{HEAD} INFO| ok: [kvm1]\n", 0), (LOG, 1), ("", 1)])
def test_the_gate_can_check_a_single_log(tmp_path: pathlib.Path, log: str, code: int) -> None:
    path = tmp_path / "demo.log"
    path.write_text(log)
    assert warnings_gate.main(str(path)) == code
